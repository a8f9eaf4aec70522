"""Tensors: methods, properties and attributes, conversions, indexing, and what is asked about them in Python."""

import pytest
import torch

import torchmux

from ..snippets.corpus import tensor
from ..worlds import BACKENDS, check_graphs, check_same, feature, features_of, leaf


def with_leaf():
    return (leaf(3, 4),)


@feature()
def properties(x):
    y = x.double().t()
    return x.shape, y.dtype, x.device, y.ndim, x.T, x.mT, y.is_cuda, x.layout, x.itemsize, x.nbytes, x.is_leaf, y * 2


@feature()
def properties_of_a_complex_tensor(x):
    z = torch.complex(x, -x)
    return (
        z.real,
        z.imag,
        z.conj(),
        z.abs(),
        z.angle(),
        z.H,
        z.is_complex(),
        torch.view_as_real(z),
        z * 2j,
        z.resolve_conj(),
    )


@feature(inputs=with_leaf)
def complex_numbers_are_trained(x):
    z = torch.complex(x, x * 2)
    return (z * z.conj()).real.sum(), torch.fft.fft(x), torch.polar(x.abs(), x)


@feature()
def dunders(x):
    y = x + 10
    return (
        -x,
        +x,
        abs(x),
        ~(x > 0),
        x @ y.T,
        x**2,
        2**x,
        x // 2,
        3 // y,
        x % 2,
        5 % y,
        1 / y,
        1 - x,
        x == y,
        x != 1,
        x < y,
        (x > 0) & (y > 0),
        (x > 0) | (y > 0),
        (x > 0) ^ (y > 0),
        x.int() << 1,
        x.int() >> 1,
        x <= 1.0,
        x.__rpow__(2),
        (-2) ** x.long(),
        (-3.0) ** (x * 0 + 2),
        (-0.0) ** (x * 0 + 3),
    )


@feature()
def dunders_that_tensors_do_not_have(x):
    return round(x), x + 1


@feature()
def division_with_remainder(x):
    return divmod(x, 3), x + 1


@feature()
def dunders_in_place(x):
    y = x.clone()
    alias = y
    y += 1
    y -= x
    y *= 2
    y /= 3
    y **= 2
    y //= 0.1
    y %= 2
    mask = y > 0
    mask &= x > 0
    mask |= x < -0.5
    mask ^= True
    return y, y is alias, mask


@feature()
def named_dunders(x):
    return x.__add__(1), x.__rsub__(1), x.__getitem__(0), x.__len__(), x.__neg__(), torch.Tensor.__mul__(x, 2)


@feature()
def methods_of_the_class(x):
    return (
        torch.Tensor.relu(x),
        torch.Tensor.add(x, 1),
        torch.Tensor.size(x),
        torch.Tensor.view(x, -1),
        torch.Tensor.dim(x),
    )


@feature()
def constructors(x):
    return (
        torch.tensor([1.0, 2.0]) + x[0, 0],
        torch.tensor(3),
        torch.as_tensor([[1, 2]]),
        torch.as_tensor(x) is x,
        torch.tensor([[1, 2], [3, 4]], dtype=torch.float64),
        torch.zeros(2, 3),
        torch.full((2,), 7),
        torch.arange(5),
        torch.linspace(0, 1, 3),
        torch.eye(2),
        torch.empty(0),
        x.new_zeros(2),
        x.new_tensor([1, 2]),
        torch.asarray([1, 2]),
        torch.scalar_tensor(2.0),
        torch.zeros_like(x),
        x.new_full((2,), 1),
        x.new_ones(1),
        torch.tril_indices(2, 2),
    )


@feature()
def tensor_of_tensors(x):
    return torch.tensor([x.shape[0], 2.0]), torch.stack([x[0], x[1]]), torch.tensor([x.dtype.is_floating_point])


@feature()
def legacy_constructors(x):
    return (
        torch.FloatTensor(2, 3).zero_() + x[0, 0],
        torch.Tensor([1, 2]),
        torch.LongTensor([1, 2]),
        torch.Tensor(x) * 2,
    )


@feature()
def sizes_are_objects(x):
    size = torch.Size([3, 4])
    return (
        size == x.shape,
        size + (1,),
        size[1:],
        size.numel(),
        len(size),
        x.view(size),
        isinstance(size, tuple),
        x.size(-1),
    )


@feature()
def dtypes_are_objects(x):
    dtype = torch.float64
    return (
        x.to(dtype),
        dtype.is_floating_point,
        dtype.is_complex,
        dtype.itemsize,
        x.dtype == dtype,
        torch.int8.is_signed,
        str(dtype),
    )


@feature()
def devices_are_objects(x):
    device = torch.device("cpu")
    other = torch.device("cuda", 1)
    return (
        x.to(device),
        device == x.device,
        device.type,
        device.index,
        other.index,
        str(other),
        torch.zeros(2, device="cpu"),
    )


@feature()
def limits_of_dtypes(x):
    return (
        x.clamp(min=torch.finfo(x.dtype).min),
        torch.finfo(torch.float16).max,
        torch.finfo(torch.float32).eps,
        torch.iinfo(torch.int8).max,
        torch.iinfo(torch.int32).bits,
        torch.finfo(x.dtype).tiny + x,
    )


@feature()
def conversions(x):
    return (
        x.int(),
        x.long(),
        x.half(),
        x.bfloat16(),
        x.bool(),
        x.to(torch.int16),
        x.to("cpu"),
        x.to(x.double()),
        x.type(torch.int8),
        x.type("torch.DoubleTensor"),
        x.type(),
        x.type_as(x.double()),
        x.to(dtype=torch.float64, copy=True),
        x.float() is x,
        x.cpu() is x,
        x.to(torch.float32) is x,
        x.cfloat(),
        x.byte(),
        x.char(),
        x.short(),
    )


@feature()
def default_dtype_is_asked():
    def run(x):
        return x.to(torch.get_default_dtype()), torch.ones(2)

    yield run, (tensor(),)
    torch.set_default_dtype(torch.float64)
    yield run, (tensor(),)


@feature()
def default_dtype_is_set(x):
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    y = torch.ones(3, 4) + x
    torch.set_default_dtype(before)
    return y, torch.ones(1)


@feature()
def default_device_is_set(x):
    torch.set_default_device("meta")
    y = torch.ones(3)
    torch.set_default_device(None)
    return y.device, x + 1


@feature()
def named_tensors(x):
    return x.refine_names("a", "b").sum("a").rename(None)


@feature(inputs=lambda: (torch.eye(3).to_sparse(), torch.ones(3, 3)))
def sparse_argument(s, x):
    return torch.sparse.mm(s, x), x + 1


@feature()
def sparse_inside(x):
    return torch.sparse.mm(x.relu().to_sparse(), x.t())


@feature(more="quantized tensors have no fake twin")
def quantized_inside(x):
    q = torch.quantize_per_tensor(x, 0.1, 0, torch.qint8)
    return q.dequantize() * 2


@feature()
def iteration(x):
    total = 0
    for row in x:
        for element in row[:2]:
            total = total + element
    a, b, c = x
    first, *others = x
    return total, [r * 2 for r in x], a + b - c, first, others, next(zip(x, range(3), strict=True))[0], len(x)


@feature()
def enumerate_and_reversed(x):
    return [i * r for i, r in enumerate(x)], list(reversed(x)), tuple(map(torch.sum, x)), sum(x), dict(enumerate(x))[1]


@feature(inputs=lambda: (tensor(), 0.125))
def membership(x, value):
    return x * 2, value in x, 77 in x


@feature()
def item_and_tolist(x):
    y = x * 2
    return x + y[0, 0].item(), y.tolist(), y.sum() + 1


@feature()
def truth_of_a_tensor(x):
    if x.sum() > 0:
        return x * 2
    return x * 3


@feature()
def numbers_of_tensors(x):
    return x * float(x[0, 0]), int(x[0, 0]) + x, bool(x[0, 0])


@feature()
def hash_and_identity(x):
    y = x + 1
    table = {x: 1, y: 2}
    return table[y] * x, x in table, x is y, y is not x


@feature(inputs=lambda: (torch.zeros(2, 3), leaf(2, 3)))
def classes_of_tensors(x, w):
    p = isinstance(w, torch.nn.Parameter)
    return (
        type(x) is torch.Tensor,
        isinstance(x, torch.FloatTensor),
        torch.is_tensor(x),
        torch.is_storage(x),
        p,
        x + w,
        torch.is_floating_point(x),
    )


@feature()
def strides_and_offsets(x):
    y = x[1:, 1:]
    return (
        y.stride(),
        y.storage_offset(),
        y.is_contiguous(),
        y.contiguous().stride(),
        x.t().is_contiguous(),
        y.numel(),
        x.stride(0),
        y * 2,
    )


@feature()
def shape_methods(x):
    return (
        x.reshape(4, -1),
        x.view(2, 6),
        x.flatten(),
        x.unsqueeze(0).squeeze(0),
        x.expand(2, 3, 4),
        x.repeat(2, 1),
        x.permute(1, 0),
        x.unflatten(1, (2, 2)),
        x.movedim(0, 1),
        x.ravel(),
        x.view_as(x),
        x.reshape_as(x),
        x.unfold(1, 2, 1),
        x.narrow(1, 0, 2),
        x.chunk(2, 1),
        x.split([1, 3], 1),
        x.tile(2),
        x.roll(1),
        x.flip(0),
        x.diagonal(),
        x.rot90(),
    )


@feature()
def methods_with_names(x):
    found = x.max(dim=1)
    values, indices = x.sort(dim=1, descending=True)
    return (
        found.values,
        found.indices,
        found[0],
        values,
        indices,
        x.topk(2).values,
        torch.std_mean(x),
        type(found).__name__,
    )


@feature()
def methods_as_functions(x):
    double = x.mul
    names = ["sin", "cos", "abs"]
    return double(2), [getattr(x, n)() for n in names], list(map(torch.Tensor.neg, [x, x])), torch.exp(x)


@feature()
def copy_and_deepcopy(x):
    import copy

    return copy.copy(x) + 1, copy.deepcopy(x) * 2


@feature()
def questions_about_types(x):
    return (
        torch.promote_types(torch.int8, torch.float16),
        torch.result_type(x, 1),
        torch.can_cast(torch.float32, torch.int8),
        torch.is_complex(x),
        x.is_floating_point(),
        x.is_signed(),
        x.element_size(),
        x.get_device(),
        torch.numel(x),
        x * 1,
        x.is_inference(),
        x.is_sparse,
        x.is_quantized,
        x.is_meta,
        x.dim(),
        x.ndimension(),
        x.nelement(),
        torch.is_nonzero(torch.tensor(1)),
    )


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", features_of(__name__))
def test_tensors_are_as_in_eager(name, backend):
    check_same(__name__, name, backend)


@pytest.mark.slow
@pytest.mark.parametrize("name", features_of(__name__))
def test_tensors_take_no_more_graphs(name):
    check_graphs(__name__, name)


@pytest.mark.parametrize("name", ["__call__", "mro", "__name__", "no_such_name"])
def test_what_only_the_class_of_the_class_has_is_asked_once(name):
    compiled = torchmux.compile(lambda x: (x * 2, hasattr(x, name), callable(x)), backend="eager")
    for _ in range(3):
        assert compiled(torch.ones(2))[1:] == (False, False)
    assert torchmux.report(compiled).graph_count == 1
