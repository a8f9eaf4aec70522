"""GPUs, by kernels in Triton, which Triton's interpreter runs on the CPU as well.

* ``target`` is the class, ``loading`` what loads and launches,
* ``module`` prints the kernels of a graph and the function that launches them,
* ``printer`` prints kernels, ``ordered`` loops whose order matters, both with ``scopes``, which writes expressions,
* ``functions`` is what kernels call.

Only ``functions``, and kernels when they are loaded, import Triton.
"""
