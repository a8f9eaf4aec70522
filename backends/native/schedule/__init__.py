"""From a program to what runs, and in which order.

* ``reinplace`` settles which inputs are overwritten in place, and an order in which that is right,
* ``recompute`` lets readers compute what is cheaper than memory; ``inlining`` puts it there,
* ``splits`` makes two reductions of one that keeps too few multiprocessors busy,
  ``rows_together`` where rows have too few columns to fill vectors,
* ``schedule`` fuses the statements of a program into kernels, and orders these and everything else,
* ``kernel`` are statements that share their loops, and when two kernels can be one,
* ``tiles`` chooses which loops of a kernel are walked in vectors and in squares, ``stages`` arranges its passes over
  its rows,
* ``unroll`` writes short loops out, so that rows of a few elements are computed for a vector of rows at once,
* ``rounding`` tells where what a kernel writes is rounded so much that its functions may be less exact,
* ``together`` finds small kernels that one launch runs side by side,
* ``placement`` finds results that can lie in the same place, ``memory`` the places of what torch never sees,
* ``host`` is what the function that runs the graph does, in neutral steps,
* ``verify`` checks kernels, schedules and stages.

A target says how much a kernel may keep, prints the stages and the steps, and is not known here.
"""
