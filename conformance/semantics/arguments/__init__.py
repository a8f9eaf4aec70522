"""What operators mean beside their usual calls: every argument, every form of an index, and what may not be simplified.

* ``windows``: convolutions, pooling, padding, resizing; ``reductions``: sums, extremes, norms, products;
* ``functions``: activations, arithmetic, comparisons, losses;
* ``selections``: reads and writes by index, orders, joins and parts; ``identities``: rewrites that do not hold;
* ``rare``: operators that few programs have.
"""
