"""Real models through every backend that is available.

* ``models`` makes the models, with random weights,
* ``trial`` runs one model through one backend and judges the result.
"""
