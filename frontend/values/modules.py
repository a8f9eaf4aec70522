"""``nn.Module`` objects: submodules, parameters and buffers by the shortest guarded path; calls with their hooks."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.modules import module as nn_module
from torch.nn.modules.lazy import LazyModuleMixin

from torchmux import torch_internals as ti

from ..breaks import OPERATION, GraphBreak
from ..capture.attempts import StateChanged
from ..capture.random_operators import may_draw
from ..guards.kinds.containers import Keys, Length
from ..guards.kinds.modules import NoHooks, RegistersNothingBut, Unregistered, Unshadowed
from ..guards.sources import Attr, Const, Item, Source
from ..guards.stable_objects import HOOKS, TABLES
from .base import MISSING, Raised, Value
from .constants import ConstValue
from .containers.iteration import SequenceIterator
from .containers.sequences import SliceValue
from .descriptors import bind_class_attribute
from .objects import ObjectValue
from .tensors import TensorValue

if TYPE_CHECKING:
    from ..trace.tracer import FrameWriter, Tracer

_GLOBAL_HOOKS = (
    "_global_backward_pre_hooks", "_global_backward_hooks", "_global_forward_hooks", "_global_forward_pre_hooks",
)  # fmt: skip
_REGISTRATION_HOOKS = ("_global_module_registration_hooks", "_global_parameter_registration_hooks")
_GETATTR, _SETATTR = nn_module.Module.__getattr__, nn_module.Module.__setattr__
_ITEM_OF_LIST = torch.nn.ModuleList.__getitem__
_CALL_IMPL = nn_module.Module._call_impl
_WRAPPED_CALL_IMPL = nn_module.Module._wrapped_call_impl


class NNModuleValue(ObjectValue):
    """An existing module."""

    __slots__ = ()

    def _getattr_with_fallback(self, tr: Tracer, name: str, custom: Any) -> Value:
        if tr.static_lookup(self.cls, "__getattr__") is not _GETATTR or isinstance(custom, types.FunctionType):
            return super()._getattr_with_fallback(tr, name, custom)
        try:
            found = self._find_or_guard_later(tr, name)
        except Raised as raised:  # by a property: Module.__getattr__ is asked next
            if not issubclass(raised.value.pytype(), AttributeError):
                raise
            found = None
        if found is not None:
            return found
        registered = self.registered(tr, name)
        if registered is not None:
            tr.guard_class_attribute(self.cls, "__getattr__", _GETATTR)
            tr.guard_lookup(self.cls, name, MISSING)
            return registered
        if self.source is not None and not any(name in self.obj.__dict__.get(table, ()) for table in TABLES):
            tr.guards.add(Unregistered(self.source, name))  # and not what the trace itself has removed
        tr.guard_lookup(self.cls, name, MISSING)
        tr.guard_class_attribute(self.cls, "__getattr__", _GETATTR)
        message = f"{self.cls.__name__!r} object has no attribute {name!r}"
        raise Raised(tr.make_exception(AttributeError, message))

    def _find_or_guard_later(self, tr: Tracer, name: str) -> Value | None:
        """As :meth:`find`, but for the caller to guard that there is nothing of that name, wherever it may be."""
        # the instance's own dictionary comes first; Module.__setattr__ puts no registered name there, others may
        is_own = name in self.attrs or name in self.obj.__dict__
        if not is_own and tr.effects.class_attribute(self.cls, name) is None:
            raw = tr.static_lookup(self.cls, name)
            if raw is MISSING:
                return None
        return self.find(tr, name)

    def registered(self, tr: Tracer, name: str) -> Value | None:
        """A parameter, buffer or submodule."""
        own = self.obj.__dict__
        for table in TABLES:
            contents = own.get(table)
            if contents is None:
                continue
            written = self._written_table(tr, table)
            if written is not None:
                found = written.lookup(tr, ConstValue(name))
                if found is not None:
                    return found
            elif name in contents:
                if self.source is not None:
                    tr.guards.add(Unshadowed(self.source, name))
                source = Item(Attr(self.source, table), name) if self.source else None
                return tr.wrap_registered(contents[name], source, table)
        return None

    def _written_table(self, tr: Tracer, table: str) -> Any:
        """The table as a dictionary value, if the trace has already changed it."""
        value = tr.memo_of(self.obj.__dict__[table])
        if value is None or (tr.effects.is_clean(value) and value not in tr.swapped):
            return None
        return value

    def _has_moved(self, tr: Tracer, name: str) -> bool:
        """Whether the trace has registered this name, or has removed it."""
        written = [(table, self._written_table(tr, table)) for table in TABLES if table in self.obj.__dict__]
        return any(w is not None and w.has(tr, ConstValue(name)) != (name in self.obj.__dict__[t]) for t, w in written)

    def setattr(self, tr: Tracer, name: str, value: Value) -> None:
        custom = tr.static_lookup(self.cls, "__setattr__")
        if custom is _SETATTR:
            tr.guard_class_attribute(self.cls, "__setattr__", custom)
        else:
            super().setattr(tr, name, value)
            return
        if issubclass(value.pytype(), (torch.nn.Parameter, torch.nn.Module)):
            if value is self.registered(tr, name) and not any(getattr(nn_module, t) for t in _REGISTRATION_HOOKS):
                tr.guard_no_global_hooks(nn_module, _REGISTRATION_HOOKS)
                return  # it is there already
            tr.wrap(_SETATTR, None).call(tr, [self, ConstValue(name), value], {})
            return
        own = self.obj.__dict__
        if "_modules" not in own:  # Module.__init__ has not run, or is running
            super().setattr(tr, name, value)
            return
        if name in own["_parameters"] or name in own["_modules"] or self._has_moved(tr, name):
            tr.wrap(_SETATTR, None).call(tr, [self, ConstValue(name), value], {})
            return
        if self.source is not None:
            tr.guards.add(RegistersNothingBut(self.source, name, name in own["_buffers"]))
        if name in own["_buffers"]:
            if not issubclass(value.pytype(), (torch.Tensor, type(None))):
                raise GraphBreak(
                    OPERATION, f"replacing buffer {name!r} of {self.describe()} with a value that is not a tensor"
                )
            source = Attr(self.source, "_buffers") if self.source else None
            tr.wrap(own["_buffers"], source).setitem(tr, ConstValue(name), value)
            return
        self.set_plain(tr, name, value)

    def call(self, tr: Tracer, args: list[Value], kwargs: dict[str, Value]) -> Value:
        pin = tr.placement.get(id(self.obj))
        if pin is not None:
            tr.pins.append(pin)
        name = self.cls.__name__ if self.source is None else self.source.module_path()
        tr.calls_of_modules.append(name)
        try:
            return self._call(tr, args, kwargs)
        finally:
            tr.calls_of_modules.pop()
            if pin is not None:
                tr.pins.pop()

    def _call(self, tr: Tracer, args: list[Value], kwargs: dict[str, Value]) -> Value:
        raw_call = tr.static_lookup(self.cls, "__call__")
        tr.guard_class_attribute(self.cls, "__call__", raw_call)
        of_fx = isinstance(self.obj, torch.fx.GraphModule) and ti.calls_forward_alone(self.obj)
        if raw_call is not _WRAPPED_CALL_IMPL and not of_fx:
            return bind_class_attribute(tr, self, self.cls, "__call__", raw_call).call(tr, args, kwargs)
        impl = tr.static_lookup(self.cls, "_call_impl")
        tr.guard_lookup(self.cls, "_call_impl", impl)
        tr.guard_class_attribute(nn_module.Module, "_call_impl", nn_module.Module._call_impl)
        own = self.obj.__dict__
        if impl is not _CALL_IMPL and not of_fx:
            return bind_class_attribute(tr, self, self.cls, "_call_impl", impl).call(tr, args, kwargs)
        if isinstance(self.obj, LazyModuleMixin) and "_initialize_hook" in own:
            self._initialize_lazy(tr, args, kwargs)
        if own.get("_compiled_call_impl") is not None:
            raise GraphBreak(OPERATION, f"{self.describe()} was compiled in place by Module.compile")
        if any(self._has_hooks(tr, table) for table in HOOKS) or _has_global_hooks(tr):
            if self._has_hooks(tr, "_forward_hooks_always_called") or nn_module._global_forward_hooks_always_called:
                # torch's own code calls them only where it is not compiled
                raise GraphBreak(OPERATION, f"{self.describe()} has forward hooks that are always called")
            return tr.wrap(_CALL_IMPL, None).call(tr, [self, *args], kwargs)
        if self.source is not None:
            tr.guards.add(NoHooks(self.source))
        tr.guard_no_global_hooks(nn_module, _GLOBAL_HOOKS)
        return self.getattr(tr, "forward").call(tr, args, kwargs)

    def _has_hooks(self, tr: Tracer, table: str) -> bool:
        """Whether a table of hooks has any, the trace's own among them."""
        hooks = self.obj.__dict__.get(table)
        written = None if hooks is None else self._written_table(tr, table)
        return bool(hooks) if written is None else written.truth(tr)

    def _initialize_lazy(self, tr: Tracer, args: list[Value], kwargs: dict[str, Value]) -> None:
        """Let a lazy module make its parameters, for which it only looks at shapes; the trace starts again with them.

        Random numbers must be drawn in eager's order, so not behind an operator of the graph that draws some.
        """
        values = [v for v in (*args, *kwargs.values()) if isinstance(v, TensorValue)]
        if tr.effects or len(values) < len(args) + len(kwargs) or any(map(may_draw, tr.graph.nodes)):
            return
        given = [torch.empty(tuple(map(int, v.example.shape)), dtype=v.example.dtype, device="meta") for v in values]
        named = dict(zip(kwargs, given[len(args) :], strict=True))
        try:
            with torch.enable_grad() if tr.initial_grad else torch.no_grad():
                self.obj._infer_parameters(self.obj, tuple(given[: len(args)]), named)
        except Exception as error:
            raise GraphBreak(OPERATION, f"creating the parameters of {self.describe()}: {error}", error) from None
        raise StateChanged(f"{self.describe()} has made its parameters")

    def special(self, tr: Tracer, name: str) -> Value | None:
        if name == "__getitem__" and isinstance(self.obj, torch.nn.ModuleList):
            found = tr.static_lookup(self.cls, name)
            tr.guard_lookup(self.cls, name, found)
            if found is _ITEM_OF_LIST and self._written_table(tr, "_modules") is None:
                return ModuleListItem(self)
        return super().special(tr, name)

    def rebuild(self, out: FrameWriter) -> str:
        raise GraphBreak(OPERATION, f"{self.describe()} has no path by which the compiled frame could load it")


def _has_global_hooks(tr: Tracer) -> bool:
    for table in _GLOBAL_HOOKS:
        hooks = getattr(nn_module, table)
        written = tr.memo_of(hooks)
        if hooks or (written is not None and not tr.effects.is_clean(written)):
            return True
    return False


class ModuleListItem(Value):
    """``ModuleList.__getitem__``: an index is one guarded path; a slice is the submodules, as a tuple-like list."""

    __slots__ = ("owner",)

    def __init__(self, owner: NNModuleValue) -> None:
        self.owner = owner
        self.source = None

    def pytype(self) -> type:
        return types.MethodType

    def call(self, tr: Tracer, args: list[Value], kwargs: dict[str, Value]) -> Value:
        owner, key = self.owner, args[0]
        children = list(owner.obj._modules)
        if isinstance(key, SliceValue):
            picked = children[key.const(tr)]
            table = Attr(owner.source, "_modules") if owner.source else None
            if table is not None:
                tr.guards.add(Keys(table, tuple(children), "submodules"))
            return ModuleSliceValue([self._child(tr, name) for name in picked])
        index = key.const(tr)
        if not -len(children) <= index < len(children):
            raise Raised(tr.make_exception(IndexError, f"index {index} is out of range"))
        if index < 0 and owner.source is not None:
            tr.guards.add(Length(Attr(owner.source, "_modules"), len(children), "submodules"))
        return self._child(tr, str(range(len(children))[index]))

    def _child(self, tr: Tracer, name: str) -> Value:
        child = self.owner.registered(tr, name)
        assert child is not None
        return child


class ModuleSliceValue(Value):
    """A ``ModuleList`` that slicing another one made: nothing but its submodules."""

    __slots__ = ("items",)

    def __init__(self, items: list[Value]) -> None:
        self.items = items
        self.source = None

    def pytype(self) -> type:
        return torch.nn.ModuleList

    def truth(self, tr: Tracer) -> bool:
        return bool(self.items)

    def length(self, tr: Tracer) -> Value:
        return ConstValue(len(self.items))

    def iter(self, tr: Tracer) -> Value:
        return SequenceIterator(self.items)

    def getitem(self, tr: Tracer, key: Value) -> Value:
        if isinstance(key, SliceValue):
            return ModuleSliceValue(self.items[key.const(tr)])
        try:
            return self.items[key.const(tr)]
        except IndexError:
            raise Raised(tr.make_exception(IndexError, f"index {key.const(tr)} is out of range")) from None

    def rebuild(self, out: FrameWriter) -> str:
        return f"{out.names.const(torch.nn.ModuleList)}({out.container('[', ']', self.items)})"


def wrap_module(tr: Tracer, obj: torch.nn.Module, source: Source | None) -> Value:
    """An existing module, guarded by its exact class."""
    if isinstance(obj, torch.jit.ScriptModule):
        raise GraphBreak(OPERATION, f"{type(obj).__qualname__} is a TorchScript module")
    if source is not None:
        tr.guards.type_is(source, type(obj))
        tr.module_sources.add(source)
    return NNModuleValue(type(obj), obj, source or Const(obj, type(obj).__name__))
