"""Calling builtin classes."""

from __future__ import annotations

import builtins
import collections
import functools
import itertools
import operator
import types
import weakref
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.hooks import RemovableHandle

from .. import breaks
from ..breaks import GraphBreak
from ..values.base import Raised, Value
from ..values.builtin_methods import call_builtin_method
from ..values.constants import ConstValue, NumpyNumberValue, SymValue
from ..values.containers.deques import DequeValue
from ..values.containers.iterators import CountIterator, EnumerateIterator, MapIterator, ZipIterator
from ..values.containers.mappings import DictValue
from ..values.containers.proxies import ProxyValue
from ..values.containers.sequences import ListValue, SliceValue, TupleValue
from ..values.containers.sets import SetValue, make_set
from ..values.descriptors import MethodValue
from ..values.exceptions import new_exception
from ..values.facets.references import removable_handle, weak_reference
from ..values.facets.supers import make_super
from ..values.functions import PartialValue
from ..values.local_classes import class_of_type, named_tuple
from ..values.objects import ObjectValue, of_protocol
from ..values.tensors import TensorValue
from .table import constructs, handles

if TYPE_CHECKING:
    from ..trace.tracer import Tracer

Args = list[Value]
Kwargs = dict[str, Value]
NONE, TRUE = ConstValue(None), ConstValue(True)


@constructs(list)
def list_(tr: Tracer, cls: type, args: Args, kwargs: Kwargs) -> Value:
    return ListValue(args[0].unpack(tr) if args else [])


@constructs(tuple)
def tuple_(tr: Tracer, cls: type, args: Args, kwargs: Kwargs) -> Value:
    if args and isinstance(args[0], TupleValue) and args[0].cls is tuple:
        return args[0]
    return TupleValue(args[0].unpack(tr) if args else [])


@constructs(torch.Size)
def size(tr: Tracer, cls: type, args: Args, kwargs: Kwargs) -> Value:
    items = args[0].unpack(tr) if args else []
    if any(item.pytype() is not int for item in items):
        raise GraphBreak(breaks.C_FUNCTION, "torch.Size() of what are no integers")
    return TupleValue(items, cls=torch.Size)


@constructs(dict, collections.OrderedDict)
def dict_(tr: Tracer, cls: type, args: Args, kwargs: Kwargs) -> Value:
    result = DictValue({}, cls=cls)
    call_builtin_method(tr, result, cls, "update", args, kwargs)
    return result


@constructs(collections.defaultdict)
def defaultdict(tr: Tracer, cls: type, args: Args, kwargs: Kwargs) -> Value:
    result = DictValue({}, cls=cls)
    if args and not (args[0].is_const() and args[0].const(tr) is None):
        if not _is_callable(args[0]):
            raise Raised(tr.make_exception(TypeError, "first argument must be callable or None"))
        result.default_factory = args[0]
    call_builtin_method(tr, result, dict, "update", args[1:], kwargs)
    return result


def _is_callable(value: Value) -> bool:
    return any("__call__" in vars(base) for base in value.pytype().__mro__)


@constructs(set, frozenset)
def set_(tr: Tracer, cls: type, args: Args, kwargs: Kwargs) -> Value:
    return make_set(tr, args[0], cls) if args else SetValue({}, cls=cls)


@constructs(collections.deque)
def deque(tr: Tracer, cls: type, args: Args, kwargs: Kwargs) -> Value:
    given = dict(zip(("iterable", "maxlen"), args, strict=False)) | kwargs
    items = given["iterable"].unpack(tr) if "iterable" in given else []
    most = given["maxlen"].const(tr) if "maxlen" in given else None
    if given.keys() - {"iterable", "maxlen"} or (most is not None and (not isinstance(most, int) or most < 0)):
        raise GraphBreak(breaks.C_FUNCTION, "deque() with these arguments")
    return DequeValue(items, most)


@constructs(range)
def range_(tr: Tracer, cls: type, args: Args, kwargs: Kwargs) -> Value:
    return tr.fold(range, [tr.as_index(a).const(tr) for a in args], {})


@constructs(slice)
def slice_(tr: Tracer, cls: type, args: Args, kwargs: Kwargs) -> Value:
    if len(args) == 1:
        return SliceValue(NONE, args[0], NONE)
    return SliceValue(args[0], args[1], args[2] if len(args) > 2 else NONE)


@constructs(bool)
def bool_(tr: Tracer, cls: type, args: Args, kwargs: Kwargs) -> Value:
    return ConstValue(args[0].truth(tr) if args else False)


@constructs(int, float, complex)
def number(tr: Tracer, cls: type, args: Args, kwargs: Kwargs) -> Value:
    if len(args) == 1 and not kwargs:
        value = args[0].symbol() if isinstance(args[0], NumpyNumberValue) else args[0]
        if isinstance(value, SymValue) and value.pytype() is cls:
            return value
        if isinstance(value, SymValue) and (value.pytype(), cls) in ((int, float), (float, int)):
            return tr.emit("call_function", torch.sym_float if cls is float else torch.sym_int, [value], {})
        if isinstance(value, TensorValue):
            return value.call_method(tr, f"__{cls.__name__}__", [], {})
        name = f"__{cls.__name__}__"
        if isinstance(value, ObjectValue) and (found := value.special(tr, name)) is not None:
            return of_protocol(found.call(tr, [], {}), name)
    return tr.fold(cls, [a.const(tr) for a in args], {k: v.const(tr) for k, v in kwargs.items()})


@constructs(str)
def str_(tr: Tracer, cls: type, args: Args, kwargs: Kwargs) -> Value:
    if len(args) == 1 and not kwargs:
        return tr.convert(args[0], "s")
    return tr.fold(str, [a.const(tr) for a in args], {k: v.const(tr) for k, v in kwargs.items()})


@constructs(bytes, torch.device, torch.finfo, torch.iinfo)
def constant(tr: Tracer, cls: type, args: Args, kwargs: Kwargs) -> Value:
    return tr.fold(cls, [a.const(tr) for a in args], {k: v.const(tr) for k, v in kwargs.items()})


@constructs(type)
def type_(tr: Tracer, cls: type, args: Args, kwargs: Kwargs) -> Value:
    if len(args) == 3 and not kwargs:
        return class_of_type(tr, *args)
    if len(args) != 1:
        raise GraphBreak(breaks.C_FUNCTION, "creating a class with type()")
    return tr.lift(args[0].pytype())


@constructs(object)
def object_(tr: Tracer, cls: type, args: Args, kwargs: Kwargs) -> Value:
    return ObjectValue(object)


@constructs(super)
def super_(tr: Tracer, cls: type, args: Args, kwargs: Kwargs) -> Value:
    if len(args) == 1 or len(args) > 2:
        raise GraphBreak(breaks.C_FUNCTION, f"super() with {len(args)} arguments")
    if args:
        return make_super(tr, args[0].real(), args[1])
    frame = tr.frame
    assert frame is not None
    if not frame.code.co_argcount:
        raise Raised(tr.make_exception(RuntimeError, "super(): no arguments"))
    if "__class__" not in frame.code.co_freevars:
        raise Raised(tr.make_exception(RuntimeError, "super(): __class__ cell not found"))
    if (own := frame.cells["__class__"].read(tr)) is None:
        raise Raised(tr.make_exception(RuntimeError, "super(): empty __class__ cell"))
    first = frame.code.co_varnames[0]
    owner = frame.cells[first].read(tr) if first in frame.cells else frame.locals.get(first) or tr.load_argument(first)
    if owner is None:
        raise Raised(tr.make_exception(RuntimeError, "super(): arg[0] deleted"))
    return make_super(tr, own.real(), owner)


@constructs(enumerate)
def enumerate_(tr: Tracer, cls: type, args: Args, kwargs: Kwargs) -> Value:
    if not args and "iterable" not in kwargs:
        raise GraphBreak(breaks.C_FUNCTION, "enumerate() of nothing")
    start = args[1] if len(args) > 1 else kwargs.get("start", ConstValue(0))
    first = tr.fold(operator.index, [start.const(tr)], {})
    return EnumerateIterator((args or [kwargs["iterable"]])[0].iter(tr), ConstValue(int(first.const(tr))))


@constructs(zip)
def zip_(tr: Tracer, cls: type, args: Args, kwargs: Kwargs) -> Value:
    strict = "strict" in kwargs and kwargs["strict"].truth(tr)
    return ZipIterator([a.iter(tr) for a in args], strict)


@constructs(map)
def map_(tr: Tracer, cls: type, args: Args, kwargs: Kwargs) -> Value:
    return MapIterator(args[0], [a.iter(tr) for a in args[1:]])


@constructs(itertools.count)
def count(tr: Tracer, cls: type, args: Args, kwargs: Kwargs) -> Value:
    start = args[0] if args else kwargs.get("start", ConstValue(0))
    step = args[1] if len(args) > 1 else kwargs.get("step", ConstValue(1))
    if not all(issubclass(value.pytype(), (int, float)) for value in (start, step)):
        raise GraphBreak(breaks.C_FUNCTION, f"itertools.count of {start.describe()} and {step.describe()}")
    return CountIterator(start, step)


@constructs(functools.partial)
def partial(tr: Tracer, cls: type, args: Args, kwargs: Kwargs) -> Value:
    function, *rest = args
    if not _is_callable(function):
        raise Raised(tr.make_exception(TypeError, "the first argument must be callable"))
    if isinstance(function, PartialValue):
        return PartialValue(function.function, [*function.args, *rest], {**function.kwargs, **kwargs})
    return PartialValue(function, rest, dict(kwargs))


@constructs(types.MethodType)
def method(tr: Tracer, cls: type, args: Args, kwargs: Kwargs) -> Value:
    if len(args) != 2 or kwargs or not _is_callable(args[0]) or (args[1].is_const() and args[1].const(tr) is None):
        raise GraphBreak(breaks.C_FUNCTION, "types.MethodType with these arguments")
    return MethodValue(args[0], args[1])


@constructs(types.MappingProxyType)
def mapping_proxy(tr: Tracer, cls: type, args: Args, kwargs: Kwargs) -> Value:
    mapping = args[0].mapping if isinstance(args[0], ProxyValue) else args[0]
    if not isinstance(mapping, DictValue):
        raise GraphBreak(breaks.OPERATION, f"a mappingproxy of {mapping.describe()}")
    return ProxyValue(mapping)


@constructs(staticmethod, classmethod, functools.cached_property)
def descriptor(tr: Tracer, cls: type, args: Args, kwargs: Kwargs) -> Value:
    raise GraphBreak(breaks.C_FUNCTION, f"creating a {cls.__name__}")


@constructs(torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
def tensor(tr: Tracer, cls: type, args: Args, kwargs: Kwargs) -> Value:
    if cls is torch.Tensor and len(args) == 1 and isinstance(args[0], TensorValue):
        return tr.emit("call_method", "detach", args, {})
    if cls is torch.Tensor and not kwargs:
        return legacy_tensor(tr, cls, args, kwargs)
    if cls is torch.nn.Parameter and (found := _frozen_parameter(tr, *args, **kwargs)) is not None:
        return found
    raise GraphBreak(breaks.OPERATION, f"creating a {cls.__qualname__} in the compiled function")


def _frozen_parameter(tr: Tracer, data: Value = NONE, requires_grad: Value = TRUE) -> Value | None:
    """A parameter that requires no gradient: the same data in a new object."""
    if not isinstance(data, TensorValue) or requires_grad.truth(tr):
        return None
    made = tr.emit("call_method", "detach", [data], {})
    assert isinstance(made, TensorValue)
    made.cls = torch.nn.Parameter
    return made


@constructs(
    torch.FloatTensor, torch.DoubleTensor, torch.HalfTensor, torch.BFloat16Tensor, torch.LongTensor, torch.IntTensor,
    torch.ShortTensor, torch.CharTensor, torch.ByteTensor, torch.BoolTensor,
)  # fmt: skip
def legacy_tensor(tr: Tracer, cls: Any, args: Args, kwargs: Kwargs) -> Value:
    """``torch.FloatTensor(...)``: of sizes, not initialized, or of a sequence of numbers."""
    dtype = ConstValue(torch.get_default_dtype() if cls is torch.Tensor else cls.dtype)
    named: Kwargs = {"dtype": dtype, "device": ConstValue(torch.device("cpu"))}
    if not kwargs and all(a.pytype() is int for a in args):
        return tr.emit("call_function", torch.empty, [TupleValue(args or [ConstValue(0)])], named)
    if not kwargs and [a.pytype() for a in args] == [torch.Size]:
        return tr.emit("call_function", torch.empty, args, named)
    if not kwargs and len(args) == 1 and args[0].pytype() in (list, tuple):
        return tr.emit("call_function", torch.tensor, args, named)
    raise GraphBreak(breaks.OPERATION, f"creating a {cls.__name__} of {', '.join(a.describe() for a in args)}")


@constructs(*(cls for cls in vars(builtins).values() if isinstance(cls, type) and issubclass(cls, BaseException)))
def exception(tr: Tracer, cls: type, args: Args, kwargs: Kwargs) -> Value:
    """A builtin exception class: its constructor only keeps its arguments."""
    made = new_exception(cls, list(args))
    made.take(kwargs)
    return made


handles(collections.namedtuple)(named_tuple)
constructs(weakref.ref)(weak_reference)
constructs(RemovableHandle)(removable_handle)
