"""Runs real models through every available backend.

* ``models`` builds the models, with random weights,
* ``trial`` runs one model through one backend and checks the result.
"""
