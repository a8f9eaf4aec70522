"""From a captured graph and an implementation to a callable with a report, in the order in which a graph goes through.

* ``pipeline``: :func:`~.pipeline.compile_graph`, which the registry calls, and what happens to a captured graph,
* ``implementation``: the contract's optional members filled in; the only module that looks for them,
* ``lines``: the user's line of each node, noted before tracing loses it,
* ``aot``: the captured graph traced to functional ATen graphs, by ``make_fx`` or by torch's AOTAutograd,
* ``autocast``: weights that it casts once for a region, and casts inside of operators,
* ``tangents``: backward graphs that come when gradients do, for the gradients that there are,
* ``saved``: what a forward graph saves for its backward graph: tensors rather than views of them,
* ``derivatives``: what compiled code cannot be differentiated for, which torch computes from the captured graph,
* ``overlap``: writes to tensors that overlap themselves, which leave the graph to torch,
* ``decompose``: which operators are taken apart while tracing, and which stay whole,
* ``lower``: a graph for several backends traced again, down to what one of them asks for,
* ``parts``: one ATen graph compiled; it calls the modules from here on,
* ``simplify``, ``floats``, ``symbols``: the graph made easier: dead writes, floats as tensors, arithmetic on sizes,
* ``aliasing``: which nodes are views, share memory or write, and views among the results split off,
* ``partition``: the nodes that the backend supports, in as few parts as there can be, and who writes to inputs,
* ``assemble``: a part as a graph of its own, and everything as one function again,
* ``promises``: what torch's operators return, held against what the trace says of it,
* ``placing``: where each operator ended up, for the report, for ``strict`` and for the log,
* ``runtime``: what surrounds compiled code in a call.
"""
