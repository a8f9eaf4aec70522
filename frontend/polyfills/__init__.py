"""Builtins and C helpers written in plain Python, for the interpreter to trace like user code.

What they have in common:

* **Laziness and order are the original's.** `map` calls its function when asked for an item, `zip` stops at the first
  exhausted argument and has then consumed the ones before it, `any` stops at the first true item.
* **Iterators are classes, not generators.** A generator that lets an exception through is finished and turns a
  StopIteration of user code into a RuntimeError; `map` and its kin go on. Also, an instance with plain attributes can
  be rebuilt after a graph break, which the frame of a generator cannot.
* **Errors have the type and the words of the original**, those of the running Python version where they differ.

The polyfills lean on what the interpreter does itself: one-argument `iter`, `next`, `len`, `range`, the constructors of
containers, the methods of `list`, `dict` and `set` that only store, look up or remove.
"""

from . import (
    builtins_,
    collections_,
    combinatorics,
    containers,
    contexts,
    functools_,
    itertools_,
    mappings,
    operator_,
    sets,
)
from .tables import INSTANCE_POLYFILLS, METHOD_POLYFILLS, POLYFILLS, STANDS_FOR, lookup

__all__ = [
    "INSTANCE_POLYFILLS",
    "METHOD_POLYFILLS",
    "MODULES",
    "POLYFILLS",
    "STANDS_FOR",
    "lookup",
]

# The interpreter takes no guards on the globals of these modules: nobody changes them.
MODULES = (
    builtins_, collections_, combinatorics, containers, contexts, functools_, itertools_, mappings, operator_, sets,
)  # fmt: skip
