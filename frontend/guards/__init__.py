"""What compiled code takes for granted, and how that is checked before the code is used again.

In the order in which data flows:

* ``sources``: where a value came from, one class for each step (``Local``, ``Attr``, ``Item``, ...).
* ``cached_results``: two more, for what cached functions return.
* ``kinds``: what is taken for granted of a value, one class for each kind of guard (``TypeIs``, ``Length``, ...).
* ``forms``: what tensors that consist of others are made of, in a form that can be compared.
* ``closed``: the base of both.  Every class answers all questions itself, or cannot be declared.
* ``guards``: the guards of one trace, and what is checked of tensors, sizes and torch's global state beside them.
* ``filter``: ``guard_filter_fn``, by which a user drops guards.
* ``loader``: prints sources and constants into the code of a generated function.
* ``check``: the generated function that checks everything, and the sentence that says which guard failed.
* ``refusals``: one check for calls that none of several entries holds for.
* ``ways_out``: what a user reads when code is compiled too often: the guard, the values seen, and what to change.
* ``write_watch``: whether objects and dictionaries were written to, for a few nanoseconds each.
* ``tensor_words``: the same for what guards ask of a tensor.
* ``stable_objects``: what of a program's objects stays as it is while a watch sees no write.
* ``reach``: whether parts of an object can be kept without keeping it.
* ``stable_paths``: which sources and guards of a trace depend on nothing else.
* ``plain_call``: whether a call of a module comes to nothing but its ``forward``.
* ``snapshot``: a check that asks the watch once in place of all those guards.
"""
