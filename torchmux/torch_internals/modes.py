"""State of a thread that operators depend on: grad mode, autocast, profiler, dispatch and function modes,
default devices."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator, Sequence
from types import FunctionType
from typing import Any

import torch
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import disable_proxy_modes_tracing
from torch.utils._python_dispatch import TorchDispatchMode as TorchDispatchMode

Run = Callable[..., Sequence[Any]]

is_profiled = torch.autograd._profiler_enabled
set_grad_enabled = torch._C._set_grad_enabled
set_script_profiles = torch._C._jit_set_profiling_executor  # whether scripts are specialized; the answer is as before
is_any_autocast_enabled = torch._C._is_any_autocast_enabled
disable_autocast = torch._C._DisableAutocast
below_autograd = torch._C._AutoDispatchBelowAutograd
without_tracing = disable_proxy_modes_tracing
# Composite operators that know symbolic sizes only in Python do so under this context.
python_dispatcher = torch._C._EnablePythonDispatcher
without_torch_function = (torch._C.DisableTorchFunctionSubclass, torch._C.DisableTorchFunction)
count_function_modes = torch._C._len_torch_function_stack
count_dispatch_modes = torch._C._len_torch_dispatch_stack


@contextlib.contextmanager
def without_onednn() -> Iterator[None]:
    """oneDNN off, and nothing else: ``torch.backends.mkldnn.flags`` also sets what it is not asked for, with a warning
    where the processor has no TF32."""
    before = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(before)


@contextlib.contextmanager
def lstm_states_in_shape() -> Iterator[None]:
    """The last states of an LSTM as eager has them: before torch 2.13, its decomposition adds a dimension."""
    from torch._decomp import decompositions

    before = decompositions.one_layer_lstm

    def one_layer_lstm(*args: Any, **keywords: Any) -> Any:
        results, states = before(*args, **keywords)
        return results, tuple(state.squeeze(0) if state.dim() == 3 else state for state in states)

    decompositions.one_layer_lstm = one_layer_lstm
    try:
        yield
    finally:
        decompositions.one_layer_lstm = before


def is_forward_ad_active() -> bool:
    """Whether the program is inside of ``torch.autograd.forward_ad.dual_level``, where tensors may have tangents."""
    return forward_ad._current_level >= 0


@contextlib.contextmanager
def leaving_dual_level() -> Iterator[None]:
    """A block that leaves, if it raises, the level of forward derivatives that began in it."""
    was_active = is_forward_ad_active()
    try:
        yield
    except BaseException:
        if is_forward_ad_active() and not was_active:
            forward_ad.exit_dual_level()
        raise


def has_dual_level(graph: torch.fx.Graph) -> bool:
    """Whether a level of forward derivatives begins in a captured graph."""
    return any(node.target is forward_ad.enter_dual_level for node in graph.nodes)


def by_mode(plain: Run, *, under_autocast: Run, in_dual_level: Run) -> Run:
    """A function that calls ``plain``, or what takes its place under autocast or a level of forward derivatives.

    One function asks both, since each frame of Python's takes a twentieth of a small call.
    """

    def call(*args: Any) -> Sequence[Any]:
        if forward_ad._current_level >= 0:
            return in_dual_level(*args)
        return under_autocast(*args) if is_any_autocast_enabled() else plain(*args)

    call.plain = plain  # type: ignore[attr-defined]
    return call


_OF_BY_MODE = by_mode(tuple, under_autocast=tuple, in_dual_level=tuple).__code__


def in_plain_mode(run: Any) -> Run | None:
    """What ``run`` calls without autocast and forward derivatives, if it is of :func:`by_mode`; else None."""
    if isinstance(run, functools.partial) and not run.args and not run.keywords:
        run = run.func
    is_one = isinstance(run, FunctionType) and run.__code__ is _OF_BY_MODE
    return run.plain if is_one else None


def default_devices() -> tuple[Any, ...] | None:
    """The devices of the active ``with torch.device(...)``; None if any other torch-function mode is active."""
    from torch.utils._device import DeviceContext

    modes = [torch._C._get_function_stack_at(i) for i in range(count_function_modes())]
    return tuple(m.device for m in modes) if all(type(m) is DeviceContext for m in modes) else None


def device_constructors() -> set[Any]:
    """The functions of torch that a default device is given to."""
    from torch.utils._device import _device_constructors

    return _device_constructors()


def switches() -> dict[Any, Any]:
    """C functions that set global state on which operators depend, each with the one that tells it."""
    names = {"_set_sdp_priority_order": "_get_sdp_priority_order"}
    for kernel in ("math", "flash", "mem_efficient", "cudnn", "overrideable"):
        names[f"_set_sdp_use_{kernel}"] = f"_get_{kernel}_sdp_enabled"
    return {getattr(torch._C, s): getattr(torch._C, g) for s, g in names.items() if hasattr(torch._C, s)}


def autograd_switches() -> dict[str, Any]:
    """What is switched on or off in autograd and in attention, for all code of the process or of this thread."""
    c = torch._C
    told = {
        "threads of autograd": c._is_multithreading_enabled,
        "views that are replayed": c._is_view_replay_enabled,
        "hooks of saved tensors": c._autograd._saved_tensors_hooks_is_enabled,
        "cache of autocast": torch.is_autocast_cache_enabled,
        "nan of anomaly mode": torch.is_anomaly_check_nan_enabled,
        "sums of attention in half precision": c._get_math_sdp_allow_fp16_bf16_reduction,
        "level of forward derivatives": is_forward_ad_active,
        "innermost hooks of saved tensors": lambda: c._autograd._top_saved_tensors_default_hooks(True),
        "hooks of all modules": lambda: [len(hooks) for hooks in _hooks_of_all_modules()],
        "fallback of vmap": c._functorch._is_vmap_fallback_enabled,
        "kernels of NNPACK": c._get_nnpack_enabled,
        "fusion of scripts": c._jit_can_fuse_on_cpu,
        "profiles of scripts": lambda: [_read(c._jit_set_profiling_executor), _read(c._jit_set_profiling_mode)],
        "fuser of scripts": c._jit_texpr_fuser_enabled,
        "early end of checkpoints": lambda: torch.utils.checkpoint._enable_checkpoint_early_stop,
    }
    return {name: read() for name, read in told.items()} | {get.__name__: get() for get in switches().values()}


def _read(exchange: Callable[[bool], bool]) -> bool:
    """A switch that only tells its state when it gets a new one."""
    found = exchange(True)
    exchange(found)
    return found


def _hooks_of_all_modules() -> list[Any]:
    module = torch.nn.modules.module
    return [
        module._global_forward_hooks, module._global_forward_pre_hooks, module._global_backward_hooks,
        module._global_backward_pre_hooks, module._global_module_registration_hooks,
        module._global_parameter_registration_hooks, module._global_buffer_registration_hooks,
    ]  # fmt: skip


def compiler_settings() -> dict[str, Any]:
    """The settings of those of torch's own tracers and compilers that are loaded, by module."""
    names = (
        "torch._dynamo.config", "torch._functorch.config", "torch._inductor.config", "torch.fx.config",
        "torch.fx.experimental._config",
    )  # fmt: skip
    loaded = {name: sys.modules[name] for name in names if name in sys.modules}
    return {name: {k: repr(v) for k, v in _settings(module).items()} for name, module in loaded.items()}


def registries() -> dict[str, dict[Any, Any]]:
    """Where programs register with torch: types of containers, smaller operators in place of large ones."""
    from torch.utils import _pytree

    tables = sys.modules["torch._decomp"].global_decomposition_table
    return {"types of containers": _pytree.SUPPORTED_NODES} | {f"operators in {kind}": t for kind, t in tables.items()}


def settings_of_scripts() -> dict[str, Any]:
    """Whether scripts and compiled functions run as such, and whether distributions check what they get."""
    found: dict[str, Any] = {
        "scripts": torch.jit._state._enabled.enabled,
        "strategy": (before := torch._C._jit_set_fusion_strategy([])),
        "distributions": torch.distributions.Distribution._validate_args,
    }
    torch._C._jit_set_fusion_strategy(before)
    frames = sys.modules.get("torch._dynamo.eval_frame")
    found["stance of torch.compile"] = frames._stance.stance if frames else "default"
    return found


def _settings(module: Any) -> dict[str, Any]:
    if hasattr(module, "get_config_copy"):
        return dict(module.get_config_copy())
    return {name: value for name, value in vars(module).items() if isinstance(value, bool | int | str | None)}


def without_modes() -> Any:
    """Context manager under which operators on real tensors run as usual, though a tracer or a fake mode is active."""
    from torch.utils._python_dispatch import _disable_current_modes

    return _disable_current_modes()


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


def saves_for_backward() -> bool:
    """Whether autograd records operators in this thread, and keeps the tensors themselves that it is given."""
    return torch.is_grad_enabled() and torch._C._autograd._top_saved_tensors_default_hooks(True) is None
