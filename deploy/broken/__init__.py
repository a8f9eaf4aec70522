"""Programs whose graphs break, in files.

Between its graphs such a program runs as Python: that of the user's own modules, which a file names.  The file has each
captured frame with all of its guards, and where it ends; loading makes the code that goes on from there of the
functions that are found.

* ``names``: code objects by module and name,
* ``codes``: those of a program, and the rests of them after breaks,
* ``told``: what is written of the frames of a program,
* ``program``: the callable that a file becomes: the frame hook runs what the file has, and captures nothing.
"""
