"""Several backends for one program: chains, in which each part goes to the first that takes it, and ``auto``, which
measures.

Chains, ``backend=["openvino", "native"]``:

* ``members``: which backends a chain has, with which options, and which of them can run here,
* ``chain``: ``backend=[...]`` resolved; a captured graph on its way through a chain, with pins,
* ``team``: several backends as one implementation, which the pipeline traces a graph for,
* ``split``: a traced graph split among the members, each part compiled by its member's own pipeline,
* ``crossings``: what passes between the parts.

``auto``, in the order in which a graph goes through:

* ``auto``: the backend itself; eager until the decision falls, then what was chosen,
* ``candidates``: which backends are measured, with which options, and why others are not,
* ``parcel``: a captured graph and its inputs in a file, for other processes,
* ``surroundings``: the settings that go along, and everything that a backend must leave as it is,
* ``measure``: one measurement, from candidates to a decision,
* ``admission``: which candidates may race: each compiles and runs, and the referee judges what comes out,
* ``births`` and ``nursery``: how the process of a candidate begins, seen from the program, and what forks it,
* ``workers`` and ``worker``: the process of a candidate, from outside and inside; that of eager is the referee,
* ``trial``: runs of a graph's code, with all that they show: results, inputs, gradients, random state,
* ``leaks``: what calls leave behind, turn after turn,
* ``timing``: the race in turns, with a sequential test that settles the ranking,
* ``sharing``: what follows the race of single backends: chains and splits, in which several share the graph,
* ``decisions``: what was decided and why, as data that are kept, shared, exported and imported.

The multiplexer works on backends through the registry, and with what ``backends.common`` offers to all; numbers are
judged by the oracle of ``conformance``.  It imports no backend.  The registry names it by strings and an entry point.
Importing this package imports neither torch nor any of these modules.
"""

from __future__ import annotations

from torchmux.registry.spec import ANY, BackendSpec

from .options import MODES, AutoOptions

SPEC = BackendSpec(
    name="auto",
    summary="measures the available backends on each graph, and uses the quickest that is right",
    load="torchmux.multiplexer.auto:Auto",
    graph="torch",
    training=True,
    dynamic_shapes=True,
    devices=(ANY,),
    dtypes=(ANY,),
    options=AutoOptions,
    modes=MODES,
    priority=-500,
)
