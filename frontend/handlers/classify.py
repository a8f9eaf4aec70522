"""Decides which torch callables are operators of the graph, which are ordinary Python to trace, and which end the
graph.

An operator computes tensors from tensors without any other state: the C functions of the public
namespaces, and the Python functions of ``torch.nn.functional`` and ``torch.functional``, which backends expect whole.
"""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from torchmux import torch_internals as ti
from torchmux.registry.errors import Unsupported

from .. import breaks
from ..guards.kinds.objects import AttributeIs
from ..guards.sources import Const, Source
from ..values.base import MISSING, Raised, Value
from ..values.classes import BuiltinValue, DisabledValue, RealValue
from ..values.functions import wrap_function
from ..values.meshes import whole_call
from ..values.overrides import call_override, overriding
from ..values.tensors import TensorValue
from .table import FUNCTIONS

if TYPE_CHECKING:
    from ..trace.tracer import Tracer

# C functions of torch's namespaces that are not operators: they read or change global state, or leave torch.
_NOT_OPERATORS = frozenset(
    {"set_default_dtype", "get_default_dtype", "manual_seed", "seed", "initial_seed", "save", "load",
     "set_num_threads", "get_num_threads", "compile", "vmap", "from_numpy", "frombuffer", "typename",
     "is_grad_enabled", "set_grad_enabled", "is_inference_mode_enabled", "is_tensor", "is_storage",
     "set_default_device", "get_default_device", "fork", "wait", "parse_schema", "parse_ir", "parse_type_comment",
     "import_ir_module", "set_flush_denormal", "init_num_threads", "from_dlpack", "to_dlpack",
     "set_anomaly_enabled", "is_anomaly_enabled", "get_rng_state", "set_rng_state", "is_floating_point",
     "is_complex", "is_nonzero", "numel", "result_type", "promote_types", "can_cast", "is_signed", "is_inference",
     "is_conj", "is_neg", "is_same_size", "sym_int", "sym_not", "sym_max", "sym_min", "sym_float", "sym_ite",
     "use_deterministic_algorithms", "are_deterministic_algorithms_enabled", "broadcast_shapes",
     "set_printoptions", "get_device_module", "get_file_path", "prepare_multiprocessing_environment",
     "set_warn_always", "is_warn_always_enabled", "is_deterministic_algorithms_warn_only_enabled",
     "get_deterministic_debug_mode", "set_deterministic_debug_mode", "get_float32_matmul_precision",
     "set_float32_matmul_precision", "cond", "while_loop", "autocast_increment_nesting",
     "autocast_decrement_nesting", "clear_autocast_cache", "is_autocast_enabled", "set_autocast_enabled",
     "get_autocast_dtype", "set_autocast_dtype", "is_autocast_cache_enabled", "set_autocast_cache_enabled",
     "is_autocast_cpu_enabled", "get_autocast_gpu_dtype", "get_autocast_cpu_dtype", "set_autocast_cpu_enabled",
     "set_autocast_gpu_dtype", "set_autocast_cpu_dtype", "default_generator", "align_tensors"}
)  # fmt: skip
_PYTHON_OPERATOR_MODULES = frozenset(
    {"torch.nn.functional", "torch.functional", "torch._jit_internal", "torch.nn.init"}
)
_OVERRIDES = ("has_torch_function", "handle_torch_function", "__")  # asked for other classes of tensors only
# Functions that decide by data, or consist of what a compiler should see one by one.
_TRACED_ANYWAY = frozenset({"multi_head_attention_forward", "gaussian_nll_loss"})


@functools.cache
def _operators() -> dict[int, Any]:
    """Every operator by id; the objects are kept, so the ids stay theirs."""
    found: dict[int, Any] = {}
    namespaces = [torch, torch.nn.functional, torch.linalg, torch.special, torch.fft, ti.VariableFunctions]
    for namespace in [*namespaces, *ti.c_operator_modules()]:
        for name in dir(namespace):
            if name in _NOT_OPERATORS or (name.startswith("__")):
                continue
            obj = getattr(namespace, name, None)
            if isinstance(obj, types.BuiltinFunctionType):
                if name.startswith("_") and namespace is torch:
                    continue
                found[id(obj)] = obj
            elif isinstance(obj, types.FunctionType) and obj.__module__ in _PYTHON_OPERATOR_MODULES:
                if obj.__module__ != "torch.nn.init" and name not in _TRACED_ANYWAY:
                    found[id(obj)] = obj
    return found


def is_operator(obj: Any) -> bool:
    """Whether a callable is one of torch's own operators."""
    return id(obj) in _operators()


_allowed: dict[int, Any] = {}
_disallowed: dict[int, Any] = {}
_forbidden: dict[int, Any] = {}
_constant: dict[int, Any] = {}
_substitutes: dict[int, tuple[Any, Any, bool]] = {}  # id -> (original, what is traced instead, whether it is pure)

# (module, name) of a marker of torch's own tracer -> the handler of ours that means the same
TORCH_MARKERS: dict[tuple[str, str], Any] = {}


def allow_in_graph(fn: Any) -> None:
    _disallowed.pop(id(fn), None)
    _allowed[id(fn)] = fn


def disallow_in_graph(fn: Any) -> None:
    _allowed.pop(id(fn), None)
    _disallowed[id(fn)] = fn


def forbid_in_graph(fn: Any) -> None:
    _forbidden[id(fn)] = fn


def assume_constant(fn: Any) -> None:
    _constant[id(fn)] = fn


def substitute(original: Any, polyfill: Any, pure: bool) -> None:
    _substitutes[id(original)] = (original, polyfill, pure)


def is_disabled(fn: Any) -> str | None:
    """Why a Python function must not be traced, if it says so itself."""
    for owner, mark, why in (
        ("torchmux.disable", "_torchmux_disable", "_torchmux_disable_reason"),
        ("torch.compiler.disable", "_torchdynamo_disable", "_torchdynamo_disable_msg"),
    ):
        if fn.__dict__.get(mark):
            reason = fn.__dict__.get(why)
            return f"is marked with {owner}" + (f" ({reason})" if reason else "")
    return None


def patched_by_torch(fn: Any) -> Any:
    """What torch's own tracer, once it is imported, has wrapped for its own ends.

    ``Module.__init__`` notes which modules are new, and a module made in our graph is never its business; an
    optimizer's ``_init_group`` is kept from that tracer only.  Its own configuration, which exported programs change
    while they verify their inputs, does not concern us.
    """
    if fn.__name__ == "_init_group" and (fn.__module__ or "").startswith("torch.optim."):
        return fn.__dict__.get("_torchdynamo_orig_callable")
    if fn.__module__ == "torch._dynamo.mutation_guard" and fn.__code__.co_freevars == ("init",):
        return fn.__closure__[0].cell_contents
    return ti.under_dynamo_config(fn)


class OperatorValue(RealValue):
    """An operator: calling it makes a node."""

    __slots__ = ()

    def call(self, tr: Tracer, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if asked := overriding(tr, (*args, *kwargs.values())):
            if isinstance(self.obj, types.FunctionType):  # which asks them itself
                return wrap_function(tr, self.obj, None).call(tr, args, kwargs)
            return call_override(tr, self, asked, args, kwargs or None)
        if isinstance(self.obj, types.FunctionType):
            _guard_what_it_reads(tr, self.obj)
        else:  # code of a graph calls functions by their names
            name = getattr(self.obj, "__name__", "")
            if any(is_replaced(owner, name) for owner in (torch, torch.nn.functional, *ti.c_operator_modules())):
                raise breaks.GraphBreak(breaks.OPERATION, f"{name} of torch, in the place of which there is another")
        # What ``torch.library.custom_op`` returns calls its operator, which is what graphs hold.
        return tr.emit("call_function", getattr(self.obj, "_opoverload", self.obj), args, kwargs)

    def getattr(self, tr: Tracer, name: str) -> Value:
        try:
            found = getattr(self.obj, name)
        except AttributeError as error:
            raise Raised(tr.exception(error)) from None
        return tr.wrap(found, None)


def is_replaced(owner: Any, name: str) -> bool:
    """Whether a module or class of torch has a function of the program's under a name."""
    found = getattr(owner, name, None)
    return isinstance(found, types.FunctionType) and not is_settled(str(found.__module__))


def _guard_what_it_reads(tr: Tracer, function: types.FunctionType) -> None:
    """A Python function of torch, which stays whole in the graph, goes on calling what it calls now."""
    if function.__module__ not in _PYTHON_OPERATOR_MODULES:
        return
    for owner, name in _reads(function):
        found = getattr(owner, name, None)
        if is_replaced(owner, name):
            words = f"{owner.__name__}.{name}, which {function.__name__} calls, has been replaced"
            raise breaks.GraphBreak(breaks.OPERATION, words)
        if found is not None and found is getattr(owner, name):
            tr.guards.add(AttributeIs(Const(owner, owner.__name__), name, found))


@functools.cache
def _reads(function: types.FunctionType) -> tuple[tuple[Any, str], ...]:
    """The names that a function of torch, and those that it calls, may read from torch's modules and from tensors."""
    found: dict[tuple[Any, str], None] = {}
    pending, seen = [function], {function}
    while pending:
        current = pending.pop()
        names = [name for name in current.__code__.co_names if not name.startswith(_OVERRIDES)]
        home = sys.modules[current.__module__]
        owners = [home]
        for owner in owners:  # which grows
            for name in names:
                value = vars(owner).get(name)
                if isinstance(value, types.ModuleType):
                    if value.__name__.startswith("torch") and value not in owners:
                        owners.append(value)
                elif callable(value) and not isinstance(value, type):
                    found[owner, name] = None
                    if isinstance(value, types.FunctionType) and value.__module__ in _PYTHON_OPERATOR_MODULES:
                        pending += {value} - seen
                        seen.add(value)
        found.update(dict.fromkeys((torch.Tensor, name) for name in names if hasattr(torch.Tensor, name)))
        inner = [cell.cell_contents for cell in current.__closure__ or ()]  # of those that choose one of two
        pending += {each for each in inner if isinstance(each, types.FunctionType)} - seen
        seen.update(each for each in inner if isinstance(each, types.FunctionType))
    return tuple(found)


class ConstantResultValue(RealValue):
    """A function marked with ``assume_constant_result``: called while compiling, its result is baked in."""

    __slots__ = ()

    def call(self, tr: Tracer, args: list[Value], kwargs: dict[str, Value]) -> Value:
        plain = [self._given(tr, value) for value in args]
        return tr.lift(self.obj(*plain, **{name: self._given(tr, value) for name, value in kwargs.items()}))

    def _given(self, tr: Tracer, value: Value) -> Any:
        """What the function is called with: a constant, or an object as it was when the frame was entered."""
        found = value.real()
        if isinstance(value, TensorValue) and value.is_input:
            found = tr.real_inputs[value.node]
        if found is MISSING:
            return value.const(tr)
        written = isinstance(value, TensorValue) and tr.is_written(value)
        if written or value in tr.effects.changed_values:
            reason = (
                f"{self.describe()} has a constant result, but is called with {value.describe()}, which has changed"
            )
            raise breaks.GraphBreak(breaks.OPERATION, reason)
        if not value.is_const() and not isinstance(value, TensorValue) and value.source is not None:
            tr.guards.is_object(value.source, found)  # that of another object is another constant
        return found


def forbidden(name: str, where: str) -> Unsupported:
    """The error for calling what is marked with ``forbid_in_graph``."""
    return Unsupported(f"{name} is marked with forbid_in_graph, but compiled code calls it at {where}.")


class ForbiddenValue(RealValue):
    """A function marked with ``forbid_in_graph``: calling it is an error."""

    __slots__ = ()

    def call(self, tr: Tracer, args: list[Value], kwargs: dict[str, Value]) -> Value:
        raise forbidden(self.describe(), tr.user_place()[0])


class SubstitutedValue(RealValue):
    """A function in whose place another is traced."""

    __slots__ = ()

    def call(self, tr: Tracer, args: list[Value], kwargs: dict[str, Value]) -> Value:
        original, polyfill, pure = _substitutes[id(self.obj)]
        if pure and all(value.is_const() for value in (*args, *kwargs.values())):
            return tr.fold(original, [a.const(tr) for a in args], {k: v.const(tr) for k, v in kwargs.items()})
        return tr.wrap(polyfill, None).call(tr, args, kwargs)


class MarkerValue(RealValue):
    """A marker of torch's own tracer, called by the program."""

    __slots__ = ()

    def call(self, tr: Tracer, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return TORCH_MARKERS[self.obj.__module__, self.obj.__name__](tr, *args, **kwargs)


def function_value(obj: Any, source: Source | None) -> Value | None:
    """The value of a function that is an operator, is marked, or has a handler of its own; None otherwise.

    The rules in ``READ_ORDER`` are asked; the first that knows the function decides.
    """
    for rule in READ_ORDER:
        value = rule(obj, source)
        if value is not None:
            return value
    return None


# --- the rules, in the order in which they are asked ----------------------------------------------------------------


def substituted(obj: Any, source: Source | None) -> Value | None:
    """``torchmux.substitute_in_graph``: another function is traced in its place."""
    return SubstitutedValue(obj, source) if id(obj) in _substitutes else None


def marked(obj: Any, source: Source | None) -> Value | None:
    """``torchmux.forbid_in_graph``, ``disallow_in_graph``, ``assume_constant_result``, ``allow_in_graph``."""
    key = id(obj)
    if key in _forbidden:
        return ForbiddenValue(obj, source)
    if key in _disallowed:
        return DisabledValue(obj, f"{getattr(obj, '__qualname__', obj)} is disallowed in graphs", source=source)
    if key in _constant:
        return ConstantResultValue(obj, source)
    return OperatorValue(obj, source) if key in _allowed else None


def handled(obj: Any, source: Source | None) -> Value | None:
    """``table.FUNCTIONS``: a handler carries out the call, also of a Python function."""
    try:
        return BuiltinValue(obj, source) if obj in FUNCTIONS else None
    except TypeError:  # without a hash
        return None


def marker_of_torch(obj: Any, source: Source | None) -> Value | None:
    """``TORCH_MARKERS``: ``torch.compiler.disable`` and its kin, called by the program."""
    known = isinstance(obj, types.FunctionType) and (obj.__module__, obj.__name__) in TORCH_MARKERS
    return MarkerValue(obj, source) if known else None


def marked_for_torch(obj: Any, source: Source | None) -> Value | None:
    """What the program told torch's own tracer about the function, with ``torch.compiler.allow_in_graph``, say."""
    mark = ti.marked_for_torch(id(obj))
    if mark == "disallowed":
        return DisabledValue(obj, f"{getattr(obj, '__qualname__', obj)} is disallowed in graphs", source=source)
    if not isinstance(obj, types.FunctionType):
        return None
    if obj.__dict__.get("_dynamo_forbidden"):
        return ForbiddenValue(obj, source)
    if obj.__dict__.get("_dynamo_marked_constant"):
        return ConstantResultValue(obj, source)
    return OperatorValue(obj, source) if mark == "allowed" else None


def operator(obj: Any, source: Source | None) -> Value | None:
    """An operator of torch: calling it makes a node of the graph."""
    return OperatorValue(obj, source) if id(obj) in _operators() else None


def in_refused_module(obj: Any, source: Source | None) -> Value | None:
    """A Python function of a module in ``_REFUSED``: calling it ends the graph."""
    if not isinstance(obj, types.FunctionType):
        return None
    reason = refused_module(obj.__module__ or "")
    name = f"{obj.__module__}.{obj.__qualname__}"
    if reason is None or ti.enters_a_context(obj) or name.startswith(_TRACED_IN_REFUSED):
        return None
    return DisabledValue(obj, f"{name} {reason}", breaks.TORCH_STATE, source)


READ_ORDER: tuple[Callable[[Any, Source | None], Value | None], ...] = (
    substituted,
    marked,
    handled,
    marker_of_torch,
    marked_for_torch,
    operator,
    whole_call,
    in_refused_module,
)


# Python parts of torch (and of the library) that must not be traced: they steer the machinery that traces.
_REFUSED = {
    "torch._dynamo": "belongs to another tracer",
    "torch._inductor": "belongs to a compiler",
    "torch.fx": "builds graphs",
    "torch._functorch": "transforms functions",
    "torch.autograd": "runs autograd",
    "torch.distributed": "communicates",
    "torch.utils.checkpoint": "runs autograd",
    "torch.jit": "compiles TorchScript",
    "torch.multiprocessing": "starts processes",
    "torch._higher_order_ops": "takes functions as operands",
    "torch.func": "transforms functions",
    "torch.random": "uses global random state",
    "torch.serialization": "reads files",
    "torch.cuda": "uses the device's state",
    "torchmux": "belongs to torchmux",
    "logging": "writes a log",
    "warnings": "issues a warning",
    "traceback": "inspects the running program",
    "random": "uses global random state",
    "threading": "uses threads",
    "subprocess": "starts processes",
    "numpy": "computes outside torch",
    "triton": "launches kernels",
}
_TRACED_PARTS = (
    "torch.autograd.grad_mode",
    "torch.autograd.profiler",
    "torch.distributed.tensor._api",  # the functions that communicate otherwise end in modules that are refused
    "torch.distributed.tensor.parallel.style",
    "torch.fx._pytree",  # flattens the arguments of exported programs
    "torch._higher_order_ops.associative_scan",  # a recursion in Python over torch.vmap
    "torchmux.frontend.polyfills",
    "torchmux.conformance",  # its cases are programs, which the hook captures too
    "torchmux.zoo",  # and so are its models
    "torch.cuda.amp",
)
_TRACED_IN_REFUSED = (  # what decorates a function from torch 2.14 on, and calls what is handled
    "torch.utils.checkpoint._CheckpointedFunction.",
    "torch.utils.checkpoint._make_checkpoint_wrapper",
)


@functools.cache
def refused_module(module: str) -> str | None:
    if module.startswith(_TRACED_PARTS):
        return None
    parts = module.split(".")
    for count in range(len(parts), 0, -1):
        reason = _REFUSED.get(".".join(parts[:count]))
        if reason:
            return reason
    return None


_SETTLED = frozenset({"torch", "torchmux", *sys.stdlib_module_names})


@functools.cache
def is_settled(module: str) -> bool:
    """Whether a module's classes and functions never change: programs do not patch the library itself."""
    return module.partition(".")[0] in _SETTLED and module != "__main__"


def is_operator_object(obj: Any) -> bool:
    """``torch.ops.namespace.name`` and its overloads, custom operators included."""
    return type(obj).__module__ in ("torch._ops", "torch._library.custom_ops") and callable(obj)


def operator_value(obj: Any, source: Source | None) -> Value:
    if "HigherOrder" in type(obj).__mro__[-2].__name__ or any("HigherOrder" in c.__name__ for c in type(obj).__mro__):
        return DisabledValue(obj, f"{obj} takes functions as operands", breaks.TORCH_STATE, source)
    return OperatorValue(obj, source)
