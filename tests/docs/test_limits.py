"""``docs/limits.md``: each row breaks the graph here, with the number it states, and not under torch's own tracer."""

from __future__ import annotations

import re
import sys
import types
from pathlib import Path

import pytest
import torch

import torchmux

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "limits.md").read_text()
ROWS = {match[1]: match[2] for match in re.finditer(r"^\| `(\w+)` \|.*\| (TM\d+) \|[^|]*\|$", PAGE, re.MULTILINE)}


@pytest.fixture(scope="module")
def functions(tmp_path_factory):
    """The functions on the page, from a file, since messages quote lines of it."""
    path = tmp_path_factory.mktemp("limits") / "limits_page.py"
    path.write_text("\n".join(re.findall(r"^```python\n(.*?)^```$", PAGE, flags=re.DOTALL | re.MULTILINE)))
    module = types.ModuleType("limits_page")
    sys.modules["limits_page"] = module
    exec(compile(path.read_text(), str(path), "exec"), vars(module))
    yield vars(module)
    del sys.modules["limits_page"]


def tensor() -> torch.Tensor:
    return (torch.arange(12, dtype=torch.float32).reshape(3, 4) - 4.5) / 4


@pytest.mark.parametrize("name", ROWS)
def test_a_row_breaks_here_and_not_there(name, functions):
    function = functions[name]
    explanation = torchmux.explain(function)(tensor())
    assert ROWS[name] in [reason.kind for reason in explanation.break_reasons], (
        f"{name} no longer breaks the graph with {ROWS[name]}: take its row and its function out of docs/limits.md, "
        "and correct the number of rows in README.md"
    )
    torch._dynamo.reset()
    torch.compile(function, backend="eager", fullgraph=True)(tensor())


def test_each_line_of_the_table_is_a_row():
    lines = [line for line in PAGE.splitlines() if line.startswith("| `")]
    assert len(lines) == len(ROWS)


def test_the_readme_states_how_many_rows_there_are():
    stated = re.search(
        r"(\d+) features? that `torch.compile` captures in\s+one graph", (ROOT / "README.md").read_text()
    )
    assert stated is not None
    assert int(stated[1]) == len(ROWS)


# --- what the rows say of torch.compile -------------------------------------------------------------------------------


def quantized_dtype(functions, compile_):
    def told(x):
        q = torch.quantize_per_tensor(x, 0.1, 0, torch.qint8)
        return q.dtype, q.is_quantized

    return compile_(told)(tensor())


def gradient_to_differentiate(functions, compile_):
    class Asks(functions["Asks"]):
        @staticmethod
        def backward(ctx, grad):
            return grad * 2 if torch.is_grad_enabled() else grad * 3

    w = torch.ones(4, requires_grad=True)
    result = compile_(lambda x: Asks.apply(x * w).sum())(torch.ones(4))
    return torch.autograd.grad(result, w, create_graph=True)[0].tolist()


def mapped(functions, compile_):
    class Adds(functions["Doubled"]):
        @staticmethod
        def vmap(info, in_dims, x):
            return x * 5, in_dims[0]

    return compile_(lambda x: torch.func.vmap(lambda row: Adds.apply(row))(x))(torch.ones(2, 2)).tolist()


def absent(functions, compile_):
    class Tells(functions["Both"]):
        @staticmethod
        def backward(ctx, first, second):
            return first if second is None else first * 7

    w = torch.ones(4, requires_grad=True)
    compile_(lambda x: Tells.apply(x * w)[0])(torch.ones(4)).sum().backward()
    return w.grad.tolist()


def filled(functions, compile_):
    def empty(x):
        torch.use_deterministic_algorithms(True)
        y = torch.empty(3)
        torch.use_deterministic_algorithms(False)
        return x + 0, y

    return str(compile_(empty)(torch.ones(3))[1].isnan().all())


def second_backward(functions, compile_):
    w = torch.ones(4, requires_grad=True)
    result = compile_(lambda x: functions["WritesSaved"].apply(x * w))(torch.ones(4)).sum()
    result.backward(retain_graph=True)
    try:
        result.backward()
    except RuntimeError:
        return "refused"
    return "done"


def gradient_of_changed(functions, compile_):
    class Changes(functions["Increments"]):
        @staticmethod
        def backward(ctx, grad):
            return grad * 5

    w = torch.ones(4, requires_grad=True)
    y = w * 2
    compile_(lambda y: Changes.apply(y) * 2)(y)
    return torch.autograd.grad(y.sum(), w)[0].tolist()


def data_assigned_again(functions, compile_):
    w = torch.ones(4, requires_grad=True)

    def assigns(x):
        w.data = x * 2
        return (w * w).sum()

    result = compile_(assigns)(torch.ones(4))
    w.data = torch.full((4,), 7.0)
    result.backward()
    return w.grad.tolist()


def largest_of_nan(functions, compile_):
    rows = torch.tensor([[1.0, 2.0], [float("nan"), 0.0]])
    return str(compile_(functions["largest"])(rows)), str(
        compile_(lambda x: (x + 0, max(x.sum(), 0)))(-torch.ones(1))[1]
    )


@pytest.mark.skipif(not torch.__version__.startswith("2.13"), reason="the rows say what torch 2.13 does")
@pytest.mark.parametrize(
    "claim",
    [
        quantized_dtype,
        gradient_to_differentiate,
        mapped,
        absent,
        filled,
        second_backward,
        gradient_of_changed,
        data_assigned_again,
        largest_of_nan,
    ],
)
def test_what_torch_compile_makes_of_a_row_differs_and_what_we_make_of_it_does_not(claim, functions):
    expected = claim(functions, lambda function: function)
    torch._dynamo.reset()
    assert claim(functions, lambda function: torch.compile(function, backend="aot_eager")) != expected
    assert claim(functions, lambda function: torchmux.compile(function, backend="aot_eager")) == expected
