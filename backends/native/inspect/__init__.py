"""Telling a reader what became of a graph.

* ``hints`` says what was fused, what was not and why, and what keeps a graph from being faster,
* ``tracing`` writes the files of ``trace.enabled``,
* ``diagram`` draws the fused graph.
"""
