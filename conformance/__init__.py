"""Every backend against eager.

* ``case``: what a case is; ``oracle``: when an answer is right; ``judging``: what a case shows, and its outcome;
* ``semantics``, ``life``, ``models``, ``operators`` and ``pairs``: the cases, ``collect`` gathers them;
* ``requirements``: what a backend claims; ``known``: what is known to fail; ``outcome``: what can become of a case;
* ``runner`` and ``worker``: many cases in processes of their own; ``spread``: on many machines;
* ``report`` and ``page``: what they found;
* ``reproducer`` and ``literals``: a script for each failure; ``minify``: the smallest graph that still fails;
* ``suite`` and ``plugin``: all of it as tests of a third party, run by pytest; ``scores``: what is published;
* ``loopback``: backends that are wrong on purpose, to try the suite.
"""

SUITE_VERSION = "34"
"""Raised when a case is added or changed, or the oracle: results of different versions do not compare."""
