"""The loop IR: what a graph is between ATen and code.

From the ground up:

* ``index`` is the algebra of positions: polynomials over loop variables and sizes,
* ``expressions`` are scalar expressions, the buffers that they read, and statements over index spaces,
* ``operation_table`` says of each operation its types, its cost, and how targets spell it,
* ``ranges`` are what integers can be, whatever memory holds,
* ``operations`` makes expressions, and simplifies them,
* ``values`` are tensors while a graph is lowered: shapes with a way to compute any element,
* ``layout`` says in which order a value lies in memory where nothing prescribes it,
* ``ordered_loops`` are loops whose order matters: cumulative sums, and writing where data says,
* ``sizes`` are torch's symbolic sizes as positions, with names for what windows leave of them,
* ``program`` lists what is computed: statements, calls of torch's operators, and
* ``products``: products of matrices, convolutions and attention, whoever computes them,
* ``uses`` tells who reads and writes the buffers of a program,
* ``forms`` are the questions that lowering asks of a target,
* ``verify`` checks that all of these are well formed.

This knows no operator of ATen and no machine.
"""
