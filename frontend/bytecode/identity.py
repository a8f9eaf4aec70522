"""A cache keyed by the code object itself.

Code objects compare by value, and two functions with equal bytecode are still two functions, so a plain (weak) dict
would mix them up, and hash the whole code on every look-up.
"""

import weakref


class CodeMap:
    """Maps code objects to values by identity; an entry goes when its code object does."""

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

    def __len__(self):
        return len(self._entries)
