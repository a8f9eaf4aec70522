"""Builtins and C helpers written in plain Python, for the interpreter to trace like user code.

What they have in common:

* **Laziness and order match the original.** `map` calls its function when an item is requested, `zip` stops at the
  first exhausted argument after consuming an item from those before it, and `any` stops at the first true item.
* **Iterators are classes, not generators.** An exception ends a generator, and a generator turns a StopIteration of
  user code into a RuntimeError; `map` and similar iterators continue. An instance with plain attributes can also be
  rebuilt after a graph break, but the frame of a generator cannot.
* **Errors have the type and the text of the original**, in the running Python version.

The polyfills rely on what the interpreter does itself: one-argument `iter`, `next`, `len`, `range`, the constructors of
containers, the methods of `list`, `dict` and `set` that only store, look up or remove.
"""

from . import (
    builtins_,
    collections_,
    combinatorics,
    containers,
    contexts,
    functools_,
    heapq_,
    itertools_,
    mappings,
    operator_,
    paths,
    patterns,
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

# The interpreter adds no guards on the globals of these modules: they never change.  Those of torch, which are
# ``autograd_``, ``optim_`` and ``statistics_``, are imported where they are used.
MODULES = (
    builtins_, collections_, combinatorics, containers, contexts, functools_, heapq_, itertools_, mappings,
    operator_, paths, patterns, sets,
)  # fmt: skip
