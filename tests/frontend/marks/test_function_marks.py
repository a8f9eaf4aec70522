"""What a program says about its own code, with our markers and with torch's."""

from __future__ import annotations

import math

import pytest
import torch
import torch._dynamo
from torch import nn

import torchmux
from torchmux.frontend.handlers import classify
from torchmux.torch_internals import get_tracing_state  # any C function that is not traced


@pytest.fixture(autouse=True)
def no_substitute_stays(monkeypatch):
    """What is said here of functions of ``math`` is not said to other tests."""
    monkeypatch.setattr(classify, "_substitutes", dict(classify._substitutes))


def twice(x):
    return x * 2


def kinds(function, *args):
    return [record.kind for record in torchmux.explain(function)(*args).break_reasons]


def same(function, *args, fullgraph=False):
    """Compiled and eager agree, twice; the report."""
    expected = function(*args)
    compiled = torchmux.compile(function, backend="eager", fullgraph=fullgraph)
    for _ in range(2):
        torch.testing.assert_close(compiled(*args), expected, rtol=0, atol=0)
    return torchmux.report(compiled)


# --- disable ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mark", [torchmux.disable, torch.compiler.disable, torch._dynamo.disable])
def test_disable(mark):
    seen = []

    def inside(x):
        seen.append(torchmux.is_compiling())
        return twice(x) + 1

    inside = mark(inside)
    report = same(lambda x: inside(x + 1) * 3, torch.ones(2))
    assert [entry.kind for entry in report.breaks] == ["TM004"]
    assert report.graph_count == 2
    assert not any(seen)


@pytest.mark.parametrize("mark", [torchmux.disable, torch.compiler.disable])
def test_disable_tells_its_reason(mark):
    inside = mark(twice, reason="it is slow")
    with pytest.raises(torchmux.Unsupported, match=r"disable \(it is slow\)"):
        torchmux.compile(lambda x: inside(x) + 1, backend="eager", fullgraph=True)(torch.ones(2))


def test_disable_not_recursively():
    seen = []

    def called(x):
        seen.append(torchmux.is_compiling())
        return x.sin()

    @torchmux.disable(recursive=False)
    def inside(x):
        seen.append(torchmux.is_compiling())
        return called(x) + 1

    report = same(lambda x: inside(x + 1) * 3, torch.ones(2))
    assert {entry.function for entry in report.graphs} >= {"test_disable_not_recursively.<locals>.called"}
    assert seen == [False, False, False, True, False, True]


def test_disable_a_module_and_a_class():
    net = nn.Sequential(nn.Linear(2, 2), torchmux.disable(nn.Linear(2, 2)), nn.ReLU())
    x = torch.ones(1, 2)
    compiled = torchmux.compile(net, backend="eager")
    assert torch.equal(compiled(x), net(x))
    assert [entry.kind for entry in torchmux.report(compiled).breaks] == ["TM004"]

    @torchmux.disable
    class Disabled(nn.Module):
        def forward(self, x):
            return x + 1

    assert kinds(nn.Sequential(Disabled(), nn.ReLU()), x) == ["TM004"]


def test_disable_a_compiled_function():
    compiled = torchmux.compile(twice, backend="eager")
    off = torchmux.disable(compiled)
    assert torch.equal(off(torch.ones(2)), twice(torch.ones(2)))
    assert torchmux.report(compiled).graph_count == 0


# --- breaks that are asked for ------------------------------------------------------------------------------------


@pytest.mark.parametrize("graph_break", [torchmux.graph_break, torch._dynamo.graph_break])
def test_graph_break(graph_break):
    def fn(x):
        y = x + 1
        graph_break()
        return y * 2

    report = same(fn, torch.ones(2))
    assert report.graph_count == 2
    assert [entry.kind for entry in report.breaks] == ["TM005"]


def test_graph_break_tells_its_reason():
    def fn(x):
        torchmux.graph_break("to look at it")
        return x + 1

    with pytest.raises(torchmux.Unsupported, match=r"graph_break\(\): to look at it"):
        torchmux.compile(fn, backend="eager", fullgraph=True)(torch.ones(2))


@pytest.mark.parametrize("skip_frame", [torchmux.skip_frame, torch._dynamo.skip_frame])
def test_skip_frame(skip_frame):
    def fn(x):
        y = x + 1
        skip_frame()
        return twice(y)

    report = same(fn, torch.ones(2))
    assert [entry.function for entry in report.graphs] == ["twice"]


def test_error_on_graph_break_in_compiled_code():
    def fn(x, strict):
        with torchmux.error_on_graph_break(False):
            x = x + 1
            torchmux.graph_break()
        with torchmux.error_on_graph_break(strict):
            x = x * 2
            torchmux.graph_break()
        return x

    compiled = torchmux.compile(fn, backend="eager")
    assert torch.equal(compiled(torch.ones(2), False), torch.full((2,), 4.0))
    with pytest.raises(torchmux.Unsupported, match=r"error_on_graph_break\(True\), but the graph breaks. TM005"):
        compiled(torch.ones(2), True)
    assert torch.equal(compiled(torch.ones(2), False), torch.full((2,), 4.0))


def test_error_on_graph_break_around_and_as_decorator():
    def breaks(x):
        torchmux.graph_break()
        return x + 1

    compiled = torchmux.compile(breaks, backend="eager")
    with torchmux.error_on_graph_break(), pytest.raises(torchmux.Unsupported, match="error_on_graph_break"):
        compiled(torch.ones(2))
    assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 2.0))

    strict = torchmux.error_on_graph_break(True)(breaks)
    assert torch.equal(strict(torch.ones(2)), torch.full((2,), 2.0))
    for outer in (torchmux.compile(strict, backend="eager"), torchmux.compile(lambda x: strict(x), backend="eager")):
        with pytest.raises(torchmux.Unsupported, match="error_on_graph_break"):
            outer(torch.ones(2))


# --- questions ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "question",
    [
        torchmux.is_compiling,
        torch.compiler.is_compiling,
        torch.compiler.is_dynamo_compiling,
        torch._dynamo.is_compiling,
    ],
)
def test_is_compiling(question):
    def fn(x):
        return x + 1 if question() else x - 1

    x = torch.ones(2)
    assert torch.equal(torchmux.compile(fn, backend="eager", fullgraph=True)(x), x + 1)
    assert torch.equal(fn(x), x - 1)


@pytest.mark.parametrize("question", [torchmux.is_exporting, torch.compiler.is_exporting])
def test_is_not_exporting(question):
    assert torchmux.compile(lambda x: (x + 1, question()), backend="eager", fullgraph=True)(torch.ones(1))[1] is False


# --- functions taken otherwise ------------------------------------------------------------------------------------


@pytest.mark.parametrize("mark", [torchmux.allow_in_graph, torch.compiler.allow_in_graph])
def test_allow_in_graph(mark):
    @mark
    def kept(x):
        return (x + 1).sin()

    explanation = torchmux.explain(lambda x: kept(x) * 2)(torch.ones(2))
    assert kept in explanation.ops_per_graph[0]
    same(lambda x: kept(x) * 2, torch.ones(2), fullgraph=True)


@pytest.mark.parametrize("mark", [torchmux.assume_constant_result, torch.compiler.assume_constant_result])
def test_assume_constant_result(mark):
    calls = []

    @mark
    def lucky():
        calls.append(get_tracing_state())
        return 7

    compiled = torchmux.compile(lambda x: x * lucky(), backend="eager", fullgraph=True)
    for _ in range(3):
        assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 7.0))
    assert len(calls) == 1


def test_disallow_in_graph():
    def fn(x):
        return marked(x) + 1

    marked = torchmux.disallow_in_graph(lambda x: x * 2)
    assert kinds(fn, torch.ones(2)) == ["TM004"]
    same(fn, torch.ones(2))


def test_torch_disallow_in_graph():
    def fn(x):
        return torch.lerp(x, x + 1, 0.5) * 2

    try:
        torch._dynamo.disallow_in_graph(torch.lerp)
        assert kinds(fn, torch.ones(2)) == ["TM004"]
        same(fn, torch.ones(2))
    finally:
        torch._dynamo.allow_in_graph(torch.lerp)
    torchmux.reset()
    assert kinds(fn, torch.ones(2)) == []


@pytest.mark.parametrize("mark", [torchmux.forbid_in_graph, torch._dynamo.forbid_in_graph])
def test_forbid_in_graph(mark):
    @mark
    def secret(x):
        return x

    assert torch.equal(secret(torch.ones(1)), torch.ones(1))
    with pytest.raises(torchmux.Unsupported, match=r"secret is marked with forbid_in_graph.*function_marks.py:\d+"):
        torchmux.compile(lambda x: secret(x) + 1, backend="eager")(torch.ones(1))


# --- substitutes --------------------------------------------------------------------------------------------------


def test_substitute_in_graph():
    calls = []

    @torchmux.substitute_in_graph(math.perm, skip_signature_check=True)
    def perm(n, k=None):
        calls.append(n)
        result = 1
        for i in range(n if k is None else k):
            result *= n - i
        return result

    assert perm(5, 2) == 20
    calls.clear()
    same(lambda x: x * math.perm(5, 2), torch.ones(2), fullgraph=True)
    assert calls == [5, 5]


def test_substitute_that_is_pure_folds():
    @torchmux.substitute_in_graph(math.comb, can_constant_fold_through=True, skip_signature_check=True)
    def comb(n, k):
        raise AssertionError("the original is called")

    same(lambda x: x * math.comb(5, 2), torch.ones(2), fullgraph=True)


def test_substitute_checks_parameters():
    def original(a, b):
        return a

    with pytest.raises(TypeError, match=r"original\(a, b\) cannot be replaced by .*\(a\), whose parameters differ"):
        torchmux.substitute_in_graph(original)(lambda a: a)
    with pytest.raises(TypeError, match="not the class dict"):
        torchmux.substitute_in_graph(dict)


@pytest.mark.parametrize(
    "mark",
    [torchmux.disable, torchmux.allow_in_graph, torchmux.forbid_in_graph, torchmux.assume_constant_result,
     torchmux.disallow_in_graph, torchmux.substitute_in_graph],
)  # fmt: skip
def test_markers_take_callables(mark):
    with pytest.raises(TypeError, match="takes a callable, not an int"):
        mark(3)


class Scaled:
    def __init__(self, scale):
        self.scale = scale

    @torchmux.assume_constant_result
    def constant(self, n):
        return self.scale * n

    @torchmux.assume_constant_result
    def tensor(self):
        return torch.full((2,), float(self.scale))


@torchmux.assume_constant_result
def rows_of(module):
    return module.weight.shape[0]


@torchmux.assume_constant_result
def largest(x):
    return x.max().item()


def test_constant_results_of_objects_modules_and_tensors():
    layer = torch.nn.Linear(2, 5)

    def function(x, scaled):
        return x * scaled.constant(3) + scaled.tensor() + rows_of(layer) * largest(x)

    compiled = torchmux.compile(function, backend="eager", fullgraph=True)
    x, scaled = torch.tensor([1.0, 2.0]), Scaled(2)
    assert torch.equal(compiled(x, scaled), function(x, scaled))
    assert torch.equal(compiled(x, Scaled(4)), function(x, Scaled(4)))  # another object is asked for its own
    assert torch.equal(compiled(x, scaled), function(x, scaled))


def test_constant_results_of_what_has_changed_are_not_taken():
    scaled = Scaled(2)

    def changes(x):
        scaled.scale += 1
        return x * scaled.constant(1)

    def writes(x):
        x.add_(1)
        return x * largest(x)

    compiled = torchmux.compile(changes, backend="eager")
    assert [compiled(torch.ones(1)).item() for _ in range(2)] == [3, 4]
    x = torch.ones(2)
    assert torch.equal(torchmux.compile(writes, backend="eager")(x), torch.full((2,), 4.0))


def prints(x):
    x = x + 1
    print("printed", end="")
    return x * 2


@pytest.mark.parametrize("strictness", [torchmux.error_on_graph_break, torch._dynamo.error_on_graph_break])
def test_errors_on_graph_breaks(strictness):
    x = torch.ones(2)

    def inside(x):
        with strictness(True):
            y = x + 1
            with strictness(False):
                print("printed", end="")
        return y * 2

    def as_method(x):
        with strictness(True):
            return prints(x)

    for function in (as_method, strictness(True)(prints), lambda x: strictness(True)(prints)(x) + 1):
        with pytest.raises(torchmux.Unsupported, match=r"error_on_graph_break\(True\)"):
            torchmux.compile(function, backend="eager")(x)
    compiled = torchmux.compile(inside, backend="eager")
    assert torch.equal(compiled(x), torch.full((2,), 4.0))
    assert torchmux.report(compiled).break_count
    with strictness(True), pytest.raises(torchmux.Unsupported):
        torchmux.compile(lambda x: prints(x) + 2, backend="eager")(x)
    compiled = torchmux.compile(lambda x: prints(x) + 3, backend="eager")
    assert torch.equal(compiled(x), torch.full((2,), 7.0))


def test_regions_of_torch_are_part_of_the_graph():
    region = torch.compiler.nested_compile_region(lambda x: x.sin() + 1)
    compiled = torchmux.compile(lambda x: region(x) * region(x + 1), backend="eager", fullgraph=True)
    x = torch.ones(3)
    assert torch.equal(compiled(x), (x.sin() + 1) * ((x + 1).sin() + 1))
    assert torchmux.report(compiled).graph_count == 1
