"""Python functions, bound methods, partials: what a call inlines."""

from __future__ import annotations

import functools
import inspect
import sys
import types
from typing import TYPE_CHECKING, Any

from ..breaks import C_FUNCTION, DISABLED, GraphBreak
from ..guards.kinds.objects import Is, NoAttribute
from ..guards.sources import Argument, Attr, ClosureCell, Const, Item, Source
from .base import MISSING, Raised, Value
from .builtin_methods import BuiltinMethodValue, own_attribute
from .cells import CellValue
from .constants import ConstValue
from .containers.mappings import DictValue
from .containers.sequences import TupleValue
from .descriptors import MethodValue

if TYPE_CHECKING:
    from ..trace.tracer import FrameWriter, Tracer


class FunctionValue(Value):
    """A Python function: an existing one (``fn``) or one that the trace defined."""

    __slots__ = (
        "annotations", "attrs", "closure", "code", "defaults", "fn", "globals", "kwdefaults", "name", "qualname",
    )  # fmt: skip

    def __init__(
        self,
        code: types.CodeType,
        globals_: dict,
        name: str,
        qualname: str,
        defaults: list[Value] | None = None,
        kwdefaults: dict[str, Value] | None = None,
        closure: tuple[CellValue, ...] = (),
        fn: Any = None,
        source: Source | None = None,
    ) -> None:
        self.code = code
        self.globals = globals_
        self.name = name
        self.qualname = qualname
        self.defaults = defaults or []
        self.kwdefaults = kwdefaults or {}
        self.closure = closure
        self.fn = fn
        self.source = source
        self.attrs: dict[str, Value] = {}
        self.annotations: Value | None = None  # of a function that the trace defined

    def pytype(self) -> type:
        return types.FunctionType

    def real(self) -> Any:
        return self.fn if self.fn is not None else MISSING

    def describe(self) -> str:
        return f"function {self.qualname}"

    def truth(self, tr: Tracer) -> bool:
        return True

    def hash_key(self, tr: Tracer) -> Any:
        tr.identity_matters(self)
        return self.fn if self.fn is not None else self

    def call(self, tr: Tracer, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if self.fn is not None and getattr(self.fn, "_torchmux_disable", None):
            raise GraphBreak(DISABLED, f"{self.qualname} is marked with torchmux.disable")
        return tr.inline(self, args, kwargs)

    def getattr(self, tr: Tracer, name: str) -> Value:
        if name in self.attrs:
            return self.attrs[name]
        if name in ("__name__", "__qualname__"):
            value = getattr(self, name.strip("_"))
            if self.fn is not None and not tr.is_settled_function(self.fn):
                value = getattr(self.fn, name)
                tr.guards.equals(Attr(self.source or Const(self.fn, self.qualname), name), value)
            return ConstValue(value)
        if name == "__defaults__":
            return TupleValue(list(self.defaults)) if self.defaults else ConstValue(None)
        if name == "__code__":
            return CodeValue(self.code)
        if name == "__class__":
            return tr.lift(types.FunctionType)
        if name == "__call__":
            return self
        if name == "__get__":
            return BoundGet(self)
        if self.fn is None:
            if name == "__doc__":
                return ConstValue(
                    self.code.co_consts[0] if self.code.co_consts and isinstance(self.code.co_consts[0], str) else None
                )
            if name == "__module__":
                return ConstValue(self.globals.get("__name__"))
            if name == "__dict__":
                return _dictionary(self.attrs)
            if name == "__kwdefaults__":
                return _dictionary(self.kwdefaults) if self.kwdefaults else ConstValue(None)
            if name == "__annotations__":
                return self._annotations(tr)
            if name == "__type_params__" and sys.version_info >= (3, 12):
                return TupleValue([])  # type parameters are made by an intrinsic, which ends the graph
            if name == "__closure__":
                return TupleValue(list(self.closure)) if self.closure else ConstValue(None)
            if own_attribute(types.FunctionType, name) is not MISSING:
                raise self.not_understood(f"attribute {name!r} of {self.describe()}")
            raise Raised(tr.make_exception(AttributeError, f"'function' object has no attribute {name!r}"))
        try:
            obj = getattr(self.fn, name)
        except AttributeError as error:
            base = self.source or Const(self.fn, self.qualname)
            tr.guards.add(NoAttribute(base, name, "attribute "))
            raise Raised(tr.exception(error)) from None
        base = self.source or Const(self.fn, self.qualname)
        return tr.wrap(obj, Attr(base, name))

    def _annotations(self, tr: Tracer) -> Value:
        """The annotations of a function that the trace defined: a dictionary, created at the first access."""
        if self.annotations is None or isinstance(self.annotations, TupleValue):
            pairs = self.annotations.items(tr) if self.annotations is not None else []
            self.annotations = _dictionary(
                {name.const(tr): value for name, value in zip(pairs[::2], pairs[1::2], strict=True)}
            )
        return self.annotations

    def setattr(self, tr: Tracer, name: str, value: Value) -> None:
        if self.fn is not None:
            raise self.not_understood(f"setting attribute {name!r} of {self.describe()}")
        if name == "__code__" and isinstance(value, CodeValue) and value.code.co_freevars == self.code.co_freevars:
            tr.effects.changed(self)
            self.code = value.code
        elif name == "__annotations__":
            tr.effects.changed(self)
            self.annotations = value
        elif name == "__type_params__" and isinstance(value, TupleValue) and not value.items(tr):
            pass  # what it is already
        elif hasattr(types.FunctionType, name) and name not in ("__name__", "__qualname__", "__doc__", "__module__"):
            raise self.not_understood(f"setting attribute {name!r} of {self.describe()}")
        elif name in ("__name__", "__qualname__"):
            tr.effects.changed(self)
            setattr(self, name.strip("_"), value.const(tr))
        else:
            tr.effects.changed(self)
            self.attrs[name] = value

    def rebuild(self, out: FrameWriter) -> str:
        if self.fn is not None:
            return out.names.const(self.fn)
        names = out.names
        cells = out.container("(", ",)", list(self.closure)) if self.closure else "None"
        variable = out.temporary(
            f"{names.const(types.FunctionType)}({names.const(self.code)}, {names.const(self.globals)}, {self.name!r}, "
            f"None, {cells})"
        )
        if self.qualname != self.name:
            out.line(f"{variable}.__qualname__ = {self.qualname!r}")
        if self.defaults:
            out.line(f"{variable}.__defaults__ = {out.container('(', ',)', self.defaults)}")
        if self.kwdefaults:
            pairs = ", ".join(f"{k!r}: {out.value(v)}" for k, v in self.kwdefaults.items())
            out.line(f"{variable}.__kwdefaults__ = {{{pairs}}}")
        if isinstance(self.annotations, TupleValue):
            pairs = out.temporary(out.value(self.annotations))
            out.line(f"{variable}.__annotations__ = dict(zip({pairs}[::2], {pairs}[1::2]))")
        elif self.annotations is not None:
            out.line(f"{variable}.__annotations__ = {out.value(self.annotations)}")
        for key, value in self.attrs.items():
            out.line(f"{variable}.{key} = {out.value(value)}")
        return variable


def _dictionary(values: dict[str, Value]) -> Value:

    return DictValue({name: (ConstValue(name), value) for name, value in values.items()})


def wrap_function(tr: Tracer, fn: types.FunctionType, source: Source | None) -> FunctionValue:
    """An existing Python function; its code is guarded now, its defaults and closure when they are read."""
    base = source or Const(fn, fn.__qualname__)
    if source is not None or not tr.is_settled_function(fn):
        tr.guards.add(Is(Attr(base, "__code__"), fn.__code__, f"is that of {fn.__qualname__}"))
    if source is not None:
        tr.guards.add(Is(Attr(source, "__globals__"), fn.__globals__, f"are those of {fn.__qualname__}"))
    value = FunctionValue(fn.__code__, fn.__globals__, fn.__name__, fn.__qualname__, fn=fn, source=source)
    if fn.__closure__:
        cells: list[CellValue] = []
        for index, cell in enumerate(fn.__closure__):
            cell_source = ClosureCell(base, index, fn.__code__.co_freevars[index])
            wrapped = tr.wrap(cell, cell_source)
            assert isinstance(wrapped, CellValue)
            cells.append(wrapped)
        value.closure = tuple(cells)
    if fn.__defaults__:
        defaults = Attr(base, "__defaults__")
        if source is not None and isinstance(source.root(), Argument) and not tr.is_in_module(source):
            value.defaults = tr.wrap(fn.__defaults__, defaults).unpack(tr)  # the function may be made in each call
        else:
            tr.guards.is_object(defaults, fn.__defaults__)
            value.defaults = [tr.wrap_fixed(d, Item(defaults, i)) for i, d in enumerate(fn.__defaults__)]
    if fn.__kwdefaults__:
        kwdefaults = Attr(base, "__kwdefaults__")
        value.kwdefaults = {k: tr.wrap(d, Item(kwdefaults, k)) for k, d in fn.__kwdefaults__.items()}
    return value


class CodeValue(Value):
    """A code object, for programs that ask for argument names."""

    __slots__ = ("code",)

    def __init__(self, code: types.CodeType) -> None:
        self.code = code
        self.source = None

    def pytype(self) -> type:
        return types.CodeType

    def real(self) -> Any:
        return self.code

    def getattr(self, tr: Tracer, name: str) -> Value:
        if name == "replace":
            return BuiltinMethodValue(self, types.CodeType, name)
        try:
            value = getattr(self.code, name)
        except AttributeError as error:
            raise Raised(tr.exception(error)) from None
        return tr.lift(value)

    def call_method(self, tr: Tracer, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if name != "replace":
            return super().call_method(tr, name, args, kwargs)
        changes = {k: v.const(tr) for k, v in kwargs.items()}
        if any(type(value) not in (str, int) for value in changes.values()):
            raise GraphBreak(C_FUNCTION, "code.replace")
        key = (id(self.code), *changes.items())
        if key not in _replaced:
            _replaced[key] = (self.code.replace(**changes), self.code)
        return CodeValue(_replaced[key][0])

    def rebuild(self, out: FrameWriter) -> str:
        return out.names.const(self.code)


# A changed code object is made once, as what is known of a code goes by its identity; the original keeps its id alive.
_replaced: dict[tuple, tuple[types.CodeType, types.CodeType]] = {}


class BoundGet(Value):
    """``function.__get__``: makes a bound method."""

    __slots__ = ("function",)

    def __init__(self, function: FunctionValue) -> None:
        self.function = function
        self.source = None

    def pytype(self) -> type:
        return types.MethodWrapperType

    def call(self, tr: Tracer, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if args[0].is_const() and args[0].const(tr) is None:
            return self.function
        return MethodValue(self.function, args[0])


class PartialValue(Value):
    """A ``functools.partial`` object; ``attrs`` are those that the trace set on one that it made."""

    __slots__ = ("args", "attrs", "function", "kwargs")

    def __init__(
        self, function: Value, args: list[Value], kwargs: dict[str, Value], source: Source | None = None
    ) -> None:
        self.function = function
        self.args = args
        self.kwargs = kwargs
        self.source = source
        self.attrs: dict[str, Value] = {}

    def pytype(self) -> type:
        return functools.partial

    def truth(self, tr: Tracer) -> bool:
        return True

    def hash_key(self, tr: Tracer) -> Any:
        return self

    def call(self, tr: Tracer, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return self.function.call(tr, [*self.args, *args], {**self.kwargs, **kwargs})

    def getattr(self, tr: Tracer, name: str) -> Value:
        if name == "func":
            return self.function
        if name == "args":
            return TupleValue(list(self.args))
        if name == "keywords":
            return _dictionary(self.kwargs)
        if name in self.attrs:
            return self.attrs[name]
        if self.source is not None or hasattr(functools.partial, name):
            return super().getattr(tr, name)
        raise Raised(tr.make_exception(AttributeError, f"'functools.partial' object has no attribute {name!r}"))

    def setattr(self, tr: Tracer, name: str, value: Value) -> None:
        if self.source is not None or hasattr(functools.partial, name):
            super().setattr(tr, name, value)
        tr.effects.changed(self)
        self.attrs[name] = value

    def rebuild(self, out: FrameWriter) -> str:
        parts = [out.value(v) for v in [self.function, *self.args]]
        parts += [f"{name}={out.value(v)}" for name, v in self.kwargs.items()]
        made = f"{out.names.const(functools.partial)}({', '.join(parts)})"
        if not self.attrs:
            return made
        variable = out.temporary(made)
        for name, value in self.attrs.items():
            out.line(f"{variable}.{name} = {out.value(value)}")
        return variable


def bind(tr: Tracer, fn: FunctionValue, args: list[Value], kwargs: dict[str, Value]) -> dict[str, Value]:
    """Match a call's arguments to parameters as CPython does, or raise its TypeError."""
    code = fn.code
    positional = code.co_argcount
    names = code.co_varnames
    keyword_only = code.co_kwonlyargcount
    bound: dict[str, Value] = dict(zip(names[:positional], args, strict=False))
    slot = positional + keyword_only
    if code.co_flags & inspect.CO_VARARGS:
        bound[names[slot]] = TupleValue(list(args[positional:]))
        slot += 1
    elif len(args) > positional:
        raise _refused(tr, fn, _too_many(fn, len(args)))
    extra: dict[str, Value] = {}
    accepted = names[code.co_posonlyargcount : positional + keyword_only]
    for name, value in kwargs.items():
        if name in accepted:
            if name in bound:
                message = f"{fn.qualname}() got multiple values for argument '{name}'"
                raise _refused(tr, fn, message)
            bound[name] = value
        else:
            extra[name] = value
    if code.co_flags & inspect.CO_VARKEYWORDS:
        bound[names[slot]] = DictValue({k: (ConstValue(k), v) for k, v in extra.items()})
        slot += 1
    elif by_position := [repr(name) for name in names[: code.co_posonlyargcount] if name in extra]:
        words = "got some positional-only arguments passed as keyword arguments:"
        message = f"{fn.qualname}() {words} {', '.join(by_position).replace(chr(39) + ', ' + chr(39), ', ')}"
        raise _refused(tr, fn, message)
    elif extra:
        message = f"{fn.qualname}() got an unexpected keyword argument '{next(iter(extra))}'"
        raise _refused(tr, fn, message)
    if len(bound) < slot:
        _fill_defaults(tr, fn, bound)
    return bound


def _fill_defaults(tr: Tracer, fn: FunctionValue, bound: dict[str, Value]) -> None:
    code = fn.code
    names, positional = code.co_varnames, code.co_argcount
    first_default = positional - len(fn.defaults)
    missing = []
    for index in range(positional):
        if names[index] not in bound:
            if index >= first_default:
                bound[names[index]] = fn.defaults[index - first_default]
            else:
                missing.append(names[index])
    kind = "positional"
    if not missing:
        for name in names[positional : positional + code.co_kwonlyargcount]:
            if name not in bound:
                if name in fn.kwdefaults:
                    bound[name] = fn.kwdefaults[name]
                else:
                    kind = "keyword-only"
                    missing.append(name)
    if missing:
        quoted = [f"'{name}'" for name in missing]
        listed = (
            quoted[0]
            if len(quoted) == 1
            else f"{', '.join(quoted[:-1])}{',' if len(quoted) > 2 else ''} and {quoted[-1]}"
        )
        plural = "s" if len(missing) > 1 else ""
        message = f"{fn.qualname}() missing {len(missing)} required {kind} argument{plural}: {listed}"
        raise _refused(tr, fn, message)


def _too_many(fn: FunctionValue, given: int) -> str:
    positional, optional = fn.code.co_argcount, len(fn.defaults)
    takes = f"from {positional - optional} to {positional}" if optional else str(positional)
    plural = "" if positional == 1 and not optional else "s"
    verb = "was" if given == 1 else "were"
    return f"{fn.qualname}() takes {takes} positional argument{plural} but {given} {verb} given"


def _refused(tr: Tracer, fn: FunctionValue, message: str) -> Exception:
    """The program's TypeError; C code, for which a function of ours stands, has other words for it."""
    if str(fn.globals.get("__name__")).startswith("torchmux.frontend.polyfills."):
        return GraphBreak(C_FUNCTION, f"{fn.qualname.strip('_')}() with these arguments")
    return Raised(tr.make_exception(TypeError, message))
