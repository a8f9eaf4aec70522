"""Symbolic sizes: which bucket a call is in, and what runs in one that is new."""

from __future__ import annotations

import threading

import pytest
import torch

import torchmux
from torchmux.multiplexer.running.buckets import Conditions, Sizes, nearest
from torchmux.multiplexer.running.code import Codes

from .conftest import decision, report_of, until


def sizes_of(function, bounds, *inputs) -> tuple[Sizes, list]:
    """The sizes of a function's dynamic graph, and the inputs of its call."""
    seen = []

    def backend(gm, args):
        seen.append((Sizes.of_graph(gm, bounds), args))
        return gm.forward

    torchmux.compile(function, backend=backend, dynamic=True)(*inputs)
    ((sizes, args),) = seen
    return sizes, args


@pytest.mark.parametrize(
    ("bounds", "size", "bucket", "words"),
    [
        (None, 5, 3, "in 5 to 8"),
        (None, 8, 3, "in 5 to 8"),
        (None, 9, 4, "in 9 to 16"),
        ([4, 10], 4, 0, "in 0 to 4"),
        ([10, 4], 5, 1, "in 5 to 10"),
        ([4, 10], 11, 2, "over 10"),
        ([], 7, 0, "of any size"),
    ],
)
def test_the_bucket_of_a_size(bounds, size, bucket, words) -> None:
    sizes, args = sizes_of(lambda x: x.sin(), bounds, torch.randn(size, 3, 3))
    found = sizes.bucket(args)
    assert found[0] == bucket
    assert sizes.words(found).startswith(f"l_x.shape[0] {words}, l_x.shape[1] ")


def test_numbers_are_sizes_too() -> None:
    sizes, args = sizes_of(lambda x, n: x * n, None, torch.randn(4), 30)
    assert sorted(sizes.of(args)) == [4, 30]


def test_the_nearest_bucket_is_the_fewest_ranges_away() -> None:
    assert nearest((5, 5), []) is None
    assert nearest((5, 5), [(1, 5), (5, 7), (9, 9)]) == (5, 7)
    assert nearest((5,), [(6,), (4,)]) == (4,)


def test_each_bucket_has_a_decision_and_all_share_the_code(backend, decide) -> None:
    small, large = backend("small"), backend("large")
    turns = [threading.Event(), threading.Event(), threading.Event()]
    leads = []  # whether candidates may lead: not where a choice runs already
    answers = iter(["small", "large", "small"])
    waits = iter(turns)

    def make(lead, check):
        leads.append(lead is not None)
        answer = next(answers)
        assert next(waits).wait(60)
        return decision(answer)

    given = decide(make)

    def f(x):
        return x.sin() * x.shape[0]

    compiled = torchmux.compile(f, backend="auto", dynamic=True)

    def runs(size):
        x = torch.randn(size)
        before = small.calls, large.calls
        assert torch.equal(compiled(x), f(x))
        return [
            name for name, a, b in zip(("small", "large"), before, (small.calls, large.calls), strict=True) if b > a
        ]

    assert runs(6) == []
    turns[0].set()
    until(lambda: runs(7) == ["small"])
    # A call beside a thread that compiles may run as it stands; no other decision falls meanwhile.
    until(lambda: runs(100) == ["small"])  # what runs the nearest bucket
    assert any("shape[0] in 65 to 128: auto has not decided yet" in n for n in report_of(compiled).notes)
    turns[1].set()
    until(lambda: runs(128) == ["large"])
    until(lambda: runs(5) == ["small"])
    until(lambda: runs(1000) == ["large"])
    turns[2].set()
    until(lambda: runs(1000) == ["small"])
    assert [len(each.compiled_by) for each in (small, large)] == [1, 1]
    assert leads == [True, False, False]
    assert given.asked == [f"l_x.shape[0] in {low} to {high}" for low, high in ((5, 8), (65, 128), (513, 1024))]
    notes = "\n".join(report_of(compiled).notes)
    for line in ("in 5 to 8: auto chose small", "in 65 to 128: auto chose large", "in 513 to 1024: auto chose small"):
        assert line in notes
    assert len(torchmux.report(compiled).graphs) == 1


def test_a_new_bucket_gets_the_code_that_the_nearest_still_compiles(backend, decide, monkeypatch) -> None:
    own = backend("own")
    is_asked, goes_on, is_over = threading.Event(), threading.Event(), threading.Event()
    waits = iter([lambda: True, lambda: is_over.wait(60)])

    def make(lead, check):
        assert next(waits)()
        return decision("own")

    def held(codes, row, **options):
        is_asked.set()
        assert goes_on.wait(60)
        return afterwards(codes, row, **options)

    decide(make)
    afterwards = Codes.afterwards
    monkeypatch.setattr(Codes, "afterwards", held)
    compiled = torchmux.compile(lambda x: x.sin(), backend="auto", dynamic=True)
    compiled(torch.randn(6))
    assert is_asked.wait(60)
    compiled(torch.randn(100))  # the nearest bucket has a decision, and no code yet
    assert own.calls == 0
    goes_on.set()
    until(lambda: compiled(torch.randn(100)) is not None and own.calls)
    assert "in 65 to 128: auto has not decided yet" in "\n".join(report_of(compiled).notes)
    is_over.set()


def test_two_buckets_of_a_graph_wait_at_most(backend, decide) -> None:
    own = backend("own")
    go_on = threading.Event()

    def make(lead, check):
        assert go_on.wait(60)
        return decision("own")

    given = decide(make)

    def f(x):
        return x.sin() * x.shape[0]

    compiled = torchmux.compile(f, backend="auto", dynamic=True)
    for size in (6, 60, 600, 6000):
        x = torch.randn(size)
        assert torch.equal(compiled(x), f(x))
    assert len(given.asked) == 2
    go_on.set()
    until(lambda: (compiled(torch.randn(6)), own.calls)[1])
    until(lambda: (compiled(torch.randn(6000)), len(given.asked) == 3)[1])


def test_a_failing_backend_is_replaced_in_all_buckets(backend, decide) -> None:
    failing = []

    def does(number, args):
        if failing:
            raise ValueError("gone")

    bad, good = backend("bad", does), backend("good")
    decide("bad", "good")

    def f(x):
        return x.sin() * x.shape[0]

    compiled = torchmux.compile(f, backend="auto", dynamic=True, options={"wait": True})
    for size in (6, 60):
        compiled(torch.randn(size))
    failing.append(1)
    x = torch.randn(7)
    assert torch.equal(compiled(x), f(x))
    called = bad.calls

    def all_good():
        before = good.calls
        for size in (6, 60):
            compiled(torch.randn(size))
        return good.calls == before + 2

    until(all_good)
    assert bad.calls == called


def test_what_a_compilation_assumes_after_the_capture_is_asked_of_each_call(own_catalog, decide) -> None:
    """The guards of the capture do not cover it: other sizes run in torch."""
    calls = []

    def even(gm, inputs):
        (size,) = (n.meta["example_value"].shape[0] for n in gm.graph.find_nodes(op="placeholder", sort=True)[-1:])
        assert size % 2 == 0  # torch assumes this of the symbol from now on

        def run(*args):
            calls.append(args[-1].shape[0])
            return gm.forward(*args)

        return run

    torchmux.register_backend(even, name="even", dynamic_shapes=True, training=True, dtypes=("*",))
    decide("even")

    def f(x):
        return x.sin() + 1

    compiled = torchmux.compile(f, backend="auto", dynamic=True, options={"buckets": []})
    compiled(torch.randn(6))
    until(lambda: report_of(compiled).backend == "even")
    for size in (8, 9, 10, 11, 9):
        x = torch.randn(size)
        assert torch.equal(compiled(x), f(x))
    assert calls == [6, 8, 10]  # the first is of the compilation itself
    assert len(torchmux.report(compiled).graphs) == 1


def test_conditions_on_other_symbols_are_named() -> None:
    import sympy

    sizes, _ = sizes_of(lambda x: x.sin(), None, torch.randn(5))
    assert Conditions([sympy.Symbol("u7") > 3], sizes).unknown == ["u7"]
