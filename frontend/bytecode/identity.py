"""A cache keyed by the code object itself.

Code objects compare by value, but two functions with equal bytecode are still two functions.  A plain (weak) dict would
confuse them, and would hash the whole code on every look-up.
"""

import weakref


class CodeMap:
    """Maps code objects (or other objects that can be referred to weakly) to values by identity.

    An entry goes when its key does.
    """

    __slots__ = ("_entries",)

    def __init__(self):
        self._entries = {}

    def get(self, code):
        """The value kept for ``code``, or None."""
        entry = self._entries.get(id(code))
        return entry[1] if entry is not None else None

    def set(self, code, value):
        """Keep ``value`` for ``code``; it must not refer to ``code``, or neither would ever go."""
        key, entries = id(code), self._entries
        entries[key] = (weakref.ref(code, lambda _: entries.pop(key, None)), value)

    def keys(self):
        """The code objects that are still there."""
        found = (reference() for reference, _ in list(self._entries.values()))
        return [code for code in found if code is not None]

    def values(self):
        """What is kept for them."""
        return [value for _, value in list(self._entries.values())]

    def clear(self):
        self._entries.clear()

    def __len__(self):
        return len(self._entries)
