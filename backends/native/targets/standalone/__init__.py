"""Code for the CPU that needs neither Python nor torch: what ``torchmux.save(format="so")`` is made of.

* ``graphs``: from a graph to one C++ namespace that runs it, or the operators that only torch has,
* ``assembler``: kernels and products of the CPU target, with plain convolutions instead of oneDNN's,
* ``host``: the host side of a graph as a C++ function,
* ``standalone.h``: memory, errors, and what torch's library does elsewhere: products, convolutions, mathematics,
* ``build``: the shared object.

Importing this package imports none of these modules.
"""
