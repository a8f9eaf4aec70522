"""Containers of values as torch's pytrees: flattened into leaves, and rebuilt around other leaves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torchmux import torch_internals as ti

from ..values.base import Value
from ..values.constants import ConstValue
from ..values.containers.mappings import DictValue
from ..values.containers.sequences import ListValue, TupleValue

if TYPE_CHECKING:
    from ..trace.tracer import Tracer


def flatten(tr: Tracer, value: Value | tuple[Value, ...]) -> tuple[list[Value], Any]:
    """The leaves of containers of values, and the structure, as torch would flatten the real containers."""
    tree = tuple(_tree(tr, v) for v in value) if isinstance(value, tuple) else _tree(tr, value)
    return ti.pytree.tree_flatten(tree)


def _tree(tr: Tracer, value: Value) -> Any:
    if isinstance(value, TupleValue) and (value.cls is tuple or hasattr(value.cls, "_fields")):
        items = [_tree(tr, v) for v in value.items(tr)]
        return tuple(items) if value.cls is tuple else value.cls(*items)
    if isinstance(value, ListValue):
        return [_tree(tr, v) for v in value.items(tr)]
    if isinstance(value, DictValue) and all(key.is_const() for key in value.keys(tr)):
        pairs = zip(value.keys(tr), value.values(tr), strict=True)
        made = value.cls(lambda: None) if value.default_factory is not None else value.cls()
        made.update((key.const(tr), _tree(tr, v)) for key, v in pairs)
        return made
    return value


def unflatten(leaves: list[Any], structure: Any) -> Any:
    """Containers of the given structure: a value, or a tuple of values where ``flatten`` was given one."""
    return _value(ti.pytree.tree_unflatten(leaves, structure))


def _value(tree: Any) -> Value:
    if isinstance(tree, tuple):
        return TupleValue([_value(v) for v in tree], cls=type(tree))
    if isinstance(tree, list):
        return ListValue([_value(v) for v in tree])
    if isinstance(tree, dict):
        return DictValue({key: (ConstValue(key), _value(v)) for key, v in tree.items()}, cls=type(tree))
    return tree
