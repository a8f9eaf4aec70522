"""The CPU: C++ that calls BLAS, in one shared object for each graph.

When a graph is compiled, in this order:

* ``target`` answers what the CPU takes, and calls the rest,
* ``selection`` decides who computes products, convolutions and attention, with ``choosing_convolutions`` for what is
  measured ahead,
* ``module`` prints the shared object and the Python function that calls it, and kernels (``cpp`` walks them in
  rows, ``cpp_plain`` in rows of elements of other widths, ``cpp_columns`` in columns, ``cpp_tiles`` in squares, on top
  of ``tiles.h``) and ``cpp_sequential`` for loops in order; expressions are in ``cpp_scopes``, on top of ``kernels.h``,
* ``computed`` says which products compute their right operand while they read it (``computed.h``), and prints them,
* ``source`` is the text, whole or in pieces, ``build`` runs the compiler that ``toolchain`` finds.

When it is loaded: ``loading``, with ``libraries`` for shared objects, ``packing`` for constant weights, ``choosing``
for what is measured then (``gemm.h``, on top of ``blocks.h``, has the kernels that compete with the library's products,
``convolution.h`` with its convolutions), and ``attention_kernel``.  ``calls`` has small graphs called from C++.
``casting`` rounds weights for autocast.

Importing this package imports none of that.
"""
