"""Small graphs called from C++, in place of the Python function ``run``.

* ``plan`` says, when a graph is compiled, what its ``run`` does, in numbers,
* ``extension`` has an extension module built in the background for graphs that are called often, and makes calls,
* ``calls.cpp`` follows plans; ``runner.cpp`` and ``caller.cpp``, on top of ``held.h``, do what the frontend does around
  a graph, and from a call to its code (:mod:`torchmux.sooner`).

Importing this package imports none of that.
"""
