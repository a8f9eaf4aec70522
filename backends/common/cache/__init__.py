"""Compiled code on disk, filed under all that it depends on.

* ``versions``: what a backend compiles with and for, as part of a key,
* ``keys``: the names of artifacts: hashes of everything that determines them,
* ``cache``: the store of bytes: atomic, checked, private to its owner,
* ``fleet``: the store behind it that machines share, signed,
* ``addresses``: the files there: a folder, or whatever fsspec knows,
* ``turns``: one process compiles, and the others wait for what it stores,
* ``code_or_refusal``: what is filed of one compiled part: its code, or which of its nodes the compiler refuses,
* ``recipes``: what is filed of a whole captured graph, so that a later process need not trace it,
* ``training``: the same of a graph that records gradients, with its backward pass,
* ``listing``: operators and arguments as JSON, of which recipes are made,
* ``artifacts``: all that this process has used, as bytes for another machine.
"""
