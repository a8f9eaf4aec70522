"""How many: threads, programs, steps, inputs, dimensions; and how large or small what passes back is."""

from __future__ import annotations

import warnings
from typing import Any

import torch
import torch.nn.functional as F

from ...case import Collection, Trial

case = Collection("semantics/counts")


@case("training")
def each_number_of_threads(trial: Trial) -> Any:
    """Calls and gradients under numbers of threads that divide nothing, and under more threads than processors."""
    compiled, before, found = trial.compile(lambda x, w: ((x * w).sin(), x.sum(0))), torch.get_num_threads(), []
    x, weight = trial.tensor(5, 4099), trial.tensor(4099, requires_grad=True)
    try:
        for number in (3, 5, 6, 7, 8, 16):
            torch.set_num_threads(number)
            with torch.set_grad_enabled(number in (3, 7, 16)):
                results = compiled(x, weight)
            found += [r.detach() for r in results]
            if results[0].requires_grad:
                found += torch.autograd.grad(results[0].sum(), weight)
    finally:
        torch.set_num_threads(before)
    return found


@case(quick=False)
def many_programs(trial: Trial) -> Any:
    """Each of seventy programs computes with its own tensor, when it is new and when all others have come after it."""
    x, kept, found = trial.tensor(4, 6), [], []
    for number, weight in enumerate(trial.tensor(70, 6)):
        program = eval("lambda x: (x * weight).sin()", {"weight": weight})  # code of its own, which is compiled anew
        if number % 10:
            found.append(trial.once(program, x))
        else:
            kept.append(trial.compile(program))
            found.append(kept[-1](x))
    return torch.stack(found), [each(x) for each in kept]


@case("training")
def gradients_of_any_size(trial: Trial) -> Any:
    """What passes back may be huge, tiny, infinite and no number; nothing bounds it, or rounds it to zero."""
    compiled, x, weight = trial.compile(lambda x, w: (x * w).relu() + w), trial.tensor(6, 8), trial.tensor(8)
    found = []
    for exponent in (-120, -60, -30, 14, 18, 40, 100):
        x, weight = (each.detach().requires_grad_() for each in (x, weight))
        result = compiled(x, weight)
        found += torch.autograd.grad(result, (x, weight), trial.tensor(6, 8) * 2.0**exponent)
    given = torch.ones_like(x)
    given[0], given[1, ::2], given[2] = float("inf"), float("nan"), float("-inf")
    return found, torch.autograd.grad(compiled(x, weight), (x, weight), given)


@case("bfloat16", "float16", "training")
def ranges_of_half_types(trial: Trial) -> Any:
    """Each half type has its own range: what one of them has no place for, the other one has; also in gradients."""

    def f(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        return [x * 2, x + y, x * y, x.relu(), x.abs().sqrt(), x.amax(-1), x.sum(-1), x / 3, x @ y.t(), x.tanh()]

    compiled, found = trial.compile(f), []
    for dtype, scales in ((torch.bfloat16, (1e6, 1e20, 1e-10, 1e-25)), (torch.float16, (5e3, 6e-6))):
        x = trial.tensor(4, 8, dtype=dtype)
        for scale in scales:
            given = (x * scale).detach().requires_grad_()
            results = compiled(given, x)
            ends = [results[0], results[3], results[7]]
            found += [*(r.detach() for r in results), *torch.autograd.grad(ends, given, [x * scale] * 3)]
    low = trial.tensor(4, 8, dtype=torch.float16)
    low[1:, ::2], low[0, 3] = float("-inf"), float("inf")
    with torch.no_grad():
        return found, compiled(low, low.t()[:, :4].reshape(4, 8).clamp(0.5, 2))


@case("training")
def gradients_of_many(trial: Trial) -> Any:
    """Gradients of many elements are right to the last one: of inputs, and where rows or columns meet."""
    x, row, column = (trial.tensor(*s, requires_grad=True) for s in ((270, 301), (301,), (270, 1)))
    result = trial.run(lambda x, row, column: (x * row).sin() + column * x, x, row, column)
    return torch.autograd.grad(result, (x, row, column), trial.tensor(270, 301))


@case("training", "complex128")
def layers_that_only_pass_on(trial: Trial) -> Any:
    """Where all weights are frozen, an input still learns; weights that only one of two results needs; gradients of
    complex numbers of sixteen bytes; and where the engine looks for what is no number."""
    torch.manual_seed(0)
    net = trial.module(torch.nn.Sequential(torch.nn.Linear(5, 6), torch.nn.Tanh(), torch.nn.Linear(6, 3)))
    x, compiled = trial.tensor(4, 5, requires_grad=True), trial.compile(net.requires_grad_(False))
    found = [torch.autograd.grad(compiled(x), x, trial.tensor(4, 3))]
    net.requires_grad_()
    with warnings.catch_warnings(), torch.autograd.set_detect_anomaly(True):
        warnings.simplefilter("ignore")
        found.append(torch.autograd.grad(compiled(x), (x, *net.parameters()), trial.tensor(4, 3)))
    z, w = trial.tensor(3, 4, dtype=torch.complex128, requires_grad=True), trial.tensor(4, dtype=torch.complex128)
    return found, torch.autograd.grad(trial.run(lambda z, w: z * w + z.conj(), z, w), z, trial.tensor(3, 4) + 1j * w)


@case()
def more_dimensions(trial: Trial) -> Any:
    """Tensors of seven, eight and nine dimensions: element by element, turned, summed and cut."""
    x, y, z = trial.tensor(2, 1, 3, 2, 1, 2, 3), trial.tensor(3, 2, 1, 3, 1, 2, 1, 3), trial.tensor(*(2,) * 9)

    def f(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> list[torch.Tensor]:
        turned = z.permute(8, 0, 7, 1, 6, 2, 5, 3, 4)
        return [
            x + y, x * x[:, :, 1:2], x.sum((0, 2, 5)), y.mean((1, 3, -1), keepdim=True), x.flip(0, 2, 6),
            z.amax((1, 4, 7)),
            turned + z, turned.sum((0, 2, 4, 6)), turned.reshape(16, 32), z.transpose(0, 8).contiguous(),
            z[1, :, 0, ..., 1],
            y.softmax(3), x.squeeze() * 2, torch.cat([z, turned], 4), z.expand(2, *z.shape).sum((0, 3)), y.argmax(-1),
        ]  # fmt: skip

    return trial.run(f, x, y, z)


@case("complex128", "bool", "uint8")
def inputs_of_rare_forms(trial: Trial) -> Any:
    """Heads beside rows, steps of three, indices that repeat one number, masks of one kind, and what has no elements in
    the middle; float32 beside complex128; and integers without signs, converted."""
    heads, x, z = trial.tensor(2, 5, 3, 4).transpose(1, 2), trial.tensor(9, 12), trial.tensor(4, dtype=torch.complex128)
    index = trial.given(torch.tensor(2)).expand(3)
    none, every = (trial.given(torch.full((9, 12), value)) for value in (False, True))
    wide, words = (
        trial.given(torch.tensor([0, 7, 2**k - 1]).to(t)) for t, k in ((torch.uint32, 32), (torch.uint64, 40))
    )

    def f(*given: torch.Tensor) -> list[torch.Tensor]:
        heads, row, column, x, index, none, every, z, empty, wide, words = given
        return [
            heads * 2, heads.sum(-1), heads.softmax(-1) @ heads.mT, heads.reshape(2, 15, 4), row * row, row.sum(),
            column + column, column.amax(0), x[index], x.index_select(1, index), x.gather(1, index.expand(9, 3)),
            torch.where(none, x, -x), torch.where(every, x, -x), x.masked_fill(none, 1), x * none, (x * every).sum(0),
            none.any(0), every.all(1), none.sum(), z * x[0, :4], z + x[0, 0], empty * 2, empty.sum(1), empty.sum(),
            torch.cat([empty, empty], 2), wide.to(torch.int64) * 2, words.to(torch.int64) + 1, x[none], x[every].sum(),
        ]  # fmt: skip

    empty = trial.tensor(2, 0, 3)
    return trial.run(f, heads, x[0, ::3], x[::3, 1::3], x, index, none, every, z, empty, wide, words)


@case(reference=False)
def rare_settings(trial: Trial) -> Any:
    """What is computed and made where the default dtype is a half type, and where products may be less precise."""
    x, before = trial.tensor(6, 8), (torch.get_default_dtype(), torch.get_float32_matmul_precision())
    f = trial.compile(
        lambda x: (x @ x.t() * 0.5, x + torch.ones(8), torch.arange(0, 1, 0.25) + 1, x.long() / 3, x.sin())
    )
    try:
        found = []
        for dtype, precision in ((torch.bfloat16, "medium"), (torch.float16, "high"), before):
            torch.set_default_dtype(dtype)
            torch.set_float32_matmul_precision(precision)
            found.append(f(x))
    finally:
        torch.set_default_dtype(before[0])
        torch.set_float32_matmul_precision(before[1])
    return found


@case("float64", "complex64", "float16", reference=False)
def more_elements(trial: Trial) -> Any:
    """Elements, places and counts beyond 2^22 and 2^24, which float32 cannot tell apart; numbers are whole."""
    wide = trial.tensor((5 << 20) + 37, low=-9, high=9, dtype=torch.int32).float()
    many = trial.tensor((1 << 24) + 4133, low=0, high=127, dtype=torch.uint8)
    many[-4], many[7] = 200, 199  # an odd place and, with what is below, an odd number
    given = [wide, many, many < 199]
    places = trial.given(torch.tensor([0, (1 << 24) - 1, (1 << 24) + 1, (1 << 24) + 4131]))

    def f(x: torch.Tensor, n: torch.Tensor, b: torch.Tensor, i: torch.Tensor) -> list[torch.Tensor]:
        return [x * 2 + 1, n + 3, ~b, torch.where(b, n, 7), n.argmax(), b.sum(), n[i], n.index_select(0, i), n[1:] > 5]

    def told(result: torch.Tensor) -> Any:
        return result if result.numel() < 9 else (result[:70], result[-4200:], result[::4099], result.long().sum())

    found = [told(result) for result in trial.run(f, *given, places)]
    types = torch.float16, torch.float64, torch.int64, torch.complex64, torch.int16
    others = [wide[: (1 << 18) + 5].to(dtype) for dtype in types]
    return found, trial.run(lambda given: [(x * 2, x[1:] + x[:-1]) for x in given], others)


@case(terms=1 << 16, reference=False)
def more_rows_and_columns(trial: Trial) -> Any:
    """More rows, columns, batches, words and classes than 16 bits count; numbers are whole, so that sums are exact."""
    long = (1 << 16) + 5
    rows, columns, batch = (trial.tensor(*s, low=0, high=9, dtype=torch.int32).float()
                            for s in ((long, 3), (3, long), (long, 2, 2)))  # fmt: skip
    places = trial.given(torch.tensor([1, 65535, 65536, 65540]))

    def f(r: torch.Tensor, c: torch.Tensor, b: torch.Tensor, i: torch.Tensor) -> list[torch.Tensor]:
        return [
            r * 2, c + 1, r.sum(1), c.sum(1), r.sum(0), c.sum(0), r.amax(0), c.amax(1), r.t() + c, b.mT + 1, b @ b,
            b.sum((1, 2)), r[i], r.index_select(0, i), c.index_select(1, i), c.gather(1, i.expand(3, 4)), c @ r,
            F.embedding(i, r), c.flip(1), torch.cat([r, r]), F.one_hot(i, long).sum(0), c.sort(stable=True).indices,
            c.cumsum(1), (c == c.amax(1, keepdim=True)).int().argmax(1), torch.arange(long, device=r.device) * 2,
        ]  # fmt: skip

    return trial.run(f, rows, columns, batch, places)


@case(reference=False)
def far_apart_in_memory(trial: Trial) -> Any:
    """Elements that lie more than 2^31 elements or bytes apart, or begin there; no other part of the memory is used."""
    bytes_ = torch.empty((1 << 31) + (1 << 20), dtype=torch.int8, device=trial.device)
    halves = torch.empty((1 << 30) + (1 << 20), dtype=torch.float16, device=trial.device)
    parts = [
        bytes_.as_strided((3, 5), (1 << 30, 1)), bytes_[(1 << 31) + 99 :].as_strided((4, 7), (11, 1)),
        halves.as_strided((2, 6), ((1 << 30) + 99, 3), 7), halves[(1 << 30) + 1033 :].as_strided((9,), (2,)),
    ]  # fmt: skip
    for part in parts:
        part.copy_(trial.tensor(*part.shape, low=-9, high=9, dtype=torch.int32))

    def f(parts: list[torch.Tensor]) -> list[torch.Tensor]:
        parts[1].add_(1)
        return [found for x in parts for found in (x * 2, x.flip(-1), x.t().contiguous(), x.amax(0))]

    return trial.run(f, parts), [part.clone() for part in parts]
