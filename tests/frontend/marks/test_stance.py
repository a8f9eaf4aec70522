"""``set_stance``, the default backend, and the limits on compiling again."""

from __future__ import annotations

import logging

import pytest
import torch

import torchmux


@pytest.fixture(autouse=True)
def default_again():
    yield
    torchmux.set_stance("default")


class Backend:
    """Counts what it is asked to compile."""

    def __init__(self):
        self.graphs = []

    def __call__(self, gm, example_inputs):
        self.graphs.append([tuple(x.shape) for x in example_inputs if isinstance(x, torch.Tensor)])
        return gm.forward


def scale(x, k=2):
    seen.append(torchmux.is_compiling())
    return x * k


seen: list[bool] = []


def test_force_eager_in_all_ways():
    backend = Backend()
    compiled = torchmux.compile(scale, backend=backend)
    x = torch.ones(2)
    with torchmux.set_stance("force_eager"):
        assert torch.equal(compiled(x), x * 2)
    assert not backend.graphs

    @torchmux.set_stance("force_eager")
    def under(x):
        return compiled(x)

    under(x)
    assert not backend.graphs
    torchmux.set_stance("force_eager")
    compiled(x)
    assert not backend.graphs
    torchmux.set_stance("default")
    compiled(x)
    assert len(backend.graphs) == 1
    seen.clear()
    with torchmux.set_stance("force_eager"):
        compiled(x)
    assert seen == [False]


def test_stances_nest_and_survive_exceptions():
    with torchmux.set_stance("force_eager"):
        with pytest.raises(ZeroDivisionError), torchmux.set_stance("fail_on_recompile"):
            raise ZeroDivisionError
        backend = Backend()
        torchmux.compile(scale, backend=backend)(torch.ones(2))
        assert not backend.graphs
    torchmux.compile(scale, backend=backend)(torch.ones(2))
    assert len(backend.graphs) == 1


def test_eager_on_recompile_uses_what_there_is():
    backend = Backend()
    compiled = torchmux.compile(scale, backend=backend)
    compiled(torch.ones(2))
    seen.clear()
    with torchmux.set_stance("eager_on_recompile"):
        compiled(torch.ones(2))
        assert torch.equal(compiled(torch.ones(2), 5), torch.full((2,), 5.0))
    assert seen == [True, False]
    assert len(backend.graphs) == 1


def test_fail_on_recompile():
    compiled = torchmux.compile(scale, backend="eager")
    with (
        torchmux.set_stance("fail_on_recompile"),
        pytest.raises(torchmux.Unsupported, match="not been compiled before"),
    ):
        compiled(torch.ones(2))
    compiled(torch.ones(2))
    with torchmux.set_stance("fail_on_recompile"):
        compiled(torch.ones(2))
        with pytest.raises(torchmux.Unsupported, match=r"scale \(.*no compiled code matches: .*k.* no longer holds"):
            compiled(torch.ones(2), 3)
        assert torchmux.compile(lambda n: n + 1, backend="eager")(2) == 3  # nothing in it to compile


def test_eager_then_compile_sees_two_sizes():
    backend = Backend()
    compiled = torchmux.compile(scale, backend=backend)
    seen.clear()
    with torchmux.set_stance("eager_then_compile"):
        for n in (3, 4, 5, 6):
            assert torch.equal(compiled(torch.ones(n)), torch.full((n,), 2.0))
    assert seen == [False, True, True, True]
    assert len(backend.graphs) == 1  # dynamic at once
    assert torchmux.report(compiled).recompiles == []


def test_aot_eager_then_compile():
    backend = Backend()
    compiled = torchmux.compile(scale, backend=backend)
    with torchmux.set_stance("aot_eager_then_compile"):
        compiled(torch.ones(3))
        assert not backend.graphs
        assert [entry.report.backend for entry in torchmux.report(compiled).graphs] == ["aot_eager"]
        for n in (4, 5, 6):
            assert torch.equal(compiled(torch.ones(n)), torch.full((n,), 2.0))
    assert len(backend.graphs) == 1


def test_force_backend():
    one, other = Backend(), Backend()
    compiled = torchmux.compile(scale, backend=one)
    compiled(torch.ones(2))
    with torchmux.set_stance("default", force_backend=other):
        for _ in range(2):
            compiled(torch.ones(2))
    compiled(torch.ones(2))
    assert (len(one.graphs), len(other.graphs)) == (1, 1)


@torchmux.register_backend(name="stance_no_mul", graph="aten")
class NoMul:
    library_calls = {}

    def supports(self, node):
        return "no multiplication" if "mul" in str(node.target) else True

    def compile(self, gm, example_inputs, request):
        return gm.forward


def test_force_backend_is_as_strict_as_compile():
    compiled = torchmux.compile(scale, backend=Backend(), strict=True)
    with (
        torchmux.set_stance("default", force_backend="stance_no_mul"),
        pytest.raises(torchmux.FallbackRefused, match="no multiplication"),
    ):
        compiled(torch.ones(2))
    assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 2.0))


def test_force_backend_is_as_strict_past_a_limit():
    compiled = torchmux.compile(scale, backend="eager", strict=True, dynamic=False)
    with (
        torchmux.set_stance("default", force_backend=Backend()),
        torchmux.config.patch(recompile_limit=1),
        pytest.raises(torchmux.FallbackRefused, match="recompile_limit"),
    ):
        compiled(torch.ones(2))
        compiled(torch.ones(3))


def test_of_a_module():
    backend = Backend()
    net = torchmux.compile(torch.nn.Linear(2, 2), backend=backend)
    with torchmux.set_stance("force_eager"):
        net(torch.ones(1, 2))
    assert not backend.graphs
    net(torch.ones(1, 2))
    assert len(backend.graphs) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"stance": "eager"}, "no stance 'eager'. Did you mean 'force_eager'"),
        ({"stance": "force_eager", "force_backend": "eager"}, "works only with the stance 'default'"),
    ],
)
def test_wrong_stances(arguments, message):
    with pytest.raises(ValueError, match=message):
        torchmux.set_stance(**arguments)
    with pytest.raises(torchmux.UnknownBackend):
        torchmux.set_stance(force_backend="egaer")


def test_set_stance_in_compiled_code_breaks_the_graph():
    def fn(x):
        y = x + 1
        with torchmux.set_stance("force_eager"):
            y = y * 2
        return y * 3

    compiled = torchmux.compile(fn, backend="eager")
    for _ in range(2):
        assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 12.0))


# --- the default backend ------------------------------------------------------------------------------------------


def test_default_backend():
    assert torchmux.get_default_backend() == torchmux.list_backends()[0]
    backend = Backend()
    torchmux.set_default_backend(backend)
    try:
        assert torchmux.get_default_backend() is backend
        torchmux.compile(scale)(torch.ones(2))
        torchmux.compile(lambda x: x + 1)(torch.ones(2))
        torchmux.compile(fullgraph=True)(lambda x: x - 1)(torch.ones(2))
        assert len(backend.graphs) == 3
        with pytest.raises(torchmux.UnknownBackend):
            torchmux.set_default_backend("nonsense")
        assert torchmux.get_default_backend() is backend
    finally:
        torchmux.set_default_backend(None)


def test_the_default_in_the_settings(caplog):
    """An explicit backend comes first, then set_default_backend, then the setting, then the best."""
    with torchmux.config.patch(default_backend="aot_eager"), caplog.at_level("INFO", "torchmux"):
        assert torchmux.get_default_backend() == "aot_eager"
        for compiled in (torchmux.compile(scale), torchmux.compile()(scale)):
            compiled(torch.ones(2))
            (entry,) = torchmux.report(compiled).graphs
            assert entry.report.backend == "aot_eager"
            why = "aot_eager is the default here: torchmux.config.default_backend names it"
            assert entry.report.chosen == why and why in caplog.text
        named = torchmux.compile(scale, backend="eager")
        named(torch.ones(2))
        assert torchmux.report(named).graphs[0].report.backend == "eager"
        backend = Backend()
        torchmux.set_default_backend(backend)
        try:
            torchmux.compile(scale)(torch.ones(2))
        finally:
            torchmux.set_default_backend(None)
        assert len(backend.graphs) == 1
        assert "torchmux.set_default_backend() names it" in caplog.text
    assert torchmux.get_default_backend() == torchmux.list_backends()[0]


def test_a_default_in_the_settings_that_is_none():
    with torchmux.config.patch(default_backend="nonsense"), pytest.raises(torchmux.UnknownBackend):
        torchmux.compile(scale)
    with pytest.raises(TypeError, match="default_backend is str"), torchmux.config.patch(default_backend=3):
        pytest.fail("must not be entered")


def test_config_disable():
    backend = Backend()
    compiled = torchmux.compile(scale, backend=backend, fullgraph=True)
    with torchmux.config.patch(disable=True):
        assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 2.0))
    assert not backend.graphs
    compiled(torch.ones(2))
    assert len(backend.graphs) == 1


# --- limits -------------------------------------------------------------------------------------------------------


def warnings_of(caplog):
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


def by_name(x, name):
    seen.append(torchmux.is_compiling())
    return x + len(name)


def test_recompile_limit_warns_once_and_runs_in_eager(caplog):
    backend = Backend()
    compiled = torchmux.compile(by_name, backend=backend)
    with torchmux.config.patch(recompile_limit=3):
        for name in ("a", "bb", "ccc", "dddd", "eeeee", "ffffff"):
            assert torch.equal(compiled(torch.zeros(2), name), torch.full((2,), float(len(name))))
    assert len(backend.graphs) == 3
    (message,) = warnings_of(caplog)
    assert message.startswith("by_name (")
    assert "test_stance.py:" in message
    assert "compiled 3 times, which reaches torchmux.config.recompile_limit" in message
    assert "name == 'ccc' no longer holds (now 'dddd')" in message
    assert "Otherwise, raise the limit" in message
    seen.clear()
    compiled(torch.zeros(2), "bb")
    assert seen == [True]  # what was compiled is used still


@pytest.mark.parametrize("how", ["fullgraph", "setting"])
def test_recompile_limit_can_be_an_error(how):
    compiled = torchmux.compile(by_name, backend="eager", fullgraph=how == "fullgraph")
    with torchmux.config.patch(recompile_limit=1, fail_on_recompile_limit_hit=how == "setting"):
        compiled(torch.ones(2), "a")
        with pytest.raises(
            torchmux.Unsupported, match="compiled 1 times, which reaches torchmux.config.recompile_limit"
        ):
            compiled(torch.ones(2), "bb")


def test_accumulated_limit_counts_all_compile_calls(caplog):
    backends = [Backend() for _ in range(4)]
    compiled = [torchmux.compile(scale, backend=backend) for backend in backends]
    with torchmux.config.patch(accumulated_recompile_limit=3):
        for each in compiled:
            assert torch.equal(each(torch.ones(2)), torch.full((2,), 2.0))
    assert [len(backend.graphs) for backend in backends] == [1, 1, 1, 0]
    assert "accumulated_recompile_limit" in warnings_of(caplog)[0]


def test_accumulated_limit_does_not_count_what_is_gone():
    import gc

    class Layer(torch.nn.Linear):
        def forward(self, x):  # code of its own: that of torch's layer is counted over the whole process
            return super().forward(x)

    def layer(n):
        return torchmux.compile(Layer(n, 2), backend=Backend(), fullgraph=True)

    with torchmux.config.patch(accumulated_recompile_limit=2):
        for n in range(2, 8):
            layer(n)(torch.ones(1, n))
            gc.collect()
