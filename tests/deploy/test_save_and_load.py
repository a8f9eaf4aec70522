"""``torchmux.save`` and ``torchmux.load``: the same results, for the same calls, with nothing traced."""

from __future__ import annotations

import enum
import functools
import math
import os
import subprocess
import sys
import textwrap
from unittest import mock

import pytest
import torch

import torchmux
from torchmux.deploy import paths
from torchmux.frontend.capture import capture
from torchmux.frontend.guards import closed, sources
from torchmux.frontend.guards.kinds import guard


class Side(enum.Enum):
    LEFT = 1
    RIGHT = 2


def same(found, wanted):
    """Whether two results of the model are the same."""
    torch.testing.assert_close((found["y"], found["total"]), (wanted["y"], wanted["total"]))
    assert (found["sizes"], found["named"]) == (wanted["sizes"], wanted["named"])


SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in ("openvino", "tvm", ("onnxrt", "native"))]
BACKENDS = ["native", "onnxrt", "aot_eager", "eager", *SLOW]


@pytest.mark.parametrize("backend", BACKENDS, ids=str)
def test_results_are_those_of_the_compiled_module(backend, saved, net):
    path, compiled = saved(backend)
    with (
        mock.patch.object(capture, "capture", side_effect=AssertionError("it traces")),
        torch.no_grad(),
    ):
        loaded = torchmux.load(path)
        for x in (torch.ones(3, 8), torch.randn(3, 8)):
            found, wanted = loaded(x), compiled(x)
            assert torch.equal(found["y"], wanted["y"])
            assert torch.equal(found["total"], wanted["total"])
            assert (found["sizes"], found["named"]) == (wanted["sizes"], wanted["named"])


@pytest.mark.slow
def test_auto_saves_what_it_has_chosen(saved, net):
    path, compiled = saved("auto", options={"wait": True, "allow": ["native", "aot_eager"]})
    loaded = torchmux.load(path)
    with torch.no_grad():
        same(loaded(torch.ones(3, 8)), compiled(torch.ones(3, 8)))
    (entry,) = loaded.entries
    assert entry.backend in ("eager", "aot_eager", "native")
    (decision,) = entry.decisions.values()
    assert decision["backend"] == entry.backend
    assert {"eager", "native"} <= {row["candidate"].partition(" ")[0] for row in decision["rows"]}


@pytest.mark.parametrize("backend", ["native", "eager"])
def test_several_entries_and_symbolic_sizes(backend, saved, net):
    calls = [(torch.ones(3, 8),), (torch.ones(5, 8),), (torch.ones(6, 8), 0.5), (torch.ones(1, 8),)]
    path, _ = saved(backend, calls)
    loaded = torchmux.load(path)
    assert len(loaded.entries) > 2
    with torch.no_grad():
        for args in [*calls, (torch.randn(17, 8),), (torch.randn(2, 8), 0.5)]:
            same(loaded(*args), net(*args))


def test_a_call_that_was_not_compiled_says_why(saved):
    path, _ = saved("eager")
    loaded = torchmux.load(path)
    with torch.no_grad():
        with pytest.raises(torchmux.Unsupported, match="size mismatch at index 0. expected 3, actual 4"):
            loaded(torch.ones(4, 8))
        with pytest.raises(torchmux.Unsupported, match=r"scale == 1\.0"):
            loaded(torch.ones(3, 8), 2.0)
        with pytest.raises(torchmux.Unsupported, match="named is None"):
            loaded(torch.ones(3, 8), named="a name")
        with pytest.raises(torchmux.Unsupported, match="dtype"):
            loaded(torch.ones(3, 8).double())
        with pytest.raises(TypeError, match="missing 1 required positional argument: 'x'"):
            loaded()
        with torch.autocast("cpu"), pytest.raises(torchmux.Unsupported, match="Autocast"):
            loaded(torch.ones(3, 8))
    with pytest.raises(torchmux.Unsupported, match=r"grad mode changed \(now enabled\)"):
        loaded(torch.ones(3, 8))  # gradients are on


def test_threads_may_change(saved, net):
    path, _ = saved("eager")
    loaded = torchmux.load(path)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(threads + 1)
        with torch.no_grad():
            same(loaded(torch.ones(3, 8)), net(torch.ones(3, 8)))
    finally:
        torch.set_num_threads(threads)


def test_another_process_without_home_compiler_or_cache(saved, net, tmp_path):
    """It has no folder that it may write to but for temporary files, and never imports the tracer."""
    path, _ = saved("native", [(torch.ones(3, 8),), (torch.ones(4, 8),), (torch.ones(5, 8),)])
    x = torch.randn(7, 8)
    with torch.no_grad():
        torch.save((x, net(x)["y"]), tmp_path / "wanted")
    program = textwrap.dedent(f"""
        import sys, torch, torchmux
        loaded = torchmux.load({os.fspath(path)!r})
        x, wanted = torch.load({os.fspath(tmp_path / "wanted")!r})
        with torch.no_grad():
            torch.testing.assert_close(loaded(x)["y"], wanted)
        bad = [n for n in ("torch._dynamo", "torch._inductor", "torchmux.frontend.trace.trace",
                           "torchmux.backends.native.generate") if n in sys.modules]
        assert not bad, bad
        print("same")
    """)
    elsewhere = {"PATH": "/nonexistent", "TORCHMUX_CACHE_DIR": "/proc/none", "HOME": "/nonexistent"}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=elsewhere, cwd="/", check=False
    )
    assert (done.stdout, done.returncode) == ("same\n", 0), done.stderr


def test_functions_and_methods(tmp_path):
    weight = torch.randn(4)

    class Holder:
        def __init__(self):
            self.bias = torch.randn(4)

        def method(self, x, *rest, **named):
            return x * weight + self.bias + len(rest) + named["more"]

    holder = Holder()
    compiled = torchmux.compile(holder.method, backend="eager")
    call = (torch.ones(4), 1, 2), {"more": torch.ones(())}
    wanted = compiled(*call[0], **call[1])
    torchmux.save(compiled, tmp_path / "file")
    loaded = torchmux.load(tmp_path / "file")
    torch.testing.assert_close(loaded(*call[0], **call[1]), wanted)
    with pytest.raises(torchmux.Unsupported):
        loaded(torch.ones(4), more=torch.ones(()))


def test_buffers_that_the_graph_changes(tmp_path):
    model = torch.nn.BatchNorm1d(4)
    compiled = torchmux.compile(model, backend="native")
    with torch.no_grad():
        compiled(torch.randn(8, 4))
        torchmux.save(compiled, tmp_path / "file")
        loaded = torchmux.load(tmp_path / "file")
        x = torch.randn(8, 4)
        torch.testing.assert_close(loaded(x), model(x))
        torch.testing.assert_close(loaded.weights["running_mean"], model.running_mean)
        assert loaded.weights["num_batches_tracked"].item() == 2


def test_buffers_that_are_counted_up(tmp_path):
    class Counts(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("steps", torch.zeros(()))

        def forward(self, x):
            self.steps += 1
            return x + self.steps

    compiled = torchmux.compile(Counts(), backend="eager")
    with torch.no_grad():
        compiled(torch.ones(2))
        torchmux.save(compiled, tmp_path / "file")
        loaded = torchmux.load(tmp_path / "file")
        assert [loaded(torch.ones(2))[0].item() for _ in range(2)] == [3, 4]
        assert loaded.weights["steps"].item() == 3


def test_lists_of_the_caller_are_changed(tmp_path):
    def f(x, found):
        found.append(x.sum())
        return [x, x + 1, found[0]]

    compiled = torchmux.compile(f, backend="eager")
    compiled(torch.ones(2), [])
    torchmux.save(compiled, tmp_path / "file")
    found: list = []
    x = torch.ones(2)
    result = torchmux.load(tmp_path / "file")(x, found)
    assert found[0].item() == 2
    assert result[0] is x
    assert result[2] is found[0]


def test_without_weights(net, tmp_path):
    compiled = torchmux.compile(net, backend="eager")
    with torch.no_grad():
        compiled(torch.ones(3, 8))
        torchmux.save(compiled, tmp_path / "file", weights=False)
        with pytest.raises(torchmux.LoadRefused, match=r"no numbers for .*without weights.*state_dict"):
            torchmux.load(tmp_path / "file")
        loaded = torchmux.load(tmp_path / "file", weights=net.state_dict())
        same(loaded(torch.ones(3, 8)), net(torch.ones(3, 8)))
        with pytest.raises(torchmux.LoadRefused, match="inner.weight is"):
            torchmux.load(tmp_path / "file", weights={**net.state_dict(), "inner.weight": torch.ones(2)})


def test_strides_of_weights_are_kept(tmp_path):
    model = torch.nn.Conv2d(4, 8, 3).to(memory_format=torch.channels_last).eval()
    compiled = torchmux.compile(model, backend="native")
    x = torch.randn(1, 4, 9, 9)
    with torch.no_grad():
        wanted = compiled(x)
        torchmux.save(compiled, tmp_path / "file")
        loaded = torchmux.load(tmp_path / "file")
        assert loaded.weights["weight"].stride() == model.weight.stride()
        torch.testing.assert_close(loaded(x), wanted)
        assert loaded(x).stride() == wanted.stride()


def test_into_a_live_model(saved, net, tmp_path):
    path, _ = saved("eager")
    other = type(net)().eval()
    loaded = torchmux.load(path, other)
    with torch.no_grad():
        same(loaded(torch.ones(3, 8)), other(torch.ones(3, 8)))
        other.inner.weight.mul_(2)  # it is shared
        same(loaded(torch.ones(3, 8)), other(torch.ones(3, 8)))
        other.load_state_dict(net.state_dict())
        same(loaded(torch.ones(3, 8)), net(torch.ones(3, 8)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda model: setattr(model, "factor", 3), "the model itself is another"),
        (lambda model: model.train(), "is another"),
        (lambda model: setattr(model, "inner", torch.nn.Identity()), "inner is another"),
        (lambda model: setattr(model, "more", torch.nn.Identity()), "more was not there|the model itself"),
    ],
)
def test_a_live_model_that_is_another_is_refused(change, message, saved, net):
    path, _ = saved("eager")
    other = type(net)().eval()
    change(other)
    with pytest.raises(torchmux.LoadRefused, match=message):
        torchmux.load(path, other)


def test_compiled_anew_where_the_file_does_not_fit(net, tmp_path, monkeypatch):
    compiled = torchmux.compile(net, backend="native", options={"precision": "bf16"})
    with torch.no_grad():
        wanted = compiled(torch.ones(3, 8))
        torchmux.save(compiled, tmp_path / "file")
        assert torch.equal(torchmux.load(tmp_path / "file", net, recompile=True)(torch.ones(3, 8))["y"], wanted["y"])
        monkeypatch.setattr("torchmux.deploy.machine.__version__", "0.0.0")
        with pytest.raises(torchmux.LoadRefused, match="recompile=True"):
            torchmux.load(tmp_path / "file", net)
        with pytest.raises(torchmux.LoadRefused, match="no model to compile"):
            torchmux.load(tmp_path / "file", recompile=True)
        again = torchmux.load(tmp_path / "file", net, recompile=True)
        assert torch.equal(again(torch.ones(3, 8))["y"], wanted["y"])  # with the same options


def test_a_module_may_be_among_the_positional_arguments(tmp_path):
    def rescaled(forward):
        @functools.wraps(forward)
        def wrapper(*args, **kwargs):
            return forward(*args, **kwargs) * len(args)

        return wrapper

    class Decorated(torch.nn.Linear):
        forward = rescaled(torch.nn.Linear.forward)

    class Named(torch.nn.Linear):
        def forward(*need, _owner=3, **kwargs):
            self, x, *others = need
            y = super(Named, self).forward(x) * _owner
            return {"y": y, "others": others, **kwargs}

    class Returns(torch.nn.Linear):
        def forward(*args):
            return args[0].weight * args[1], args

    x, other = torch.randn(2, 4), torch.randn(3)
    for cls, calls in (
        (Decorated, [((x,), {}), ((), {"input": x})]),
        (Named, [((x,), {}), ((x, other, None), {"_owner": 2}), ((x,), {"z": other})]),
    ):
        model = cls(4, 4).eval()
        compiled = torchmux.compile(model, backend="aot_eager")
        with torch.no_grad():
            for args, kwargs in calls:
                compiled(*args, **kwargs)
            assert torchmux.save(compiled, tmp_path / "file") == []
            for loaded in (torchmux.load(tmp_path / "file"), torchmux.load(tmp_path / "file", model)):
                for args, kwargs in calls:
                    torch.testing.assert_close(loaded(*args, **kwargs), model(*args, **kwargs))
                with pytest.raises(torchmux.Unsupported, match="nothing for this call"):
                    loaded(x, x, x, x)
    with torch.no_grad(), pytest.raises(torchmux.SaveRefused, match=r"\*args in a result or a change, with its own"):
        compiled = torchmux.compile(Returns(4, 4).eval(), backend="aot_eager")
        compiled(x[:1])
        torchmux.save(compiled, tmp_path / "file")


def test_operators_of_other_packages_are_registered_before_a_file_is_loaded(tmp_path):
    library = torch.library.Library("of_a_package", "DEF")
    library.define("twice(Tensor x) -> Tensor")
    for key in ("CPU", "Meta"):
        library.impl("twice", lambda x: x * 2, key)

    def program(x):
        return torch.ops.of_a_package.twice(x) + 1

    compiled = torchmux.compile(program, backend="native")
    compiled(torch.ones(3))
    torchmux.save(compiled, tmp_path / "file")
    assert torch.equal(torchmux.load(tmp_path / "file")(torch.ones(3)), torch.full((3,), 3.0))
    library._destroy()
    with pytest.raises(torchmux.LoadRefused, match=r"calls of_a_package\.twice\.default, which no package.*Import"):
        torchmux.load(tmp_path / "file")


def test_members_of_enumerations_and_one_empty_tuple_on_two_paths(tmp_path):
    class Sided(torch.nn.Linear):
        args = ()

        def forward(self, x, *args, side=Side.LEFT):
            y = super().forward(x, *self.args, *args)
            return y * 2 if side is Side.LEFT else y - 1, side

    model = Sided(4, 4).eval()
    compiled = torchmux.compile(model, backend="eager")
    x = torch.ones(2, 4)
    with torch.no_grad():
        for side in Side:
            compiled(x, side=side)
        assert torchmux.save(compiled, tmp_path / "file") == []
        loaded = torchmux.load(tmp_path / "file")
        for side in Side:
            (found, known), (wanted, _) = loaded(x, side=side), model(x, side=side)
            torch.testing.assert_close(found, wanted)
            assert known is side
        with pytest.raises(torchmux.Unsupported, match="side is <Side.LEFT: 1>"):
            loaded(x, side=1)


def test_what_python_computes_from_numbers(tmp_path):
    """Texts and numbers that the frame computes in each call; who loads a file knows each kind of path and of guard."""

    def program(x, n, v):
        return x * math.gcd(n, 12) + abs(v * 2 - 1), f"{n:03d}/{v:.2f}", ",".join([str(n), "a"]), ("%d" % n).zfill(4)  # noqa: UP031

    compiled = torchmux.compile(program, backend="eager")
    x = torch.randn(3)
    for n, v in ((3, 2.5), (5, 3.5)):
        compiled(x, n, v)
    torchmux.save(compiled, tmp_path / "file")
    loaded = torchmux.load(tmp_path / "file")
    for n, v in ((4, 7.5), (12, -1.25)):
        (found, *texts), (wanted, *words) = loaded(x, n, v), program(x, n, v)
        assert torch.equal(found, wanted) and texts == words
    imported = {module.__name__ for module in (*paths.DECLARED, sources, guard)}
    kinds = [kind for family in (sources.Source, guard.Guard) for kind in closed.all_kinds(family)]
    assert {kind.__module__ for kind in kinds if kind.__module__.startswith("torchmux.")} <= imported


def test_properties_of_tensors(tmp_path):
    """torch runs the captured graph, where they are no operators."""

    def program(x):
        return x @ x.T + x.mT, (x * 1j).imag

    compiled = torchmux.compile(program, backend="eager")
    x = torch.randn(3, 3)
    compiled(x)
    torchmux.save(compiled, tmp_path / "file")
    torch.testing.assert_close(torchmux.load(tmp_path / "file")(x), program(x))


def doubled_by_a_function_inside(x, layers=(torch.sin, torch.cos)):
    x = x.relu()
    y = x * 1j

    def double():
        return y * 2j

    y = y + 1
    return x, [layer(x) for layer in layers], double()


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_variables_that_functions_inside_read(backend, tmp_path):
    """They end with the call: what a call writes to them is not a change that a file would have to repeat."""
    compiled = torchmux.compile(doubled_by_a_function_inside, backend=backend)
    x = torch.tensor([1.0, -2.0])
    compiled(x)
    torchmux.save(compiled, tmp_path / "file")
    torch.testing.assert_close(torchmux.load(tmp_path / "file")(x), doubled_by_a_function_inside(x))


def test_calls_without_operators_are_told(tmp_path):
    def program(x, flag=False):
        return x * 2 if flag else x

    compiled = torchmux.compile(program, backend="eager")
    compiled(torch.ones(3))
    with pytest.raises(torchmux.SaveRefused, match="its calls have no operators"):
        torchmux.save(compiled, tmp_path / "file")
    compiled(torch.ones(3), True)
    (left_out,) = torchmux.save(compiled, tmp_path / "file")
    assert "calls without operators, which run in eager, while " in left_out  # other questions may come before ours
    assert "flag is False" in left_out
    assert torchmux.load(tmp_path / "file")(torch.ones(3), True)[0].item() == 2
