"""State of a thread that operators depend on."""

from __future__ import annotations

import functools

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from torchmux import torch_internals as ti

from .walk import checks

SIN = torch.ops.aten.sin.default


@checks("is_profiled")
def test_is_profiled() -> None:
    assert not ti.is_profiled()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
        assert ti.is_profiled()
    assert not ti.is_profiled()


@checks("set_grad_enabled")
def test_set_grad_enabled() -> None:
    ti.set_grad_enabled(False)
    assert not torch.is_grad_enabled()
    ti.set_grad_enabled(True)


@checks("switches")
def test_switches() -> None:
    for setter, getter in ti.switches().items():
        value = getter()
        setter(value)
        assert getter() == value


@checks("count_function_modes", "count_dispatch_modes", "default_devices", "new_fake_mode", "without_modes")
def test_modes() -> None:
    assert (ti.count_function_modes(), ti.count_dispatch_modes(), ti.default_devices()) == (0, 0, ())
    with torch.device("meta"):
        assert ti.default_devices() == (torch.device("meta"),)
        assert ti.count_function_modes() == 1
    with torch.overrides.BaseTorchFunctionMode():
        assert ti.default_devices() is None
    with ti.new_fake_mode():
        assert ti.count_dispatch_modes() == 1
        with ti.without_modes():
            assert not ti.is_fake(torch.ones(1))


@checks("device_constructors")
def test_device_constructors() -> None:
    assert {torch.ones, torch.tensor, torch.arange} <= ti.device_constructors()
    assert torch.add not in ti.device_constructors()


@checks("set_script_profiles")
def test_whether_scripts_are_specialized() -> None:
    before = ti.set_script_profiles(False)
    try:
        assert not ti.set_script_profiles(before)
    finally:
        ti.set_script_profiles(before)
    assert ti.set_script_profiles(before) == before


@checks("without_onednn")
def test_onednn_is_off_and_nothing_else_changes() -> None:
    before = torch.backends.mkldnn.enabled, torch.backends.mkldnn.deterministic, torch.backends.mkldnn.allow_tf32
    with ti.without_onednn():
        assert not torch.backends.mkldnn.enabled
        assert torch.backends.mkldnn.allow_tf32 is before[2]
    found = torch.backends.mkldnn.enabled, torch.backends.mkldnn.deterministic, torch.backends.mkldnn.allow_tf32
    assert found == before


@checks("lstm_states_in_shape")
def test_states_of_an_lstm_have_the_shape_of_eagers() -> None:
    from torch._decomp import decompositions

    layer, x, state = torch.nn.LSTM(3, 4, 2), torch.randn(5, 6, 3), (torch.randn(2, 6, 4), torch.randn(2, 6, 4))
    before = decompositions.one_layer_lstm
    with ti.lstm_states_in_shape(), ti.without_onednn(), torch.no_grad():
        found = decompositions.lstm_impl(x, state, list(layer.parameters()), True, 2, 0.0, False, False, False)
        expected, states = layer(x, state)
    assert decompositions.one_layer_lstm is before
    for one, other in zip(found, (expected, *states), strict=True):
        torch.testing.assert_close(one, other)


@checks("below_autograd", "disable_autocast", "is_any_autocast_enabled")
def test_autograd_switches() -> None:
    x = torch.ones(2, requires_grad=True)
    with ti.below_autograd():
        assert SIN(x).grad_fn is None
    assert not ti.is_any_autocast_enabled()
    with torch.autocast("cpu"):
        assert ti.is_any_autocast_enabled()
        a = torch.ones(2, 2)
        assert (a @ a).dtype is torch.bfloat16
        with ti.disable_autocast():
            assert (a @ a).dtype is torch.float32


@checks("without_saved_tensor_hooks")
def test_saved_tensor_hooks() -> None:
    seen = []

    def hooks(name):
        return torch.autograd.graph.saved_tensors_hooks(lambda t: seen.append(name) or t, lambda t: t)

    x = torch.ones(2, requires_grad=True)
    with hooks("outer"), hooks("inner"):
        with ti.without_saved_tensor_hooks():
            x.sin()
        assert seen == []
        x.sin()
        assert seen == ["inner"]


@checks("saves_for_backward")
def test_what_autograd_keeps() -> None:
    assert ti.saves_for_backward()
    with torch.no_grad():
        assert not ti.saves_for_backward()
    with torch.autograd.graph.save_on_cpu():
        assert not ti.saves_for_backward()


@checks("TorchDispatchMode")
def test_dispatch_mode() -> None:
    seen = []

    class Mode(ti.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(func)
            return func(*args, **(kwargs or {}))

    with Mode():
        torch.ones(2).sin()
    assert seen[-1] is SIN


@checks("is_forward_ad_active", "leaving_dual_level", "has_dual_level")
def test_forward_mode() -> None:
    assert not ti.is_forward_ad_active()
    with torch.autograd.forward_ad.dual_level():
        assert ti.is_forward_ad_active()
        with pytest.raises(ValueError, match="around"), ti.leaving_dual_level():
            raise ValueError("around")
        assert ti.is_forward_ad_active()
    with pytest.raises(ValueError, match="inside"), ti.leaving_dual_level():
        torch.autograd.forward_ad.enter_dual_level()
        raise ValueError("inside")
    assert not ti.is_forward_ad_active()
    graph = torch.fx.Graph()
    assert not ti.has_dual_level(graph)
    graph.call_function(torch.autograd.forward_ad.enter_dual_level)
    assert ti.has_dual_level(graph)


@checks("by_mode", "in_plain_mode")
def test_functions_by_mode() -> None:
    def plain(x: int) -> list[int]:
        return [x]

    run = ti.by_mode(plain, under_autocast=lambda x: [x, 1], in_dual_level=lambda x: [x, 2])
    assert run(0) == [0]
    with torch.autocast("cpu"):
        assert run(0) == [0, 1]
        with torch.autograd.forward_ad.dual_level():
            assert run(0) == [0, 2]
    assert ti.in_plain_mode(run) is ti.in_plain_mode(functools.partial(run)) is plain
    assert ti.in_plain_mode(functools.partial(run, 0)) is ti.in_plain_mode(plain) is ti.in_plain_mode(max) is None


@checks("autograd_switches")
def test_switches_of_autograd() -> None:
    before = ti.autograd_switches()
    assert before["threads of autograd"] and before["level of forward derivatives"] is False
    with torch.autograd.set_multithreading_enabled(False):
        changed = ti.autograd_switches()
    assert {name for name in before if before[name] != changed[name]} == {"threads of autograd"}


@checks("without_tracing")
def test_calls_that_leave_no_trace() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        with ti.without_tracing():
            x.cos()
        return x.sin()

    traced = make_fx(function)(torch.ones(2))
    assert [n.target for n in traced.graph.nodes if n.op == "call_function"] == [torch.ops.aten.sin.default]


def test_hooks_of_all_modules_and_of_saved_tensors_are_switches() -> None:
    before = ti.autograd_switches()
    handle = torch.nn.modules.module.register_module_forward_hook(lambda *_: None)
    with torch.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: x):
        changed = ti.autograd_switches()
    handle.remove()
    told = {name for name in before if before[name] != changed[name]}
    assert told == {"hooks of all modules", "innermost hooks of saved tensors"}
    assert ti.autograd_switches() == before


@checks("compiler_settings")
def test_settings_of_torchs_compilers() -> None:
    import torch._dynamo.config as settings

    before = ti.compiler_settings()
    with settings.patch(suppress_errors=not settings.suppress_errors):
        assert ti.compiler_settings()["torch._dynamo.config"] != before["torch._dynamo.config"]
    assert ti.compiler_settings() == before


@checks("settings_of_scripts")
def test_settings_of_scripts_are_told() -> None:
    before = ti.settings_of_scripts()
    assert ti.settings_of_scripts() == before
    torch._C._jit_set_fusion_strategy([("STATIC", 1)])
    torch.distributions.Distribution.set_default_validate_args(not before["distributions"])
    try:
        changed = ti.settings_of_scripts()
    finally:
        torch._C._jit_set_fusion_strategy(before["strategy"])
        torch.distributions.Distribution.set_default_validate_args(before["distributions"])
    assert {name for name, value in before.items() if changed[name] != value} == {"strategy", "distributions"}
    assert ti.settings_of_scripts() == before


@checks("registries")
def test_what_programs_register_is_found() -> None:
    found = ti.registries()
    assert dict in found["types of containers"]
    assert torch.ops.aten.silu.default in found["operators in post_autograd"]
