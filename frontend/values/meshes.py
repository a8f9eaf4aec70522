"""What distributed tensors are told: meshes of processes, placements, and functions that stay whole in the graph."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torchmux import torch_internals as ti

from .. import breaks
from ..breaks import GraphBreak
from ..capture.attempts import SubclassesStayWhole
from .base import Value
from .classes import ClassValue, RealValue
from .constants import ConstValue
from .containers.sequences import ListValue, TupleValue
from .tensors import TensorValue

if TYPE_CHECKING:
    from ..guards.sources import Source
    from ..trace.tracer import Tracer

_API = "torch.distributed.tensor._api"
_WHOLE = ("DTensor.from_local", "DTensor.to_local", "DTensor.redistribute", "DTensor.full_tensor")
_QUESTIONS = ("size", "get_rank", "get_local_rank", "get_coordinate")
_FACTS = ("ndim", "shape", "device_type", "mesh_dim_names")


class MeshValue(ConstValue):
    """A mesh of processes, known by its identity."""

    __slots__ = ()

    def getattr(self, tr: Tracer, name: str) -> Value:
        if name in _QUESTIONS:
            return _QuestionValue(self, name)
        if name not in _FACTS:
            raise GraphBreak(breaks.TORCH_STATE, f"{name} of a mesh of processes")
        return tr.lift(getattr(self.value, name))

    def call_method(self, tr: Tracer, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return self.getattr(tr, name).call(tr, args, kwargs)

    def hash_key(self, tr: Tracer) -> Any:
        return id(self.value)


class _QuestionValue(RealValue):
    """A method of a mesh that only tells what is known since it was made."""

    __slots__ = ("mesh",)

    def __init__(self, mesh: MeshValue, name: str) -> None:
        super().__init__(getattr(mesh.value, name))
        self.mesh = mesh

    def call(self, tr: Tracer, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return tr.fold(self.obj, [a.const(tr) for a in args], {k: v.const(tr) for k, v in kwargs.items()})


class PlacementClassValue(ClassValue):
    """``Shard``, ``Replicate`` and the like."""

    __slots__ = ()

    def call(self, tr: Tracer, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return ConstValue(self.obj(*(a.const(tr) for a in args), **{k: v.const(tr) for k, v in kwargs.items()}))


class WholeCallValue(RealValue):
    """A function on distributed tensors: what it takes beside tensors becomes part of the node."""

    __slots__ = ()

    def call(self, tr: Tracer, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if not tr.whole_subclasses:
            raise SubclassesStayWhole(f"{self.obj.__qualname__} is called")
        if "device_mesh" not in kwargs and len(args) < 2 and self.obj.__qualname__ == "DTensor.from_local":
            raise GraphBreak(breaks.TORCH_STATE, "DTensor.from_local without a mesh asks for that of the context")
        tensors = [value for value in (*args, *kwargs.values()) if isinstance(value, TensorValue)]
        places = {id(value): at for at, value in enumerate(tensors)}
        given = [_plan(tr, value, places) for value in args]
        named = {name: _plan(tr, value, places) for name, value in kwargs.items()}
        return tr.emit("call_function", _bound(self.obj, given, named), list(tensors), {})


Filled = Callable[[tuple[Any, ...]], Any]


def _plan(tr: Tracer, value: Value, places: dict[int, int]) -> Filled:
    """How an argument is made of the tensors of a call."""
    if id(value) in places:
        at = places[id(value)]
        return lambda tensors: tensors[at]
    known = _known(tr, value)
    return lambda tensors: known


def _known(tr: Tracer, value: Value) -> Any:
    if isinstance(value, (ListValue, TupleValue)):
        items = [_known(tr, item) for item in value.items(tr)]
        return items if isinstance(value, ListValue) else value.pytype()(items)
    return value.const(tr)


def _bound(function: Any, given: list[Filled], named: dict[str, Filled]) -> Callable[..., Any]:
    """A function of tensors alone, which the node of the graph calls."""

    def call(*tensors: Any) -> Any:
        return function(*(each(tensors) for each in given), **{name: each(tensors) for name, each in named.items()})

    call.__name__ = function.__name__
    return call


def whole_call(obj: Any, source: Source | None) -> Value | None:
    """The functions of ``DTensor`` that make one, take one apart or distribute it anew: nodes of the graph."""
    if type(obj) is types.FunctionType and obj.__module__ == _API and obj.__qualname__ in _WHOLE:
        return WholeCallValue(obj, source)
    return None


def class_value(cls: type, source: Source | None) -> ClassValue:
    """The value of a class, which may be one of placements."""
    return (PlacementClassValue if ti.is_placement(cls) else ClassValue)(cls, source)


def wrap_distributed(tr: Any, obj: Any, source: Source | None) -> Value | None:
    """The value of a mesh or of a placement; None for everything else."""
    if ti.is_mesh(obj):
        if source is not None:
            tr.guards.is_object(source, obj)
        return MeshValue(obj, source)
    if ti.is_placement(type(obj)):
        if source is not None:
            tr.guards.equals(source, obj)
        return ConstValue(obj, source)
    return None
