"""Small graphs through the native backend: numbers, layouts, dtypes, fusion."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import torchmux
from torchmux.config import config

from .conftest import both_targets

pytestmark = [both_targets, pytest.mark.usefixtures("target")]


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.norm, self.two = nn.Linear(64, 128), nn.LayerNorm(128), nn.Linear(128, 10)

    def forward(self, x):
        return torch.softmax(self.two(F.gelu(self.norm(self.one(x)))), -1)


def test_a_network(check, target) -> None:
    report = check(Mlp(), torch.randn(8, 64))
    assert report.share == 1.0
    assert report.partitions == 1
    # All is native's own code but matrix products, which the CPU's code calls without torch.
    assert [p.library for p in report.library_calls] == ["BLAS gemm" if target == "cpu" else "aten.mm.default"] * 2


@pytest.mark.parametrize("shape", [(64, 1024), (3, 5, 77), (2, 1), (1, 640), (4, 16), (1,), (3, 20000)])
def test_rows(check, shape) -> None:
    def f(x):
        y = (x * 2 + 1).softmax(-1) * x
        return y.mean(-1), F.layer_norm(y + x, shape[-1:]), F.log_softmax(x, -1), x.amax(-1, keepdim=True) - x

    check(f, torch.randn(shape))


def test_a_result_is_no_place_to_keep_what_another_one_needs(check) -> None:
    """Rows that fit into no scratch memory wait where a later result will stand, if nothing reads them after that."""

    def f(x):
        return x.softmax(-1), F.layer_norm(x, x.shape[-1:]), F.log_softmax(x, -1)

    check(f, torch.randn(7, 33), dynamic={0: [0, 1]})
    check(f, torch.randn(2, 20_001))


@pytest.mark.parametrize("shape", [(130, 70), (3, 1000), (5, 4, 33), (70, 2, 3)])
def test_columns_and_whole_sums(check, shape) -> None:
    def f(x):
        return x.sum(0), x.mean(), x.amax(0), (x * x).sum(), x.softmax(0), x.var(1), x.std(0), x.amin(), x.sum((0, -1))

    check(f, torch.rand(shape))


def test_long_sums(check) -> None:
    check(lambda x: (x.sum(), x.mean(1), x.max(), x.argmax(), (x > 0).any(), (x > 9).all()), torch.randn(3, 100_000))


def test_where_the_extremum_is(check) -> None:
    x = torch.randint(-5, 5, (33, 50)).float()

    def f(x):
        most, least = x.max(-1), x.min(0)
        return most[0], most[1], least[0], least[1], x.argmax(), x.argmin(1), x.argmax(0)

    check(f, x)
    check(f, x.long())


def test_nan_and_infinities(check) -> None:
    x = torch.tensor([[1.0, float("nan"), -2.0], [float("inf"), 3.0, -float("inf")]]).repeat(3, 7)

    def f(x):
        return x.amax(-1), x.argmax(-1), x.relu(), torch.maximum(x, -x), x.exp(), x.clamp(-1, 1), x.isnan(), x.isinf()

    check(f, x)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_precisions(check, dtype) -> None:
    def f(x, y):
        z = F.gelu(x @ y + 1)
        return z, z.softmax(-1), z.sum(0), z.float(), (z * 3).to(torch.float32).amax(0), F.layer_norm(z, (24,))

    check(f, torch.randn(20, 16).to(dtype), torch.randn(16, 24).to(dtype))


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8])
def test_integers(check, dtype) -> None:
    def f(x, y):
        return x + y, x * y, x - 3, x // 7, x % 5, x & y, x | 3, x > y, x.sum(), x.amax(0), x.float() / 3, ~x, x.abs()

    low = 0 if dtype is torch.uint8 else -100
    check(f, torch.randint(low, 100, (7, 37)).to(dtype), torch.randint(low, 100, (7, 37)).to(dtype))


def test_bools(check) -> None:
    def f(x, y):
        both = x & y
        return both, ~x, x | y, x ^ y, both.sum(-1), x.any(0), y.all(-1), x.float(), torch.where(x, 1.0, 2.0), x == y

    check(f, torch.rand(9, 40) > 0.5, torch.rand(9, 40) > 0.1)


def test_views(check) -> None:
    def f(x):
        a = x.view(4, 6, 8).permute(1, 0, 2).reshape(6, 32)
        return a + 1, x[1:, ::2] * 2, x.flip(0) + x, x.roll(3, 1), x.t().contiguous(), x[:, None].expand(4, 3, 48) - 1

    check(f, torch.randn(4, 48))


def test_a_loop_that_an_access_divides_is_split(check) -> None:
    def f(x, y):
        return x.transpose(1, 2).reshape(2, 16, 96) * 2, y[:, None].expand(3, 2, 40).reshape(6, 40).sum(0)

    report = check(f, torch.randn(2, 3, 16, 32), torch.randn(3, 40))
    assert "floor_div" not in report.output_code[0]
    assert "gather" not in report.output_code[0]


def test_layouts_are_eagers(check) -> None:
    x = torch.randn(2, 5, 6, 7).contiguous(memory_format=torch.channels_last)
    check(lambda x: (x * 2, (x + 1).relu().sum((2, 3)), x.permute(3, 1, 0, 2).sin()), x)
    check(lambda x: (x * 2).sum(1), torch.randn(8, 30).t())


def test_joining(check) -> None:
    def f(x, y):
        return torch.cat([x, y * 2], 1), torch.stack([x, x + 1], 1), F.pad(x, (1, 2, 3, 0), value=5.0), x.repeat(2, 3)

    check(f, torch.randn(5, 17), torch.randn(5, 4))


def test_rotary_embedding(check) -> None:
    def f(x, angle):
        half = x.shape[-1] // 2
        turned = torch.cat((-x[..., half:], x[..., :half]), -1)
        return x * angle.cos() + turned * angle.sin()

    check(f, torch.randn(2, 4, 10, 16), torch.randn(10, 16))


def test_reading_where_data_says(check) -> None:
    def f(table, rows, x):
        picked = F.embedding(rows, table)
        return picked * 2, x[rows[0]], x.gather(1, rows), x.index_select(0, rows[1]), F.layer_norm(picked, (33,))

    check(f, torch.randn(9, 33), torch.randint(0, 7, (7, 5)), torch.randn(9, 12))


def test_padding_what_is_read_where_data_says(check) -> None:
    """The frame has no index to read or to verify."""

    def f(table, rows, x):
        return F.pad(F.embedding(rows, table), (0, 0, 3, 2)), F.pad(x[rows + 1], (1, 2))

    check(f, torch.randn(9, 33), torch.randint(0, 9, (7,)), torch.randn(10, 3))


def test_an_index_out_of_range_is_an_error(capture) -> None:
    table, rows = torch.randn(9, 33), torch.tensor([[1, 2], [3, 4]])
    captured = capture(lambda t, r: F.embedding(r, t) + 1, table, rows)
    compiled = captured.compile("native", strict=True)
    captured.run(compiled, table, rows)
    for wrong in (9, -1, 10**12):
        with pytest.raises(IndexError):
            captured.run(compiled, table, torch.tensor([[1, 2], [wrong, 4]]))
    captured.run(compiled, table, rows)


def test_writing_to_inputs(capture) -> None:
    def f(x, y):
        x.add_(1)
        y.mul_(x.sum(-1, keepdim=True))
        return x * y

    given, reference = (torch.randn(4, 20), torch.randn(4, 20)), None
    reference = [t.clone() for t in given]
    captured = capture(f, *[t.clone() for t in given])
    compiled = captured.compile("native")
    wanted = f(*reference)
    mine = [t.clone() for t in given]
    torch.testing.assert_close(captured.run(compiled, *mine), wanted)
    torch.testing.assert_close(mine, reference)


def test_inputs_in_another_layout_than_at_first(capture) -> None:
    x = torch.randn(6, 9)
    captured = capture(lambda x: x.softmax(-1), x)
    compiled = captured.compile("native")
    other = torch.randn(9, 6).t()
    torch.testing.assert_close(captured.run(compiled, other), other.softmax(-1))


def test_nothing_to_do(check) -> None:
    check(lambda x: (x + 1, x.sum(), x.sum(0)), torch.randn(0, 5))
    check(lambda x: (x + 1, x.exp()), torch.tensor(2.0))
    check(lambda x, y: (x @ y, x.sum(1), x.softmax(0)), torch.randn(3, 0), torch.randn(0, 4))


def test_one_kernel_for_a_chain(check, monkeypatch) -> None:
    from torchmux.backends.native import generate
    from torchmux.backends.native.schedule.kernel import Kernel

    kernels = []
    schedule = generate.schedule

    def spy(*args, **kwargs):
        made = schedule(*args, **kwargs)
        kernels.append(sum(isinstance(step, Kernel) for step in made.steps))
        return made

    monkeypatch.setattr(generate, "schedule", spy)
    check(lambda x: ((x.sin() + 1) * x.exp()).softmax(-1).mean(-1), torch.randn(64, 100))
    check(lambda x: ((x.sin() + 1) * x.exp()).softmax(-1).mean(-1), torch.randn(64, 100), options={"fusion": False})
    assert kernels[0] == 1
    assert kernels[1] > 3


def test_random_numbers_are_torchs(capture) -> None:
    captured = capture(lambda x: F.dropout(x * 2, 0.5, True) + torch.rand_like(x), torch.randn(50, 20))
    compiled = captured.compile("native", strict=True)
    x = torch.randn(50, 20)
    torch.manual_seed(3)
    got = captured.run(compiled, x)
    torch.manual_seed(3)
    torch.testing.assert_close(got, F.dropout(x * 2, 0.5, True) + torch.rand_like(x))


def test_complex_numbers_are_left_to_torch_on_a_gpu(capture, target: str) -> None:
    x = torch.randn(4, 4, dtype=torch.complex64)
    captured = capture(lambda x: (x * 2).abs(), x)
    compiled = captured.compile("native")
    torch.testing.assert_close(captured.run(compiled, x), (x * 2).abs())
    assert bool(compiled.report.fallbacks) == (target != "cpu")
    assert all("complex64" in p.reason for p in compiled.report.fallbacks)


@pytest.mark.parametrize("rows", [2, 3, 17, 64])
def test_one_program_for_every_size(capture, tmp_path, rows: int) -> None:
    def f(x, y):
        wide = torch.cat([x, x * 2], 0)
        return x.softmax(0), wide[1:], x.sum(), x.mean(1), x.t().contiguous(), F.gelu(x @ y), wide.view(2, -1).amax(1)

    from torchmux.config import config

    first = torch.randn(5, 30), torch.randn(30, 7)
    with config.patch(cache_dir=tmp_path):
        captured = capture(f, *first, dynamic={0: [0]})
        compiled = captured.compile("native", strict=True)
    given = torch.randn(rows, 30), first[1]
    for a, b in zip(captured.run(compiled, *given), f(*given), strict=True):
        torch.testing.assert_close(a, b)
        assert a.stride() == b.stride()


def test_outputs_with_strides_of_their_own(check) -> None:
    def f(x):
        y = x * 2
        return (
            y.expand(3, 4, 5),
            (x + 1)[:, None].expand(4, 7, 5),
            y.sum(0).expand(2, 5),
            x.new_empty_strided((2, 3), (7, 2)).fill_(3) * 2,
        )

    check(f, torch.randn(4, 5))


def test_writing_where_data_says(check) -> None:
    def f(x, rows, source):
        y = x * 2
        put = y.index_put((rows,), source, accumulate=True)
        return (
            put + 1,
            y - 1,
            torch.zeros(9, 5).to(x).scatter_add(0, rows[:, None].expand(6, 5), source),
            x.index_add(0, rows, source),
        )

    check(f, torch.randn(9, 5), torch.tensor([1, 4, 4, 0, 8, 1]), torch.randn(6, 5))


def test_the_gradient_of_an_embedding(capture) -> None:
    table, rows = torch.randn(11, 6, requires_grad=True), torch.randint(0, 11, (4, 7))
    captured = capture(lambda t, r: F.embedding(r, t).tanh().pow(2).sum(), table, rows)
    compiled = captured.compile("native", training=True, strict=True)
    (got,) = torch.autograd.grad(captured.run(compiled, table, rows), table)
    (wanted,) = torch.autograd.grad(F.embedding(rows, table).tanh().pow(2).sum(), table)
    torch.testing.assert_close(got, wanted)


def test_code_for_one_sign_is_not_taken_for_the_other(tmp_path) -> None:
    """Two graphs that differ in nothing but what their symbol may be."""

    def f(x, s, i):
        if i >= 0:
            return torch.select_scatter(x, s, 0, i) * 2
        return torch.select_scatter(x, s, 0, i) * 2

    with config.patch(cache_dir=tmp_path):
        for _ in range(2):  # the second time from the cache
            torchmux.reset()
            compiled = torchmux.compile(f, backend="native", dynamic=True)
            for i in (1, 2, -1, -3, 4):
                x, s = torch.randn(5, 5), torch.randn(5)
                torch.testing.assert_close(compiled(x, s, i), f(x, s, i))
    torchmux.reset()


def test_positions_from_the_end_that_are_known_at_run_time() -> None:
    """An integer argument that changes is a symbol as sizes are, but it may be negative."""

    def taken(x, s, i):
        return x[i] + 1, x[:, i] * 2, torch.select_scatter(x, s, 1, i), x.select(2, i).sum(0)

    def of_a_symbolic_size(x, s, i):
        return x[i] + 1, torch.select_scatter(x, s, 0, i)

    torchmux.reset()
    for function, dynamic in ((taken, None), (of_a_symbolic_size, True)):
        compiled = torchmux.compile(function, backend="native", dynamic=dynamic)
        for i in (1, 2, -1, -3, 4, -5):
            x, s = torch.randn(5, 5, 5), torch.randn(5, 5)
            for got, wanted in zip(compiled(x, s, i), function(x, s, i), strict=True):
                torch.testing.assert_close(got, wanted)
        shares = [entry.report.share for entry in torchmux.report(compiled).graphs]
        assert function is of_a_symbolic_size or shares == [1.0] * len(shares)
    torchmux.reset()


def test_parts_of_one_tensor_in_different_stages_of_a_kernel():
    """The gradient joins a sum, which is known after a loop, with products, which are written in it."""

    def f(x):
        a, b = x.split([1, 3], 1)
        return a * b

    x = torch.randn(3, 4, 5, requires_grad=True)
    compiled = torchmux.compile(f, backend="native", strict=True)
    found, expected = (torch.autograd.grad(run(x).sum(), x)[0] for run in (compiled, f))
    torch.testing.assert_close(found, expected)


def test_sizes_that_depend_on_data():
    """torch computes what has them; they are read, and checked, between the parts of the graph."""

    def f(x):
        return torch.bincount(x[0], minlength=4) + torch.bincount(x[1], minlength=4), x[0][x[1] > 1].float() * 2

    compiled = torchmux.compile(f, backend="native", fullgraph=True)
    for x in (torch.tensor([[0, 1, 1], [2, 2, 2]]), torch.tensor([[6, 1, 1], [0, 2, 6]])):
        for got, wanted in zip(compiled(x), f(x), strict=True):
            assert torch.equal(got, wanted)
    with pytest.raises(RuntimeError, match="Runtime assertion failed"):
        compiled(torch.tensor([[9, 1, 1], [2, 2, 2]]))
