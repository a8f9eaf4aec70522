"""What a statement computes, in the place of a load of its result."""

from __future__ import annotations

from ..ir import index
from ..ir.expressions import Node, Statement, make, rewrite, substitute
from ..ir.index import Index, Var
from .kernel import as_stored


def extents(made: Statement) -> tuple[tuple[Var, ...], tuple[Index, ...]] | None:
    """The loops from the outermost to the innermost and their sizes, if they fill the buffer without gaps."""
    loops = sorted(made.kept, key=lambda v: _step(made, v), reverse=True)
    step = 1
    for loop in reversed(loops):
        if type(loop.size) is not int or _step(made, loop) != step:
            return None
        step *= loop.size
    whole = index.flatten([index.var(v.key, v.size) for v in loops], [v.size for v in loops])
    return (tuple(loops), tuple(v.size for v in loops)) if made.position is whole else None


def _step(made: Statement, loop: Var) -> int:
    found = index.coefficient(made.position, loop)
    return found if type(found) is int else -1


def replaced(value: Node, made: Statement, *, anywhere: bool = False) -> Node | None:
    """``value`` without loads of what ``made`` computes; None if one of them is at no simple place, unless it may be
    ``anywhere``."""
    found = extents(made)
    assert found is not None
    loops, sizes = found
    rounded = as_stored(made.target, made.value)
    simple = True
    memo: dict[Node, Node] = {}

    def at(place: Index) -> Index:
        return index.map_data(place, lambda node: rewrite(node, change, memo)) if anywhere else place

    def change(old: Node, args: tuple[Node, ...]) -> Node:
        nonlocal simple
        if old.op == "load" and old.attr[0] is not made.target:
            return make("load", args, old.dtype, (old.attr[0], at(old.attr[1])))
        if old.op == "index":
            place = at(old.attr)
            return make("const" if type(place) is int else "index", (), old.dtype, place)
        if old.op != "load":
            return old if args == old.args else make(old.op, args, old.dtype, old.attr)
        places = index.unflatten(at(old.attr[1]), sizes)
        simple = simple and not args and all(anywhere or _is_linear(p) for p in places)
        return substitute(rounded, dict(zip(loops, places, strict=True)))

    new = rewrite(value, change, memo)
    return new if simple and all(b is not made.target for b, _ in new.loads) else None


def _is_linear(place: Index) -> bool:
    return type(place) is int or all(isinstance(a, Var) for a in place.atoms())  # type: ignore[union-attr]
