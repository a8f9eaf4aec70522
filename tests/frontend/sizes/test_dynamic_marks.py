"""What a program says about dimensions: dynamic, static, of unknown size; ours, and those of torch._dynamo."""

import re

import pytest
import torch

import torchmux


def _compiled(fn, **how):
    return torchmux.compile(fn, backend="eager", fullgraph=True, **how)


def _graphs(fn, calls, **how):
    compiled = _compiled(fn, **how)
    for args in calls:
        torch.testing.assert_close(compiled(*args), fn(*args), rtol=0, atol=0)
    return torchmux.report(compiled).graph_count


def flatten(x):
    return x.reshape(-1) * 2


def _marked(tensor, how, index, **bounds):
    how(tensor, index, **bounds)
    return tensor


def _line_of(function, text):
    lines = function.__code__.co_firstlineno, function.__code__.co_filename
    with open(lines[1]) as file:
        source = file.read().splitlines()
    found = next(i for i in range(lines[0] - 1, len(source)) if text in source[i])
    return f"{lines[1]}:{found + 1}"


def test_mark_dynamic_takes_several_and_negative_dimensions():
    first = _marked(torch.ones(4, 5), torchmux.mark_dynamic, [0, -1])
    assert _graphs(flatten, [(first,), (torch.ones(6, 7),), (torch.ones(9, 3),)]) == 1


def test_a_size_that_the_code_needs_is_an_error_that_names_the_line():
    def needs_eight(x):
        y = x * 2
        return y.view(8, 2)  # here

    x = _marked(torch.ones(8, 2), torchmux.mark_dynamic, 0)
    with pytest.raises(torchmux.ConstraintViolation) as raised:
        _compiled(needs_eight)(x)
    message = str(raised.value)
    assert "Dimension 0 of x is marked dynamic" in message
    assert "needs it to be 8" in message
    assert _line_of(needs_eight, "# here") in message
    assert "maybe_mark_dynamic" in message


def test_a_size_that_python_needs_is_an_error_that_names_the_line():
    def needs_five(x):
        return x * {5: 2.0}[x.shape[0]]  # here

    x = _marked(torch.ones(5), torchmux.mark_dynamic, 0)
    with pytest.raises(torchmux.ConstraintViolation, match=re.escape(_line_of(needs_five, "# here"))):
        _compiled(needs_five)(x)


def test_maybe_mark_dynamic_gives_in():
    def needs_eight(x):
        return x.view(8, 2)

    x = _marked(torch.ones(8, 2), torchmux.maybe_mark_dynamic, 0)
    assert _graphs(needs_eight, [(x,)]) == 1
    assert _graphs(flatten, [(_marked(torch.ones(8, 2), torchmux.maybe_mark_dynamic, 0),), (torch.ones(9, 2),)]) == 1


def test_a_branch_inside_the_bounds_of_a_mark_is_an_error():
    def branches(x):
        return x + 1 if x.shape[0] > 5 else x - 1  # here

    x = _marked(torch.ones(8), torchmux.mark_dynamic, 0, min=2, max=32)
    with pytest.raises(torchmux.ConstraintViolation, match=re.escape(_line_of(branches, "# here"))):
        _compiled(branches)(x)


def test_a_branch_on_a_mark_without_bounds_is_guarded():
    def branches(x):
        return x + 1 if x.shape[0] > 5 else x - 1

    calls = [(_marked(torch.ones(n), torchmux.mark_dynamic, 0),) for n in (8, 3, 9, 4)]
    assert _graphs(branches, calls) == 2


def test_a_size_outside_of_its_own_marks_is_an_error():
    x = _marked(torch.ones(40), torchmux.mark_dynamic, 0, min=2, max=32)
    with pytest.raises(torchmux.ConstraintViolation, match="bounds 2 to 32, but it is 40"):
        _compiled(flatten)(x)


def test_size_one_cannot_be_dynamic():
    x = _marked(torch.ones(1, 3), torchmux.mark_dynamic, 0)
    with pytest.raises(torchmux.ConstraintViolation, match="0 and 1 are always constants"):
        _compiled(flatten)(x)
    torchmux.maybe_mark_dynamic(x, 0)
    assert _graphs(flatten, [(x,), (torch.ones(3, 3),)]) == 2


def test_mark_static_outdoes_dynamic_true():
    calls = [(_marked(torch.ones(n, 3), torchmux.mark_static, 0),) for n in (4, 5, 6)]
    assert _graphs(flatten, calls, dynamic=True) == 3
    torchmux.reset()
    assert _graphs(flatten, [(torch.ones(n, 3),) for n in (4, 5, 6)], dynamic=True) == 1


def test_mark_static_outdoes_what_has_changed():
    x = torch.ones(6, 3)
    torchmux.mark_static(x)
    assert _graphs(flatten, [(torch.ones(4, 3),), (torch.ones(5, 3),), (x,)]) == 2  # its size fits what is there
    torchmux.reset()
    calls = [(_marked(torch.ones(n, 3), torchmux.mark_static, None),) for n in (4, 5, 6)]
    assert _graphs(flatten, calls) == 3


def test_mark_dynamic_outdoes_dynamic_false():
    calls = [(_marked(torch.ones(n, 3), torchmux.mark_dynamic, 0),) for n in (4, 5, 6)]
    assert _graphs(flatten, calls, dynamic=False) == 1


def test_an_unbacked_size_is_not_even_one():
    first = _marked(torch.ones(5, 3), torchmux.mark_unbacked, 0)
    assert _graphs(flatten, [(first,), (torch.ones(1, 3),), (torch.ones(0, 3),), (torch.ones(9, 3),)]) == 1


def test_a_branch_on_an_unbacked_size_breaks_and_says_why():
    def branches(x):
        return x + 1 if x.shape[0] > 5 else x - 1  # here

    x = _marked(torch.ones(8), torchmux.mark_unbacked, 0)
    with pytest.raises(torchmux.Unsupported) as raised:
        _compiled(branches)(x)
    assert "dimension 0 of x, marked unbacked" in str(raised.value)
    assert _line_of(branches, "# here") in str(raised.value)
    compiled = torchmux.compile(branches, backend="eager")
    torch.testing.assert_close(compiled(x), branches(x))


def test_what_is_known_of_an_unbacked_size_is_used_and_guarded():
    def branches(x):
        return x + 1 if x.shape[0] < 10 else x - 1

    first = _marked(torch.ones(5, 3), torchmux.mark_unbacked, 0, min=2, max=8)
    assert _graphs(branches, [(first,), (torch.ones(8, 3),), (torch.ones(2, 3),)]) == 1
    torchmux.reset()
    assert _graphs(branches, [(first,), (torch.ones(9, 3),), (torch.ones(12, 3),)]) == 3


@pytest.mark.parametrize(
    ("how", "error"),
    [
        (lambda t: torchmux.mark_dynamic(t, 2), IndexError),
        (lambda t: torchmux.maybe_mark_dynamic(t, -3), IndexError),
        (lambda t: torchmux.mark_unbacked(t, 5), IndexError),
        (lambda t: torchmux.mark_static(t, 2), IndexError),
        (lambda t: torchmux.mark_dynamic(t, 0, min=4, max=3), ValueError),
        (lambda t: torchmux.mark_dynamic([1], 0), TypeError),
    ],
)
def test_marks_that_make_no_sense(how, error):
    with pytest.raises(error):
        how(torch.ones(2, 2))


class TestMarksOfTorch:
    def test_mark_dynamic(self):
        x = torch.ones(8, 4)
        torch._dynamo.mark_dynamic(x, 0)
        assert _graphs(flatten, [(x,), (torch.ones(9, 4),)]) == 1

    def test_mark_dynamic_with_bounds(self):
        x = torch.ones(8, 4)
        torch._dynamo.mark_dynamic(x, 0, min=2, max=16)
        assert _graphs(flatten, [(x,), (torch.ones(9, 4),), (torch.ones(17, 4),)]) == 2

    def test_mark_dynamic_that_does_not_hold(self):
        def needs_eight(x):
            return x.view(8)

        x = torch.ones(8)
        torch._dynamo.mark_dynamic(x, 0)
        with pytest.raises(torchmux.ConstraintViolation):
            _compiled(needs_eight)(x)

    def test_maybe_mark_dynamic(self):
        x = torch.ones(8, 4)
        torch._dynamo.maybe_mark_dynamic(x, 0)
        assert _graphs(flatten, [(x,), (torch.ones(9, 4),)]) == 1

    def test_mark_static(self):
        calls = [(_marked(torch.ones(n, 3), torch._dynamo.mark_static, 0),) for n in (4, 5)]
        assert _graphs(flatten, calls, dynamic=True) == 2

    def test_mark_unbacked(self):
        x = torch.ones(8, 4)
        torch._dynamo.decorators.mark_unbacked(x, 0)
        assert _graphs(flatten, [(x,), (torch.ones(1, 4),)]) == 1


def test_marks_do_not_survive_an_operator():
    x = _marked(torch.ones(8, 2), torchmux.mark_dynamic, 0)
    assert _graphs(flatten, [(x * 2,), (torch.ones(9, 2),)]) == 2
