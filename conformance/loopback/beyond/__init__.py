"""Faults beyond what usual programs reach, and beyond what rewrites may take for what they know.

* ``counts``: with some counts of threads, programs, dimensions and elements, in some ranges and under some settings;
* ``reach``: beyond some numbers of elements, bytes, calls, seconds, threads and processes, and in inputs that lie or
  change places as few do;
* ``forms``: in operands and arguments of forms that are seldom tried;
* ``operands``: with operands of some dimensions and types, rare arguments, and behind turns, tables and layers;
* ``patterns``: in what only looks like attention, a norm, an activation or a layer.
"""
