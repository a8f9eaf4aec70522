"""What was compiled, in files: ``torchmux.save``, ``torchmux.load``, ``torchmux.precompile``, ``torchmux.artifacts``.

A file is written from what the frontend and the backends have made, and read without either tracing or compiling:

* ``saving``: from a compiled callable to a file, or the reason why not,
* ``entries``: one captured frame: its guards, what its function loads and rebuilds, and its graph,
* ``frames``: the Python that follows a graph, what of it a file may hold, and as a function again,
* ``broken``: programs whose graphs break: the Python between their graphs is the user's own,
* ``paths``: sources and guards of the frontend as JSON,
* ``values``: constants, classes and functions as JSON, by name,
* ``state``: the tensors of a module and other values that a program reads besides its arguments,
* ``graphs``: compiled graphs as JSON: parts of backends by artifact, operators by name,
* ``buckets``: the graphs of ``auto`` with symbolic sizes, which have code for each range of sizes,
* ``operators``: which operators a file may name,
* ``machine``: what the machine must have that runs a file,
* ``container``: the bytes: a zip whose comment has the digest or signature of all before it; safetensors inside,
* ``shared_object``: native's graphs as a shared object with a C interface,
* ``c_interface``: the text of that interface,
* ``quantizing``: ``torchmux.quantize``: models in int8,
* ``loading``: from a file to a callable,
* ``loaded``: the callable,
* ``artifacts``: what was compiled, in files that the compilers' own tools read,
* ``blocks``: the layers that a model repeats, compiled once for all of them,
* ``precompiling``, ``command``: a program for several inputs ahead of its use, and the command that does it.

Importing this package imports none of these modules.
"""
