"""One check for a call that none of several entries holds for, where they differ in one guard.

What is compiled anew until the limit differs in the value of a counter, or the length of a list, and calls from then on
ask each entry in turn.  The guards that come before that value are the same in all of them, and are checked here once.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from ..hook.interrupts import from_its_first_instruction, keep
from .check import CompiledGuards, by_name
from .kinds.guard import Guard
from .loader import Loader, Names
from .sources import Argument, Source


def refusal(entries: Sequence[CompiledGuards]) -> Callable[[dict], bool] | None:
    """A function of a frame's locals that is true only where none of these checks holds; None if there is none.

    What it reads, it reads in the order of the checks: a guard on a class keeps it from asking another class's objects.
    """
    lists = [_in_order(guards) for guards in entries]
    common = list(itertools.takewhile(lambda each: all(other == each[0] for other in each), zip(*lists, strict=False)))
    if len(lists) < 2 or any(len(each) <= len(common) for each in lists):
        return None
    guards = [each[0] for each in common]
    others = [each[len(common)] for each in lists]
    tensors = {tensor.source for each in entries for tensor in each.facts}
    if any(_leads_through(source, tensors) for guard in (*guards, *others) for source in guard.sources()):
        return None  # the check of tensors comes first
    names, lines = Names(), list[str]()
    loader = Loader(names, lines, by_name)
    for guard in guards:
        condition = guard.text(loader)  # loading may add lines, so before the append
        lines.append(f"if not ({condition}): return True")
    for guard in others:
        condition = guard.text(loader)
        lines.append(f"if {condition}: return False")
    body = "\n".join("        " + line for line in lines)
    text = (
        f"def refusal(L):\n    try:\n{body}\n"
        "    except Exception:\n"
        "        return False  # the checks themselves know what that means\n"
        "    except BaseException as error:\n"
        "        return keep(error)\n"
        "    return True\n"
    )
    namespace = {**names.namespace, "keep": keep}
    exec(compile(text, "<torchmux guard>", "exec"), namespace)
    return from_its_first_instruction(namespace.pop("refusal"))


def _in_order(guards: CompiledGuards) -> list[Guard]:
    """Arguments first, as the check has them."""
    return sorted(guards.conditions, key=lambda guard: not isinstance(guard.source, Argument))


def _leads_through(source: Source | None, tensors: set[Source]) -> bool:
    while source is not None:
        if source in tensors:
            return True
        source = source.parent
    return False
