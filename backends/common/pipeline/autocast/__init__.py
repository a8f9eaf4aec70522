"""What autocast means for graphs.

* ``inside``: casts inside of operators, which the tracer would not see,
* ``regions``: weights that autocast casts once for a region, as inputs of the graph,
* ``gradient``: such a cast in the graph, whose gradient goes to the weight,
* ``memory``: memory for these casts, used again in each region,
* ``buffers``: casts of large weights on a CPU, which eager gets too, and ``together``: those of all weights on a GPU.
"""
