"""Measurements spread over a cluster, for ``torchmux tune``.

* ``capture``: the graphs of a program, with their inputs, as data for other machines,
* ``job``: what a worker of the cluster does: it says what it is, and measures eager and some candidates,
* ``spread``: jobs for every kind of machine in a Dask cluster, and what is kept of an interrupted run,
* ``join``: one decision from the jobs of one graph on one kind of machine.

Times of different workers are never compared, only their ratios to eager's time on the same worker.
"""
