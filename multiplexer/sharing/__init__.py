"""Candidates of ``auto`` for which several backends share the graph:

* ``splits``: chains and splits, from what the race of single backends has shown,
* ``segments``: a graph cut into a chain of pieces; in the process of eager,
* ``costs``: what a graph takes if its pieces go to several backends, with the crossings between them.
"""
