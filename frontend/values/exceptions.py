"""Exception objects of the traced program, and their traceback, which the program may not inspect."""

from __future__ import annotations

import builtins
import types
from typing import TYPE_CHECKING, Any

from ..breaks import NOT_REBUILDABLE, OPERATION, GraphBreak
from ..guards.sources import Attr, Const, Source
from .base import MISSING, Value
from .builtin_methods import BuiltinMethodValue
from .constants import ConstValue
from .containers.sequences import TupleValue
from .objects import ObjectValue

if TYPE_CHECKING:
    from ..trace.tracer import FrameWriter, Tracer

_CHAIN = ("__cause__", "__context__")
# Builtin classes whose C code keeps more than their arguments, or makes something else of them.
_KEEPS_MORE = (OSError, SyntaxError, UnicodeError, SystemExit, ImportError, BaseExceptionGroup)
_TAKES = {AttributeError: ("name", "obj"), NameError: ("name",)}  # by keyword


class TracebackValue(Value):
    """The traceback of an exception of the trace: there is one, and that is all that can be said of it."""

    __slots__ = ()

    def pytype(self) -> type:
        return types.TracebackType

    def truth(self, tr: Tracer) -> bool:
        return True


class ExceptionValue(ObjectValue):
    """An exception object; ``args`` is what ``BaseException.args`` holds."""

    __slots__ = ("args", "has_traceback")

    def __init__(self, cls: type, args: list[Value], obj: Any = MISSING, source: Source | None = None) -> None:
        super().__init__(cls, obj, source)
        self.args = TupleValue(args)
        self.has_traceback = False

    def find(self, tr: Tracer, name: str) -> Value | None:
        if name == "args":
            return self.args
        if name == "with_traceback":
            return BuiltinMethodValue(self, BaseException, name)
        if name in (*_CHAIN, "__suppress_context__", "__traceback__") or self._is_builtin_field(tr, name):
            return self._field(tr, name)
        return super().find(tr, name)

    def _is_builtin_field(self, tr: Tracer, name: str) -> bool:
        """Whether a builtin exception class keeps ``name`` in C: ``OSError.errno``, ``StopIteration.value``."""
        raw = tr.static_lookup(self.cls, name)
        if not isinstance(raw, (types.MemberDescriptorType, types.GetSetDescriptorType)) or name == "__dict__":
            return False
        return raw.__objclass__.__module__ == "builtins"

    def _field(self, tr: Tracer, name: str) -> Value:
        written = self.attrs.get(name)
        if isinstance(written, Value):
            return written
        if name == "value" and issubclass(self.cls, StopIteration):
            items = self.args.items(tr)
            return items[0] if items else ConstValue(None)
        if self.obj is MISSING and name in _CHAIN:
            return ConstValue(None)
        if self.obj is MISSING and name == "__suppress_context__":
            return ConstValue(False)
        if self.obj is MISSING and name == "__traceback__":
            return TracebackValue() if self.has_traceback else ConstValue(None)
        raise GraphBreak(OPERATION, f"{name} of an exception")

    def set_plain(self, tr: Tracer, name: str, value: Value) -> None:
        if name == "args":
            self.args = TupleValue(value.unpack(tr))
        elif name in (*_CHAIN, "__suppress_context__"):
            if name in _CHAIN and not issubclass(value.pytype(), (BaseException, types.NoneType)):
                raise GraphBreak(OPERATION, f"setting {name} of an exception to {value.describe()}")
            self.attrs[name] = value
            if name == "__cause__":
                self.attrs["__suppress_context__"] = ConstValue(True)
        elif name == "__traceback__" or self._is_builtin_field(tr, name):
            raise GraphBreak(OPERATION, f"setting {name} of an exception")
        else:
            super().set_plain(tr, name, value)

    def take(self, kwargs: dict[str, Value]) -> None:
        """Keep what the class takes by keyword."""
        names = next((names for cls, names in _TAKES.items() if issubclass(self.cls, cls)), ())
        if not kwargs.keys() <= set(names):
            raise GraphBreak(OPERATION, f"creating a {self.cls.__qualname__} with {', '.join(kwargs)}")
        self.attrs.update(kwargs)

    def raised_while(self, handled: Value | None) -> None:
        """Remember, as Python does, which exception was being handled when this one was raised."""
        self.has_traceback = True
        if handled is not None and handled is not self and self.obj is MISSING:
            self.attrs.setdefault("__context__", handled)

    def call_c_method(self, tr: Tracer, cls: type, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if name == "__init__":
            self.args = TupleValue(args)
            self.take(kwargs)
            return ConstValue(None)
        if name == "with_traceback" and len(args) == 1:
            return self._with_traceback(args[0])
        if name in ("__str__", "__repr__"):
            return self._text(tr, name)
        return super().call_c_method(tr, object if cls is BaseException else cls, name, args, kwargs)

    def _with_traceback(self, traceback: Value) -> Value:
        """The exception with another traceback, of which a trace knows only whether there is one."""
        is_none = traceback.pytype() is types.NoneType
        if not is_none and not isinstance(traceback, TracebackValue):
            raise GraphBreak(OPERATION, f"with_traceback({traceback.describe()})")
        self.has_traceback = not is_none
        return self

    def _text(self, tr: Tracer, name: str) -> Value:
        """The text of the nearest builtin class: ``KeyError`` and ``OSError`` have their own."""
        base = next(c for c in self.cls.__mro__ if getattr(builtins, c.__name__, None) is c)
        if issubclass(self.cls, _KEEPS_MORE):
            raise GraphBreak(OPERATION, f"text of a {self.cls.__name__}")
        arguments = self.args.const(tr)
        try:
            sample = base(*arguments)
        except Exception as error:
            raise GraphBreak(OPERATION, f"text of a {self.cls.__name__}", error) from None
        if sample.args != arguments:
            raise GraphBreak(OPERATION, f"text of a {self.cls.__name__}")
        if name == "__str__":
            return ConstValue(str(sample))
        return ConstValue(self.cls.__name__ + repr(sample)[len(base.__name__) :])

    def rebuild(self, out: FrameWriter) -> str:
        if issubclass(self.cls, _KEEPS_MORE):
            raise GraphBreak(NOT_REBUILDABLE, f"a {self.cls.__qualname__}")
        allocate = out.names.const(BaseException.__new__)
        variable = out.shell(self, f"{allocate}({out.names.const(self.cls)})")
        out.line(f"{variable}.args = {out.value(self.args)}")
        out.after.extend(self.attribute_lines(out, variable))
        return variable


def new_exception(cls: type, args: list[Value]) -> ExceptionValue:
    """An exception object with these arguments, which its constructor keeps."""
    if issubclass(cls, _KEEPS_MORE):
        raise GraphBreak(OPERATION, f"creating a {cls.__qualname__}, which keeps more than its arguments")
    return ExceptionValue(cls, args)


def wrap_exception(tr: Tracer, obj: BaseException, source: Source | None) -> ExceptionValue:
    """An existing exception object."""
    cls = type(obj)
    if source is not None:
        tr.guards.type_is(source, cls)
    args = tr.wrap(obj.args, source and Attr(source, "args"))
    return ExceptionValue(cls, args.unpack(tr), obj, source or Const(obj, cls.__name__))
