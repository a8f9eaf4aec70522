"""``torch.func.functional_call``: a call of a module with other tensors in place of its parameters and buffers.

While the call is traced, the module's tables hold the other tensors; nothing remains to replay afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

from .. import breaks
from ..breaks import GraphBreak
from ..guards.kinds.functions import FunctionGives
from ..guards.sources import Attr
from ..handlers.table import handles
from ..values.base import Raised, Value
from ..values.constants import ConstValue
from ..values.containers.mappings import DictValue
from ..values.containers.sequences import TupleValue
from ..values.modules import NNModuleValue
from ..values.tensors import TensorValue

if TYPE_CHECKING:
    from ..trace.tracer import Tracer

NONE, TRUE, FALSE = ConstValue(None), ConstValue(True), ConstValue(False)


@handles(torch.func.functional_call)
def functional_call(
    tr: Tracer,
    module: Value,
    parameter_and_buffer_dicts: Value,
    args: Value = NONE,
    kwargs: Value = NONE,
    *,
    tie_weights: Value = TRUE,
    strict: Value = FALSE,
) -> Value:
    if not isinstance(module, NNModuleValue) or strict.truth(tr):
        raise GraphBreak(breaks.REGION, f"functional_call of {module.describe()} with these arguments")
    given = _named(tr, parameter_and_buffer_dicts)
    groups = names_of_tensors(module.obj)
    if module.source is not None:
        words = "registers the same tensors under the same names"
        tr.guards.add(FunctionGives(module.source, names_of_tensors, groups, words))
    wanted = _tied(given, groups) if tie_weights.truth(tr) else given
    positional = args.unpack(tr) if isinstance(args, TupleValue) else [] if _is_none(args) else [args]
    named = {} if _is_none(kwargs) else {key.const(tr): kwargs.getitem(tr, key) for key in kwargs.unpack(tr)}
    with _replaced(tr, module, wanted):
        return module.call(tr, positional, named)


def _is_none(value: Value) -> bool:
    return isinstance(value, ConstValue) and value.value is None


def names_of_tensors(module: torch.nn.Module) -> tuple[tuple[str, ...], ...]:
    """The names of a module's parameters and buffers, those of one tensor together."""
    found: dict[torch.Tensor, list[str]] = {}
    for tensors in (module.named_parameters(remove_duplicate=False), module.named_buffers(remove_duplicate=False)):
        for name, tensor in tensors:
            found.setdefault(tensor, []).append(name)
    return tuple(map(tuple, found.values()))


def _named(tr: Tracer, value: Value) -> dict[str, Value]:
    """The tensors by name, from one dictionary or several."""
    given: dict[str, Value] = {}
    for each in [value] if isinstance(value, DictValue) else value.unpack(tr):
        if not isinstance(each, DictValue):
            raise GraphBreak(breaks.REGION, f"functional_call with {each.describe()} instead of a dictionary")
        for key, tensor in zip(each.keys(tr), each.values(tr), strict=True):
            name = key.const(tr)
            if name in given or not isinstance(tensor, TensorValue):
                raise GraphBreak(breaks.REGION, f"functional_call with {name} passed twice, or not as a tensor")
            given[name] = tensor
    return given


def _tied(given: dict[str, Value], groups: tuple[tuple[str, ...], ...]) -> dict[str, Value]:
    """One tensor for all the names that a tensor of the module has."""
    wanted = dict(given)
    for names in groups:
        values = {given[name] for name in names if name in given}
        if len(values) > 1:
            raise GraphBreak(breaks.REGION, f"functional_call with different tensors for the tied {', '.join(names)}")
        wanted.update((name, value) for value in values for name in names)
    return wanted


@contextmanager
def _replaced(tr: Tracer, module: NNModuleValue, tensors: dict[str, Value]) -> Iterator[None]:
    """The module's tables with other tensors in them."""
    kept = []
    tables = []
    added = []
    try:
        for name, tensor in tensors.items():
            table = _table(tr, module, name)
            hashed = name.rpartition(".")[2]
            if table not in tr.swapped:
                tr.swapped.add(table)
                added.append(table)
            tables.append(table)
            kept.append((table, hashed, table.entries[hashed]))
            table.entries[hashed] = (table.entries[hashed][0], tensor)
        yield
        if not all(map(tr.effects.is_clean, tables)):
            raise GraphBreak(breaks.REGION, f"{module.describe()} replaces its buffers, and so does functional_call")
    finally:
        for table, hashed, entry in reversed(kept):
            table.entries[hashed] = entry
        tr.swapped.difference_update(added)


def _table(tr: Tracer, module: NNModuleValue, name: str) -> DictValue:
    """The dictionary of parameters or buffers in which ``name`` stands."""
    *path, last = name.split(".")
    owner: Value = module
    for part in path:
        try:
            owner = owner.getattr(tr, part)
        except Raised:
            owner = NONE
        if not isinstance(owner, NNModuleValue):
            raise GraphBreak(breaks.REGION, f"functional_call with {name}, which {module.describe()} does not have")
    assert isinstance(owner, NNModuleValue)
    for kind in ("_parameters", "_buffers"):
        if last in owner.obj.__dict__[kind]:
            table = tr.wrap(owner.obj.__dict__[kind], owner.source and Attr(owner.source, kind))
            assert isinstance(table, DictValue)
            if tr.effects.is_clean(table):
                return table
    raise GraphBreak(
        breaks.REGION, f"functional_call with {name}, which {module.describe()} no longer has in its original form"
    )
