"""Every private name of torch in use, in one place.

Tried on torch 2.11, 2.13 and 2.15.  ``tests/torch_internals`` walks this package on the installed torch, so that a
release that moves a name is noticed here and nowhere else.  Importing it imports neither ``torch._dynamo`` nor
``torch._inductor``.
"""

from __future__ import annotations

import contextlib
import functools
import math
import operator
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch

# --- frontend: the PEP 523 hook and the guards in C++ -------------------------------------------------------------
from torch._C._dynamo import eval_frame as eval_frame
from torch._C._dynamo.guards import (
    GlobalStateGuard as GlobalStateGuard,
    RootGuardManager as RootGuardManager,
    TensorGuards as TensorGuards,
)

FrameAction = eval_frame._FrameAction
FrameExecStrategy = eval_frame._FrameExecStrategy
set_eval_frame = eval_frame.set_eval_frame
set_code_exec_strategy = eval_frame.set_code_exec_strategy


def drop_entry(guard_manager: Any, replacement: Any) -> None:
    """Empty the hook's entry that ``guard_manager`` guards, if it is still there; ``replacement`` refuses all calls."""
    if guard_manager.extra_state is not None and guard_manager.cache_entry is not None:
        guard_manager.extra_state.invalidate(guard_manager.cache_entry, replacement)


def _no_isolation(region: int) -> int:
    return -1


def not_captured(function: Any) -> Any:
    """``function``, of which the hook leaves alone all that it calls."""
    set_code_exec_strategy(function.__code__, FrameExecStrategy(FrameAction.SKIP, FrameAction.SKIP))
    return function


# Which bucket of a code object's entries the hook reads and fills (torch 2.13 and later; before that all share one).
set_region = getattr(eval_frame, "set_eval_frame_isolate_recompiles_id", _no_isolation)


def retired_guard_class() -> type | None:
    """How torch's own tracer, where it is loaded and shares our bucket, marks entries that it must pass over."""
    guards = sys.modules.get("torch._dynamo.guards")
    return None if guards is None or set_region is not _no_isolation else guards.DeletedGuardManagerWrapper


def optimized_module_class() -> tuple[type, ...]:
    """The class of what ``torch.compile`` makes of modules; none where it has not been imported."""
    frontend = sys.modules.get("torch._dynamo.eval_frame")
    found = getattr(frontend, "OptimizedModule", None)
    return () if found is None else (found,)


def under_dynamo_config(function: Any) -> Any:
    """The function that torch's own tracer runs under another configuration of its own, if ``function`` is that."""
    if function.__module__ != "torch._dynamo.external_utils" or "wrap_dunder_call_ctx" not in function.__qualname__:
        return None
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    context = cells["self"].cell_contents
    return cells["func"].cell_contents if type(context).__name__ == "DynamoConfigPatchProxy" else None


def calls_forward_alone(graph_module: torch.fx.GraphModule) -> bool:
    """Whether calling ``graph_module`` is calling ``Module.__call__``, but for what it says of errors."""
    cls = type(graph_module)
    wrapped = vars(cls).get("_wrapped_call")
    return wrapped is not None and wrapped.cls_call is None and cls.__call__.__module__ == "torch.fx.graph_module"


def distribution_checks() -> tuple[Any, ...]:
    """What tells distributions whether all elements of a bool tensor are true, as a bool (torch 2.15 and later)."""
    found = getattr(torch.distributions.distribution, "_all_true_or_runtime_assert", None)
    return () if found is None else (found,)


def marked_for_torch(function_id: int) -> str | None:
    """What the program told torch's own tracer to do with a function: "allowed" or "disallowed" in graphs, or None."""
    rules = sys.modules.get("torch._dynamo.trace_rules")
    if rules is None:
        return None
    if function_id in rules._allowed_callable_ids:
        return "allowed"
    return "disallowed" if function_id in rules._disallowed_callable_ids else None


# --- frontend: operators that are C functions ---------------------------------------------------------------------
VariableFunctions = torch._C._VariableFunctions
set_grad_enabled = torch._C._set_grad_enabled
custom_device_name = torch._C._get_privateuse1_backend_name
SDPBackend = torch._C._SDPBackend
without_torch_function = (torch._C.DisableTorchFunctionSubclass, torch._C.DisableTorchFunction)
group_tensors_by_device_and_dtype = torch._C._group_tensors_by_device_and_dtype


def switches() -> dict[Any, Any]:
    """C functions that set global state on which operators depend, each with the one that tells it."""
    names = {"_set_sdp_priority_order": "_get_sdp_priority_order"}
    for kernel in ("math", "flash", "mem_efficient", "cudnn", "overrideable"):
        names[f"_set_sdp_use_{kernel}"] = f"_get_{kernel}_sdp_enabled"
    return {getattr(torch._C, s): getattr(torch._C, g) for s, g in names.items() if hasattr(torch._C, s)}


def c_operator_modules() -> list[Any]:
    """The C modules whose functions are operators on tensors."""
    return [torch._C._nn, torch._C._linalg, torch._C._special, torch._C._fft]


c_torch = torch._C  # has C functions that torch's own Python functions wrap
get_tracing_state = torch._C._get_tracing_state
log_api_usage_once = torch._C._log_api_usage_once


def tracing_questions() -> list[Any]:
    """What newer torch asks to know whether the old TorchScript tracer runs."""
    return [torch._C._is_tracing] if hasattr(torch._C, "_is_tracing") else []


# --- frontend: fake tensors and symbolic shapes -------------------------------------------------------------------


def fake_tensor_mode(
    *, symbolic: bool, where: Callable[[], str] | None = None, scalars: bool = False, dynamic_outputs: bool = False
) -> Any:
    """A FakeTensorMode; with a ShapeEnv only if ``symbolic``, since that doubles the cost of propagation.

    ``where`` tells the line of the program that a guard on a size is due to.  ``scalars`` and ``dynamic_outputs`` say
    whether numbers read from tensors, and operators whose output size depends on data, get symbols of their own.
    """
    from torch._subclasses.fake_tensor import FakeTensorMode

    shape_env = None
    if symbolic:
        shape_env = _shape_env_class()(allow_scalar_outputs=scalars, allow_dynamic_output_shape_ops=dynamic_outputs)
        shape_env.where = where
    return FakeTensorMode(shape_env=shape_env, allow_non_fake_inputs=False)


def plain_fake(mode: Any, tensor: torch.Tensor) -> Any:
    """What ``mode.from_tensor(tensor)`` makes, in a fifth of its time; None unless the tensor is as plain as most are.

    That is: static sizes, a leaf, no view, memory of its own.  The converter remembers it as one of its own.
    """
    if mode.shape_env is not None or not tensor.is_leaf or tensor._is_view() or tensor.grad is not None:
        return None
    if tensor.is_inference() or tensor.is_conj() or tensor.is_neg() or tensor._backward_hooks:
        return None
    if tensor.device.type not in ("cpu", "cuda") or tensor.storage_offset() or type(tensor) not in _PLAIN_CLASSES:
        return None
    if any(getattr(tensor, "names", ())):  # torch 2.12 and before
        return None
    if tensor.requires_grad and getattr(tensor, "grad_dtype", tensor.dtype) is not tensor.dtype:
        return None
    storage = tensor.untyped_storage()
    extent = 1 + sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True))
    if not tensor.numel() or storage.nbytes() != extent * tensor.element_size():
        return None
    converter = mode.fake_tensor_converter.meta_converter
    number = converter.describer.get_storage_id(storage)
    if number in converter.storage_memo or mode.fake_tensor_converter._get_memo(tensor) is not None:
        return None
    from torch._subclasses.fake_tensor import FakeTensor
    from torch.utils._mode_utils import no_dispatch

    with no_dispatch():
        meta = torch.empty_strided(
            tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta", requires_grad=tensor.requires_grad
        )
        fake = FakeTensor(mode, meta, tensor.device)
    if type(tensor) is torch.nn.Parameter:
        fake._is_param = True
    mode.fake_tensor_converter.set_tensor_memo(tensor, fake)
    converter.storage_memo[number] = fake.untyped_storage()
    return fake


_PLAIN_CLASSES = (torch.Tensor, torch.nn.Parameter)


_located_shape_env: Any = None


def _shape_env_class() -> Any:
    """A ShapeEnv that asks us for the line of the program instead of walking the Python stack for each guard."""
    global _located_shape_env
    if _located_shape_env is None:
        from torch.fx.experimental.symbolic_shapes import ShapeEnv, SLoc

        class LocatedShapeEnv(ShapeEnv):
            where: Callable[[], str] | None = None

            def _get_stack_summary(self, is_debug: bool = False, framework_loc: Any = None) -> tuple[Any, str]:
                return SLoc("", self.where() if self.where is not None else None), ""

        _located_shape_env = LocatedShapeEnv
    return _located_shape_env


def fake_tensor_errors() -> dict[str, type[BaseException]]:
    """The exceptions by which fake propagation says that it cannot know."""
    from torch._subclasses import fake_tensor
    from torch.fx.experimental import symbolic_shapes

    return {
        "data_dependent": fake_tensor.DataDependentOutputException,
        "dynamic_output": fake_tensor.DynamicOutputShapeException,
        "unsupported": fake_tensor.UnsupportedFakeTensorException,
        "guard": symbolic_shapes.GuardOnDataDependentSymNode,
    }


def share_storage(left: Any, right: Any) -> bool:
    """Whether two tensors are, or are views into, the same memory; works for fake tensors."""
    return left.untyped_storage()._cdata == right.untyped_storage()._cdata


def guards_source_base() -> type:
    """The class that ShapeEnv wants sources to derive from."""
    from torch._guards import Source

    return Source


def tracing_context(fake_mode: Any) -> Any:
    """Context manager under which torch's AOTAutograd finds the fake mode of the capture."""
    from torch._guards import TracingContext, tracing

    return tracing(TracingContext(fake_mode))


def is_functorch_active() -> bool:
    """Whether the program is inside a functorch transform (vmap, grad, ...)."""
    return torch._C._functorch.peek_interpreter_stack() is not None


count_function_modes = torch._C._len_torch_function_stack
count_dispatch_modes = torch._C._len_torch_dispatch_stack


def default_devices() -> tuple[Any, ...] | None:
    """The devices of the active ``with torch.device(...)``; None if any other torch-function mode is active."""
    from torch.utils._device import DeviceContext

    modes = [torch._C._get_function_stack_at(i) for i in range(count_function_modes())]
    return tuple(m.device for m in modes) if all(type(m) is DeviceContext for m in modes) else None


# --- backends: operators and dispatch -----------------------------------------------------------------------------
OpOverload = torch._ops.OpOverload
DispatchKey = torch._C.DispatchKey
below_autograd = torch._C._AutoDispatchBelowAutograd
disable_autocast = torch._C._DisableAutocast
is_any_autocast_enabled = torch._C._is_any_autocast_enabled


def python_kernels(op: Any) -> dict[Any, Any]:
    """The Python kernels of an operator by dispatch key; after changing them call ``forget_dispatch(op)``."""
    return op.py_kernels


def forget_dispatch(op: Any) -> None:
    """Drop the operator's memory of which kernel serves which dispatch key."""
    op._dispatch_cache.clear()


def run_kernel(op: Any, key: Any, *args: Any, **kwargs: Any) -> Any:
    """Call the C++ kernel that serves ``key``, whatever Python kernels there are."""
    return op._op_dk(key, *args, **kwargs)


def is_composite(op: Any) -> bool:
    """Whether ``op`` consists of other operators, also for autograd.  Some names exist in TorchScript only: False."""
    return torch._C._dispatch_has_kernel(op.name()) and op.has_kernel_for_dispatch_key(
        DispatchKey.CompositeImplicitAutograd
    )


def random_wrappers() -> tuple[Any, ...]:
    """The operators that run a random one of forward, and run it again in backward with the same numbers."""
    higher_order = torch.ops.higher_order
    return higher_order.run_and_save_rng_state, higher_order.run_with_rng_state


def python_registrations() -> set[str]:
    """The kernels that ``torch.library`` has registered from Python: ``"aten/sin/CPU"``."""
    return torch.library._impls


def operator_schema(op: Any) -> Any:
    """The ``FunctionSchema`` of an operator overload."""
    return op._schema


# --- backends: fake tensors and symbolic sizes --------------------------------------------------------------------


def is_fake(value: Any) -> bool:
    """Whether ``value`` is a FakeTensor."""
    from torch._subclasses.fake_tensor import FakeTensor

    return isinstance(value, FakeTensor)


def active_fake_mode() -> Any:
    """The FakeTensorMode of the compilation in progress, or None."""
    from torch._guards import TracingContext

    context = TracingContext.try_get()
    return context.fake_mode if context is not None else None


def without_modes() -> Any:
    """Context manager under which operators on real tensors run as usual, though a tracer or a fake mode is active."""
    from torch.utils._python_dispatch import _disable_current_modes

    return _disable_current_modes()


def beneath_functionalization(op: Any, args: Any, kwargs: Any) -> Any:
    """Inside of ``torch.func.functionalize``: call ``op``, which changes nothing, as functionalization would call it.

    An operator that is composed of others reaches whatever is beneath in one piece then.
    """
    from torch._functorch.pyfunctorch import retrieve_current_functorch_interpreter
    from torch._subclasses.functional_tensor import FunctorchFunctionalizeAPI

    layer: Any = FunctorchFunctionalizeAPI(retrieve_current_functorch_interpreter())
    args, kwargs = layer.unwrap_tensors((args, kwargs))
    with layer.redispatch_to_next():
        result = op(*args, **kwargs)
    return layer.wrap_tensors(result)


def new_fake_mode() -> Any:
    """A FakeTensorMode without symbolic sizes, for graphs that come without one."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    return FakeTensorMode(allow_non_fake_inputs=True)


def rebuild_symbolic(expr: Any, symbols: dict[Any, Any]) -> Any:
    """Evaluate a sympy expression by Python operators on ``symbols`` (symbol -> anything with operators).

    Raises:
        NotImplementedError: the expression has a function that operators cannot tell.
    """
    from torch.utils._sympy.interp import sympy_interp

    return sympy_interp(_operator_analysis(), symbols, expr)


_operators_only: Any = None


def _operator_analysis() -> Any:
    """torch's way to evaluate expressions in Python, without what asks a number for its value."""
    global _operators_only
    if _operators_only is None:
        from torch.utils._sympy.reference import PythonReferenceAnalysis

        class OperatorsOnly(PythonReferenceAnalysis):
            truediv = int_truediv = staticmethod(operator.truediv)
            pow = staticmethod(operator.pow)
            floor = staticmethod(lambda x: x // 1)
            ceil = staticmethod(lambda x: -(-x // 1))
            trunc_to_int = staticmethod(lambda x, dtype: torch.sym_int(x))
            floor_to_int = staticmethod(lambda x, dtype: torch.sym_int(x // 1))
            ceil_to_int = staticmethod(lambda x, dtype: -torch.sym_int(-x // 1))

            @staticmethod
            def pow_by_natural(base: Any, exponent: Any) -> Any:
                known = isinstance(exponent, int) and exponent > 0
                return functools.reduce(operator.mul, [base] * exponent) if known else base**exponent

            @staticmethod
            def round_to_int(x: Any, dtype: Any) -> Any:
                raise NotImplementedError("rounding is no operator")

            round_decimal = round_to_int

        _operators_only = OperatorsOnly
    return _operators_only


def is_never_negative(shape_env: Any, expr: Any) -> bool:
    """Whether an expression of symbols is known to be at least zero."""
    return bool(shape_env.bound_sympy(expr).lower >= 0)


def ranges_of(size: Any) -> dict[str, str]:
    """The least and the largest value of each symbol in a symbolic number, as text."""
    node = size.node
    return {str(s): str(node.shape_env.bound_sympy(s)) for s in node.expr.free_symbols}


def size_range(size: Any) -> tuple[int, int, int | None]:
    """The least value of a symbolic size, the one it has in the first call, and the largest (None: unbounded)."""
    from torch.utils._sympy.numbers import int_oo

    node = size.node
    bounds = node.shape_env.bound_sympy(node.expr)
    return int(bounds.lower), int(node.hint), None if bounds.upper == int_oo else int(bounds.upper)


# --- backends: CUDA graphs ---------------------------------------------------------------------------------------


def storage_use_count(storage: Any) -> int:
    """How many tensors and storage objects hold the memory of ``storage``, this one included."""
    return torch._C._storage_Use_Count(storage._cdata)


def end_allocating_to_pool(device: int, pool: Any) -> None:
    """Give the memory of a device from the usual place again, after a recording that failed."""
    torch._C._cuda_endAllocateToPool(device, pool)


def addresses_equal(values: Any, addresses: list[int | None], positions: list[int]) -> bool:
    """Whether the tensors at ``positions`` begin at ``addresses``; in C++ where torch was built for CUDA."""
    compare = getattr(torch._C, "_tensors_data_ptrs_at_indices_equal", None)
    if compare is None:
        return all(values[p].data_ptr() == addresses[p] for p in positions)
    return compare(list(values), addresses, positions)


# --- backends: AOTAutograd, which brings torch._dynamo along ------------------------------------------------------


def aot_autograd() -> Any:
    """``aot_module_simplified``."""
    from torch._functorch.aot_autograd import aot_module_simplified

    return aot_module_simplified


def min_cut_partition() -> Any:
    """The partitioner that decides what backward recomputes."""
    from torch._functorch.partitioners import min_cut_rematerialization_partition

    return min_cut_rematerialization_partition


def tracing_with(fake_mode: Any) -> Any:
    """The tracing context that AOTAutograd works in: the active one if it has this fake mode, or a new one."""
    import contextlib

    from torch._guards import TracingContext

    active = TracingContext.try_get()
    if active is not None and active.fake_mode is fake_mode:
        return contextlib.nullcontext()
    return tracing_context(fake_mode)


def inputs_are_mutated() -> bool:
    """Whether the graph that AOTAutograd compiled last in this tracing context writes to its inputs."""
    from torch._guards import TracingContext

    context = TracingContext.try_get()
    metadata = context.fw_metadata if context is not None else None
    return metadata is not None and any(i.mutates_data or i.mutates_metadata for i in metadata.input_info)


def keep_saved_buffers() -> None:
    """Say of the graph that AOTAutograd compiled last that backward gives no memory away.

    With the setting off it says nothing, which a backward that is run with ``retain_graph`` takes for the contrary.
    """
    from torch._guards import TracingContext

    context = TracingContext.try_get()
    if context is not None and context.fw_metadata is not None:
        context.fw_metadata.bw_donated_idxs = []


def functorch_config() -> Any:
    """The settings of AOTAutograd."""
    from torch._functorch import config

    return config


def floats_needed(error: BaseException) -> frozenset[str] | None:
    """The names of the symbolic floats that AOTAutograd needs as constants, if that is what ``error`` says."""
    state = sys.modules.get("torch._dynamo.symbolic_convert")
    if state is None or type(error).__name__ != "TensorifyScalarRestartAnalysis":
        return None
    names = frozenset(state.TensorifyState.force_specializations)
    state.TensorifyState.clear()
    return names


def keep_number(source: Any, target: Any) -> None:
    """Let a fake tensor's ``item()`` be the symbol that it is for another one, of which it is an alias."""
    if getattr(source, "item_memo", None) is not None:
        target.item_memo = source.item_memo


# --- backends: torch's own compiler, for the peer adapter only ----------------------------------------------------


def inductor_compile_fx() -> Any:
    """The module ``torch._inductor.compile_fx``."""
    from torch._inductor import compile_fx

    return compile_fx


def inductor_config() -> Any:
    """The settings of torch's Inductor."""
    from torch._inductor import config

    return config


# --- backends: the ONNX exporter ----------------------------------------------------------------------------------


def onnx_registry() -> Any:
    """The exporter's operators by name; one object for the process, since filling it takes half a second."""
    global _onnx_registry
    if _onnx_registry is None:
        import logging

        from torch.onnx._internal.exporter import _registration

        # It warns about every torchvision operator when torchvision is absent, which concerns nobody here.
        log = logging.getLogger(_registration.__name__)
        level = log.level
        log.setLevel(logging.ERROR)
        try:
            _onnx_registry = _registration.ONNXRegistry.from_torchlib()
        finally:
            log.setLevel(level)
    return _onnx_registry


_onnx_registry: Any = None


def onnx_translate(graph: Any, model: Any) -> dict[str, Any]:
    """Write an ATen graph into the ``onnx_ir`` model ``model``; returns its values by the names of the nodes."""
    from torch.onnx._internal.exporter import _core

    return _core._translate_fx_graph(
        graph, model, graph_like=model.graph, owned_graphs={}, lower="at_conversion", registry=onnx_registry()
    )


def onnx_operators() -> dict[str, list[bool]]:
    """The exporter's operators, by ``OpOverload.name()``: for each way to write one, whether it is for complex."""
    return {
        name: [way.is_complex for way in ways] for name, ways in onnx_registry().functions.items() if type(name) is str
    }


def onnx_type_promotion(gm: Any) -> None:
    """Insert the casts that ATen's type promotion implies, in place."""
    from torch.onnx._internal.exporter import _fx_passes

    _fx_passes.insert_type_promotion_nodes(gm)


def onnx_versions() -> tuple[int, int]:
    """The IR version and the operator set that the exporter writes."""
    from torch.onnx._internal.exporter import _constants

    return _constants.ONNX_IR_VERSION, _constants.TORCHLIB_OPSET


def onnx_add_opset_imports(model: Any) -> None:
    """Declare the operator sets that ``model`` uses."""
    from torch.onnx._internal.exporter import _ir_passes

    _ir_passes.add_opset_imports(model)


def local_guard_source() -> Any:
    from torch._guards import GuardSource

    return GuardSource.LOCAL


def dim_bounds(low: int | None, high: int | None) -> Any:
    """The constraint that a dimension lies between two bounds (None: open)."""
    from torch.fx.experimental.symbolic_shapes import StrictMinMaxConstraint
    from torch.utils._sympy.numbers import int_oo
    from torch.utils._sympy.value_ranges import ValueRanges

    bounds = ValueRanges(lower=2 if low is None else low, upper=int_oo if high is None else high)
    return StrictMinMaxConstraint(vr=bounds, warn_only=False)


def shape_guard_namespace() -> dict[str, Any]:
    """The names that printed shape guards use besides their variables."""
    from torch.fx.experimental.symbolic_shapes import SYMPY_INTERP

    return dict(SYMPY_INTERP)


def dim_kinds() -> Any:
    """How ShapeEnv may treat a dimension: ``STATIC``, ``DYNAMIC`` (a symbol of its own, whatever other sizes have the
    same value), ``DUCK`` (one symbol for equal sizes), ``UNBACKED``, ``INFER_STRIDE``."""
    from torch.fx.experimental.symbolic_shapes import DimDynamic

    return DimDynamic


# Composite operators that know symbolic sizes only in Python do so under this context.
python_dispatcher = torch._C._EnablePythonDispatcher


def symbolic_math() -> dict[Any, Any]:
    """Functions of ``math`` and what computes them on symbolic numbers."""
    names = ("sqrt", "cos", "cosh", "sin", "sinh", "tan", "tanh", "asin", "acos", "atan", "log2")
    return {getattr(math, n): f for n in names if (f := getattr(torch, f"_sym_{n}", None)) is not None}


def new_unbacked_symbols(shape_env: Any, value: Any) -> dict[Any, Any] | None:
    """The symbols that an operator's result has brought, and where in it they stand."""
    from torch.fx.experimental.symbolic_shapes import compute_unbacked_bindings

    return compute_unbacked_bindings(shape_env, value)


def insert_runtime_asserts(gm: Any, shape_env: Any) -> None:
    """Write what was taken for granted of numbers that depend on data into the graph, as checks."""
    from torch.fx.passes.runtime_assert import insert_deferred_runtime_asserts

    insert_deferred_runtime_asserts(gm, shape_env, "torchmux")


@contextlib.contextmanager
def without_saved_tensor_hooks() -> Iterator[None]:
    """While this lasts, the program's hooks see nothing of what autograd keeps: it would be fake tensors."""
    autograd, kept = torch._C._autograd, []
    try:
        while (hooks := autograd._top_saved_tensors_default_hooks(False)) is not None:
            kept.append(hooks)
            autograd._pop_saved_tensors_default_hooks()
        yield
    finally:
        for hooks in reversed(kept):
            autograd._push_saved_tensors_default_hooks(*hooks)


# --- frontend: functions that take functions ----------------------------------------------------------------------
from torch._higher_order_ops.while_loop import while_loop as while_loop  # noqa: E402
from torch.utils import _pytree as pytree  # noqa: E402, F401
from torch.utils._python_dispatch import TorchDispatchMode as TorchDispatchMode  # noqa: E402


def broadcast_dims(dims: Any, structure: Any) -> list[Any] | None:
    """``in_dims`` or ``out_dims`` of ``vmap`` for each leaf of a pytree; None if they do not fit it."""
    return torch.utils._pytree._broadcast_to_and_flatten(dims, structure)


def tag_checkpoint() -> Any:
    """The operator that runs a checkpointed graph while a compiler traces it."""
    return torch.ops.higher_order.tag_activation_checkpoint
