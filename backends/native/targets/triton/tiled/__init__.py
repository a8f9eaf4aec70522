"""Products and convolutions in kernels of our own, which finish each element before they store it.

* ``candidates`` finds what could be one kernel, with ``operands`` for what its blocks read,
* ``sharing`` finds small products of one operand, which may run side by side, and ``divided`` such of many terms,
* ``choosing`` says who computes what was found, by the ``model`` of a GPU, or by ``measuring`` both ways,
* ``printing`` prints the kernel.
"""
