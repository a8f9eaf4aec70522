"""Where a graph ends: the same results as eager, and the words that say where and why."""

import contextlib
import io
import re

import pytest
import torch

import torchmux

LOG: list = []


def speaks_branches_and_appends(x, k):
    y = x * 2
    print("middle", x.shape[0])
    if y.sum() > 0:
        LOG.append(("positive", k))
        z = y + 1
    else:
        LOG.append(("negative", k))
        z = y - 1
    for i in range(2):
        z = z + i
    return z, len(LOG)


def _run(fn):
    """Growing batches, both branches; what it returned, what it printed, what it appended."""
    LOG.clear()
    results, printed = [], io.StringIO()
    with contextlib.redirect_stdout(printed):
        for batch in (2, 3, 4, 7, 9):
            for sign in (1, -1):
                x = torch.arange(1.0, 3 * batch + 1).reshape(batch, 3) * sign
                results.append(fn(x, batch))
    return results, printed.getvalue(), list(LOG)


def test_prints_branches_appends_and_grows_as_eager_does():
    wanted = _run(speaks_branches_and_appends)
    compiled = torchmux.compile(speaks_branches_and_appends, backend="eager")
    results, printed, log = _run(compiled)
    assert printed == wanted[1]
    assert log == wanted[2]
    for (tensor, count), (expected, expected_count) in zip(results, wanted[0], strict=True):
        assert torch.equal(tensor, expected)
        assert count == expected_count


def test_explain_names_the_breaks():
    explanation = torchmux.explain(speaks_branches_and_appends)(torch.ones(2, 3), 1)
    assert explanation.graph_count == 3
    assert explanation.graph_break_count == 2
    by_print, by_branch = explanation.break_reasons
    first = speaks_branches_and_appends.__code__.co_firstlineno
    assert (by_print.kind, by_branch.kind) == ("TM003", "TM001")
    assert by_print.where == f"{__file__}:{first + 2}"
    assert by_branch.where == f"{__file__}:{first + 3}"
    assert 'print("middle", x.shape[0])' in by_print.message()
    assert "torch.where" in by_branch.message()
    assert "TM001" in str(explanation)


def test_fullgraph_points_at_the_line():
    compiled = torchmux.compile(speaks_branches_and_appends, backend="eager", fullgraph=True)
    with pytest.raises(torchmux.Unsupported) as error:
        compiled(torch.ones(2, 3), 1)
    line = speaks_branches_and_appends.__code__.co_firstlineno + 2
    assert f"{__file__}:{line}" in str(error.value)
    assert "print() has effects outside" in str(error.value)
    assert "fix: " in str(error.value)


def _assert_same(result, wanted):
    if isinstance(wanted, tuple):
        assert type(result) is tuple and len(result) == len(wanted)
        for a, b in zip(result, wanted, strict=True):
            _assert_same(a, b)
    elif isinstance(wanted, torch.Tensor):
        assert torch.equal(result, wanted)
    else:
        assert result == wanted


def _graphs(fn, *args, breaks):
    """Compiled twice over equal inputs, it must do what eager does, with this many breaks."""
    wanted = fn(*args)
    compiled = torchmux.compile(fn, backend="eager")
    for _ in range(2):
        _assert_same(compiled(*args), wanted)
    report = torchmux.report(compiled)
    assert report.break_count == breaks, str(report)
    return report


def test_break_in_a_called_function_keeps_both_sides():
    def inner(x):
        y = x + 1
        torchmux.graph_break()
        return y * 2

    def outer(x):
        return inner(x.sin()).cos()

    report = _graphs(outer, torch.ones(3), breaks=2)  # in the caller's trace, and again in the callee's own
    assert report.graph_count == 4


def test_break_inside_try_with_and_loop():
    def fn(x):
        total = x.new_zeros(())
        for i in range(3):
            try:
                with torch.no_grad():
                    x = x + i
                    torchmux.graph_break()
                    total = total + x.sum()
            finally:
                total = total * 2
        return total, torch.is_grad_enabled()

    assert _graphs(fn, torch.ones(3), breaks=1).graph_count >= 3


def test_exception_of_the_instruction_that_broke_reaches_its_handler():
    def risky(x):
        torchmux.graph_break()
        raise KeyError("inside")

    def fn(x):
        y = x + 1
        try:
            risky(y)
        except KeyError as error:
            return y * 2, str(error)
        return y, "unreached"

    compiled = torchmux.compile(fn, backend="eager")
    for _ in range(2):
        result, text = compiled(torch.ones(2))
        assert text == "'inside'"
        assert torch.equal(result, torch.full((2,), 4.0))


def test_exception_leaves_with_the_users_traceback():
    def fn(x):
        y = x + 1
        raise ValueError(f"bad {tuple(y.shape)}")

    compiled = torchmux.compile(fn, backend="eager")
    for _ in range(2):
        with pytest.raises(ValueError, match=r"bad \(2,\)") as caught:
            compiled(torch.ones(2))
        assert caught.traceback[-1].name == "fn"
        assert str(caught.traceback[-1].path) == __file__


def test_grad_mode_at_a_break_is_the_programs():
    seen = []

    def outside():
        seen.append(torch.is_grad_enabled())

    def fn(x):
        with torch.no_grad():
            y = x * 2
            torchmux.disable(outside)()
            y = y + 1
        return x * y

    x = torch.ones(2, requires_grad=True)
    compiled = torchmux.compile(fn, backend="eager")
    for _ in range(2):
        result = compiled(x)
        assert result.requires_grad
        assert torch.is_grad_enabled()
    assert seen == [False, False]


def test_disabled_functions_run_in_eager():
    compiling = []

    @torchmux.disable
    def outside(x):
        compiling.append(torchmux.is_compiling())
        return x * 3

    def fn(x):
        return outside(x + 1) - 1

    _graphs(fn, torch.ones(2), breaks=1)
    assert not any(compiling)


def test_allow_and_disallow_in_graph():
    def opaque(x):
        return x.tolist() and x * 2 if x.dim() > 5 else x * 2

    def fn(x):
        return opaque(x) + 1

    torchmux.allow_in_graph(opaque)
    graph = torchmux.explain(fn)(torch.ones(2)).graphs[0]
    assert opaque in [node.target for node in graph.graph.nodes]
    torchmux.disallow_in_graph(opaque)
    assert _graphs(fn, torch.ones(2), breaks=1).graph_count >= 1


def test_assume_constant_result_bakes_the_result_in():
    calls = []

    @torchmux.assume_constant_result
    def settings():
        calls.append(1)
        return 3

    def fn(x):
        return x * settings()

    compiled = torchmux.compile(fn, backend="eager", fullgraph=True)
    assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 3.0))
    assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 3.0))
    assert calls == [1]


def test_recompile_limit_warns_once_and_goes_on_in_eager(caplog):
    def fn(x, name):
        return x + len(name)

    compiled = torchmux.compile(fn, backend="eager")
    with torchmux.config.patch(recompile_limit=3):
        for i in range(6):
            assert torch.equal(compiled(torch.ones(1), "n" * i), torch.ones(1) + i)
    warnings = [r.getMessage() for r in caplog.records if "recompile_limit" in r.getMessage()]
    assert len(warnings) == 1
    assert "name ==" in warnings[0]
    assert torchmux.report(compiled).graph_count == 3


def test_recompile_limit_is_an_error_under_fullgraph():
    def fn(x, name):
        return x + len(name)

    compiled = torchmux.compile(fn, backend="eager", fullgraph=True)
    with torchmux.config.patch(recompile_limit=2), pytest.raises(torchmux.Unsupported, match="recompile_limit"):
        for i in range(4):
            compiled(torch.ones(1), "n" * i)


def test_operator_that_fails_raises_eagers_error():
    def fn(x, y):
        return (x + 1) @ y

    for fullgraph in (False, True):
        compiled = torchmux.compile(fn, backend="eager", fullgraph=fullgraph)
        with pytest.raises(RuntimeError, match="mat1 and mat2|size mismatch") as error:
            compiled(torch.ones(2, 3), torch.ones(2, 3))
        assert not isinstance(error.value, torchmux.TorchmuxError)


def test_iterators_live_across_a_break():
    def fn(x):
        items = iter([x, x + 1, x + 2])
        pairs = enumerate(zip([1, 2, 3], "abc", strict=True))
        first = next(items)
        next(pairs)
        torchmux.graph_break()
        index, (number, letter) = next(pairs)
        return first + next(items) * number + index, letter, len(list(items))

    _graphs(fn, torch.ones(2), breaks=1)


def test_closures_and_defaults_made_before_a_break_live_on():
    def fn(x):
        count = 0

        def step(y, by=x * 2):
            nonlocal count
            count += 1
            return y + by

        y = step(x)
        torchmux.graph_break()
        return step(y), count

    _graphs(fn, torch.ones(2), breaks=1)


def test_what_cannot_live_across_a_break_runs_the_frame_in_eager():
    def fn(x):
        def parts():
            yield x + 1
            yield x + 2

        running = parts()
        first = next(running)
        torchmux.graph_break()
        return first + next(running)

    report = _graphs(fn, torch.ones(2), breaks=1)
    assert report.breaks[0].whole_frame


@pytest.mark.filterwarnings("ignore:Sparse")
def test_an_argument_that_cannot_be_read_breaks_once_where_it_is_used():
    """Behind the break it lies on the stack, where it can be read no better."""

    def fn(x, sparse, more):
        y = x * 2
        return torch.mm(sparse, *more) + y

    x, sparse = torch.ones(2, 2), torch.eye(2).to_sparse()
    compiled = torchmux.compile(fn, backend="eager")
    for _ in range(2):
        torch.testing.assert_close(compiled(x, sparse, (x,)), torch.full((2, 2), 3.0))
    assert 1 <= torchmux.report(compiled).break_count <= 2


def test_locals_whose_names_are_no_identifiers_live_across_a_break():
    """pytest keeps the parts of an assertion in locals such as ``@py_assert1``."""

    def fn(x):
        y = x + 1
        assert y.shape == (2,) and torchmux.graph_break() is None and y.dtype == torch.float32 and y.add(1).dim() == 1
        return y * 2

    assert any(name.startswith("@py_assert") for name in fn.__code__.co_varnames)
    _graphs(fn, torch.ones(2), breaks=1)


def test_a_recursion_is_told_in_few_lines():
    def endless(x):
        return endless(x + 1)

    compiled = torchmux.compile(endless, backend="eager")
    with pytest.raises(RecursionError):
        compiled(torch.ones(1))
    (record,) = torchmux.report(compiled).breaks
    assert record.kind == "TM015"
    assert len(record.frames) > 20
    lines = record.message().splitlines()
    assert len(lines) < 8
    assert any(re.match(r"  at .* in endless, \d+ times more$", line) for line in lines)


def test_an_error_of_grouping_tensors_is_the_programs_own():
    layer = torch.nn.Linear(2, 2)
    clips = torchmux.compile(lambda: torch.nn.utils.clip_grad_value_(layer.parameters(), 1.0), backend="eager")
    with pytest.raises(RuntimeError) as expected:
        torch.nn.utils.clip_grad_value_(layer.parameters(), 1.0)
    with pytest.raises(RuntimeError) as found:
        clips()
    assert str(found.value) == str(expected.value)
    assert "TM000" not in {each.kind for each in torchmux.report(clips).breaks}
