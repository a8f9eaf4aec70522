"""What cannot be saved is refused with the reason, and where it stands."""

from __future__ import annotations

import contextlib
import functools

import pytest
import torch

import torchmux
from torchmux.config import config


def refused(compiled, tmp_path, *args):
    with torch.no_grad(), contextlib.suppress(torchmux.Unsupported):
        compiled(*args)
    with pytest.raises(torchmux.SaveRefused) as caught:
        torchmux.save(compiled, tmp_path / "file")
    assert not (tmp_path / "file").exists()
    return str(caught.value)


def test_a_graph_break_names_the_line(tmp_path):
    def f(x):
        x = x + 1
        print("here")
        return x * 2

    message = refused(torchmux.compile(f, backend="eager"), tmp_path, torch.ones(2))
    assert "cannot be found by its name: test_a_graph_break_names_the_line.<locals>.f" in message
    assert "Its graph breaks" in message
    assert f"{__file__}:{f.__code__.co_firstlineno + 2}" in message.replace('", line ', ":")


def test_not_called(tmp_path):
    compiled = torchmux.compile(lambda x: x + 1, backend="eager")
    with pytest.raises(torchmux.SaveRefused, match="nothing is compiled .*not been called"):
        torchmux.save(compiled, tmp_path / "file")


def test_gradients(net, tmp_path):
    compiled = torchmux.compile(net, backend="eager")
    compiled(torch.ones(3, 8))
    with pytest.raises(torchmux.SaveRefused, match="Call it under torch.no_grad"):
        torchmux.save(compiled, tmp_path / "file")


def test_counters_of_the_module(tmp_path):
    class Counts(torch.nn.Module):
        calls = 0

        def forward(self, x):
            self.calls += 1
            return x + self.calls

    message = refused(torchmux.compile(Counts(), backend="eager"), tmp_path, torch.ones(2))
    assert "a change of self" in message or "no longer" in message


def test_a_variable_of_the_function_around(tmp_path):
    total = torch.zeros(())

    def f(x):
        nonlocal total
        total = total + x.sum()
        return x + total

    assert "a change of total, a variable" in refused(torchmux.compile(f, backend="eager"), tmp_path, torch.ones(2))


def test_a_tensor_that_the_module_keeps(tmp_path):
    class Keeps(torch.nn.Module):
        def forward(self, x):
            self.last = x * 2
            return x + 1

    assert "a change of self" in refused(torchmux.compile(Keeps(), backend="eager"), tmp_path, torch.ones(2))


def test_hooks(net, tmp_path):
    net.register_forward_hook(lambda module, args, result: None)
    assert "run the hook" in refused(torchmux.compile(net, backend="eager"), tmp_path, torch.ones(3, 8))


def test_objects_that_have_no_name(tmp_path):
    class Local:
        pass

    local = Local()
    compiled = torchmux.compile(lambda x: (x + 1, local), backend="eager")
    assert "Local" in refused(compiled, tmp_path, torch.ones(2))


def test_comparisons_with_the_programs_own_objects(tmp_path):
    marker = object()
    compiled = torchmux.compile(lambda x, y: x + 1 if y is marker else x - 1, backend="eager")
    with torch.no_grad():
        compiled(torch.ones(2), marker)
    with pytest.raises(torchmux.SaveRefused):
        torchmux.save(compiled, tmp_path / "file")


def test_what_no_longer_holds_is_left_out(net, tmp_path):
    compiled = torchmux.compile(net, backend="eager")
    with torch.no_grad():
        compiled(torch.ones(3, 8))
        net.factor = 3
        with pytest.raises(torchmux.SaveRefused, match=r"factor == 2 no longer holds \(now 3\)"):
            torchmux.save(compiled, tmp_path / "file")
        compiled(torch.ones(3, 8))
        left_out = torchmux.save(compiled, tmp_path / "file")
        assert len(left_out) == 1
        loaded = torchmux.load(tmp_path / "file")
        torch.testing.assert_close(loaded(torch.ones(3, 8))["y"], net(torch.ones(3, 8))["y"])


def test_a_cache_that_is_off(net, tmp_path):
    with config.patch(cache_enabled=False):
        message = refused(torchmux.compile(net, backend="native"), tmp_path, torch.ones(3, 8))
    assert "config.cache_enabled" in message or "no longer in the artifact cache" in message


def test_backends_that_keep_nothing(net, tmp_path):
    def own(gm, inputs):
        return lambda *args: gm.forward(*args)

    message = refused(torchmux.compile(net, backend=own), tmp_path, torch.ones(3, 8))
    assert "does not tell what it has compiled" in message


def test_partials(net, tmp_path):
    compiled = torchmux.compile(functools.partial(net, scale=2.0), backend="eager")
    assert "save() takes compiled functions" in refused(compiled, tmp_path, torch.ones(3, 8))


def test_other_things_are_no_programs(tmp_path):
    with pytest.raises(TypeError, match="what torchmux.compile"):
        torchmux.save(torch.nn.Linear(2, 2), tmp_path / "file")


def test_branches_of_graphs(tmp_path):
    def program(x):
        return torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,))

    for backend in ("native", "eager"):
        message = refused(torchmux.compile(program, backend=backend), tmp_path, torch.ones(2))
        assert "cond runs graphs of its own" in message and "torch.where" in message


def test_weights_that_autocast_casts_once(tmp_path):
    x = torch.ones(2, 4)
    model = torch.nn.Linear(4, 4)
    with torch.autocast("cpu", torch.bfloat16):
        message = refused(torchmux.compile(model, backend="native"), tmp_path, x)
        assert "call requires_grad_(False) on the model before it is compiled" in message
        compiled = torchmux.compile(model.requires_grad_(False), backend="native")
        with torch.no_grad():
            wanted = compiled(x)
            assert torchmux.save(compiled, tmp_path / "file") == []
            assert torch.equal(torchmux.load(tmp_path / "file")(x), wanted)


def test_breaks_are_told_in_words(tmp_path):
    def program(x):
        return torch.unique(x)

    message = refused(torchmux.compile(program, backend="eager"), tmp_path, torch.ones(2))
    assert "TM008 operator whose output shape depends on data: unique" in message
