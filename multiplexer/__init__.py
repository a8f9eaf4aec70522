"""Several backends for one program: chains, in which each part goes to the first that takes it.

* ``members``: which backends a chain has, with which options, and which of them can run here,
* ``chain``: ``backend=[...]`` resolved; a captured graph on its way through a chain, with pins,
* ``team``: several backends as one implementation, which the pipeline traces a graph for,
* ``split``: a traced graph split among the members, each part compiled by its member's own pipeline,
* ``crossings``: what passes between the parts.

It works on backends through the registry, and with what ``backends.common`` offers to all; it imports no backend.  The
registry names it by strings, and imports it when the first chain is asked for.
"""
