"""Reports say what ran: which calls were compiled, which ran in eager and why, and of what kind each operator is."""

from __future__ import annotations

import json
import logging
import math
import random
import threading
import types

import pytest
import torch

import torchmux
from torchmux.frontend.default_backend import DefaultBackend
from torchmux.frontend.hook import frames
from torchmux.registry import standing
from torchmux.registry.errors import CompilationFailed, FallbackRefused, InvalidOption
from torchmux.registry.report import check_strict_value


class Counting:
    """A backend that counts how often its code runs."""

    def __init__(self) -> None:
        self.runs = 0

    def __call__(self, gm, example_inputs):
        def run(*args):
            self.runs += 1
            return gm.forward(*args)

        return run


def program(x):
    return x.sin() + x.cos() * 2


def test_a_callable_that_never_ran_says_so():
    report = torchmux.report(torchmux.compile(program, backend="eager"))
    assert str(report).startswith("never called")
    assert report.runs == 0 and math.isnan(report.share)


@pytest.mark.parametrize("seed", range(40))
def test_random_calls_are_counted_as_they_ran(seed):
    """Sizes, stances, limits and settings at random; what the backend saw is what the report says."""
    rng = random.Random(seed)
    backend = Counting()
    compiled = torchmux.compile(program, backend=backend, dynamic=False)
    calls = 0
    with torchmux.config.patch(recompile_limit=rng.randint(1, 3)):
        for _ in range(rng.randint(1, 25)):
            calls += 1
            x, choice = torch.randn(rng.randint(1, 5)), rng.random()
            if choice < 0.1:
                with torchmux.set_stance(rng.choice(("force_eager", "eager_on_recompile"))):
                    found = compiled(x)
            elif choice < 0.2:
                with torchmux.config.patch(disable=True):
                    found = compiled(x)
            else:
                found = compiled(x)
            torch.testing.assert_close(found, program(x), rtol=0, atol=0)
    report = torchmux.report(compiled)
    assert report.runs == calls
    assert report.compiled_calls == backend.runs
    assert report.eager_calls == calls - backend.runs
    operators = {"untold": 4 * backend.runs, "torch": 4 * report.eager_calls if backend.runs else report.eager_calls}
    assert report.kinds == {kind: number for kind, number in operators.items() if number}
    assert (report.share == 1.0) == (report.eager_calls == 0)


def test_calls_past_the_limit_count_as_eager():
    compiled = torchmux.compile(program, backend="native", dynamic=False)
    with torchmux.config.patch(recompile_limit=1):
        for size in range(1, 5):
            compiled(torch.ones(size))
    report = torchmux.report(compiled)
    (calls,) = report.calls
    assert (calls.compiled, calls.eager) == (1, {"recompile_limit reached": 3})
    assert report.shares == {"own": 0.25, "torch": 0.75} and report.share == 0.25
    assert "3 in eager (recompile_limit reached)" in str(report)


@pytest.mark.parametrize("limit", ["recompile_limit", "accumulated_recompile_limit"])
def test_strict_refuses_calls_past_a_limit(limit):
    compiled = torchmux.compile(program, backend="eager", dynamic=False, strict=True)
    with torchmux.config.patch({limit: 1}):
        compiled(torch.ones(1))
        for _ in range(2):
            with pytest.raises(FallbackRefused, match=limit):
                compiled(torch.ones(2))
        compiled(torch.ones(1))  # what is compiled runs
    assert torchmux.report(compiled).eager_calls == 0


def test_an_eager_function_has_the_operators_of_its_resumed_parts():
    def two_parts(x):
        y = x.sin()
        torchmux.graph_break()
        return y.cos() + 1

    compiled = torchmux.compile(two_parts, backend="native", dynamic=False)
    with torchmux.config.patch(recompile_limit=1):
        compiled(torch.ones(1))
        compiled(torch.ones(2))
    report = torchmux.report(compiled)
    assert [each.name.rpartition(".")[2] for each in report.calls] == ["two_parts", "two_parts, resume 1"]
    assert report.kinds == {"own": 3, "torch": 3}


def helper(x):
    return ((x.sin() + 1).cos() * 2).tanh()


def calls_helper(x):
    return helper(x) * 3


@pytest.mark.parametrize("seed", range(20))
def test_operators_of_callees_are_counted_once(seed):
    """Where a function runs in eager, the functions that it calls are captured, or counted, by themselves."""
    rng = random.Random(seed)
    compiled = torchmux.compile(calls_helper, backend="native", dynamic=False)
    calls = rng.randint(1, 12)
    with torchmux.config.patch(recompile_limit=rng.randint(1, 3)):
        for _ in range(calls):
            compiled(torch.ones(rng.randint(1, 6)))
    report = torchmux.report(compiled)
    assert sum(report.kinds.values()) == 6 * calls
    assert report.kinds["own"] == sum(entry.calls * len(entry.report.placements) for entry in report.graphs)


def test_the_stance_force_eager_counts_callees():
    compiled = torchmux.compile(calls_helper, backend="native")
    compiled(torch.ones(2))
    with torchmux.set_stance("force_eager"):
        compiled(torch.ones(2))
    assert torchmux.report(compiled).kinds == {"own": 6, "torch": 6}


@pytest.mark.parametrize("kind", ["function", "module"])
@pytest.mark.parametrize("threads", [2, 20])
def test_threads_that_call_at_once_share_one_graph(kind, threads):
    """Those that wait for the one that compiles find what it has made, instead of compiling until the limit."""
    net = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU())
    what = net if kind == "module" else program
    for round in range(3):
        torchmux.reset()
        compiled = torchmux.compile(what, backend="eager", strict=True)
        barrier, errors = threading.Barrier(threads), []

        def call(compiled=compiled, barrier=barrier, errors=errors):
            barrier.wait()
            try:
                for _ in range(20):
                    with torch.no_grad():
                        compiled(torch.ones(2, 3))
            except Exception as error:
                errors.append(error)

        running = [threading.Thread(target=call) for _ in range(threads)]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()
        report = torchmux.report(compiled)
        assert errors == [] and report.recompiles == []
        assert (report.graph_count, report.runs, report.compiled_calls) == (1, 20 * threads, 20 * threads), round
        assert report.share == 1.0


def test_a_call_that_a_limit_stops_is_no_recompilation():
    def resumed(x):
        y = x.sin()
        torchmux.graph_break()
        return y.cos()

    compiled = torchmux.compile(resumed, backend="eager", dynamic=False)
    with torchmux.config.patch(recompile_limit=2):
        for size in range(1, 5):
            compiled(torch.ones(size))
    whole, rest = torchmux.report(compiled).recompiles
    assert whole.endswith("resumed: tensor 'x' size mismatch at index 0. expected 1, actual 2")
    assert rest.endswith("resumed, resume 1: tensor 'y' size mismatch at index 0. expected 1, actual 2")


def test_what_has_no_report_says_why():
    for what in (program, torchmux.compile(program, disable=True)):
        with pytest.raises(TypeError, match="with disable=True, compile returns what it was given"):
            torchmux.report(what)


def test_other_reasons():
    @torchmux.disable
    def left_out(x):
        return x.exp()

    @torchmux.disable(recursive=False)
    def by_itself(x):
        return x.exp()

    def steps(x):
        for row in x:
            yield row.exp()

    def calls_them(x):
        torchmux.graph_break()
        y = left_out(x) + by_itself(x)
        return y + sum(row.sum() for row in steps(x))

    def skipped(x):
        torchmux.skip_frame()
        return calls_them(x)

    compiled = torchmux.compile(skipped, backend="eager")
    x = torch.randn(3, 2)
    torch.testing.assert_close(compiled(x), skipped(x))
    reasons = {each.name.rpartition(".")[2]: list(each.eager) for each in torchmux.report(compiled).calls if each.eager}
    assert reasons["left_out"] == reasons["by_itself"] == ["torchmux.disable"]
    assert reasons["skipped"] == ["nothing of it could be captured (TM005)"]


def test_a_loop_that_is_left_to_eager_is_counted_in_each_call():
    def loop(x):
        for _ in range(3):
            x = x + 1
            torch.rand(1).item()
            print(end="")
        return x

    compiled = torchmux.compile(loop, backend="eager")
    for _ in range(4):
        compiled(torch.ones(2))
    (calls,) = (each for each in torchmux.report(compiled).calls if each.function.endswith("loop") and not each.resume)
    assert calls.eager == {"a loop that is left to eager": 4}
    assert torchmux.report(compiled).share < 1


def test_entries_have_function_graph_resume_and_stages():
    def broken(x):
        y = x.sin()
        torchmux.graph_break()
        return y.cos()

    compiled = torchmux.compile(broken, backend="native", dynamic=False)
    for size in (1, 2):
        compiled(torch.ones(size))
    graphs = torchmux.report(compiled).graphs
    assert [(g.number, g.resume, g.calls) for g in graphs] == [(0, 0, 1), (0, 1, 1), (1, 0, 1), (1, 1, 1)]
    assert graphs[3].name.endswith("broken, graph 1, resume 1")
    for graph in graphs:
        assert {"capture", "AOT", "load"} <= graph.seconds.keys()
        assert all(spent > 0 for spent in graph.seconds.values())


def test_stages_do_not_overlap():
    import time

    begun = time.perf_counter()
    compiled = torchmux.compile(program, backend="native")
    compiled(torch.ones(3))
    assert sum(torchmux.report(compiled).seconds.values()) <= time.perf_counter() - begun


@pytest.mark.parametrize("value", [1, 0, None, "Own", "torch", 2.0, [True]])
def test_strict_takes_three_values(value):
    with pytest.raises(InvalidOption, match="strict must be False, True .* or 'own'"):
        torchmux.compile(program, backend="eager", strict=value)
    assert [check_strict_value(known) for known in (False, True, "own")] == [False, True, "own"]


@pytest.mark.parametrize(
    ("backend", "kinds"), [("native", {"own", "library"}), ("eager", {"library"}), ("aot_eager", {"library"})]
)
def test_strict_own_refuses_library_kernels(backend, kinds):
    def product(x):
        return torch.relu(x @ x)

    x = torch.randn(3, 3)
    allowed = torchmux.compile(product, backend=backend, strict=True)
    allowed(x)
    report = torchmux.report(allowed)
    assert set(report.kinds) == kinds and all(p.library for p in report.library_calls)
    with pytest.raises(FallbackRefused, match="strict='own'"):
        torchmux.compile(product, backend=backend, strict="own")(x)


def test_strict_own_refuses_what_is_untold_and_takes_own_code():
    torchmux.compile(program, backend="native", strict="own")(torch.ones(3))
    with pytest.raises(FallbackRefused, match="does not say which|does not tell"):
        torchmux.compile(program, backend=Counting(), strict="own")(torch.ones(3))


def test_library_kernels_are_told_alike_from_every_cache():
    """Made anew, from the artifact cache, and from a recipe; with parameters frozen and not."""
    for options in ({}, {"freeze": True}):
        net = torch.nn.Sequential(
            torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(288, 4)
        )
        found = []
        for _ in range(3):
            torchmux.reset()
            compiled = torchmux.compile(net.eval(), backend="native", options=options)
            with torch.no_grad():
                compiled(torch.randn(2, 3, 8, 8))
            found.append([(p.op, p.kind, p.library) for p in torchmux.report(compiled).placements])
        assert found[0] == found[1] == found[2]
        if not options:
            assert ("aten.convolution.default", "library", "aten.convolution.default") in found[0]


# --- the default backend ----------------------------------------------------------------------------------------------


def test_the_default_is_the_first_of_the_list_and_says_why(caplog):
    with caplog.at_level(logging.INFO, "torchmux"):
        compiled = torchmux.compile(torch.nn.Linear(3, 3))
    compiled(torch.ones(1, 3))
    (entry,) = torchmux.report(compiled).graphs
    assert entry.report.backend == torchmux.get_default_backend() == torchmux.list_backends()[0]
    assert entry.report.chosen in caplog.text and entry.report.chosen in str(torchmux.report(compiled))


def test_what_fails_conformance_comes_after_what_does_not():
    rows = [row for row in torchmux.backends() if row.available]
    failing = [bool(known and known.failures) for known in (standing.standing(row.name) for row in rows)]
    assert failing == sorted(failing)
    for rank in (False, True):
        priorities = [row.priority for row, fails in zip(rows, failing, strict=True) if fails is rank]
        assert priorities == sorted(priorities, reverse=True)


def test_the_newest_results_count(monkeypatch, tmp_path):
    """A quick run of the present suite tells more of a backend than a full run of an earlier one."""
    (tmp_path / "results").mkdir()
    for suite, level, totals in (("9", "full", {"pass": 900}), ("10", "quick", {"pass": 90, "crash": 1, "xfail": 2})):
        run = {"backend": "native", "suite": suite, "level": level, "totals": totals, "environment": {}}
        (tmp_path / "results" / f"{level}.json").write_text(json.dumps(run))
    monkeypatch.setattr(standing.importlib.resources, "files", lambda package: tmp_path)
    standing._published.cache_clear()
    try:
        assert standing.standing("native") == standing.Standing(93, 1, 2)
    finally:
        standing._published.cache_clear()


def test_fewer_declared_failures_decide_between_equal_priorities(monkeypatch):
    """The default is not what comes first in the alphabet."""
    results = {"early": standing.Standing(9, 0, 5), "late": standing.Standing(9, 0, 1), "none": None}
    monkeypatch.setattr(standing, "standing", lambda name, device: results[name])
    rows = [types.SimpleNamespace(name=name, distribution="torchmux", priority=50) for name in results]
    assert [row.name for row in sorted(rows, key=standing.preference)] == ["none", "late", "early"]


def test_native_is_the_default_where_it_runs():
    (row,) = [row for row in torchmux.backends() if row.name == "native"]
    if not row.available:
        pytest.skip("native does not run here")
    assert torchmux.get_default_backend() == "native"


def test_the_device_decides(own_catalog):
    torchmux.register_backend(torchmux.BackendSpec("gpu", "", Counting(), devices=("meta",), priority=10_000))
    settings = {"mode": None, "options": None, "dynamic": None, "strict": False}
    chosen = DefaultBackend(settings, program)
    assert chosen.for_inputs([torch.ones(2)]).name == torchmux.get_default_backend() != "gpu"
    assert chosen.for_inputs([torch.ones(2, device="meta")]).name == "gpu"
    assert DefaultBackend(settings, torch.nn.Linear(2, 2, device="meta")).for_inputs([]).name == "gpu"


# --- compiler errors --------------------------------------------------------------------------------------------------


class Failing:
    """Raises what it does not mean to."""

    library_calls: dict = {}

    def supports(self, node):
        return True

    def compile(self, gm, example_inputs, request):
        raise KeyError("lost")


@pytest.mark.parametrize("graph", ["torch", "aten"])
def test_compiler_errors_fail_tests_and_are_told_otherwise(graph):
    spec = torchmux.BackendSpec("failing", "", Failing, graph=graph)
    with pytest.raises(CompilationFailed, match="fail_on_compiler_errors"):
        torchmux.compile(program, backend=spec)(torch.ones(2))
    with torchmux.config.patch(fail_on_compiler_errors=False):
        compiled = torchmux.compile(program, backend=spec)
        torch.testing.assert_close(compiled(torch.ones(2)), program(torch.ones(2)))
    report = torchmux.report(compiled)
    assert report.shares == {"torch": 1.0} and report.compiler_errors == report.placements
    assert {p.reason for p in report.compiler_errors} == {"compiler error: KeyError: 'lost'"}


def test_errors_of_the_frontend_fail_tests_and_are_told_otherwise(monkeypatch, caplog):
    def capture(*args, **kwargs):
        raise ZeroDivisionError("lost")

    monkeypatch.setattr(frames, "capture", capture)
    with pytest.raises(CompilationFailed, match="failed to capture .*program.*\n?.*ZeroDivisionError: lost"):
        torchmux.compile(program, backend="eager")(torch.ones(2))
    with torchmux.config.patch(fail_on_compiler_errors=False), caplog.at_level(logging.WARNING, "torchmux"):
        compiled = torchmux.compile(program, backend="eager")
        torch.testing.assert_close(compiled(torch.ones(2)), program(torch.ones(2)))
    report = torchmux.report(compiled)
    assert "program runs in eager" in caplog.text and [entry.kind for entry in report.breaks] == ["TM000"]
    assert report.shares == {"torch": 1.0}
    assert report.calls[0].eager == {"nothing of it could be captured (TM000)": 1}


FACTOR = 2.0


def test_strict_forbids_a_function_that_runs_in_other_globals():
    def called(x):
        return x * FACTOR + 1

    def caller(function, x):
        torchmux.skip_frame()
        return function(x)

    other = types.FunctionType(called.__code__, {"FACTOR": 3.0})
    x = torch.ones(2)
    compiled = torchmux.compile(caller, backend="eager", strict=True)
    assert torch.equal(compiled(called, x), x * FACTOR + 1)
    with pytest.raises(torchmux.FallbackRefused, match="a function of other globals"):
        compiled(other, x)
    assert torch.equal(compiled(called, x), x * FACTOR + 1)
