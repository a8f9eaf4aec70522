"""The frontend: Python bytecode in, guarded graphs out.

``api`` is its front door: ``compile`` returns what ``compiled`` makes, a callable or module that runs the original with
the hook on; ``callee`` stands in for callables without a Python frame.  What happens from there on is the order of this
map.  Each room (a folder) has a map of its own.

*Hook.*  CPython asks ``hook`` about each frame that is about to run.  If the guards of an entry hold, the code of that
entry runs.  Otherwise ``hook/frames`` decides: the frame is captured, or runs as it is.  What the program says about
its own functions and tensors stands in ``marks``.

*Capture.*  ``capture/capture`` takes the frame and makes attempts (``capture/attempts``).  Each attempt is one trace
under certain assumptions.  If an assumption turns out wrong, because the graph breaks, say, or because a size has to be
symbolic, the trace is thrown away and the next attempt begins under others.

*Interpreter.*  ``bytecode`` turns the raw instructions of each CPython version into one instruction set, and
``interpreter`` runs them symbolically: it has the frames, the stack, the blocks and the exceptions, and inlines calls.

*Values.*  What stands on that stack are ``values``: one class for each kind of Python object, which knows how it is
called, indexed, iterated and rebuilt.  A call is answered by ``handlers``, if there is one for the function; by
``polyfills``, which are plain Python that is traced in place of C; or by tracing the function itself.  Functions that
take functions, such as ``torch.cond`` or ``torch.vmap``, are in ``higher_order``.

*Trace.*  ``trace`` is the state of an attempt.  Its reader turns objects of the program into values and notes what must
stay true of them; its recorder writes operators into the graph and runs them on fake tensors; its effects are changes
to what outlives the frame, to be repeated after the graph.  ``sizes`` decides which sizes are symbolic.

*Guards.*  ``guards`` holds where a value comes from (its source) and what must be true of it (its guard).  It writes
the check that runs before each later call, and takes snapshots of whole modules, so that most of it is one look.

*The frame's replacement.*  ``capture/finish`` closes the graph of the attempt that came through, has
``capture/backend_call`` hand it to the backend, and writes a readable Python function (``capture/frame_writer``): it
loads the inputs, runs the compiled graph, repeats the side effects and rebuilds the result.  A trampoline
(``bytecode/trampoline``) calls that function in place of the frame and resumes it after a graph break.

*Around it.* ``default_backend`` chooses for a call that names none. ``callee`` is the function that stands in for a
callable without one. ``breaks`` is the catalogue of what ends a graph. ``explain`` has reports, ``report_data`` is what
they are as plain data, ``export`` makes one graph with its guards, and ``exported_program`` what ``torch.export`` makes
of it. ``logs`` prints what ``TORCHMUX_LOGS`` asks for, ``regions`` knows which backends the program pins its blocks to,
and ``unwrap`` finds what others have wrapped.

Imports go one way: ``torchmux``, ``frontend``, ``registry``.  The frontend names no backend: a graph leaves it through
``registry.resolve``.  Private names of torch stand in ``torchmux.torch_internals``.
"""
