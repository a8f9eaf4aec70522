"""Native on a GPU, run by ``pytest -m gpu`` where there is one: tiny models in all modes beside eager and float64."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import torchmux
from torchmux.backends.native.targets.triton import compiling
from torchmux.config import config
from torchmux.demo.models import MODELS
from torchmux.demo.trial import error_against, floats

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]
STEPS = 20


@pytest.fixture(scope="module", autouse=True)
def exact_and_cached(tmp_path_factory) -> Iterator[None]:
    """Products in full float32, and one cache for all tests, as a program has."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    # Settings of cuDNN may not be assigned once torch.testing is imported.
    exact = torch.backends.cudnn.flags(enabled=True, allow_tf32=False)
    with exact, config.patch(cache_dir=tmp_path_factory.mktemp("cache")):
        yield
    torch.backends.cuda.matmul.allow_tf32 = before


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torchmux.reset()
    yield
    torchmux.reset()
    torch.cuda.synchronize()  # what went wrong in this test is not told of another one


def compiled(function: Any, mode: str = "default", **keywords: Any) -> Any:
    return torchmux.compile(function, backend="native", mode=mode, **keywords)


def model_of(name: str) -> torch.nn.Module:
    """A tiny model on the GPU, that drops nothing: dropout draws other numbers than eager does."""
    model = MODELS[name].build("tiny")
    for module in model.modules():
        for attribute in ("p", "dropout", "dropout_prob", "attn_dropout", "attention_dropout", "attn_pdrop"):
            if isinstance(getattr(module, attribute, None), float):
                setattr(module, attribute, 0.0)
    return model.cuda()


def inputs_of(name: str, model: torch.nn.Module, seed: int, batch: int = 4) -> dict[str, torch.Tensor]:
    made = MODELS[name].example_with_targets if model.training else MODELS[name].example
    return {k: v.cuda() for k, v in made(model, "tiny", batch, seed).items()}


def assert_recorded(call: Any) -> None:
    """No call was launched kernel by kernel."""
    notes = [note for entry in torchmux.report(call).graphs for note in entry.report.notes]
    assert not [note for note in notes if "one by one" in note or "recording failed" in note]


def assert_own(call: Any) -> None:
    """Native runs the graphs, and torch does not."""
    report = torchmux.report(call)
    assert not report.breaks
    assert report.share == 1.0, report


# --- models -----------------------------------------------------------------------------------------------------------

IN_MODES = [(name, mode) for mode in ("default", "reduce-overhead") for name in MODELS] + [("bert", "max-autotune")]


@pytest.mark.parametrize(("name", "mode"), IN_MODES)
def test_inference(name: str, mode: str) -> None:
    """Within twice eager's own error; results that the program keeps are still right after later calls."""
    model = model_of(name).eval()
    call = compiled(model, mode)
    batches = [inputs_of(name, model, seed) for seed in range(4)]
    with torch.no_grad():
        found = [floats(call(**each)) for each in batches]
        expected = [floats(model(**each)) for each in batches]
        wide = copy.deepcopy(model).double()
        for each, ours, eager in zip(batches, found, expected, strict=True):
            exact = floats(wide(**{k: v.double() if v.is_floating_point() else v for k, v in each.items()}))
            assert error_against(exact, ours) <= 2 * error_against(exact, eager) + 2e-6
    assert_own(call)
    assert_recorded(call)


@pytest.mark.parametrize(("name", "mode"), IN_MODES[:-1])
def test_training(name: str, mode: str) -> None:
    """20 losses follow eager's, and gradients that the program keeps are still right after later steps."""
    ours, eager = (model_of(name).train() for _ in range(2))
    eager.load_state_dict(ours.state_dict())
    call = compiled(ours, mode)
    batch = inputs_of(name, ours, 0)

    def train(model: torch.nn.Module, call: Callable[..., Any]) -> tuple[list[float], list[torch.Tensor]]:
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
        losses, kept = [], []
        for step in range(STEPS):
            loss = call(**batch).loss
            loss.backward()
            if step == 2:  # the third call replays what the second one has recorded
                kept = [p.grad for p in model.parameters() if p.grad is not None]
                wanted = [g.clone() for g in kept]
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.detach())
        assert all(map(torch.equal, kept, wanted))
        return [float(loss) for loss in losses], wanted

    losses, gradients = train(ours, call)
    wanted, others = train(eager, eager)
    assert losses == pytest.approx(wanted, rel=2e-3, abs=1e-4)
    assert len(gradients) == len(others) > 0
    largest = max(float(g.abs().max()) for g in others)
    for one, other in zip(gradients, others, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-2, atol=1e-3 * largest)
    assert_recorded(call)
    for name, statistic in ours.named_buffers():
        torch.testing.assert_close(statistic, eager.get_buffer(name), rtol=1e-3, atol=1e-4)


def test_half_precision_and_autocast() -> None:
    model, x = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.LayerNorm(256)).cuda(), None
    x = torch.randn(32, 64, device="cuda")
    exact = copy.deepcopy(model).double()(x.double())
    call = compiled(model)
    with torch.autocast("cuda", torch.bfloat16):
        ours, eager = call(x), model(x)
    assert ours.dtype is eager.dtype
    assert error_against([exact], [ours]) <= 2 * error_against([exact], [eager]) + 1e-3
    ours.sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


# --- kernels ----------------------------------------------------------------------------------------------------------


def of_all_kinds(x: torch.Tensor, at: torch.Tensor) -> tuple[torch.Tensor, ...]:
    rows = F.embedding(at, x)
    return (
        x.softmax(-1), x.softmax(0), x.sum(), x.argmax(-1), x.t().contiguous() + 1, x.cumsum(1), rows.sum(1),
        torch.cat([x, x.relu()], 1), F.layer_norm(x, x.shape[-1:]), x.index_add(0, at.flatten(), rows.flatten(0, 1)),
        F.pad(x, (1, 2)), x.var(0), x.std(1), F.cross_entropy(x, at[: x.shape[0], 0].expand(x.shape[0]) % x.shape[1]),
    )  # fmt: skip


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_sizes_of_a_call(mode: str) -> None:
    """One graph for all sizes, and one recording for each."""
    call = compiled(of_all_kinds, mode, dynamic=True)
    for rows, columns in ((7, 33), (64, 64), (1, 20_001), (700, 40), (64, 64), (7, 33)):
        x = torch.randn(rows, columns, device="cuda")
        at = torch.randint(0, rows, (max(rows, 2), 3), device="cuda")
        for ours, eager, exact in zip(call(x, at), of_all_kinds(x, at), of_all_kinds(x.double(), at), strict=True):
            if ours.is_floating_point():
                allowed = 2 * (eager.double() - exact).abs().max() + 1e-5 * exact.abs().max()
                assert (ours.double() - exact).abs().nan_to_num().max() <= allowed.nan_to_num() + 1e-6
            else:
                assert torch.equal(ours, eager)
    assert torchmux.report(call).graph_count <= 3  # 1 is a size of its own


def test_equal_text_with_other_blocks_and_types() -> None:
    def function(*given: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(x.abs() for x in given)

    given = [torch.randint(-9, 9, (size,), device="cuda") for size in (4096, 1 << 20, 1 << 24)]
    given += [x.to(torch.int32) for x in given] + [x.to(torch.int16) for x in given]
    for ours, expected in zip(compiled(function)(*given), function(*given), strict=True):
        assert torch.equal(ours, expected)


def test_more_than_two_billion_bytes() -> None:
    """Offsets do not wrap around."""
    x = torch.ones(2**31 + 2**20, dtype=torch.int8, device="cuda")
    found = compiled(lambda x: (x * 2 + 1, (x[::2] == 1).sum()))(x)
    assert int(found[0].min()) == int(found[0].max()) == 3
    assert int(found[1]) == x.numel() // 2


def test_sizes_of_a_call_decide_about_the_type_of_indices(monkeypatch) -> None:
    """Kernels count in 32 bits where the sizes of a call allow it, and in 64 where they do not, in one graph."""
    made = []
    compile_all = compiling.compile_all
    monkeypatch.setattr(compiling, "compile_all", lambda jobs, of: made.append(jobs) or compile_all(jobs, of))
    call = compiled(lambda x: (x.roll(1, 1) * 2 + 1, x.t().sum(0)), dynamic=True)
    for rows, columns in ((3, 50), (2**10, 2**21 + 2**11), (4, 70)):
        x = torch.ones(rows, columns, dtype=torch.int8, device="cuda")
        x[:, -1] = 5
        found, sums = call(x)
        assert (found[:, 0] == 11).all() and (found[:, 1:] == 3).all()
        assert (sums == columns + 4).all()
        del found
    assert torchmux.report(call).graph_count == 1
    assert len(made) > 1 and all(set(job.signature.values()) & {"i64"} for job in made[1])


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_inputs_that_overlap_themselves_at_odd_addresses(mode: str) -> None:
    row = torch.randn(67, device="cuda")
    call = compiled(lambda x: x.sum(0) * 2, mode)
    for x in (row[1:].expand(5, 66), row[1:].unfold(0, 8, 1), row[3:].expand(5, 64), row[3:].unfold(0, 4, 2)):
        torch.testing.assert_close(call(x), x.sum(0) * 2)


def test_tensors_on_the_cpu() -> None:
    """A constant, and an input that is returned as it is, too."""
    there = torch.arange(4.0)

    def function(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x / torch.tensor([1.0, 2, 3, 4]).to(x.device), y.to(x.device) * x, y.to(x.device) + 1, y

    call, x = compiled(function), torch.randn(3, 4, device="cuda")
    for y in (there, there[1:].repeat(2)[:4]):
        torch.testing.assert_close(call(x, y), function(x, y))


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_writing_to_inputs(mode: str) -> None:
    """An input that lies otherwise than the code expects, and one that starts at an odd address."""

    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.mul_(2).add_(y)
        return x.sum(-1)

    call = compiled(step, mode)
    y = torch.randn(32, 32, device="cuda")
    backing = torch.randn(32 * 32 + 1, device="cuda")
    shapes = [y.clone(), y.clone(), y.t().clone().t(), backing[1:].view(32, 32), y.clone()]
    for x in shapes:
        expected = x.clone()
        wanted = step(expected, y)
        version = x._version
        torch.testing.assert_close(call(x, y), wanted)
        torch.testing.assert_close(x, expected)
        assert x._version > version


def test_dropout() -> None:
    """About the wanted share is dropped, another one in each call, also where kernels are replayed."""
    call = compiled(lambda x: F.dropout(x * 2, 0.25), "reduce-overhead")
    x = torch.ones(1 << 20, device="cuda", requires_grad=True)
    masks = []
    for _ in range(4):
        y = call(x)
        y.sum().backward()
        assert torch.equal(x.grad != 0, y != 0)
        torch.testing.assert_close(y.max(), torch.tensor(2 / 0.75, device="cuda"))
        assert abs(float((y != 0).float().mean()) - 0.75) < 0.005
        masks.append((y != 0).clone())
        x.grad = None
    assert not any(torch.equal(masks[0], mask) for mask in masks[1:])


# --- streams, errors, processes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.uint8], ids=str)
def test_extremes_so_far(dtype: torch.dtype) -> None:
    """A nan stays, and the position is that of the last extreme; rows of several blocks go on from each other."""

    def function(x: Any) -> Any:
        return x.cummax(0), x.cummin(0), x.cummax(-1), x.cummin(-1), x.view(-1).cummax(0)

    x = torch.randn(9, 3001, device="cuda") * 3
    if dtype.is_floating_point:
        x.view(-1)[[0, 2, 300, 7000]] = -torch.inf
        x.view(-1)[[40, 4700, 9000]] = torch.nan
        x.view(-1)[6000] = torch.inf
    x = x.abs().to(dtype) if dtype is torch.uint8 else x.to(dtype)
    call = compiled(function)
    torch.testing.assert_close(call(x), function(x), rtol=0, atol=0, equal_nan=True)
    assert_own(call)
    assert not torchmux.report(call).library_calls


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_logarithms_of_running_sums(dtype: torch.dtype) -> None:
    def function(x: Any) -> Any:
        return x.logcumsumexp(0), x.logcumsumexp(-1)

    x = torch.randn(7, 2501, device="cuda", dtype=dtype) * 9
    x[1, :3], x[2, 9], x[3, 4], x[4, 2000] = -torch.inf, torch.inf, torch.nan, 80
    call = compiled(function)
    for found, eager, exact in zip(call(x), function(x), function(x.double()), strict=True):
        assert torch.equal(found.isnan(), eager.isnan())
        numbers = eager.isfinite()
        assert torch.equal(found[~numbers].nan_to_num(), eager[~numbers].nan_to_num())
        errors = [(each.double() - exact)[numbers].abs().max() for each in (found, eager)]
        assert errors[0] <= 2 * errors[1] + 4 * torch.finfo(dtype).eps * exact[numbers].abs().max()
    assert not torchmux.report(call).library_calls


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_rows_that_are_written_in_another_order(dtype: torch.dtype) -> None:
    """One kernel, whose stores lie apart; of many points there are two."""

    def function(x: Any) -> Any:
        return x.softmax(1).contiguous(), F.layer_norm(x.permute(0, 2, 3, 1), (x.shape[1],)).permute(0, 3, 1, 2).clone()

    for side in (11, 150):
        x = torch.randn(3, 17, side, side, device="cuda", dtype=dtype).contiguous(memory_format=torch.channels_last)
        call = compiled(function)
        for found, eager, exact in zip(call(x), function(x), function(x.double()), strict=True):
            assert found.stride() == eager.stride()
            assert error_against(exact, found) <= 2 * error_against(exact, eager) + 2e-6


def test_what_is_computed_again() -> None:
    """Where a value is read at other points than those where it is computed, its bits are eager's."""

    def function(a: Any, b: Any, places: Any) -> Any:
        sides = (torch.minimum(a[:, None, 2:], b[None, :, 2:]) - torch.maximum(a[:, None, :2], b[None, :, :2])).clamp(0)
        areas = [(x[:, 2] - x[:, 0]) * (x[:, 3] - x[:, 1]) for x in (a, b)]
        common = sides[..., 0] * sides[..., 1]
        apart = a[:, None] - b
        rows = (a * 2 + 1)[(places * 0.5).floor().long()]
        return common / (areas[0][:, None] + areas[1] - common), apart.abs().amax(-1).argmin(-1), rows

    a, b = torch.rand(57, 4, device="cuda"), torch.rand(31, 4, device="cuda")
    call = compiled(function)
    for found, eager in zip(call(a, b, a[:, 0] * 99), function(a, b, a[:, 0] * 99), strict=True):
        assert torch.equal(found.nan_to_num(), eager.nan_to_num())
    assert_own(call)


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2], ids=str)
def test_numbers_of_8_bits(dtype: torch.dtype) -> None:
    """All 256 as other numbers, all numbers of half precision as them, and a weight of a product."""
    every = torch.arange(256, device="cuda").to(torch.uint8).view(dtype)
    halves = torch.arange(2**16, device="cuda").to(torch.int16).view(torch.float16)

    def function(x: Any, y: Any) -> Any:
        return x.float(), x.view(16, 16)[3:].to(torch.bfloat16) * 2, y.to(dtype), (y.float() * 0.37).to(dtype)

    call = compiled(function)
    for found, eager in zip(call(every, halves), function(every, halves), strict=True):
        assert found.dtype is eager.dtype
        numbers = found.float(), eager.float()
        assert torch.equal(numbers[0].isnan(), numbers[1].isnan())
        assert torch.equal(numbers[0].nan_to_num(), numbers[1].nan_to_num())
    assert torchmux.report(call).share == 1.0


@pytest.mark.parametrize("mode", ["reflect", "replicate"])
def test_borders(mode: str) -> None:
    def function(x: Any) -> Any:
        wide = F.pad(x, (3, 0, 2, 4), mode=mode)
        return wide, F.pad(x[0], (2, 5), mode=mode).tanh(), F.avg_pool2d(wide, 3, 1), F.adaptive_avg_pool2d(x, (4, 5))

    for layout in (torch.contiguous_format, torch.channels_last):
        x = torch.randn(2, 3, 9, 11, device="cuda").contiguous(memory_format=layout)
        call = compiled(function)
        for found, eager in zip(call(x), function(x), strict=True):
            assert found.stride() == eager.stride()
            torch.testing.assert_close(found, eager)
        assert not torchmux.report(call).library_calls


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_streams(mode: str) -> None:
    """Kernels run on the stream of the call."""
    weight = torch.randn(2048, 2048, device="cuda")

    def function(x: torch.Tensor) -> torch.Tensor:
        for _ in range(4):
            x = torch.tanh(x @ weight) * 0.5
        return x

    call = compiled(function, mode)
    x = torch.randn(2048, 2048, device="cuda")
    expected = function(x)
    first, second = torch.cuda.Stream(), torch.cuda.Stream()
    for _ in range(4):
        results = []
        for stream in (first, second, torch.cuda.current_stream()):
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                results.append(call(x))
        torch.cuda.synchronize()
        for result in results:
            torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-4)


PROGRAM = """
import json, sys
import torch, torchmux

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.norm, self.b = torch.nn.Linear(48, 96), torch.nn.LayerNorm(96), torch.nn.Linear(96, 8)
    def forward(self, x):
        return self.b(torch.nn.functional.gelu(self.norm(self.a(x))).softmax(-1))

def table_at(table, at):
    return table[at] * 2

if __name__ == "__main__":
    torch.manual_seed(0)
    if sys.argv[1] == "index":
        call = torchmux.compile(table_at, backend="native")
        table, at = torch.randn(10, 4, device="cuda"), torch.tensor([1, 10], device="cuda")
        print(call(table, at % 10).shape)
        try:
            call(table, at)
            torch.cuda.synchronize()
        except Exception as error:
            print("raised", type(error).__name__, str(error)[:200])
        sys.stdout.flush()
        import os
        os._exit(0)  # the device is lost
    net = Net().cuda()
    call = torchmux.compile(net, backend="native")
    x = torch.randn(16, 48, device="cuda")
    for _ in range(2):
        loss = call(x).square().mean()
        loss.backward()
    entry, = torchmux.report(call).graphs
    print(json.dumps([float(loss), entry.report.cache_hits, torchmux.report(call).share]))
"""


def start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    program = folder / "program.py"
    program.write_text(PROGRAM)
    command = [sys.executable, "-P", str(program), *arguments]
    environment = {"TORCHMUX_CACHE_DIR": str(folder / "cache")}
    return subprocess.Popen(
        command,
        cwd=folder,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> str:
    printed, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors[-3000:]
    return printed


def test_processes(tmp_path) -> None:
    """Two at once compile for the same GPU; a third one loads what they have made; an index out of range is told."""
    both = [start(tmp_path, "train") for _ in range(2)]
    told = [json.loads(finish(process)) for process in both]
    third, wrong = start(tmp_path, "train"), start(tmp_path, "index")
    told.append(json.loads(finish(third)))
    losses, hits, shares = zip(*told, strict=True)
    assert losses == pytest.approx([losses[0]] * 3)
    assert hits[2] > 0 and set(shares) == {1.0}
    printed = finish(wrong)
    assert "torch.Size([2, 4])" in printed and "raised" in printed


ROUGH: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "exp": torch.exp,
    "silu": F.silu,
    "sigmoid": torch.sigmoid,
    "sqrt": torch.sqrt,
    "reciprocal": lambda x: 3.0 / x,
    "power": lambda x: x**2.5,
    "itself": lambda x: x / x,
}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", ROUGH)
def test_all_numbers_of_half_precision(name: str, dtype: torch.dtype) -> None:
    """Functions that are some units of float32 off give what is nearest, or one beside it, and what is special."""
    x = torch.arange(-(2**15), 2**15, device="cuda").to(torch.int16).view(dtype)
    got, eager = compiled(ROUGH[name])(x), ROUGH[name](x)
    torch.testing.assert_close(got.isnan(), eager.isnan(), rtol=0, atol=0)
    torch.testing.assert_close(got.isinf(), eager.isinf(), rtol=0, atol=0)
    exact = ROUGH[name](x.double())
    unit = torch.finfo(dtype).eps * exact.abs().clamp(min=torch.finfo(dtype).tiny)
    mine, its = ((found.double() - exact).abs() / unit for found in (got, eager))
    # Eager, too, finds nothing where an exponential on the way is infinite.
    assert bool((mine <= its.clamp(min=0.51))[eager.isfinite()].all())
