"""GPUs, by kernels in Triton, which Triton's interpreter runs on the CPU as well.

* ``target`` is the class, ``selection`` who computes products, ``loading`` what loads and launches,
* ``loops`` plans the loops of a kernel, ``shapes`` the sizes of its blocks,
* ``module`` prints the kernels of a graph and the function that launches them, ``gpu_host`` that function for a GPU,
* ``compiling`` has kernels compiled by processes (``worker``), ``driver`` loads and launches machine code,
* ``tiled`` are products of matrices and convolutions that a kernel finishes before it stores them,
* ``beside`` makes one kernel of several small ones,
* ``printer`` prints kernels, with ``folds`` for reductions and ``onepass`` for two of them in one loop,
* ``ordered`` prints loops whose order matters,
* ``scopes`` writes expressions and memory accesses, over the ``axes`` of blocks,
* ``functions`` is what kernels call, and ``mathematics`` is CUDA's library of functions, which is ``simulated`` under
  Triton's interpreter.

Only the last three and ``worker``, and kernels when they are loaded, import Triton.
"""
