"""torch's fake results held against its real ones: dtypes, sizes and strides, on torch's own samples.

The quick part looks at half precision, where they differ most; ``-m slow`` at all dtypes that an operator takes.
"""

from __future__ import annotations

import functools
import itertools
import zlib
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map_only

import torchmux
from torchmux.conformance.operators import opinfo
from torchmux.torch_internals import ROWS_RESIZED, fake_results, new_fake_mode
from torchmux.torch_internals.fake_layouts import LAYOUTS
from torchmux.torch_internals.fake_results import correct

DTYPES = (
    torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int32, torch.int16, torch.int8,
    torch.uint8, torch.bool, torch.complex64,
)  # fmt: skip
SAMPLES = 4


class _Compare(TorchDispatchMode):
    """Runs each ATen operator of a program on real tensors and on fake ones, and notes what differs."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, set[str]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        fake = _faked(func, args, kwargs)
        real = func(*args, **kwargs)
        if fake is not None and not func._schema.is_mutable:
            difference = _difference(tree_flatten(fake)[0], tree_flatten(real)[0])
            if difference:
                self.found.setdefault(str(func), set()).add(difference)
        return real


def _faked(func: Any, args: Any, kwargs: Any) -> Any:
    forgetful, mode = new_fake_mode(), new_fake_mode()
    forgetful.cache_enabled = False
    try:
        expected = _asked(forgetful, func, args, kwargs)
    except Exception:
        return None  # depends on data, or has no fake kernel: nothing is believed
    for _ in range(2):  # the second answer is remembered
        assert _told(*_asked(mode, func, args, kwargs)) == _told(*expected), func
    return expected[0]


def _asked(mode: Any, func: Any, args: Any, kwargs: Any) -> tuple[Any, list[Any]]:
    """The result, and the tensors that were given."""
    given = tree_map_only(torch.Tensor, mode.from_tensor, (args, kwargs))
    with mode:
        return func(*given[0], **given[1]), [a for a in tree_flatten(given)[0] if isinstance(a, torch.Tensor)]


def _told(result: Any, given: list[Any]) -> list[Any]:
    """All that can be seen of the results, of those that were given, and of who shares memory with whom."""
    results, tree = tree_flatten(result)
    told: list[Any] = [str(tree)]
    places: dict[int, int] = {}
    for each in (*given, *results):
        if not isinstance(each, torch.Tensor):
            told.append(None if isinstance(each, torch.SymInt | torch.SymFloat | torch.SymBool) else (type(each), each))
            continue
        told.append((type(each), each.dtype, each.shape, each.device, each.layout, each.requires_grad))
        told.append(next((at for at, a in enumerate(given) if a is each), None))
        if each.layout is torch.strided:
            place = places.setdefault(each.untyped_storage()._cdata, len(places))
            told.append((each.stride(), each.storage_offset(), each.is_conj(), each.is_neg(), place))
            told.append((each.untyped_storage().nbytes(), each.is_inference()))
    return told


def _difference(fake: list[Any], real: list[Any]) -> str:
    for a, b in zip(fake, real, strict=True):
        if not isinstance(b, torch.Tensor) or not isinstance(a, torch.Tensor) or b.layout is not torch.strided:
            continue
        if a.dtype is not b.dtype:
            return "dtype"
        if a.shape != b.shape:
            return "sizes"
        if b.numel() and any(s > 1 and x != y for s, x, y in zip(b.shape, a.stride(), b.stride(), strict=True)):
            return "strides"
    return ""


def differences(operator: opinfo.Operator, dtypes: tuple[torch.dtype, ...]) -> dict[str, set[str]]:
    """What differs, by ATen operator."""
    found: dict[str, set[str]] = {}
    for dtype in dtypes:
        if dtype not in operator.dtypes:
            continue
        torch.manual_seed(0)
        for sample in _samples(operator, dtype, dtype in operator.backward_dtypes):
            compare = _Compare()
            try:
                with compare:
                    _backward(operator.call(sample.input, *sample.args, **sample.kwargs))
            except Exception:
                pass
            for name, what in compare.found.items():
                found.setdefault(name, set()).update(what)
    return found


def _backward(result: Any) -> None:
    tensors = [t for t in tree_flatten(result)[0] if isinstance(t, torch.Tensor) and t.requires_grad]
    if tensors:
        torch.autograd.backward(tensors, [torch.ones_like(t) for t in tensors])


def _samples(operator: opinfo.Operator, dtype: torch.dtype, requires_grad: bool) -> Iterator[opinfo.Sample]:
    try:
        yield from operator.samples(dtype, "cpu", requires_grad=requires_grad, count=SAMPLES)
    except Exception:
        return  # some generators of samples need more than this machine has


KNOWN: dict[str, set[str]] = {
    "aten._embedding_bag_forward_only.default": {"sizes"},  # of what only a backward pass would read
    "aten._embedding_bag.default": {"sizes"},  # of what no backward pass reads where it has other sizes
    "aten._sparse_mm_reduce_impl.default": {"sizes"},  # of what only a backward pass would read
}
"""What torch's fake kernels say wrongly of others: native looks at each result, converts and copies."""

OPERATORS = [o.name for o in opinfo.operators() if o.name not in opinfo.UNDEFINED]


def _is_quick(name: str) -> bool:
    return zlib.crc32(name.encode()) % (3 if "norm" in name else 16) == 0


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", [n for n in OPERATORS if _is_quick(n)])
def test_half_precision(name: str) -> None:
    _check(name, (torch.bfloat16, torch.float16))


@pytest.mark.slow
@pytest.mark.parametrize("name", OPERATORS)
def test_all_dtypes(name: str) -> None:
    _check(name, DTYPES)


def _check(name: str, dtypes: tuple[torch.dtype, ...]) -> None:
    found = differences(opinfo.operator(name), dtypes)
    unknown = {op: what - KNOWN.get(op, set()) for op, what in found.items()}
    assert not {op: what for op, what in unknown.items() if what}


_OTHERS: dict[str, tuple[Any, ...]] = {  # what they take besides tensors, whose places are None
    "_log_softmax_backward_data": (None, None, 1, torch.float32),
    "binary_cross_entropy_backward": (torch.tensor(0.5), None, None),
    "elu_backward": (None, 1.0, 1.0, 1.0, False, None),
    "hardtanh_backward": (None, None, -1.0, 1.0),
    "huber_loss_backward": (torch.tensor(0.5), None, None, 1, 0.5),
    "log_sigmoid_forward": (None,),
    "logit_backward": (None, None, 0.1),
    "mse_loss_backward": (torch.tensor(0.5), None, None, 1),
    "pow": (2.0, None),
    "smooth_l1_loss_backward": (torch.tensor(0.5), None, None, 1, 0.5),
    "softplus_backward": (None, None, 1.0, 20.0),
}
_ORDERS = ((0, 1, 2, 3), (0, 1, 3, 2), (0, 2, 3, 1), (3, 0, 1, 2))


_PADS = [op for op in LAYOUTS if "_pad" in op._schema.name and "backward" not in op._schema.name]
_OF_TENSORS = LAYOUTS.keys() - {
    torch.ops.aten.native_group_norm.default, torch.ops.aten.max_unpool2d.default, *ROWS_RESIZED,
    *(op for op in LAYOUTS if "_pad" in op._schema.name or "_fft" in op._schema.name),
}  # fmt: skip


@pytest.mark.parametrize("op", sorted(_OF_TENSORS, key=str), ids=str)
def test_layouts(op: Any) -> None:
    """Operators whose fakes have other strides than torch's, for all pairs of layouts of their arguments."""
    template = _OTHERS.get(op._schema.name.removeprefix("aten::"), (None, None))
    for orders in itertools.product(_ORDERS, repeat=sum(value is None for value in template)):
        order = iter(orders)
        given = [_laid_out(next(order)) if value is None else value for value in template]
        real = op(*given)
        mode = correct(new_fake_mode())
        with mode:
            fake = op(*tree_map_only(torch.Tensor, mode.from_tensor, given))
        assert not _difference(tree_flatten(fake)[0], tree_flatten(real)[0]), orders


def _same_layout(program: Any, *given: torch.Tensor) -> bool:
    mode = correct(new_fake_mode())
    with mode:
        fake = program(*map(mode.from_tensor, given))
    return fake.stride() == program(*given).stride()


@pytest.mark.parametrize("order", _ORDERS, ids=str)
def test_transforms(order: tuple[int, ...]) -> None:
    """What a Fourier transform leaves comes first in memory; torch 2.11 says otherwise."""
    x = _laid_out(order)
    for dims in ((0,), (1,), (3,), (0, 2), (2, 0), (1, 3, 2)):
        for name in ("fftn", "rfftn", "ihfftn", "irfftn", "ifftn"):
            given = torch.complex(x, x) if name == "irfftn" else x
            transform = functools.partial(getattr(torch.fft, name), dim=dims)
            assert _same_layout(transform, given), (name, dims)


@pytest.mark.parametrize("op", _PADS, ids=str)
def test_pads(op: Any) -> None:
    """Images in channels last stay so around edges, and so do their gradients."""
    sizes, pads = ((2, 4, 5, 6), [1, 2, 0, 1]) if "2d" in str(op) else ((2, 4, 5, 3, 4), [1, 2, 0, 1, 1, 1])
    last = torch.channels_last if len(sizes) == 4 else torch.channels_last_3d
    backward = getattr(torch.ops.aten, f"{op._opname}_backward")
    for x in (torch.randn(sizes), torch.randn(sizes).contiguous(memory_format=last)):
        assert _same_layout(lambda x: op(x, pads), x)
        for layout in (torch.contiguous_format, last):
            slope = op(x, pads).contiguous(memory_format=layout)
            assert _same_layout(lambda slope, x: backward(slope, x, pads), slope, x)


@pytest.mark.parametrize("sizes", [(2, 6, 5), (2, 6, 4, 5), (2, 6, 3, 4, 5)])
def test_group_norms(sizes: tuple[int, ...]) -> None:
    """Their kernel takes two layouts."""
    images = {4: torch.channels_last, 5: torch.channels_last_3d}.get(len(sizes), torch.contiguous_format)
    for layout in (torch.contiguous_format, images):
        x = torch.randn(sizes).contiguous(memory_format=layout)
        mode = correct(new_fake_mode())
        with mode:
            fake = torch.nn.functional.group_norm(mode.from_tensor(x), 3)
        assert fake.stride() == torch.nn.functional.group_norm(x, 3).stride()


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact"])
def test_no_images_that_are_resized(mode: str, capfd: pytest.CaptureFixture[str]) -> None:
    """torch's fakes of them raise what torch logs."""

    def resized(*batches: torch.Tensor) -> list[torch.Tensor]:
        return [torch.nn.functional.interpolate(x, scale_factor=2, mode=mode) for x in batches]

    batches = [torch.zeros(0, *sizes) for sizes in ((3, 2), (3, 2, 5), (3, 2, 2, 4))]
    compiled = torchmux.compile(resized, backend="aot_eager", fullgraph=True)
    for got, wanted in zip(compiled(*batches), resized(*batches), strict=True):
        assert got.shape == wanted.shape and got.stride() == wanted.stride()
    assert capfd.readouterr().err == ""


def test_images_that_are_unpooled() -> None:
    """They have the layout of what was pooled."""
    x = torch.randn(2, 3, 4, 6).to(memory_format=torch.channels_last)
    pooled, at = torch.nn.functional.max_pool2d(x, 2, return_indices=True)
    mode = correct(new_fake_mode())
    with mode:
        fake = torch.nn.functional.max_unpool2d(mode.from_tensor(pooled), mode.from_tensor(at), 2)
    assert fake.stride() == torch.nn.functional.max_unpool2d(pooled, at, 2).stride()


def _laid_out(order: tuple[int, ...]) -> torch.Tensor:
    """A tensor of sizes 2 by 3 by 4 by 5, whose dimensions lie in memory in this order."""
    sizes = (2, 3, 4, 5)
    back = sorted(range(4), key=order.__getitem__)
    return (torch.rand([sizes[d] for d in order]) * 0.8 + 0.1).permute(back)


@pytest.mark.parametrize("weights", [None, torch.float32, torch.float16, torch.int64])
@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int64])
def test_counts_have_a_type_of_their_own(dtype: torch.dtype, weights: torch.dtype | None) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x.bincount(None if weights is None else x.to(weights))

    torchmux.reset()
    x = torch.tensor([1, 3, 3], dtype=dtype)
    found = torchmux.compile(function, backend="aot_eager", fullgraph=True)(x)
    assert found.dtype is function(x).dtype
    assert torch.equal(found, function(x))


def test_pivots_are_not_tried(monkeypatch) -> None:
    """Zeros are no pivots: with them, LAPACK writes outside of its matrices."""
    tried = []
    monkeypatch.setattr(fake_results, "_error", lambda func, *_: tried.append(func._schema.name))
    monkeypatch.setattr(fake_results, "_taken", set())
    x, b = torch.eye(4) * 3 + 0.1, torch.ones(4, 2)

    def function(x: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
        factors, pivots = torch.linalg.lu_factor(x)
        solved = torch.linalg.lu_solve(factors, pivots, b)
        return torch.linalg.ldl_solve(*torch.linalg.ldl_factor(x), b), solved, *torch.lu_unpack(factors, pivots)

    found = torchmux.compile(function, backend="aot_eager")(x, b)
    for got, wanted in zip(found, function(x, b), strict=True):
        torch.testing.assert_close(got, wanted)
    assert not any("solve" in name or "unpack" in name for name in tried)


def test_repeats_of_a_promised_number_are_not_tried(monkeypatch) -> None:
    """Zeros do not add up to it, which stops a GPU for good."""
    tried = []
    monkeypatch.setattr(fake_results, "_error", lambda func, *_: tried.append(func._schema.name))
    monkeypatch.setattr(fake_results, "_taken", set())
    x, repeats = torch.arange(6.0).view(3, 2), torch.tensor([1, 0, 3])
    compiled = torchmux.compile(lambda x, n: x.repeat_interleave(n, 0, output_size=4) + n.sum(), backend="aot_eager")
    torch.testing.assert_close(compiled(x, repeats), x.repeat_interleave(repeats, 0) + 4)
    assert tried and not any("repeat_interleave" in name for name in tried)


@pytest.mark.parametrize(
    "name",
    [
        "copysign", "heaviside", "ldexp", "logaddexp", "logaddexp2", "logical_and", "logical_or", "logical_xor",
        "xlogy", "special_xlog1py", "floor_divide",
    ],
)  # fmt: skip
@pytest.mark.parametrize("backend", ["aot_eager", "native"])
@pytest.mark.sampled(3)
def test_dimensions_are_ordered_as_by_one_kernel(name, backend) -> None:
    """Whatever the number of steps of a formula is: operands of several layouts, and of other numbers of dimensions."""
    function = getattr(torch.ops.aten, name)
    layouts = [
        ((33, 1), (1, 1)), ((5, 7, 1, 5), (35, 1, 35, 7)), ((7, 33, 5), (1, 35, 7)), ((5, 7, 33, 5), (5, 25, 175, 1)),
    ]  # fmt: skip
    tensors = [torch.empty_strided(*layout).fill_(0.5) for layout in layouts]
    pairs = [(x, y) for x in tensors for y in tensors]

    def program(*given: torch.Tensor) -> list[tuple[torch.Tensor, tuple[int, ...]]]:
        found = [function(given[at], given[at + 1]) for at in range(0, len(given), 2)]
        return [(each, each.stride()) for each in found]

    given = [t for pair in pairs for t in pair]
    for (got, told), (wanted, strides) in zip(
        torchmux.compile(program, backend=backend)(*given), program(*given), strict=True
    ):
        assert got.stride() == told == strides
        torch.testing.assert_close(got, wanted)


@pytest.mark.parametrize("backend", ["native", "aot_eager"])
def test_power_of_bools(backend: str) -> None:
    def function(m: torch.Tensor) -> list[torch.Tensor]:
        return [m**True, m**False, m**2, m.to(torch.uint8) ** True]

    m = torch.tensor([True, False, True])
    for got, expected in zip(torchmux.compile(function, backend=backend)(m), function(m), strict=True):
        assert got.dtype is expected.dtype and torch.equal(got, expected)


@pytest.mark.parametrize("name", ["upsample_nearest3d", "_upsample_nearest_exact3d", "upsample_trilinear3d"])
def test_volumes_that_are_resized_on_a_gpu_stay_in_channels_last(name: str) -> None:
    aligned = [False] if name == "upsample_trilinear3d" else []
    with new_fake_mode():
        given = torch.empty(2, 3, 4, 4, 4, device="cuda").permute(0, 4, 1, 2, 3)
        made = getattr(torch.ops.aten, name)(given, [3, 2, 6], *aligned, None)
        plain = getattr(torch.ops.aten, name)(torch.empty(2, 4, 3, 4, 4, device="cuda"), [3, 2, 6], *aligned, None)
    assert made.is_contiguous(memory_format=torch.channels_last_3d)
    assert plain.is_contiguous()
