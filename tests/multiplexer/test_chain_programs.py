"""Generated programs through chains: results, gradients, changed inputs, sharing and random state are eager's."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional

import torchmux
from torchmux.conformance import oracle
from torchmux.conformance.oracle import observation

AVAILABLE = [name for name in ("onnxrt", "openvino", "native", "tvm") if name in torchmux.list_backends()]
CHAINS = [
    [*chain, *more]
    for size in (2, 3, 4)
    for chain in itertools.permutations(AVAILABLE, size)
    for more in ((), ("eager",))
    if len(chain) + len(more) <= 4
]

Step = Callable[[random.Random, list[Any]], str]

UNARY = ("sin", "tanh", "exp2", "sigmoid", "abs", "neg", "relu", "erfinv", "floor", "cumsum", "softmax", "digamma")


def unary(draw: random.Random, names: list[Any]) -> str:
    name, x = draw.choice(UNARY), draw.choice(names)
    args = "-1" if name in ("cumsum", "softmax") else ""
    return f"({x} * 0.5).{name}({args})"


def binary(draw: random.Random, names: list[Any]) -> str:
    x, y = draw.choice(names), draw.choice(names)
    return draw.choice(
        (f"{x} + {y}", f"{x} * {y}", f"{x} / ({y}.abs() + 1)", f"torch.maximum({x}, {y})", f"{x} - {y}.mean()")
    )


def view(draw: random.Random, names: list[Any]) -> str:
    x = draw.choice(names)
    return draw.choice(
        (f"{x}.t().contiguous().t()", f"{x}[:, ::2].repeat(1, 2)[:, : {x}.shape[1]]", f"{x}.flip(0)",
         f"{x}.expand(2, -1, -1)[1]", f"torch.cat([{x}[1:], {x}[:1]])", f"{x}.roll(1, -1)")
    )  # fmt: skip


def product(draw: random.Random, names: list[Any]) -> str:
    x, y = draw.choice(names), draw.choice(names)
    return f"torch.tanh({x} @ weight) + functional.layer_norm({y}, {y}.shape[-1:])"


def choice(draw: random.Random, names: list[Any]) -> str:
    x, y = draw.choice(names), draw.choice(names)
    return draw.choice(
        (f"torch.where({x} > {y}, {x}, torch.tensor(-0.5))", f"{x} * torch.tensor([0.5, 2.0]).sum()",
         f"{x}.masked_fill({y} < 0, 0.25)", f"{x}[torch.argsort({y}[:, 0])]", f"{x} + ({y} > 0)",
         f"{x} + whole.sum()", f"{x}.gather(1, whole.abs() % {x}.shape[1])")
    )  # fmt: skip


def chance(draw: random.Random, names: list[Any]) -> str:
    x = draw.choice(names)
    return draw.choice((f"{x} + torch.rand_like({x})", f"functional.dropout({x}, 0.5)", f"{x} * torch.rand(()).item()"))


def change(draw: random.Random, names: list[Any]) -> str:
    x = draw.choice(names)
    return draw.choice((f"({x} * 1).mul_(2)", f"{x}.index_fill(0, whole[0, :1] * 0, 0.1)", "x.detach().clone()"))


def odd(draw: random.Random, names: list[Any]) -> str:
    x = draw.choice(names)
    return draw.choice(
        (f"{x}[:0].sum() + {x}", f"{x} + {x}[:0].repeat(1, 1).sum(0)", f"torch.fft.fft({x}).real",
         f"torch.view_as_complex(torch.stack([{x}, {x}], -1)).abs()", f"{x}.to(torch.bfloat16).float().sin()",
         f"torch.vmap(torch.sin)({x})", f"{x}.double().exp2().float()")
    )  # fmt: skip


STEPS: tuple[Step, ...] = (unary, unary, binary, binary, view, product, choice, chance, change, odd)
BACKENDS = (*AVAILABLE, "eager")


def program(seed: int) -> str:
    """The text of ``f(x, y, whole, weight)``; all of its values have the shape of ``x``."""
    draw = random.Random(seed)
    lines, names = [], ["x", "y"]
    for number in range(draw.randint(3, 9)):
        line = f"v{number} = {draw.choice(STEPS)(draw, names)}"
        pin = draw.random() < 0.2
        if pin:
            lines.append(f"with torchmux.use_backend({draw.choice(BACKENDS)!r}):")
        lines.append(f"    {line}" if pin else line)
        names.append(f"v{number}")
    if draw.random() < 0.3:
        lines.append(draw.choice(("whole.add_(1)", "whole[0] = 3", "whole.t()[0].mul_(2)")))
    ends = [names[-1], f"{draw.choice(names)}.sum(0)", f"{names[-1]}[0]", f"{draw.choice(names)} > 0", "whole"]
    lines.append(f"return {', '.join([ends[0], *draw.sample(ends[1:], draw.randint(1, 3))])}")
    return "def f(x, y, whole, weight):\n" + "\n".join(f"    {line}" for line in lines)


def inputs(seed: int, rows: int) -> list[Any]:
    draw = torch.Generator().manual_seed(seed)
    x, y, weight = (torch.randn(*shape, generator=draw) for shape in ((rows, 6), (rows, 6), (6, 6)))
    whole = torch.randint(-4, 5, (rows, 6), generator=draw)
    return [x, y, whole, weight]


def shown(f: Any, seed: int, rows: int, training: bool) -> list[Any]:
    """All that one call of ``f`` shows."""
    given = inputs(seed, rows)
    if training:
        given = [value.requires_grad_() if value.is_floating_point() else value for value in given]
    torch.manual_seed(seed)
    with torch.set_grad_enabled(training):
        results = f(*given)
    leaves = [value for value in given if value.requires_grad]
    ends = [value for value in results if value.requires_grad]
    gradients: Any = []
    if ends and leaves:
        gradients = list(torch.autograd.grad([end.sum() for end in ends], leaves, allow_unused=True))
    return [list(results), given, gradients, torch.get_rng_state()]


def close(found: list[Any], wanted: list[Any]) -> list[str]:
    """How two calls differ; structure and integers exactly, floats by more than rounding that is amplified."""
    ours, theirs = (list(observation.leaves(value)) for value in (found, wanted))
    if [where for where, _ in ours] != [where for where, _ in theirs]:
        return ["another structure"]
    said = []
    for (where, a), (_, b) in zip(ours, theirs, strict=True):
        if not isinstance(b, torch.Tensor):
            if a != b:
                said.append(f"{where}: {a} instead of {b}")
        elif (a.dtype, a.shape, a.requires_grad) != (b.dtype, b.shape, b.requires_grad) or (
            # eager's gradient of a sum is a number shown everywhere, a traced one may be written out
            a.stride() != b.stride() and not where.startswith("[2]")
        ):
            said.append(f"{where}: {a.dtype} {a.shape} {a.stride()} instead of {b.dtype} {b.shape} {b.stride()}")
        elif not torch.allclose(a, b, rtol=1e-3, atol=1e-4, equal_nan=True):
            said.append(f"{where}: values differ by up to {(a.double() - b.double()).abs().max()}")
    tensors = [[value for _, value in side if isinstance(value, torch.Tensor)] for side in (ours, theirs)]
    if oracle.sharing(tensors[0]) != oracle.sharing(tensors[1]):
        said.append("tensors share memory in another way")
    return said


def attack(seed: int) -> list[str]:
    """How one program on one chain differs from eager."""
    draw = random.Random(f"chain {seed}")
    chain, training = draw.choice(CHAINS), draw.random() < 0.4
    text = program(seed)
    dynamic, strict = draw.choice((None, None, True, False)), draw.random() < 0.1
    scope: dict[str, Any] = {"torch": torch, "torchmux": torchmux, "functional": functional}
    exec(compile(text, f"<program {seed}>", "exec"), scope)
    torchmux.reset()
    told = f"program {seed}, {chain}, training={training}, dynamic={dynamic}, strict={strict}:\n{text}\n"
    for rows in (4, 4, 7):
        try:
            wanted: Any = shown(scope["f"], seed + rows, rows, training)
        except Exception as error:
            wanted = type(error)
        try:
            compiled = torchmux.compile(scope["f"], backend=chain, dynamic=dynamic, strict=strict)
            found: Any = shown(compiled, seed + rows, rows, training)
        except torchmux.FallbackRefused:
            if strict:
                return []
            raise
        except Exception as error:
            found = type(error)
            if found is not wanted:
                return [f"{told}{rows} rows: {type(error).__name__}: {error}"]
        if isinstance(wanted, type):
            if found is not wanted:
                return [f"{told}{rows} rows: nothing raised instead of {wanted}"]
        elif differences := close(found, wanted):
            return [f"{told}{rows} rows: {'; '.join(differences)}"]
    return []


@pytest.mark.parametrize("backend", [pytest.param(b, id="+".join(b)) for b in (["native"], ["native", "eager"])])
def test_draws_keep_their_order(backend: list[str]) -> None:
    """The first draw waits for what torch computes, the second for nothing."""

    def f(x: torch.Tensor, y: torch.Tensor) -> Any:
        late = torch.view_as_complex(torch.stack([x, x], -1)).abs()
        return torch.rand_like(late), torch.rand_like(y)

    x, y = torch.rand(4, 6), torch.rand(4, 6)
    torch.manual_seed(0)
    wanted = f(x, y)
    torch.manual_seed(0)
    found = torchmux.compile(f, backend=backend if len(backend) > 1 else backend[0])(x, y)
    assert all(map(torch.equal, found, wanted))


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("backend", ["aot_eager", "native", "native+eager"])
def test_draws_that_nothing_uses_advance_the_generator(backend: str, training: bool) -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        torch.rand_like(x)
        torch.randn(3)
        functional.dropout(y.sin(), 0.5)
        drawn = torch.rand_like(y)
        return functional.dropout(y.sin(), 0.5) + drawn

    x, y = (torch.rand(4, 6, requires_grad=training) for _ in range(2))
    shown = []
    for run in (f, torchmux.compile(f, backend=backend)):
        torch.manual_seed(0)
        result = run(x, y)
        gradient = torch.autograd.grad(result.sum(), y) if training else ()
        shown.append(([result, *gradient], torch.get_rng_state()))
    torch.testing.assert_close(shown[0][0], shown[1][0])
    assert torch.equal(shown[0][1], shown[1][1])


@pytest.mark.parametrize("chain", [["native", "eager"], *CHAINS[:1], *([name] for name in AVAILABLE)])
def test_tensors_of_the_program_in_training(chain: list[str]) -> None:
    """What a graph holds is real, among fake tensors."""

    def f(x: torch.Tensor, whole: torch.Tensor) -> torch.Tensor:
        whole[0] = 3
        chosen = torch.where(x > 0, x * torch.tensor([1.0, 2.0, 3.0]), torch.tensor(-0.5))
        return chosen.exp() * (whole + torch.tensor([1, 2, 3])).sum()

    x, whole = torch.randn(2, 3, requires_grad=True), torch.ones(2, 3, dtype=torch.int64)
    wanted = f(x, whole.clone())
    found = torchmux.compile(f, backend="+".join(chain), strict=False)(x, whole.clone())
    torch.testing.assert_close(found, wanted)
    gradients = [torch.autograd.grad(each.sum(), x)[0] for each in (found, wanted)]
    torch.testing.assert_close(*gradients)


@pytest.mark.skipif(len(CHAINS) < 2, reason="one compiler is no chain")
@pytest.mark.parametrize("seed", (3, 5, 7))
def test_generated_programs(seed: int) -> None:
    assert attack(seed) == []


@pytest.mark.slow
@pytest.mark.skipif(len(CHAINS) < 2, reason="one compiler is no chain")
@pytest.mark.parametrize("part", range(20))
def test_many_generated_programs(part: int) -> None:
    assert [words for seed in range(100 + part * 20, 120 + part * 20) for words in attack(seed)] == []
