"""What the program's calls run under ``auto``, before and after a decision.

* ``chosen``: the code of one graph: eager, then the quickest candidate so far, then what is chosen, and the next of the
  ranking if that fails,
* ``code``: a graph compiled by one candidate, in the call or off it,
* ``background``: threads that measure and compile off the calls, and end with the program,
* ``remembered``: what a later compilation needs to know of a call's inputs,
* ``effects``: what a call does besides returning results, and how that is undone,
* ``watch``: calls that fail although eager does not, and calls that have become slow,
* ``buckets``: graphs with symbolic sizes, which have a decision for each range of sizes.
"""
