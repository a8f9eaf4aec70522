"""cudagraphs where there is no GPU: what it refuses, and what it says of itself."""

from __future__ import annotations

import pytest
import torch

import torchmux
from torchmux import torch_internals as internals
from torchmux.backends import cudagraphs
from torchmux.backends.common.pipeline.overlap import is_overlapping, span
from torchmux.backends.cudagraphs.compiler import Cudagraphs
from torchmux.registry.errors import BackendUnavailable, InvalidOption


def _answer(op, *args):
    """What ``supports`` says of a call of ``op`` on tensors of a GPU that need not exist."""
    graph = torch.fx.Graph()

    def place(value):
        node = graph.placeholder("x")
        node.meta["val"] = value
        return node

    return Cudagraphs().supports(
        graph.call_function(op, torch.fx.node.map_aggregate(args, lambda a: place(a) if internals.is_fake(a) else a))
    )


def _tensor(*size, dtype=torch.float32, device="cuda"):
    with internals.new_fake_mode():
        return torch.empty(size, dtype=dtype, device=device)


ATEN = torch.ops.aten
VECTOR = _tensor(4)
MASK = _tensor(4, dtype=torch.bool)
INDEX = _tensor(2, dtype=torch.int64)


def test_a_number_of_the_program_is_recorded() -> None:
    """Unlike an input on the CPU, it cannot change."""
    graph = torch.fx.Graph()
    vector, number = graph.placeholder("x"), graph.create_node("get_attr", "number")
    vector.meta["val"], number.meta["val"] = VECTOR, _tensor(device="cpu")
    assert Cudagraphs().supports(graph.call_function(ATEN.mul.Tensor, (vector, number))) is True
    refused = Cudagraphs().supports(graph.call_function(ATEN._to_copy.default, (number,), {"device": "cuda"}))
    assert "on the cpu" in str(refused)


@pytest.mark.parametrize(
    ("op", "args", "words"),
    [
        (ATEN.sin.default, (VECTOR,), None),
        (ATEN.rand_like.default, (VECTOR,), None),
        (ATEN.index.Tensor, (VECTOR, [INDEX]), None),
        (ATEN.where.self, (MASK, VECTOR, VECTOR), None),
        (ATEN.cat.default, ([MASK, MASK],), None),
        (ATEN.add.Tensor, (VECTOR, _tensor(device="cpu")), "on the cpu"),
        (ATEN.index.Tensor, (VECTOR, [_tensor(2, dtype=torch.int64, device="cpu")]), "on the cpu"),
        (ATEN.index.Tensor, (VECTOR, [MASK]), "a mask"),
        (ATEN.index_put.default, (VECTOR, [None, MASK], VECTOR), "a mask"),
        (ATEN.nonzero.default, (VECTOR,), "waits for the GPU"),
        (ATEN._local_scalar_dense.default, (VECTOR,), "waits for the GPU"),
        (ATEN.rand.generator, ([3], torch.Generator()), "own random generator"),
    ],
)
def test_what_can_be_recorded(op, args, words):
    answer = _answer(op, *args)
    assert answer is True if words is None else words in answer


def test_what_is_tagged_as_unsafe_is_not_recorded():
    with torch.library._scoped_library("torchmux_tagged", "DEF") as library:
        library.define("unsafe(Tensor x) -> Tensor", tags=(torch.Tag.cudagraph_unsafe,))
        assert "tagged as unsafe" in _answer(torch.ops.torchmux_tagged.unsafe.default, VECTOR)


def test_overlapping_memory_is_copied_as_a_whole():
    x = torch.arange(6.0)
    assert not is_overlapping(x.view(2, 3).t())
    assert not is_overlapping(x[::2])
    assert not is_overlapping(x.view(1, 6).as_strided((1, 6), (0, 1)))
    expanded, windows = x.expand(4, 6), x.unfold(0, 3, 1)
    for tensor in (expanded, windows):
        assert is_overlapping(tensor)
        assert torch.equal(span(tensor), x)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_it_says_why_it_is_not_available():
    availability = cudagraphs.probe()
    assert not availability.ok
    assert "GPU" in availability.reason or "CUDA" in availability.reason
    with pytest.raises(BackendUnavailable, match="cudagraphs"):
        torchmux.compile(torch.nn.Linear(2, 2), backend="cudagraphs")(torch.ones(1, 2))


def test_it_asks_for_a_build_with_cuda_without_importing_torch(run_python):
    """As on a machine with a driver: listing backends must not import torch there."""
    code = (
        "import pathlib, sys\nfrom torchmux.backends import cudagraphs\n"
        f"cudagraphs._DRIVER = pathlib.Path({__file__!r})\nprint(cudagraphs.probe().ok, 'torch' in sys.modules)\n"
        "import torch\nprint(cudagraphs._cuda_version() == torch.version.cuda)\n"
    )
    assert run_python(code).split() == [str(torch.version.cuda is not None), "False", "True"]


def test_options_are_checked():
    with pytest.raises(InvalidOption, match="must be at least 1"):
        cudagraphs.CudagraphsOptions(warmup=0)
