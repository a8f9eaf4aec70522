"""What programs do with compiled code: train with it, change modules between calls, compile almost the same again.

* ``derivatives``: gradients at zeros and around writes, and the engine; ``modules``: layers with memory, and changes;
* ``keys``: programs and calls that differ in one thing; ``lives``: how long inputs, results and gradients live;
* ``joins``: operators behind others, with which compilers join them; ``chains``: what they do to many in turn;
* ``patterns``: what is nearly an operator; ``recipes`` and ``sequences``: two operators in a row, as networks
  have them;
* ``effects``: rarer writes and draws, casts by mode, gradients of unlike inputs, and calls that differ in one thing.
"""
