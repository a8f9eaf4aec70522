"""When a case passes.

* ``frontends``: what captures programs; ``calls``: what each call of a compiled function shows;
* ``state``: what the process shares; ``namespaces``: what modules and classes consist of; ``process``: what Linux says;
* ``shown``: all that a run shows, and how it differs from eager's;
* ``referee``: eager's answers; ``silence``: what torch runs without a word; ``judge``: which outcome that is;
* ``verifying``: ``torchmux.verify``, which judges a user's program stage by stage.
"""
