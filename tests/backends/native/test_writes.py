"""Writes to inputs: made in the inputs' memory, with eager's results, errors and versions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import torchmux

Program = Callable[..., Any]


def outcome(run: Program, inputs: list[torch.Tensor]) -> tuple[Any, str | None, list[bool]]:
    versions = [t._version for t in inputs]
    try:
        results, error = run(*inputs), None
    except (IndexError, RuntimeError) as raised:
        results, error = None, f"{type(raised).__name__}: {raised}"
    return results, error, [t._version > v for t, v in zip(inputs, versions, strict=True)]


def check(program: Program, *inputs: torch.Tensor, calls: int = 2) -> str:
    """Compare results, inputs afterwards, errors and versions with eager's; the code that ran."""
    compiled = torchmux.compile(program, backend="native", strict=True)
    eager, native = [t.clone() for t in inputs], [t.clone() for t in inputs]
    for _ in range(calls):
        before = [t.clone() for t in native]
        expected, error, changed = outcome(program, eager)
        got, raised, told = outcome(compiled, native)
        assert raised == error
        for a, b, old in zip(native, eager, before, strict=True):
            torch.testing.assert_close(a, old if error else b)
        if error is None:
            torch.testing.assert_close(got, expected)
            assert told == changed
    return "\n".join(torchmux.report(compiled).graphs[0].report.output_code)


def stores(code: str) -> int:
    """How many tensors the code makes."""
    return code.count("= empty(")


def into_cache(cache, at, new):
    cache.index_copy_(1, at, new)


def into_layers(cache, at, new, query):
    cache[0].index_copy_(1, at, new)
    cache[1, :, at] = new * 2
    return query @ cache[0].mT, cache[1].sum(-1)


def into_slice(a, b):
    a[1:3] = b[:2] * 2
    a[:, 1] += 1


def into_slice_of_slice(a, b):
    a[1:][0][2:4] = b[0, 2:4]
    a[2:].mul_(3)


def scattered(a, at, b):
    a.scatter_(1, at, b)
    return a.sum(1)


def added(a, at, b):
    a.index_put_((at,), b, accumulate=True)
    a.scatter_add_(0, at[:, None].expand(-1, 5), b)


def exchanged(a, b):
    kept = a.clone()
    a.copy_(b)
    b.copy_(kept)


def read_before(a, b):
    old = a.clone()
    a.mul_(2)
    a[1] = b[1]
    return old, a + old


def read_between(a, b):
    a[0] = b[0]
    between = a * 1
    row = a[0]
    a[0:2] = b[1:3]
    return between, row + 1


def turned_over(a, b):
    a.copy_(a.flip(0) + b)


def moved_up(a, b):
    a[1:] = a[:-1] + b[:-1]


def row_by_row(a, b):
    a.copy_(torch.softmax(a, -1))
    b.sub_(b.mean(-1, keepdim=True)).div_(b.std(-1, keepdim=True) + 1)


def repeated(a, at, b):
    a[at] += 1
    a[at] = b


def masked(a, b):
    a.masked_fill_(b > 0, 0.5)
    b[b < 0] = 0


def multiplied(a, b):
    a.copy_(a @ b)
    b.copy_(a @ b)


def averaged(mean, seen, x):
    mean.mul_(0.9).add_(x.mean(0), alpha=0.1)
    seen.add_(1)
    return (x - mean) / seen


def adam(p, grad, m, v):
    m.mul_(0.9).add_(grad, alpha=0.1)
    v.mul_(0.999).addcmul_(grad, grad, value=0.001)
    p.mul_(0.99).addcdiv_(m, v.sqrt().add_(1e-8), value=-1e-3)


def scaled(p, grad, seen):
    """Adafactor's step: a value that waits for a norm, and a later pass over the old content."""
    update = torch.exp(-seen) * grad
    p.add_(update * (p.norm() / update.norm().clamp(min=1.0)))


def into_pages(pages, turned, layers, at, new):
    """Updates of views, as of caches in pages."""
    pages.view(-1, 64)[at] = new
    seen = pages.sum(1)
    pages.view(-1, 64)[at + 5] = new * 2
    turned.t()[at] = new
    layers[1].view(-1, 64).index_copy_(0, at, new)
    return seen, layers.sum(-1)


def into_pieces(a, b, rows):
    """Parts that come from ``chunk``, ``split``, ``unbind`` and ``diagonal``."""
    a.chunk(4, 0)[1][0].add_(rows)
    a.split([3, 4, 2], 1)[2].mul_(2)
    kept = a.unbind(0)[5] * 1
    a.unbind(0)[5].sub_(kept.flip(0))
    b.diagonal(1, -1, 0)[0].add_(1)
    b.diagonal(dim1=0, dim2=1).mul_(3)
    return kept, a.sum(0)


def turned_with_update(a, at, b):
    """Here the forms around the update do not undo each other."""
    a.copy_(a.t().index_put((at,), b))
    return a * 2


def replayed(rows, marks, at, new, given, chosen):
    """What is written is read at positions that are verified before: a buffer of samples."""
    rows[at] = new
    marks[at] = given
    read = F.embedding(chosen, rows)
    return read + 1, marks[chosen - 1], rows.gather(0, chosen[:, None].expand(-1, 3)).sum(), rows[marks[chosen].long()]


def square(n: int = 5) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(n, n), torch.randn(n, n)


INDICES = torch.tensor([3, 0, 2])
PROGRAMS: list[tuple[Program, Callable[[], tuple[torch.Tensor, ...]]]] = [
    (into_cache, lambda: (torch.zeros(2, 8, 4), INDICES, torch.randn(2, 3, 4))),
    (into_layers, lambda: (torch.zeros(2, 2, 8, 4), INDICES, torch.randn(2, 3, 4), torch.randn(2, 1, 4))),
    (into_slice, square),
    (into_slice_of_slice, square),
    (scattered, lambda: (torch.randn(5, 9), torch.randint(0, 9, (5, 4)), torch.randn(5, 4))),
    (added, lambda: (torch.randn(5, 5), torch.tensor([1, 1, -1 + 4]), torch.randn(3, 5))),
    (
        into_pages,
        lambda: (*(torch.randn(s) for s in ((64, 8, 64), (64, 512), (2, 64, 8, 64))), INDICES, torch.randn(3, 64)),
    ),
    (into_pieces, lambda: (torch.randn(8, 9), torch.randn(4, 3, 5), torch.randn(9))),
    (replayed, lambda: (torch.zeros(90, 64), torch.zeros(90), INDICES, torch.ones(3, 64), torch.rand(3), INDICES)),
    (turned_with_update, lambda: (torch.randn(5, 5), INDICES, torch.randn(3, 5))),
    (exchanged, square),
    (read_before, square),
    (read_between, square),
    (turned_over, square),
    (row_by_row, square),
    (masked, square),
    (multiplied, square),
    (repeated, lambda: (torch.randn(5, 5), torch.tensor([1, 1, 4]), torch.randn(5).expand(3, 5).contiguous())),
    (averaged, lambda: (torch.randn(6), torch.tensor(2), torch.randn(4, 6))),
    (adam, lambda: tuple(torch.randn(7, 5).abs() for _ in range(4))),
    (scaled, lambda: tuple(torch.randn(7, 5).abs() for _ in range(3))),
]


@pytest.mark.parametrize(("program", "inputs"), PROGRAMS, ids=lambda v: v.__name__ if v in dict(PROGRAMS) else "")
def test_as_eager(program: Program, inputs: Callable[[], tuple[torch.Tensor, ...]]) -> None:
    check(program, *inputs())


@pytest.mark.parametrize("program", [into_cache, scattered, into_slice, adam, masked])
def test_nothing_is_copied(program: Program) -> None:
    code = check(program, *dict(PROGRAMS)[program]())
    assert stores(code) == (program is scattered)
    assert code.count(".copy_(") == code.count("is not given_")  # of inputs that lie otherwise than the code expects


def test_pieces_are_updated_in_place() -> None:
    code = check(into_pieces, *dict(PROGRAMS)[into_pieces]())
    assert stores(code) == 2  # the results
    assert "masked" not in code and " ? " not in code  # no element asks whether it is in the part


def test_views_are_updated_in_place() -> None:
    code = check(into_pages, *dict(PROGRAMS)[into_pages]())
    assert "new_arena" not in code  # a copy of the pages needs more memory than the stack has


@pytest.mark.parametrize("bad", [8, -9, 100])
def test_an_error_leaves_inputs_as_they_were(bad: int) -> None:
    def update(other, cache, at, new):
        other.add_(1)
        cache.index_copy_(1, at, new)
        other.mul_(2)

    compiled = torchmux.compile(update, backend="native", strict=True)
    other, cache, new = torch.ones(3), torch.zeros(2, 8, 4), torch.randn(2, 3, 4)
    compiled(other, cache, INDICES, new)
    before = other.clone(), cache.clone()
    with pytest.raises(IndexError, match=f"index_copy_\\(\\): index {bad} is out of bounds"):
        compiled(other, cache, torch.tensor([0, bad, 1]), new)
    assert torch.equal(other, before[0])
    assert torch.equal(cache, before[1])


@pytest.mark.parametrize("dynamic", [False, True])
def test_indices_of_what_was_written_are_verified_before(dynamic: bool) -> None:
    def replay(rows, marks, at, new, chosen):
        rows[at] = new
        marks[at] += 1
        return rows[chosen] * 2, marks[chosen]

    compiled = torchmux.compile(replay, backend="native", strict=True, dynamic=dynamic)
    for size in (5000, 4000):  # a copy of so many needs memory beside the stack
        outcomes = []
        for run in (replay, compiled):
            rows, marks = torch.zeros(size, 8), torch.zeros(size)
            results = run(rows, marks, INDICES, torch.ones(3, 8), torch.tensor([-size, 2, 2, -1]))
            outcomes.append((*results, rows, marks))
        torch.testing.assert_close(*outcomes)
        for at, chosen, bad in ((INDICES, [0, size], size), (INDICES + size, [0, -size - 1], size + 3)):
            with pytest.raises(IndexError, match=f"index {bad} is out of bounds for dimension 0 with size {size}"):
                compiled(rows, marks, at, torch.zeros(3, 8), torch.tensor(chosen))
            torch.testing.assert_close((rows, marks), outcomes[0][2:])
    if not dynamic:  # there, what is verified is of any size as well
        assert all("new_arena" not in code for g in torchmux.report(compiled).graphs for code in g.report.output_code)


def test_inputs_that_lie_otherwise() -> None:
    """A transposed input, one with gaps, and one with an offset."""
    compiled = torchmux.compile(adam, backend="native", strict=True)
    for make in (lambda: torch.ones(5, 7).t(), lambda: torch.ones(7, 10)[:, ::2], lambda: torch.ones(9, 5)[1:8]):
        eager, native = [make() for _ in range(4)], [make() for _ in range(4)]
        adam(*eager)
        compiled(*native)
        torch.testing.assert_close(native, eager)


@pytest.mark.parametrize("shared", [(0, 1), (1, 2), (0, 3)])
def test_inputs_that_share_memory(shared: tuple[int, int]) -> None:
    compiled = torchmux.compile(adam, backend="native")
    for _ in range(2):
        outcomes = []
        for run in (adam, compiled):
            inputs = [torch.full((7, 5), 2.0 + n) for n in range(4)]
            inputs[shared[0]] = inputs[shared[1]]
            run(*inputs)
            outcomes.append(inputs)
        torch.testing.assert_close(*outcomes)
        compiled(*[torch.ones(7, 5) for _ in range(4)])  # and again with separate ones


def test_autograd_notices_the_write() -> None:
    """What backward needs was changed in place by compiled code."""

    def update(x):
        x.mul_(2)

    x, weight = torch.ones(3), torch.ones(3, requires_grad=True)
    loss = (weight * x).sum()
    torchmux.compile(update, backend="native", strict=True)(x)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_while_training() -> None:
    def step(weight, mean, x):
        mean.lerp_(x.mean(0), 0.1)
        return ((x - mean) @ weight).tanh().sum()

    compiled = torchmux.compile(step, backend="native", strict=True)
    outcomes = []
    for run in (step, compiled):
        torch.manual_seed(1)
        weight, mean, x = torch.randn(4, 4, requires_grad=True), torch.zeros(4), torch.randn(3, 4)
        for _ in range(2):
            run(weight, mean, x).backward()
        outcomes.append((weight.grad, mean))
    torch.testing.assert_close(*outcomes)


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "RMSprop"])
@pytest.mark.parametrize("foreach", [False, True])
def test_optimizers(name: str, foreach: bool) -> None:
    options = {"momentum": 0.9} if name == "SGD" else {}
    outcomes = []
    for compiles in (False, True):
        torch.manual_seed(1)
        parameters = [torch.nn.Parameter(torch.randn(s)) for s in ((5, 3), (7,), (2, 2, 2))]
        optimizer = getattr(torch.optim, name)(parameters, lr=0.1, foreach=foreach, **options)
        step = torchmux.compile(optimizer.step, backend="native") if compiles else optimizer.step
        for _ in range(3):
            for p in parameters:
                p.grad = torch.randn_like(p)
            step()
        outcomes.append([p.detach() for p in parameters])
    torch.testing.assert_close(*outcomes)


SHOWN: dict[str, Program] = {
    "what copy_ returns": lambda cache, new: cache[:, 2:3].copy_(new),
    "a part": lambda cache, new: (cache[:, 2:3].copy_(new), cache[:, :3])[1],
    "transposed": lambda cache, new: (cache[:, 2:3].copy_(new), cache.transpose(1, 2)[0], new + 1)[1:],
    "a row": lambda cache, new: cache.select(1, 2).mul_(3),
    "whole": lambda cache, new: (cache.add_(1)[:, 3:5], cache.view(-1), cache),
    "of another input": lambda cache, new: (cache.mul_(2), new.squeeze(1))[1],
}


@pytest.mark.parametrize("name", SHOWN)
def test_views_of_what_is_written(name: str) -> None:
    """They are no copies of it, and only what is written is stored."""
    program = SHOWN[name]
    cache, new = torch.randn(2, 6, 3), torch.randn(2, 1, 3)
    assert stores(check(program, cache, new)) <= (name == "transposed")
    compiled = torchmux.compile(program, backend="native", strict=True)
    with torch.no_grad():
        results = compiled(cache, new)
        for result in results if isinstance(results, tuple) else (results,):
            if result.untyped_storage().data_ptr() != cache.untyped_storage().data_ptr():
                continue
            result.fill_(7.0)
            assert int((cache == 7.0).sum()) == result.numel()
            cache.zero_()
    shares = [program(cache, new), compiled(cache, new)]
    first, second = ([r._base is cache for r in (s if isinstance(s, tuple) else (s,))] for s in shares)
    assert first == second


def test_a_cache_that_is_written_from_a_position_on() -> None:
    """The start is symbolic; only the guards say that what begins there lies within the cache."""

    def function(cache: torch.Tensor, x: torch.Tensor, start: int) -> tuple[torch.Tensor, torch.Tensor]:
        end = start + x.shape[0]
        cache[start:end] = x
        return cache[:end] * 2, x.chunk(2)[1] + 1

    compiled = torchmux.compile(function, backend="native", dynamic=True)
    found, expected = torch.zeros(24, 3), torch.zeros(24, 3)
    torchmux.mark_static(found)
    for rows, start in ((4, 3), (5, 9), (3, 21)):
        x = torch.randn(rows, 3)
        torch.testing.assert_close(compiled(found, x, start), function(expected, x, start), rtol=0, atol=0)
        assert torch.equal(found, expected)
    assert not torchmux.report(compiled).fallbacks
