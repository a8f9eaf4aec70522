"""Sizes: which sizes and numbers are symbolic, and what the graph and its guards make of them.

In the order in which an input passes through:

* ``dynamic``: the decision: what was seen to change, was marked, or was asked for is symbolic.
* ``shape_env``: how an input is presented to torch's ShapeEnv, and the guards that it derives.
* ``algebra``: arithmetic that torch's symbols do not have.
* ``recurrent``: layers that take one length of a sequence.
* ``read_numbers``: numbers that a graph reads from tensors, as the functions that stand in it.
* ``symbolic``: symbols as inputs of the graph, as values of the trace, and as constants where a program needs those.
"""
