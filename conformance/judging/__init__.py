"""When a case passes.

* ``oracle``: when a number is right;
* ``observation``: what a case shows, and how it compares with eager;
* ``judge``: which outcome that is.
"""
