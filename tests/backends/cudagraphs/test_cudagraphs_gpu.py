"""cudagraphs on a GPU: bit for bit what eager does, whatever the program holds, moves or changes between calls."""

from __future__ import annotations

import copy
import threading

import pytest
import torch

import torchmux
from torchmux.registry.errors import FallbackRefused

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]


@pytest.fixture(autouse=True)
def _fresh():
    torchmux.reset()
    yield
    torchmux.reset()
    torch.rand(2, device="cuda")  # raises if a recording has left the generator as it was


def _compile(function, **options):
    return torchmux.compile(function, backend="cudagraphs", fullgraph=True, options=options or None)


def _network():
    torch.manual_seed(0)
    layers = torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.LayerNorm(32), torch.nn.Linear(32, 8)
    return torch.nn.Sequential(*layers).cuda()


def _batches(count=5, size=4):
    generator = torch.Generator("cuda").manual_seed(1)
    return [torch.randn(size, 16, device="cuda", generator=generator) for _ in range(count)]


def test_inference():
    model = _network().eval()
    compiled = _compile(model)
    with torch.no_grad():
        for x in _batches():
            assert torch.equal(compiled(x), model(x))
    report = torchmux.report(compiled)
    assert report.graph_count == 1
    assert not report.fallbacks


def test_results_that_are_held_are_not_overwritten():
    model = _network().eval()
    compiled = _compile(model)
    batches = _batches(6)
    with torch.no_grad():
        expected = [model(x) for x in batches]
        found = [compiled(x) for x in batches]
    for a, b in zip(found, expected, strict=True):
        assert torch.equal(a, b)


def test_results_of_a_later_recording_outlive_calls_of_an_earlier_one():
    """What the earlier one has only while it runs is not where the later one puts its results."""

    def first(x):
        for _ in range(4):
            x = (x @ x).tanh()
        return x.sum()

    def second(x):
        return [x + n for n in range(8)]

    first, second = (torchmux.compile(f, backend="cudagraphs") for f in (first, second))
    x = torch.randn(256, 256, device="cuda")
    for _ in range(3):
        first(x)
    for _ in range(3):
        held = second(x)
    for _ in range(3):
        first(x)
    for n, result in enumerate(held):
        assert torch.equal(result, x + n)


def test_a_view_of_a_result_is_held_too():
    compiled = _compile(lambda x: x * 2)
    rows = [compiled(x)[0] for x in _batches()]
    for row, x in zip(rows, _batches(), strict=True):
        assert torch.equal(row, x[0] * 2)


def test_results_go_back_in():
    compiled = _compile(lambda x: x * 1.5 + 1)
    x = y = _batches(1)[0]
    for _ in range(8):
        x, y = compiled(x), y * 1.5 + 1
        assert torch.equal(x, y)


def test_parameters_that_change_and_move():
    model = _network().eval()
    compiled = _compile(model)
    with torch.no_grad():
        for step, x in enumerate(_batches(9)):
            if step % 3 == 1:
                model[0].weight.mul_(1.5)
            if step % 3 == 2:
                model[3].weight.data = torch.randn(8, 32, device="cuda")
            assert torch.equal(compiled(x), model(x))


@pytest.mark.parametrize("set_to_none", [True, False])
def test_training(set_to_none):
    model = _network()
    twin = copy.deepcopy(model)
    compiled = _compile(model)
    losses = []
    for run, owner in ((compiled, model), (twin, twin)):
        optimizer = torch.optim.SGD(owner.parameters(), lr=0.1, momentum=0.9)
        losses.append([])
        for x in _batches(6):
            optimizer.zero_grad(set_to_none=set_to_none)
            loss = run(x).square().mean()
            loss.backward()
            optimizer.step()
            losses[-1].append(loss)
    assert torch.equal(torch.stack(losses[0]), torch.stack(losses[1]))
    for a, b in zip(model.parameters(), twin.parameters(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_resized_images_are_eagers_between_infinite_pixels_too(mode):
    def f(x):
        return torch.nn.functional.interpolate(x, (7, 9), mode=mode)

    for number in (1.0, float("inf")):
        image = torch.rand(1, 4, 5, 5, device="cuda")
        image[0, 0, 1, 0] = number
        given = [image.clone().requires_grad_() for _ in range(2)]
        results = [function(x) for function, x in zip((f, _compile(f)), given, strict=True)]
        for each in results:
            each.nansum().backward()
        assert torch.equal(results[0].nan_to_num(7.0), results[1].nan_to_num(7.0))
        torch.testing.assert_close(given[0].grad, given[1].grad, equal_nan=True)


def test_nearest_neighbors_are_eagers_under_autocast_and_in_channels_last():
    def f(image, volume):
        with torch.autocast("cuda", torch.bfloat16):
            half = torch.nn.functional.conv2d(image, image[:, :, :1, :1])
            return torch.nn.functional.interpolate(half, scale_factor=2), torch.nn.functional.interpolate(
                volume, scale_factor=2
            )

    image = torch.rand(4, 4, 5, 5, device="cuda")
    volume = torch.rand(2, 4, 3, 4, 4, device="cuda").to(memory_format=torch.channels_last_3d)
    for found, eager in zip(_compile(f)(image, volume), f(image, volume), strict=True):
        assert found.dtype is eager.dtype
        assert found.stride() == eager.stride()
        assert torch.equal(found, eager)


def test_two_forwards_before_their_backwards():
    model = _network()
    twin = copy.deepcopy(model)
    compiled = _compile(model)
    for run in (compiled, twin):
        for _ in range(4):
            losses = [run(x).square().mean() for x in _batches(3)]
            for loss in losses:
                loss.backward()
    for a, b in zip(model.parameters(), twin.parameters(), strict=True):
        assert torch.equal(a.grad, b.grad)


def test_random_numbers_are_eagers():
    model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.Dropout(0.5)).cuda()
    compiled = torchmux.compile(model, backend="cudagraphs")
    with torch.no_grad():
        torch.manual_seed(3)
        found = [compiled(x) for x in _batches(5)] + [torch.rand(2, device="cuda")]
        torch.manual_seed(3)
        expected = [model(x) for x in _batches(5)] + [torch.rand(2, device="cuda")]
    for a, b in zip(found, expected, strict=True):
        assert torch.equal(a, b)


def test_buffers_changed_in_forward():
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4)).cuda().train()
    twin = copy.deepcopy(model)
    compiled = _compile(model)
    with torch.no_grad():
        for step in range(5):
            x = torch.randn(2, 3, 8, 8, device="cuda", generator=torch.Generator("cuda").manual_seed(step))
            assert torch.equal(compiled(x), twin(x))
    for a, b in zip(model.buffers(), twin.buffers(), strict=True):
        assert torch.equal(a, b)


def test_inputs_changed_in_place():
    def fn(x):
        x.add_(1)
        return x * 2

    compiled = _compile(fn)
    a, b = _batches(2)
    c, d = a.clone(), b.clone()
    for _ in range(3):
        assert torch.equal(compiled(a), fn(c))
        assert torch.equal(compiled(b), fn(d))
        assert torch.equal(a, c)
        assert torch.equal(b, d)


def test_one_recording_for_each_shape():
    compiled = torchmux.compile(lambda x: x * 2 + 1, backend="cudagraphs", dynamic=True, options={"shape_limit": 2})
    for size in (3, 4, 3, 4, 5, 3, 5, 4):
        for x in _batches(2, size):
            assert torch.equal(compiled(x), x * 2 + 1)
    report = torchmux.report(compiled)
    assert report.graph_count == 1
    assert any("shape_limit" in note for graph in report.graphs for note in graph.report.notes)


def test_expanded_and_strided_inputs():
    compiled = _compile(lambda x, y: (x + 1, x * y))
    for step in range(5):
        x = _batches(step + 1)[-1][0].expand(4, 16)
        y = torch.arange(128.0, device="cuda").view(4, 32)[:, ::2] + step
        for a, b in zip(compiled(x, y), (x + 1, x * y), strict=True):
            assert torch.equal(a, b)
            assert a.stride() == b.stride()


def test_what_waits_for_the_gpu_runs_in_torch():
    def fn(x, scale):
        return (x * 2).sin() * scale

    compiled = torchmux.compile(fn, backend="cudagraphs")
    for step in range(4):
        scale = torch.tensor(float(step))  # on the CPU, another value each time
        x = _batches(1)[0]
        assert torch.equal(compiled(x, scale), fn(x, scale))
    fallbacks = torchmux.report(compiled).fallbacks
    assert [f.op for f in fallbacks] == ["aten.mul.Tensor"]
    assert "on the cpu" in fallbacks[0].reason


def test_strict_refuses():
    compiled = torchmux.compile(lambda x, s: x * s, backend="cudagraphs", strict=True)
    with pytest.raises(FallbackRefused, match="on the cpu"):
        compiled(_batches(1)[0], torch.tensor(2.0))


def test_a_recording_that_fails_does_no_harm(caplog):
    def fn(x):
        return torch.ops.torchmux_test.waits(x * 2) + torch.rand_like(x)

    library = torch.library.Library("torchmux_test", "DEF")
    library.define("waits(Tensor x) -> Tensor")
    library.impl("waits", lambda x: x + float(x.sum()), "CUDA")  # reads a number, which no recording can
    library.impl("waits", torch.empty_like, "Meta")
    compiled = torchmux.compile(fn, backend="cudagraphs")
    torch.manual_seed(0)
    found = [compiled(x) for x in _batches(4)]
    torch.manual_seed(0)
    for a, x in zip(found, _batches(4), strict=True):
        assert torch.equal(a, fn(x))
    torch.rand(3, device="cuda")
    before = torch.cuda.memory_allocated()
    large = torch.empty(2**26, device="cuda")
    assert torch.cuda.memory_allocated() >= before + large.nbytes
    assert "recording failed" in caplog.text
    assert any("recording failed" in (f.reason or "") for f in torchmux.report(compiled).fallbacks)
    with pytest.raises(FallbackRefused, match="recording failed"):
        strict = torchmux.compile(fn, backend="cudagraphs", strict=True)
        for x in _batches(2):
            strict(x)


def test_streams_and_threads(caplog):
    compiled = _compile(lambda x: (x @ x.t()).sin() @ x)
    failures = []

    def work(seed):
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for step in range(20):
                x = torch.randn(64, 64, device="cuda", generator=torch.Generator("cuda").manual_seed(seed + step))
                found, expected = compiled(x), (x @ x.t()).sin() @ x
                stream.synchronize()
                if not torch.equal(found, expected):
                    failures.append(seed + step)

    compiled(torch.randn(64, 64, device="cuda"))
    threads = [threading.Thread(target=work, args=(100 * n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert not caplog.text


def test_in_inference_mode_and_out_of_it():
    model = _network().eval()
    compiled = _compile(model)
    for _ in range(2):
        for x in _batches(4):
            for mode in (torch.inference_mode, torch.no_grad):
                with mode():
                    found = compiled(x)
                    assert torch.equal(found, model(x))
                    assert found.is_inference() == (mode is torch.inference_mode)


def test_inside_a_graph_of_the_program():
    compiled = _compile(lambda x: x * 2 + 1)
    x = _batches(1)[0]
    for _ in range(3):
        compiled(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = compiled(x)
    x.fill_(3)
    graph.replay()
    assert torch.equal(y, x * 2 + 1)


def test_memory_comes_back():
    x = torch.randn(1024, 1024, device="cuda")
    before = torch.cuda.memory_allocated()
    for _ in range(3):
        compiled = _compile(lambda x: (x * 2).sin().cos())
        for _ in range(4):
            compiled(x)
        del compiled
        torchmux.reset()
    import gc

    gc.collect()
    assert torch.cuda.memory_allocated() <= before + 2**20
