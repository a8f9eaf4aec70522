"""Faults that an operator has in some circumstances only, where it is usually not tried.

* ``sizes``: where sizes are equal or change, operands are left out, or there are more dimensions than usual;
* ``integers``: whole numbers beside numbers of other kinds, and at their limits;
* ``precision``: in float64 and half precision; ``layouts``: on parts of tensors and on images in channels last;
* ``sequences``: behind another operator, with which a compiler joins it; ``derivatives``: when derived twice;
* ``process``: in what all of a process shares; ``calls``: in some calls, threads, sizes and programs of many;
* ``keys``: with keys that leave out what seldom differs;
* ``surroundings``: around calls, and on what others registered; ``programs``: around programs and their process;
* ``algebra``: in transforms, matrices, special functions, and for what generated code has limits;
* ``attributes``: with some values of arguments that are no tensors; ``slopes``: gradients of one argument;
* ``values``: at numbers where functions are exact, with tensors that are small or long, and with what operators refuse;
* ``chains``: what is computed in another order, kept in another precision or copied in between;
* ``effects``: in rarer writes and draws, under autocast, in gradients of unlike inputs;
* ``inputs``: where inputs lie in memory, in rarer draws, far from zero, after many calls;
* ``unusual``: with rare dtypes, sizes and layouts, behind others, and in threads that flush subnormal numbers.
"""
