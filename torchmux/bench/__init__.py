"""One program under several backends, side by side: the measurements of ``torchmux bench`` and ``benchmarks/auto.py``.

* ``sides``: what is compared, as the command line writes it: backends, modes, options, chains,
* ``programs``: what runs: a workload or architecture of the zoo, a user's function, a script's compiled calls,
* ``script``: which calls a script compiles, and their arguments,
* ``measure``: one measurement, seen from outside: processes, the gate, turns,
* ``worker``: the process of one side,
* ``runs``: one run of a program with all that it shows, also in float64,
* ``memory``: what a process takes,
* ``latency``: distributions, and ratios with their confidence intervals,
* ``results``: what was measured, as data and as JSON,
* ``plot``: the same as a picture.

The processes are those of ``torchmux.multiplexer``, and the gate is its oracle; but what runs is a whole program under
``torchmux.compile``, not one captured graph, so that guards, graph breaks and what eager runs between them count.
"""
