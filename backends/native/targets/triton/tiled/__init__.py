"""Products and convolutions in kernels of our own, which finish each element before they store it.

* ``candidates`` finds what could be one kernel, with ``operands`` for what its blocks read,
* ``choosing`` says who computes a candidate, by a model, or by ``measuring`` both ways,
* ``printing`` prints the kernel.
"""
