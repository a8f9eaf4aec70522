"""A kit for backends whose runtime is somebody else's: take what fits, in the order in which an adapter needs it.

* ``options``: options that several backends have,
* ``support``: what ``supports`` refuses for every runtime, what stays whole, what a runtime is asked once and for all,
* ``attention``, ``formulas``: decompositions that keep the digits and the nans that runtimes' own would lose,
* ``graphs``: small surgery on a part before it is handed over: copied, frozen, its constants made inputs,
* ``constants``: parameters as constants of the code, watched for writes,
* ``indices``: which inputs are indices, and their limits: torch raises beyond them,
* ``results``, ``binding``: inputs and outputs in torch's memory, with the strides of eager,
* ``bugs``: a compiler's refusal told from a bug of the adapter,
* ``check``: what a runtime computes compared with torch, and the nodes to blame found.

The cache's side of an adapter is ``..cache.code_or_refusal``.
"""
