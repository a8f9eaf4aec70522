"""Marks: what a program says about its own code and tensors before they are captured.

* ``function_marks``: functions that stay out of graphs, enter them whole, break them, or have a substitute.
* ``tensor_marks``: dimensions that are dynamic, static or of unknown size.
* ``shapes_spec``: sizes of the arguments, as the ``compile()`` call says them.
* ``placement``: submodules that are pinned to backends by their paths.
* ``stance``: what compiled callables do, in the whole process, about code that would have to be compiled.

The hook asks for the first and the last, :mod:`~torchmux.frontend.sizes` for the second and the third.
"""
