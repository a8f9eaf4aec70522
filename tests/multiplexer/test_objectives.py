"""What is chosen for each objective, and what limits leave out."""

from __future__ import annotations

import math

import pytest
import torch

import torchmux
from torchmux.multiplexer.candidates import candidates_for
from torchmux.multiplexer.decisions import Row
from torchmux.multiplexer.objectives import MEBI, Objective, choose
from torchmux.multiplexer.timing import Times
from torchmux.registry.resolve import known_spec


def candidates(**told):
    """name=(milliseconds, MiB, compile seconds)."""
    rows = {n: Row(n, n, {}, "", compile_seconds=c, memory=int(m * MEBI)) for n, (_, m, c) in told.items()}
    times = {n: Times([ms / 1e3] * 10) for n, (ms, _, _) in told.items()}
    return rows, times


def chosen(name, ranked, **told):
    rows, times = candidates(**told)
    return choose(Objective(name), rows, times, ranked, list(told))


TABLE = {"eager": (4.0, 100, 0.1), "quick": (1.0, 400, 60.0), "small": (2.0, 50, 20.0), "soon": (3.0, 300, 1.0)}


@pytest.mark.parametrize(
    ("name", "wanted", "why"),
    [
        ("latency", "quick", "it is the quickest beyond doubt"),
        ("memory", "small", "it takes the least memory"),
        ("compile_time", "soon", "it compiles in the least time of those that are quicker than eager"),
    ],
)
def test_each_objective_has_its_own_best(name, wanted, why) -> None:
    choice = chosen(name, ["quick"], **TABLE)
    assert (choice.chosen, choice.reason) == (wanted, why)


def test_ties_go_to_the_simpler_one_and_with_compile_time_to_the_quicker_one() -> None:
    both = {"eager": (4.0, 100, 0.1), "a": (1.0, 200, 10.0), "b": (0.99, 202, 10.5)}
    assert chosen("latency", ["b", "a"], **both).chosen == "a"
    assert chosen("latency", ["b"], **both).chosen == "a"  # slower beyond doubt, but by less than counts
    assert chosen("compile_time", ["b"], **both).chosen == "b"
    assert set(chosen("memory", ["b"], **{**both, "eager": (4.0, 300, 0.1)}).ties) == {"a", "b"}


def test_compile_time_is_eager_where_nothing_is_quicker() -> None:
    choice = chosen("compile_time", ["eager"], eager=(1.0, 10, 0.1), a=(1.0, 10, 0.5))
    assert (choice.chosen, choice.reason) == ("eager", "no candidate is quicker than eager")


def test_nobody_is_chosen_from_nobody() -> None:
    assert choose(Objective(), {}, {}, [], []) is None


def test_limits_are_told_in_words() -> None:
    objective = Objective(max_memory=10 * MEBI, max_error=1e-5)
    assert objective.broken(Row("a", "a", {}, "", error=1e-4)) == "its error is 1.0e-04, and max_error is 1.0e-05"
    assert objective.broken(Row("a", "a", {}, "", memory=20 * MEBI)) == "it takes 20 MiB, and max_memory is 10 MiB"
    assert objective.broken(Row("a", "a", {}, "", error=1e-6, memory=MEBI)) == ""


def test_callers_share_the_cores() -> None:
    assert Objective("latency").callers == 1
    assert Objective("throughput").callers >= 1
    before = torch.get_num_threads()
    torch.set_num_threads(10_000)
    try:
        assert Objective("throughput").callers == 1
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(
    "options",
    [
        {"objective": "speed"}, {"max_memory": 0.0}, {"max_error": -1.0}, {"drift": 1.0}, {"drift": math.nan},
        {"buckets": [0]},
    ],
)  # fmt: skip
def test_options_are_checked(options) -> None:
    with pytest.raises(torchmux.InvalidOption, match=next(iter(options))):
        torchmux.compile(torch.sin, backend="auto", options=options)


def test_modes_of_torch_have_backends_tried_in_their_own() -> None:
    modes = torchmux.list_mode_options(backend="auto")
    assert modes["max-autotune"] == {"budget_s": 300.0, "also_mode": "max-autotune"}
    assert modes["reduce-overhead"] == {"also_mode": "reduce-overhead"}


@pytest.mark.parametrize("options", [{"objective": "throughput"}, {"max_memory": 1e-6}])
def test_a_measurement_for_an_objective(options) -> None:
    x = torch.randn(2000)
    compiled = torchmux.compile(
        lambda x: x.sin() + 1, backend="auto", options={"wait": True, "allow": [], "budget_s": 100.0, **options}
    )
    compiled(x)
    (note,) = torchmux.report(compiled).graphs[0].report.notes
    if "max_memory" in options:
        assert "no candidate keeps the limits: eager: it takes" in note
        assert " limit " in note
    else:
        assert "it makes the most calls per second" in note


def test_all_options_of_the_best_backend_are_tried_before_the_next_backend() -> None:
    field = candidates_for([torch.ones(2)], training=False, freeze=True, allow=["native", "onnxrt"], forbid=())
    turns = [candidate.name for candidate in field.in_turn]
    assert sorted(turns) == sorted(candidate.name for candidate in field.candidates)
    assert turns[:2] == ["eager", "native"] and "native(keep_scratch=True)" in turns
    backends = [candidate.backend for candidate in field.in_turn]
    assert backends == sorted(backends, key=["eager", "native", "onnxrt"].index)


def test_the_longest_mode_includes_the_others() -> None:
    def tried(mode: str | None) -> list[dict[str, object]]:
        field = candidates_for(
            [torch.ones(2)], training=False, freeze=False, allow=["inductor"], forbid=(), mode=mode
        )  # fmt: skip
        return [candidate.options for candidate in field.candidates if candidate.backend == "inductor"]

    modes = known_spec("inductor").modes
    assert tried(None) == [{}]
    assert tried("reduce-overhead") == [{}, modes["reduce-overhead"]]
    assert sorted(map(len, tried("max-autotune"))) == sorted([0, *map(len, modes.values())])
