"""From a Relax function to code.

* ``build``: the passes of TVM in order, and an executable as bytes,
* ``schedule``: vectorized, parallel loops for each kernel that TVM has fused,
* ``indices``: divisions of indices in a form that TVM keeps right,
* ``fences``: products and quotients in their order,
* ``tuning``: better schedules looked for by measuring, if an option asks for it,
* ``tuner``: the process of its own in which that happens.
"""
