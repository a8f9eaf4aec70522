"""The hook: whether a frame that is about to run under a compiled callable is captured, and what runs in its place.

In the order in which a frame passes through:

* ``frames``: answers the hook in C, which asks about each frame that has no compiled code whose guards hold.
* ``direct``: calls that go past the hook, into the one entry of a function.
* ``links``: from one piece of a broken function to the next, past the hook as well.
* ``torch_tracer``: what torch's own tracer told the hook about code of programs, which is asked about again.
* ``library``: whose code it is: a user's, which is captured, or a library's, which runs as it is.
* ``recompiles``: whether code that was compiled before may be compiled again.
* ``eager_policy``: what is left to eager, because it has too little to compute for a graph.
* ``vain``: what is remembered of captures that came to nothing, so that calls do not try again in vain.
* ``entries``: what the hook in C is told, and what it keeps of a captured frame.
* ``session``: what equal ``compile()`` calls share, and the record of what ran under one compiled callable.
* ``calls``: which calls ran compiled code, which ran in eager, and why.
* ``thread_state``: what each thread is doing, and the lock under which frames are captured.
* ``interrupts``: Ctrl-C, kept until nothing is half done.
"""
