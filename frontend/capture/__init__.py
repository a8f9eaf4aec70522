"""Capture: from a frame to a graph, a compiled callable and the code that replaces the frame.

In the order in which a frame passes through:

* ``capture``: one frame, from its first attempt to what replaces it.
* ``attempts``: what each attempt takes for granted, why it starts again, and the loop that makes them.
* ``assumed_branches``: branches that only raise, which the trace assumes are not taken.
* ``failures``: graphs that fail where the program could tell, whose calls start again in eager.
* ``random_operators``: which operators of a graph may draw random numbers.
* ``finish``: closes the graph of the attempt that comes through, has it compiled, and writes the code.
* ``ending``: how captured code ends, and goes on.
* ``frame_writer``: the Python function that runs in place of a frame: inputs, the graph, side effects, the result.
* ``backend_call``: hands a graph to the backend, and says where it failed.
* ``buckets``, ``pieces``: where a graph inside `DistributedDataParallel` is split, and what its pieces are.
* ``verify``: holds what a backend made against eager, under ``config.verify_correctness``.
* ``reproducer``: writes a program that shows the failure of a backend.
* ``captured``: what became of a frame, and what is remembered of its code for later captures.
* ``tracebacks``: gives exceptions that leave compiled code the traceback that they have in eager.
"""
