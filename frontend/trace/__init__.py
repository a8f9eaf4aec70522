"""The trace: one attempt to capture one frame.

The class in ``trace`` holds the attempt together.  It starts the interpreter on the frame and offers everything that
the code being interpreted needs, as the protocol in ``tracer``: values, handlers and higher-order code know that
protocol and nothing else of this room.  Each topic of the protocol has one class that implements it, and the trace
inherits them all:

====================  ================  ===================================================================
protocol              implemented in    what it is
====================  ================  ===================================================================
``tracer.Reading``    ``reader``        existing objects become values, and what is read is guarded
``tracer.Recording``  ``recorder``      operators go into the graph; fake tensors tell their results
``tracer.Symbols``    sizes.symbolic    sizes and numbers that are symbols in the graph
``tracer.Operating``  ``operators``     ``+``, ``==``, ``is_instance()``, ``convert()`` and the like on values
``tracer.Running``    ``trace``         frames, calls, arguments, exceptions of the program
====================  ================  ===================================================================

Beside them:

* ``namespaces`` reads and writes globals; ``shared_cells`` guards which functions share variables with the frame;
* ``effects`` collects what the program changed outside its frame;
* ``expectations`` takes branches for granted that only raise;
* ``with_numbers`` records operators that take numbers which the graph reads from tensors;
* ``subclasses`` has the values of tensors that consist of others, and ``desugar`` records operators on them, as
  operators on those, unless they need gradients;
* ``enumerations`` guards what is computed with members of enumerations;
* ``operator_table`` lists Python's operators with their special methods;
* ``attention_switches`` follows the global switches that the program sets, ``autocast_regions`` leaves autocast as it
  was where a graph fails;
* ``defaults`` has the dtype and the device that the program sets as defaults for new tensors;
* ``protocols`` asks objects for the members of a protocol;
* ``overlap`` and ``same_tensor`` tell whether tensors share memory, or are one object.

A trace is thrown away when it breaks or has to assume something else; the room "capture" decides what comes next, and
its frame writer (the protocol ``tracer.FrameWriter``) writes the function that replaces the frame.
"""
