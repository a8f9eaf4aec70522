"""torch functions that are queries, switches, context managers, or nothing at all, instead of operators."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import torch
from torch.torch_version import TorchVersion

from torchmux import torch_internals as ti
from torchmux.registry.errors import TorchmuxError

from .. import breaks
from ..breaks import GraphBreak
from ..guards.kinds.functions import AutocastDtypeIs, Returns
from ..guards.sources import Const, Global
from ..regions import use_backend
from ..values.base import Raised, Value
from ..values.constants import ConstValue, SymValue
from ..values.containers.sequences import SequenceValue, TupleValue
from ..values.contexts import (
    GRAD_CLASSES,
    UNKNOWN_GRAD,
    AutocastValue,
    ContextValue,
    GradModeValue,
    InferenceModeValue,
    NullContextValue,
    RegionValue,
)
from ..values.functions import wrap_function
from ..values.overrides import call_override, overriding
from ..values.scalars import in_optimizer
from ..values.tensors import TensorValue
from .table import FOLDABLE, constructs, handles

if TYPE_CHECKING:
    from ..trace.tracer import Tracer

NONE = ConstValue(None)
TRUE, FALSE, HALF = ConstValue(True), ConstValue(False), ConstValue(0.5)


# --- what the program asks about itself ---------------------------------------------------------------------------


@handles(torch.fx._symbolic_trace.is_fx_tracing)
def is_fx_tracing(tr: Tracer) -> Value:
    flag = Global(vars(torch.fx._symbolic_trace), "_is_fx_tracing_flag")
    found = torch.fx._symbolic_trace.is_fx_tracing()
    tr.guards.equals(flag, found)
    return ConstValue(found)


@handles(torch.compiler.is_compiling, torch.compiler.is_dynamo_compiling)
def is_compiling(tr: Tracer) -> Value:
    # Optimizers would compute otherwise than in eager: counts of steps in float32, and without checks.  But what they
    # ask of recorded CUDA graphs is not known here.
    assert tr.frame is not None
    return ConstValue(not in_optimizer(tr) or tr.frame.code.co_name.endswith("graph_capture_health_check"))


@handles(
    torch.jit.is_tracing, torch.onnx.is_in_onnx_export,
    *ti.tracing_questions(),
)  # fmt: skip
def is_other_tracer(tr: Tracer, *args: Value) -> Value:
    return FALSE


@handles(torch.jit.is_scripting)
def is_scripting(tr: Tracer) -> Value:
    return ConstValue(tr.scripted > 0)


@handles(ti.are_transforms_active)
def are_transforms_active(tr: Tracer) -> Value:
    # A capture does not begin within a transform of functorch, and each check of tensors tells theirs from others.
    region = tr.region
    while region is not None and not region.transform:
        region = region.parent
    return ConstValue(region is not None)


FOLDABLE.add(ti.infer_size)
handles(ti.get_tracing_state)(lambda tr: NONE)
handles(ti.count_dispatch_modes)(lambda tr: ConstValue(0))  # which every check of a graph guards


@handles(
    torch.overrides.has_torch_function,
    torch.overrides.has_torch_function_unary,
    torch.overrides.has_torch_function_variadic,
)
def has_torch_function(tr: Tracer, *args: Value) -> Value:
    if overriding(tr, args):
        return TRUE
    # Other inputs with an override are refused when they are read.  What hands them over to it need not be followed.
    assert tr.frame is not None
    if "handle_torch_function" in tr.frame.code.co_names:
        return FALSE
    items = [each for value in args for each in (value.items(tr) if isinstance(value, SequenceValue) else [value])]
    examples = [each.example for each in items if isinstance(each, TensorValue) and each.cls is not torch.Tensor]
    return ConstValue(torch.overrides.has_torch_function(examples))


@handles(torch.overrides.handle_torch_function)
def handle_torch_function(tr: Tracer, public_api: Value, relevant_args: Value, *args: Value, **kwargs: Value) -> Value:
    """The call by which torch's Python functions let the objects among their arguments answer."""
    return call_override(tr, public_api, overriding(tr, relevant_args.unpack(tr)), list(args), kwargs)


@handles(ti.log_api_usage_once)
def log_api_usage(tr: Tracer, *args: Value) -> Value:
    return NONE


@handles(torch.is_tensor)
def is_tensor(tr: Tracer, value: Value) -> Value:
    return ConstValue(issubclass(value.pytype(), torch.Tensor))


@handles(torch.is_grad_enabled)
def is_grad_enabled(tr: Tracer) -> Value:
    if tr.grad_enabled is UNKNOWN_GRAD:
        assert tr.region is not None
        raise GraphBreak(breaks.REGION, f"{tr.region.what} depends on the grad mode in which it will run")
    return ConstValue(tr.grad_enabled)


def _question(function: Any) -> None:
    def answer(tr: Tracer, *args: Value, **kwargs: Value) -> Value:
        return tr.lift(_asked(tr, function, *args, **kwargs))

    handles(function)(answer)


def _asked(tr: Tracer, function: Any, *args: Value, **kwargs: Value) -> Any:
    """What a function of torch returns for these constants; its errors are raised in the program."""
    given, named = [a.const(tr) for a in args], {k: v.const(tr) for k, v in kwargs.items()}
    try:
        return function(*given, **named)
    except (RuntimeError, TypeError, ValueError) as error:
        raise Raised(tr.exception(error)) from None


# Their answers are covered by the global-state guard, or cannot change while the process lives.
for _function in (
    torch.is_inference_mode_enabled, torch.get_default_dtype, torch.are_deterministic_algorithms_enabled,
    torch.get_num_threads, torch.cuda.is_available, torch.cuda.device_count, torch.is_autocast_enabled,
    torch.is_autocast_cache_enabled,
    torch.amp.is_autocast_available, torch.is_deterministic_algorithms_warn_only_enabled,
    torch.cuda.is_bf16_supported, torch.backends.mps.is_available, torch.promote_types, torch.can_cast,
    torch.distributed.is_available, ti.custom_device_name,
):  # fmt: skip
    _question(_function)


def _state_of_processes(function: Any) -> None:
    def answer(tr: Tracer) -> Value:
        found = function()
        tr.guards.add(Returns(Const(function, f"torch.distributed.{function.__name__}"), found))
        return ConstValue(found)

    handles(function)(answer)


@handles(TorchVersion._cmp_wrapper)
def compare_versions(tr: Tracer, version: Value, other: Value, method: Value) -> Value:
    """``torch.__version__ >= "2.1"``, which torch parses by regular expressions on a class of its own."""
    real = version.real()
    if not isinstance(real, TorchVersion) or version.source is None or not other.is_const():
        raise GraphBreak(breaks.OPERATION, f"comparing {version.describe()} with {other.describe()}")
    tr.guards.is_object(version.source, real)
    return tr.fold(TorchVersion._cmp_wrapper, [real, other.const(tr), method.const(tr)], {})


if torch.distributed.is_available():
    _state_of_processes(torch.distributed.is_initialized)


@handles(torch.get_float32_matmul_precision)
def get_float32_matmul_precision(tr: Tracer) -> Value:
    """The global-state guard only tells the highest precision from the others."""
    ask = torch.get_float32_matmul_precision
    tr.guards.add(Returns(Const(ask, "torch.get_float32_matmul_precision"), ask()))
    return ConstValue(ask())


def _method_question(function: Any, name: str) -> None:
    handles(function)(lambda tr, input: input.call_method(tr, name, [], {}))


for _function, _name in (
    (torch.is_floating_point, "is_floating_point"), (torch.is_complex, "is_complex"), (torch.is_signed, "is_signed"),
    (torch.is_conj, "is_conj"), (torch.is_neg, "is_neg"), (torch.is_inference, "is_inference"), (torch.numel, "numel"),
):  # fmt: skip
    _method_question(_function, _name)


@handles(torch.is_same_size)
def is_same_size(tr: Tracer, left: Value, right: Value) -> Value:
    return ConstValue(tr.equal(left.getattr(tr, "shape"), right.getattr(tr, "shape")))


@handles(torch.equal)
def equal(tr: Tracer, left: Value, right: Value) -> Value:
    """Known without the numbers if the sizes differ, or if the tensors are one that holds no nan."""
    if isinstance(left, TensorValue) and isinstance(right, TensorValue) and _are_alike(left.example, right.example):
        may_hold_nan = left.example.is_floating_point() or left.example.is_complex()
        if not may_hold_nan and left.node is not None and left.node is right.node:
            return ConstValue(True)
        if not is_same_size(tr, left, right).truth(tr):
            return ConstValue(False)
    return tr.emit("call_function", torch.equal, [left, right], {})


def _are_alike(left: torch.Tensor, right: torch.Tensor) -> bool:
    return type(left) is type(right) and left.dtype == right.dtype and left.device == right.device


@handles(torch.result_type)
def result_type(tr: Tracer, *values: Value, **named: Value) -> Value:
    return tr.fold(torch.result_type, [v.fake(tr) for v in [*values, *named.values()]], {})


@handles(torch.broadcast_shapes)
def broadcast_shapes(tr: Tracer, *shapes: Value) -> Value:
    if all(s.is_const() for s in shapes):
        return tr.fold(torch.broadcast_shapes, [s.const(tr) for s in shapes], {})
    sizes = [[s] if s.pytype() is int else s.unpack(tr) for s in shapes]
    result: list[Value] = []
    for position in range(-max(map(len, sizes)), 0):
        found: Value = ConstValue(1)
        for shape in sizes:
            if len(shape) >= -position and not tr.equal(shape[position], ConstValue(1)):
                if not tr.equal(found, ConstValue(1)) and not tr.equal(found, shape[position]):
                    return tr.fold(torch.broadcast_shapes, [s.const(tr) for s in shapes], {})  # raises
                found = shape[position]
        result.append(found)
    return TupleValue(result, cls=torch.Size)


def _dropout(function: Any) -> None:
    """Dropout that drops nothing returns its input; where sizes are symbolic, torch's Python form of it copies."""

    def answer(tr: Tracer, *args: Value, **kwargs: Value) -> Value:
        if tr.symbolic and (unchanged := _not_dropped(tr, *args, **kwargs)) is not None:
            return unchanged
        if (value := _all_dropped(tr, *args, **kwargs)) is not None:
            return value
        return tr.emit("call_function", function, list(args), kwargs)

    handles(function)(answer)


def _all_dropped(
    tr: Tracer,
    input: Value | None = None,
    p: Value = HALF,
    training: Value = TRUE,
    inplace: Value = FALSE,
    train: Value | None = None,
) -> Value | None:
    """A product with zero if everything is dropped: eager draws nothing then, unlike torch's decomposition."""
    if not isinstance(input, TensorValue) or inplace.truth(tr) or not p.is_const() or p.const(tr) != 1:
        return None
    if not (train or training).truth(tr):
        return None
    return tr.emit("call_function", torch.mul, [input, ConstValue(0.0)], {})


def _not_dropped(
    tr: Tracer,
    input: Value | None = None,
    p: Value = HALF,
    training: Value = TRUE,
    inplace: Value = FALSE,
    train: Value | None = None,
) -> Value | None:
    if not isinstance(input, TensorValue) or inplace.truth(tr):
        return None
    rate: Any = p.const(tr) if p.is_const() or isinstance(p, SymValue) else None  # a constant to torch as well
    if type(rate) not in (int, float, bool) or not 0 <= rate <= 1:
        return None
    is_empty = any(type(n) is int and n == 0 for n in input.example.shape)
    return input if rate == 0 or is_empty or not (train or training).truth(tr) else None


_dropout(torch.nn.functional.dropout)
_dropout(torch.dropout)


# --- what ends the graph ------------------------------------------------------------------------------------------


def _refuse(function: Any, name: str) -> None:
    def answer(tr: Tracer, *args: Value, **kwargs: Value) -> Value:
        raise GraphBreak(breaks.TORCH_STATE, name)

    handles(function)(answer)


for _module in (torch, ti.c_torch):
    for _name in (
        "manual_seed", "seed", "initial_seed", "save",
        "load", "set_num_threads", "use_deterministic_algorithms", "set_rng_state", "get_rng_state",
        "set_float32_matmul_precision", "frombuffer", "is_nonzero",
        "quantize_per_tensor", "quantize_per_tensor_dynamic", "quantize_per_channel",
    ):  # fmt: skip
        if hasattr(_module, _name) and getattr(_module, _name).__class__ is not property:
            _refuse(getattr(_module, _name), f"torch.{_name}")


# --- context managers by hand ---


def _by_hand(function: Any, name: str) -> None:
    """``cls.__enter__(context)``, as ``contextlib.ExitStack`` calls it."""

    @handles(function)
    def call(tr: Tracer, context: Value, *args: Value) -> Value:
        if isinstance(context, ContextValue):
            return context.call_method(tr, name, list(args), {})
        return wrap_function(tr, function, None).call(tr, [context, *args], {})  # of a class that derives from it


for _cls in (
    *GRAD_CLASSES,
    torch.inference_mode,
    torch.autocast,
    torch.profiler.record_function,
    contextlib.nullcontext,
):
    for _name in ("__enter__", "__exit__"):
        _by_hand(getattr(_cls, _name), _name)


# --- grad mode and autocast ---------------------------------------------------------------------------------------


@constructs(*GRAD_CLASSES)
def grad_mode(tr: Tracer, cls: type, args: list[Value], kwargs: dict[str, Value]) -> Value:
    previous = tr.grad_enabled
    if cls is torch.set_grad_enabled:
        mode = (args or list(kwargs.values()))[0].truth(tr)
        tr.set_grad(mode)  # it takes effect immediately, also without "with"
        return GradModeValue(cls, mode, previous)
    made = GradModeValue(cls, cls is torch.enable_grad, previous)
    if args:  # used as a decorator without parentheses
        return made.call(tr, args, kwargs)
    return made


@constructs(torch.inference_mode)
def inference_mode(tr: Tracer, cls: type, args: list[Value], kwargs: dict[str, Value]) -> Value:
    given = (*args, *kwargs.values())
    if given and given[0].pytype() is not bool:  # used as a decorator without parentheses
        return InferenceModeValue().call(tr, args, kwargs)
    return InferenceModeValue(given[0].truth(tr) if given else True)


@handles(ti.set_grad_enabled)
def c_set_grad_enabled(tr: Tracer, mode: Value) -> Value:
    tr.set_grad(mode.truth(tr))
    return NONE


@constructs(torch.autocast, torch.amp.autocast_mode.autocast)
def autocast(tr: Tracer, cls: type, args: list[Value], kwargs: dict[str, Value]) -> Value:
    names = ("device_type", "dtype", "enabled", "cache_enabled")
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    real = _asked(tr, torch.autocast, **given)
    if "dtype" not in given or given["dtype"].const(tr) is None:
        _guard_autocast_dtype(tr, real.device, real.fast_dtype)
    return AutocastValue(cls, (real.device, real.fast_dtype, real._enabled, real._cache_enabled))


@handles(torch.get_autocast_dtype)
def get_autocast_dtype(tr: Tracer, device_type: Value) -> Value:
    dtype = _asked(tr, torch.get_autocast_dtype, device_type)
    _guard_autocast_dtype(tr, device_type.const(tr), dtype)
    return ConstValue(dtype)


def _guard_autocast_dtype(tr: Tracer, device: str, dtype: torch.dtype) -> None:
    """The dtype was read; if no region of the program set it, it is a setting of the process."""
    regions = [context for context in tr.active_contexts if isinstance(context, AutocastValue)]
    if not any(region.arguments[0] == device for region in regions):
        source = Const(torch.get_autocast_dtype, "torch.get_autocast_dtype")
        tr.guards.add(AutocastDtypeIs(source, device, dtype))


@constructs(contextlib.nullcontext)
def nullcontext(tr: Tracer, cls: type, args: list[Value], kwargs: dict[str, Value]) -> Value:
    result = (args or list(kwargs.values()) or [NONE])[0]
    return NullContextValue(cls, result, [result])


@constructs(use_backend)
def region(tr: Tracer, cls: type, args: list[Value], kwargs: dict[str, Value]) -> Value:
    try:
        return RegionValue(
            use_backend(*(a.const(tr) for a in args), **{k: v.const(tr) for k, v in kwargs.items()}).name
        )
    except (TorchmuxError, TypeError) as error:
        raise Raised(tr.exception(error)) from None


@constructs(torch.autograd.profiler.record_function)
def record_function(tr: Tracer, cls: type, args: list[Value], kwargs: dict[str, Value]) -> Value:
    # an annotation of the profile; a compiled graph is one event
    return NullContextValue(cls, None, [*args, *kwargs.values()])


@constructs(*ti.without_torch_function)
def without_torch_function(tr: Tracer, cls: type, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return NullContextValue(cls, NONE)  # no tensor in a graph overrides torch's functions


@constructs(torch.Generator)
def generator(tr: Tracer, cls: type, args: list[Value], kwargs: dict[str, Value]) -> Value:
    raise GraphBreak(breaks.TORCH_STATE, "creating a torch.Generator")


# --- other constructors that are operators in disguise ------------------------------------------------------------


@handles(torch.Tensor.size)
def tensor_size(tr: Tracer, owner: Value, *args: Value) -> Value:
    return owner.call_method(tr, "size", list(args), {})


@handles(torch.Tensor.dim)
def tensor_dim(tr: Tracer, owner: Value) -> Value:
    return owner.call_method(tr, "dim", [], {})
