"""What operators mean beside their usual calls: every argument, every form of an index, and what may not be simplified.

* ``windows``: convolutions, pooling, padding, resizing; ``reductions``: sums, extremes, norms, products;
* ``functions``: activations, arithmetic, comparisons, losses;
* ``selections``: reads and writes by index, orders, joins and parts; ``identities``: rewrites that do not hold;
* ``slopes``: the gradient of each argument, at kinks and ties as well;
* ``values``: numbers at which functions are exact, far from zero or not finite, and places of each kind;
* ``smallest``: tensors without dimensions, without elements and without a batch, and values that are refused;
* ``attributes``: arguments that are no tensors, in pairs;
* ``inputs`` and ``orders``: how inputs and results lie in memory;
* ``unusual``: dtypes, sizes and arguments that compilers treat apart;
* ``seldom``: numbers, forms of places and layers that programs ask for seldom;
* ``operands``: operands of any dimensions and types, and rare arguments of layers, losses and attention;
* ``rare``: operators that few programs have.
"""
