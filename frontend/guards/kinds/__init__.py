"""All kinds of guard, by what they are about; each is one class.

``guard.py`` says what a guard is.  The kinds: ``objects`` (identity, class, attributes), ``equality`` (constants),
``numbers``, ``containers``, ``iterators``, ``classes``, ``functions``, ``modules``, ``tensors``, ``frames``.
"""
