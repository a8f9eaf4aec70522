"""Small graphs called from C++, in place of the Python function ``run``.

* ``plan`` says, when a graph is compiled, what its ``run`` does, in numbers,
* ``extension`` has an extension module built in the background for graphs that are called often, and makes calls,
* ``calls.cpp`` follows plans, and ``runner.cpp`` does what the frontend does around a graph (:mod:`torchmux.sooner`).

Importing this package imports none of that.
"""
