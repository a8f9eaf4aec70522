"""Sizes: those that change between calls; every length around that of a vector, every beginning, every order."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from ..case import Collection, Trial

case = Collection("semantics/shapes")
lengths = Collection("semantics/lengths")

LENGTHS = (*range(1, 10), 12, 15, 16, 17, 20, 23, 24, 25, 31, 32, 33, 47, 48, 49, 63, 64, 65)


@case("dynamic_shapes")
def up_and_down(trial: Trial) -> Any:
    """A batch that grows and shrinks, including sizes one and zero."""
    torch.manual_seed(0)
    net = trial.module(torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))).eval()
    compiled = trial.compile(net, dynamic=True)
    with torch.no_grad():
        return [compiled(trial.tensor(rows, 6)) for rows in (4, 7, 2, 64, 1, 0, 5)]


@case("dynamic_shapes")
def two_sizes_at_once(trial: Trial) -> Any:
    """Two dimensions that change independently, used in arithmetic."""

    def f(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        rows, columns = x.shape
        return x.reshape(-1), x.sum(0) / rows, x.t() * columns, x.new_ones(rows + columns), x[: rows // 2]

    compiled = trial.compile(f, dynamic=True)
    return [compiled(trial.tensor(*shape)) for shape in ((4, 6), (6, 4), (9, 3), (2, 2))]


@case("dynamic_shapes")
def parts_of_changing_sizes(trial: Trial) -> Any:
    """Parts of tensors have sizes that follow from theirs: halves, all but the last, every second one, from the end."""

    def f(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        rows, half = x.shape[0], (x.shape[0] + 1) // 2
        return (
            *(part.sum(0) for part in x.chunk(2)), x[:half] * 2, x[half:] + 1, x[:-1].mean(0), x[::2].sum(0),
            x[-3:] - 1, x.narrow(0, rows - 2, 2) * 3, x.roll(half, 0), F.pad(x, (0, 0, half, 1)),
            x.unfold(0, 2, 2).sum(-1), torch.cat([x[half:], x[:half]]), x.flip(0)[: rows - 1] * rows,
            x.tril(1 - half), x.select(0, -1) + x[half - 1],
        )  # fmt: skip

    compiled = trial.compile(f, dynamic=True)
    return [compiled(trial.tensor(rows, 4)) for rows in (6, 9, 4, 11)]


@case("dynamic_shapes")
def length_of_a_sequence(trial: Trial) -> Any:
    """Attention with a causal mask over sequences of changing length."""
    torch.manual_seed(0)
    weights = trial.module(torch.nn.Linear(8, 24))

    def f(x: torch.Tensor) -> torch.Tensor:
        q, k, v = weights(x).unflatten(-1, (3, 2, 4)).permute(2, 0, 3, 1, 4)
        out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return out.transpose(1, 2).flatten(2)

    compiled = trial.compile(f, dynamic=True)
    with torch.no_grad():
        return [compiled(trial.tensor(2, length, 8)) for length in (5, 9, 3)]


@case("dynamic_shapes", "training")
def gradients_of_changing_sizes(trial: Trial) -> Any:
    """Training with a changing batch size."""
    torch.manual_seed(0)
    layer = trial.module(torch.nn.Linear(6, 3))
    compiled = trial.compile(lambda x: layer(x).tanh().mean(), dynamic=True)
    for rows in (4, 7, 2):
        compiled(trial.tensor(rows, 6)).backward()
    return layer.weight.grad, layer.bias.grad


@case()
def static_then_another_shape(trial: Trial) -> Any:
    """Code compiled for one shape is not used for another."""
    compiled = trial.compile(lambda x: (x - x.mean(0)) / x.shape[0], dynamic=False)
    return [compiled(trial.tensor(*shape)) for shape in ((4, 3), (5, 3), (4, 3), (4, 7))]


@case()
def more_dimensions(trial: Trial) -> Any:
    """The number of dimensions may change from call to call."""
    compiled = trial.compile(lambda x: x.softmax(-1).sum(0))
    return [compiled(trial.tensor(*shape)) for shape in ((4,), (4, 3), (2, 3, 4))]


def _all_of(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return x * 2 + 1, x.sum(-1), x.amax(-1), x.softmax(-1)


@lengths()
def each_length(trial: Trial) -> Any:
    """Vectors of 1 to 65 numbers are computed to their end, and not beyond it."""
    given = [trial.tensor(n) for n in LENGTHS]
    return trial.run(lambda given: [_all_of(x) for x in given], given)


@lengths()
def each_width(trial: Trial) -> Any:
    """Matrices with 1 to 65 rows and columns, reduced over both."""
    given = [trial.tensor(n, 5) for n in LENGTHS[::2]] + [trial.tensor(3, n) for n in LENGTHS[1::2]]
    return trial.run(lambda given: [(x.sum(0), x.exp().sum(1), x.t() + 1) for x in given], given)


@lengths("dynamic_shapes")
def each_length_dynamic(trial: Trial) -> Any:
    """One compilation serves all lengths from 1 to 65."""
    compiled = trial.compile(_all_of, dynamic=True)
    return [compiled(trial.tensor(n)) for n in range(65, 0, -1)]


@lengths("dynamic_shapes")
def each_product_dynamic(trial: Trial) -> Any:
    """One compilation serves products of all sizes."""
    compiled = trial.compile(lambda x, y: (x @ y).relu(), dynamic=True)
    sizes = [(n, m, k) for n in (1, 2, 17) for m in (1, 3, 33) for k in (1, 5, 16, 64)]
    return [compiled(trial.tensor(n, k), trial.tensor(k, m)) for n, m, k in sizes]


@lengths("dynamic_shapes")
def joined_sizes(trial: Trial) -> Any:
    """Statistics, means, joins and convolutions over sizes that change."""
    torch.manual_seed(0)
    conv = trial.module(torch.nn.Conv1d(3, 4, 3, padding=1))

    def f(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        both = torch.cat([x, y], -1)
        return both, both.mean(-1), both.var(-1), both.std(0), conv(both).relu(), both.softmax(-1), F.pad(both, (1, 2))

    compiled = trial.compile(f, dynamic=True)
    with torch.no_grad():
        return [
            compiled(trial.tensor(b, 3, n), trial.tensor(b, 3, m)) for b, n, m in ((2, 5, 7), (3, 9, 4), (4, 17, 16))
        ]


@lengths()
def each_beginning(trial: Trial) -> Any:
    """Inputs begin at any element of their memory, also in a call after one that began elsewhere."""
    base = trial.tensor(160)
    compiled = trial.compile(lambda x, y: (x * 2 + y, x.sum(), (x @ y)))
    return [compiled(base[start : start + 33], base[90 - start : 123 - start]) for start in (0, 1, 2, 3, 5, 8, 16, 31)]


@lengths()
def each_order(trial: Trial) -> Any:
    """The order of dimensions in memory changes from call to call, and with it the order in results."""
    x = trial.tensor(3, 4, 5)
    compiled = trial.compile(lambda x: (x + 1, x.sum(1), x.softmax(-1), x * x, x.contiguous(), x.reshape(-1)))
    views = x, x.permute(2, 0, 1), x.transpose(0, 1), x[:, ::2], x[..., :1].expand(3, 4, 6), x.flip(0), x[1:, 1:, 1:]
    return [compiled(view) for view in views]


@lengths()
def channels_last(trial: Trial) -> Any:
    """A network keeps channels last in memory where eager does."""
    torch.manual_seed(0)
    layers = torch.nn.Conv2d(4, 8, 3, padding=1), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.MaxPool2d(2)
    net = trial.module(torch.nn.Sequential(*layers)).eval()
    compiled, image = (
        trial.compile(lambda x: (net(x), x * 2, F.avg_pool2d(x, 2), x + x.mean(1, keepdim=True))),
        trial.tensor(2, 4, 6, 6),
    )
    with torch.no_grad():
        return [compiled(image.to(memory_format=each)) for each in (torch.channels_last, torch.contiguous_format)]


@lengths("training")
def channels_last_in_training(trial: Trial) -> Any:
    """Gradients of a network in channels last are those of eager, in eager's layout."""
    torch.manual_seed(0)
    net = trial.module(torch.nn.Sequential(torch.nn.Conv2d(4, 8, 3), torch.nn.ReLU(), torch.nn.Conv2d(8, 4, 1)))
    net = net.to(memory_format=torch.channels_last)
    x = trial.tensor(2, 4, 6, 6).to(memory_format=torch.channels_last).requires_grad_()
    y = trial.run(net, x)
    y.square().sum().backward()
    return y, x.grad, [p.grad for p in net.parameters()]


@lengths("training")
def channels_last_between(trial: Trial) -> Any:
    """What compiled layers of images pass back to the layers before them is in channels last, where eager has it."""
    kernel = trial.tensor(8, 4, 3, 3).to(memory_format=torch.channels_last).requires_grad_()
    leaf, found = trial.tensor(2, 4, 6, 6, requires_grad=True), []
    x = (leaf * 1).to(memory_format=torch.channels_last)
    y = trial.run(lambda x, w: F.max_pool2d(F.conv2d(x.relu(), w), 2), x, kernel)
    x.register_hook(lambda gradient: found.append(gradient.stride()))
    y.square().sum().backward()
    return y, found, leaf.grad, kernel.grad


@lengths()
def what_the_end_decides(trial: Trial) -> Any:
    """Reductions of all elements that the last one decides, after whole vectors of any number of elements."""
    given = []
    for n in (9, 17, 33, 65, 130):
        x = trial.tensor(n, low=0.9, high=1.1)
        x[-1] = 3.0
        given.append(x)

    def f(given: list[torch.Tensor]) -> list[Any]:
        return [
            (x.prod(), (x > 2).any(), (x < 2).all(), x.argmax(), (-x).argmin(), (-x).amin(), x.cumprod(0)[-1], x.norm(),
             (x > 2).sum(), x.var())
            for x in given
        ]  # fmt: skip

    return trial.run(f, given)


@lengths(terms=5000)
def long_scans(trial: Trial) -> Any:
    """What runs along more than a thousand elements goes on from block to block, in one row and in several."""
    given = [trial.tensor(n, low=0.999, high=1.001) for n in (1023, 1025, 2049, 5000)]
    rows = trial.tensor(3, 1500, low=0.999, high=1.001)

    def f(given: list[torch.Tensor], rows: torch.Tensor) -> list[Any]:
        found: list[Any] = [
            (x.cumsum(0), x.cumprod(0), x.cummax(0), x.cummin(0), x.logcumsumexp(0), (x > 1).cumsum(0)) for x in given
        ]
        return [*found, rows.cumsum(1), rows.t().cumsum(0), rows.cumprod(1), rows.cummax(1).indices]

    return trial.run(f, given, rows)


@lengths(reference=False)
def narrow_types(trial: Trial) -> Any:
    """Narrow types have other lengths of vectors: bytes, bools and short integers of 1 to 65 elements."""
    dtypes = torch.int8, torch.uint8, torch.int16, torch.bool
    given = [trial.tensor(n, dtype=t, low=0, high=9) for n in (1, 7, 15, 16, 17, 31, 33, 63, 65) for t in dtypes]
    return trial.run(lambda given: [(x + 1, x.sum(), x == 1, x.float() * 0.5, x.flip(0)) for x in given], given)


@lengths("bfloat16", "float16")
def half_types(trial: Trial) -> Any:
    """Half precision of 1 to 65 elements."""
    given = [trial.tensor(n, dtype=t) for n in (1, 7, 15, 17, 31, 33, 63, 65) for t in (torch.bfloat16, torch.float16)]
    return trial.run(lambda given: [(x * 3, x.sum(), x.amax(), x.float() + 1) for x in given], given)


@lengths()
def sizes_of_one(trial: Trial) -> Any:
    """Dimensions of size one are broadcast, summed and kept as in eager; code for one is not used for two."""
    compiled = trial.compile(lambda x, y: (x + y, (x * y).sum(0), x.mean(1, keepdim=True) - y))
    sizes = ((1, 4), (3, 4)), ((3, 4), (1, 4)), ((3, 1), (1, 4)), ((2, 4), (2, 4)), ((1, 1), (3, 1))
    return [compiled(trial.tensor(*a), trial.tensor(*b)) for a, b in sizes]


@lengths(terms=16)
def beyond_usual_sizes(trial: Trial) -> Any:
    """More rows, matrices, words, parts and dimensions than fit the counters of small programs."""

    def f(
        rows: torch.Tensor, one: torch.Tensor, other: torch.Tensor, words: torch.Tensor, deep: torch.Tensor
    ) -> list[torch.Tensor]:
        parts = [words[at : at + 3] * (at + 1) for at in range(40)]
        return [
            rows.sum(1), rows.amax(1), rows.softmax(1), one @ other, rows[words[:, 0].long()], torch.cat(parts),
            torch.stack(parts).sum(1), deep.sin() + deep.permute(5, 4, 3, 2, 1, 0), deep.sum((1, 4)),
            deep.amax((0, 2, 5)), deep.transpose(1, 4).softmax(2),
        ]  # fmt: skip

    words = torch.arange(69_950, 70_000, device=trial.device).repeat_interleave(2).view(50, 2)
    given = trial.tensor(70_000, 3), trial.tensor(1_100, 2, 3), trial.tensor(1_100, 3, 2), words
    return trial.run(f, *given, trial.tensor(2, 2, 2, 2, 2, 2))


@lengths(reference=False)
def beyond_exact_counts(trial: Trial) -> Any:
    """Counts, places and elements beyond 16,777,216, up to which float32 has all integers, and beyond a million."""
    flags = torch.ones(2**24 + 5, dtype=torch.bool, device=trial.device)
    places, x = torch.zeros(2**24 + 5, dtype=torch.uint8, device=trial.device), trial.tensor(2**20 + 5)
    places[-2] = 3

    def f(flags: torch.Tensor, places: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return flags.sum(), flags.count_nonzero(), places.argmax(), places.sum(), (~flags).any()

    return trial.run(f, flags, places), trial.run(lambda x: x * 2 + 1, x)
