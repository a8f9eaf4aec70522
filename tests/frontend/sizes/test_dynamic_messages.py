"""What a recompilation says, and a graph that breaks because of a number that only the data tells."""

import pytest
import torch

import torchmux


def _recompiles(fn, *calls, **how):
    compiled = torchmux.compile(fn, backend="eager", **how)
    for args in calls:
        torch.testing.assert_close(compiled(*args), fn(*args), rtol=0, atol=0)
    return torchmux.report(compiled).recompiles


def _line(function, offset):
    return f"{function.__code__.co_filename}:{function.__code__.co_firstlineno + offset}"


def test_a_changed_size_names_tensor_dimension_and_both_sizes():
    def fn(x, y):
        return x + y.sum()

    (reason,) = _recompiles(fn, (torch.ones(2, 3), torch.ones(4)), (torch.ones(2, 5), torch.ones(4)))
    assert "'x' size mismatch at index 1. expected 3, actual 5" in reason


def test_a_branch_names_the_condition_its_line_and_the_size():
    def fn(x):
        if x.shape[0] > 5:
            return x + 1
        return x - 1

    reasons = _recompiles(fn, (torch.ones(3),), (torch.ones(4),), (torch.ones(9),))
    assert "x.size()[0] <= 5 no longer holds" in reasons[1]
    assert f"which {_line(fn, 1)} needs" in reasons[1]
    assert "now x.size()[0] is 9" in reasons[1]


def test_an_operator_names_its_line():
    def fn(x, y):
        z = x * 2
        return z + y

    sizes = [(torch.ones(n, 2), torch.ones(m, 2)) for n, m in ((3, 3), (4, 4), (5, 1))]
    reasons = _recompiles(fn, *sizes)
    assert "y.size()[0] == x.size()[0] no longer holds" in reasons[1]
    assert _line(fn, 2) in reasons[1]


def test_size_one_says_that_it_is_compiled_apart():
    reasons = _recompiles(lambda x: x * 2, (torch.ones(3, 2),), (torch.ones(4, 2),), (torch.ones(1, 2),))
    assert "size 0 of x is 1; sizes 0 and 1 are compiled separately" in reasons[1]


def test_an_integer_names_both_values():
    def fn(x, n):
        return x * n

    reasons = _recompiles(fn, (torch.ones(2), 3), (torch.ones(2), 4), (torch.ones(2), 2.5))
    assert "n == 3 no longer holds (now 4)" in reasons[0]
    assert "n is an int of 64 bits no longer holds (now 2.5)" in reasons[1]


def test_item_breaks_and_names_the_flag():
    def fn(x):
        n = x.sum().item()
        return x * n

    compiled = torchmux.compile(fn, backend="eager")
    compiled(torch.ones(3))
    (found,) = torchmux.report(compiled).breaks
    assert found.where == _line(fn, 1)
    assert "torchmux.config.capture_scalar_outputs" in found.message()


def test_nonzero_breaks_and_names_the_flag():
    def fn(x):
        return x.nonzero() + 1

    compiled = torchmux.compile(fn, backend="eager")
    compiled(torch.ones(3))
    found = torchmux.report(compiled).breaks[0]
    assert found.where == _line(fn, 1)
    assert "torchmux.config.capture_dynamic_output_shape_ops" in found.message()


def test_an_operator_made_of_such_operators_breaks_under_fullgraph():
    def f(x):
        return torch.combinations(x) + 1

    with pytest.raises(torchmux.Unsupported, match="TM008 .*: combinations, which is made of operators"):
        torchmux.compile(f, backend="eager", fullgraph=True)(torch.ones(4))


def test_a_branch_on_an_item_names_where_it_comes_from():
    def fn(x):
        n = x.sum().item()
        if n > 3:
            return x + 1
        return x - 1

    with torchmux.config.patch(capture_scalar_outputs=True):
        compiled = torchmux.compile(fn, backend="eager")
        for value in (0.0, 2.0, 1.0):
            x = torch.full((3,), value)
            torch.testing.assert_close(compiled(x), fn(x))
    (found,) = torchmux.report(compiled).breaks
    assert found.where == _line(fn, 2)
    assert f"item at {_line(fn, 1)}" in found.reason
    assert "torch._check" in found.reason


def test_fullgraph_error_names_the_expression():
    def fn(x):
        n = int(x.sum())
        return x if n * 2 == 6 else x + n

    with pytest.raises(torchmux.Unsupported, match=r"depends on Eq\(2\*.*, 6\)"):
        torchmux.compile(fn, backend="eager", fullgraph=True)(torch.ones(3))


def test_the_reason_is_that_of_the_code_which_comes_closest():
    """The latest code is for a tuple of another length, an older one for all sizes but this."""

    def fn(x, names):
        return x * len(names) if x.shape[0] != 8 else x + 1

    calls = [(3, 2), (4, 2), (5, 3), (8, 2)]
    reasons = _recompiles(fn, *((torch.ones(rows), ("a",) * names) for rows, names in calls))
    assert "names has length 2 no longer holds" in reasons[1]
    assert "x.size()[0] != 8 no longer holds" in reasons[2]


def test_a_setting_of_torch_that_changed_is_named():
    compiled = torchmux.compile(lambda x, y: x * 2 + y, backend="eager")
    x, y = torch.ones(3), torch.ones(3)
    compiled(x, y)
    with torch.no_grad():
        compiled(x, y)
    compiled(x, x)
    with torch.autocast("cpu", torch.bfloat16):
        compiled(x, y)
    report = torchmux.report(compiled)
    modes, same, autocast = report.recompiles
    assert "grad mode changed (now disabled)" in modes
    assert "y and another input became the same tensor" in same
    assert [line.count(" s)") for line in str(report).splitlines() if line.startswith("  recompiled")] == [1, 1, 1]
    assert "is dispatched otherwise (now with AutocastCPU)" in autocast
