"""Exceptions come out of compiled code with the traceback that eager gives them."""

from __future__ import annotations

import linecache
import traceback

import pytest
import torch
from torch import nn

import torchmux

TABLE = torch.ones(3, 2)


def look_up(index):
    return nn.functional.embedding(index, TABLE)


def check(x):
    y = x + 1
    if y.shape[0] == 3:
        raise ValueError("three rows")
    return y


def raised_here(x):
    y = x * 2
    raise KeyError(y.shape[0])


def raised_in_a_call(x):
    y = x * 2
    return check(y) + 1


def raised_after_a_break(x):
    y = x * 2
    torchmux.graph_break()
    y = y + 1
    torchmux.graph_break()
    return check(y)


def raised_in_the_graph(x):
    y = x * 2
    z = look_up(torch.full((2,), 7))
    return y.sum() + z.sum()


def raised_in_the_graph_after_a_break(x):
    y = x * 2
    torchmux.graph_break()
    return (
        y.sum()
        + look_up(torch.full((2,), 7)).sum()
    )  # fmt: skip


def raised_with_a_cause(x):
    y = x * 2
    try:
        check(y)
    except ValueError as error:
        raise RuntimeError("from below") from error
    return y


def raised_while_handling(x):
    y = x * 2
    try:
        check(y)
    finally:
        y = y.no_such_attribute
    return y


def wrong_shapes(x):
    y = x * 2
    return y @ torch.ones(5, 5)


def raised_by_a_generator(x):
    def numbers():
        yield 1
        check(x)

    return [x * n for n in numbers()]


def assertion(x):
    y = x + 1
    assert y.shape == (7,), "seven wanted"
    return y


class Layer(nn.Module):
    def forward(self, x):
        return check(x)


def raised_in_a_module(x):
    return nn.Sequential(nn.ReLU(), Layer())(x)


PROGRAMS = [
    raised_here, raised_in_a_call, raised_after_a_break, raised_in_the_graph, raised_in_the_graph_after_a_break,
    raised_with_a_cause, raised_while_handling, wrong_shapes, raised_by_a_generator, assertion, raised_in_a_module,
]  # fmt: skip


def story(function, x):
    """Every exception of the chain with the lines it came through, below the call itself."""
    try:
        function(x)
    except Exception as error:
        told, each = [], error
        while each is not None:
            lines = [(entry.filename, entry.lineno, entry.name) for entry in traceback.extract_tb(each.__traceback__)]
            told.append((type(each), str(each), lines[1:] if each is error else lines))
            each = each.__cause__ or each.__context__
        return told
    return None


@pytest.mark.parametrize("function", PROGRAMS, ids=lambda function: function.__name__)
def test_the_traceback_is_that_of_eager(function):
    x = torch.ones(3)
    expected = story(function, x)
    assert expected is not None
    compiled = torchmux.compile(function, backend="eager")
    for _ in range(2):
        assert story(compiled, x) == expected


def test_what_is_tidied_twice_loses_nothing():
    """A stance adds a second place at which exceptions pass."""
    x = torch.ones(3)
    with torchmux.set_stance("default"):
        compiled = torchmux.compile(raised_by_a_generator, backend="eager")
        assert story(compiled, x) == story(raised_by_a_generator, x)


def test_of_a_compiled_module():
    net, x = nn.Sequential(nn.Linear(3, 3), Layer()), torch.ones(3, 3)
    compiled = torchmux.compile(net, backend="eager")
    for _ in range(2):
        assert story(compiled, x) == story(net, x)


def test_of_a_compiled_function_in_another():
    inner = torchmux.compile(check, backend="eager")
    outer = torchmux.compile(lambda x: torch.relu(inner(x)), backend="eager")
    for _ in range(2):
        ((kind, _, lines),) = story(outer, torch.ones(3))
        assert kind is ValueError
        assert [name for _, _, name in lines] == ["<lambda>", "check"]


def test_the_aten_graph_knows_its_lines_too():
    expected = story(raised_in_the_graph, torch.ones(3))
    ((kind, message, lines),) = story(torchmux.compile(raised_in_the_graph, backend="aot_eager"), torch.ones(3))
    assert (kind, message) == expected[0][:2]
    own = [entry for entry in expected[0][2] if entry[0] == __file__]
    assert [entry for entry in lines if entry[0] == __file__] == own
    assert linecache.getline(*lines[-1][:2]).strip().startswith("return nn.functional.embedding") or len(lines) > 2


def test_a_backend_whose_code_raises():
    def backend(gm, example_inputs):
        def run(*args):
            raise MemoryError("no more")

        return run

    with pytest.raises(MemoryError) as caught:
        torchmux.compile(check, backend=backend)(torch.ones(4))
    names = [entry.name for entry in traceback.extract_tb(caught.value.__traceback__)][1:]
    assert names == ["check", "run"]
    assert caught.value.__notes__[0].startswith(f"raised by the compiled graph of check ({__file__}:")


def test_refusals_point_at_the_call_and_nothing_inside():
    with pytest.raises(torchmux.Unsupported) as caught:
        torchmux.compile(raised_after_a_break, backend="eager", fullgraph=True)(torch.ones(3))
    assert [entry.filename for entry in traceback.extract_tb(caught.value.__traceback__)] == [__file__]


def test_a_failing_backend_keeps_its_own_lines():
    def backend(gm, example_inputs):
        raise OSError("no compiler")

    with pytest.raises(torchmux.CompilationFailed) as caught:
        torchmux.compile(check, backend=backend)(torch.ones(4))
    assert [entry.filename for entry in traceback.extract_tb(caught.value.__traceback__)] == [__file__]
    assert "backend" in [entry.name for entry in traceback.extract_tb(caught.value.__cause__.__traceback__)]


def test_verbose_keeps_everything():
    with torchmux.config.patch(verbose=True), pytest.raises(ValueError, match="three rows") as caught:
        torchmux.compile(check, backend="eager")(torch.ones(3))
    assert "compiled" in [entry.name for entry in traceback.extract_tb(caught.value.__traceback__)]
