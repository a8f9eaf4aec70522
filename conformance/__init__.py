"""Every backend against eager.

* ``case`` and ``observation``: what a case is, and comparing what it shows;
* ``oracle``: when a number is right;
* ``semantics`` and ``operators``: the cases, ``collect`` gathers them;
* ``requirements``: what a backend claims; ``outcome``: what can become of a case; ``judge`` says which;
* ``runner`` and ``worker``: many cases in processes of their own; ``report``: what they found;
* ``loopback``: backends that are wrong on purpose, to try the suite.
"""
