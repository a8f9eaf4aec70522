"""What autocast means for graphs.

* ``inside``: casts inside of operators, which the tracer would not see,
* ``regions``: weights that autocast casts once for a region, as inputs of the graph,
* ``buffers``: memory for these casts, used again in each region.
"""
