"""From a part of a graph to a function of Relax, TVM's language for whole graphs.

* ``translate``: a part as a Relax function; asks TVM's own PyTorch frontend, but for what it has wrong,
* ``handlers``: what that frontend has wrong or not at all, operator by operator,
* ``library``: calls of torch's kernels from Relax, for matrix products, convolutions, attention and indexing,
* ``mathlib``: elementary functions in arithmetic that vectorizes.
"""
