"""Symbolic sizes as arguments of operators, and in containers, loops and slices."""

import torch
import torch.nn.functional as F

from .corpus import ANY_BATCH, batches, case, filled, numbers


@case(ANY_BATCH)
def reshape_with_minus_one(x):
    return x.reshape(-1, 2, 3), x.view(x.shape[0], -1), x.flatten(), x.reshape(x.shape[0] * 2, -1)


@case(ANY_BATCH)
def expand_to_size(x):
    return x[:1].expand(x.shape[0], -1), x.new_ones(1).expand(x.shape[0]), x[0].expand_as(x)


@case(batches(4, 6, 8, 10))
def split_by_size(x):
    a, b = x.split(x.shape[0] // 2)
    return a + b


@case(batches(4, 6, 8, 10))
def split_in_parts(x):
    n = x.shape[0]
    a, b, c = x.split([1, n - 2, 1])
    return a + c, b


@case(batches(4, 6, 8, 10))
def chunks(x):
    a, b = x.chunk(2)
    return a * b


@case(ANY_BATCH)
def range_of_numbers(x):
    return x + torch.arange(x.shape[0]).unsqueeze(1), torch.arange(1, x.shape[0] + 1, 2), torch.arange(x.shape[0] / 2)


@case(ANY_BATCH)
def constructors(x):
    n = x.shape[0]
    return torch.zeros(n), torch.ones(n, 2), torch.full((n,), n), torch.eye(n), torch.empty(n, 0), x.new_full((n,), 2)


@case(ANY_BATCH, compiles=5)
def linear_space(x):
    return torch.linspace(0, 1, x.shape[0])


@case(ANY_BATCH, compiles=3)
def slices(x):
    n = x.shape[0]
    return x[: n // 2], x[n // 2 :], x[n - 2], x[-(n // 2) :], x[:: n // 2], x[1 : n - 1, : n // 4 + 1]


@case(ANY_BATCH)
def negative_dimensions(x):
    return x.size(-2), x.shape[-2], x.sum(-2) / x.size(-2), x.unsqueeze(-3).shape[-2]


@case(ANY_BATCH)
def starred_shapes(x):
    *lead, last = x.shape
    return x.view(*lead, 2, last // 2), x.new_zeros(*x.shape[:-1], 3), x.reshape(*x.size(), 1)


@case(ANY_BATCH)
def shape_algebra(x):
    shape = x.shape[:-1] + (2, 3)
    return x.reshape(shape), shape, x.shape == (4, 6), tuple(x.shape), list(x.shape)


@case(ANY_BATCH)
def shapes_compared(x):
    y = x * 2
    assert x.shape == y.shape and x.shape[0] == y.shape[0]
    return x + y


@case(batches(4, 5, 6, 7), compiles=4)
def loop_over_range(x):
    total = x[0]
    for i in range(x.shape[0]):
        total = total + x[i] * i
    return total


@case(batches(4, 5, 6, 7), compiles=4)
def iterate_over_tensor(x):
    return sum(row * 2 for row in x)


@case(batches(4, 5, 6, 7), compiles=4)
def list_repeated(x):
    return x.sum() * len([0] * x.shape[0])


@case(batches(4, 5, 6, 7), compiles=4)
def unbound(x):
    return torch.stack(list(x.unbind(0))[::-1])


@case(ANY_BATCH)
def length(x):
    return x / len(x), len(x), len(x.shape)


@case(ANY_BATCH)
def kept_in_dict(x):
    info = {"rows": x.shape[0], "sizes": [x.shape[0], (x.shape[1],)]}
    return x * info["rows"], info


@case(batches(4, 5, 6), compiles=3)
def as_key(x):
    table = {x.shape[0]: 2}
    return x * table[x.shape[0]]


@case(ANY_BATCH)
def causal_mask(x):
    n = x.shape[0]
    mask = torch.tril(torch.ones(n, n, dtype=torch.bool))
    return (x @ x.t()).masked_fill(~mask, float("-inf")).softmax(-1)


@case(ANY_BATCH)
def attention(x):
    q = x.view(1, x.shape[0], 2, 3).transpose(1, 2)
    return F.scaled_dot_product_attention(q, q, q, is_causal=True, scale=x.shape[-1] ** -0.5)


@case(ANY_BATCH)
def interpolation(x):
    return F.interpolate(x[None, None], scale_factor=2), F.interpolate(x[None, None], size=(x.shape[0] * 2, 4))


@case(ANY_BATCH, compiles=5)
def pooling(x):
    return F.adaptive_avg_pool1d(x.t()[None], 3), F.avg_pool1d(x.t()[None], 2), F.max_pool1d(x.t()[None], 3, stride=1)


@case(ANY_BATCH, compiles=5)
def padding(x):
    return F.pad(x, (0, 1, x.shape[0] // 2, 0)), F.pad(x, (1, 1), mode="constant", value=x.shape[0])


@case(ANY_BATCH)
def repeats(x):
    return x.repeat(x.shape[0], 1), x.repeat_interleave(2, dim=0), x.tile(x.shape[0] // 2)


@case(ANY_BATCH)
def rolls(x):
    return x.roll(x.shape[0] // 2, 0), x.flip(0), x.roll(1, 0)


@case(ANY_BATCH)
def windows(x):
    return x.unfold(0, 2, 1), x.as_strided((x.shape[0] - 1, 2), (x.stride(0), 1)), x.narrow(0, 1, x.shape[0] - 2)


@case(ANY_BATCH)
def reductions(x):
    return x.mean(0), x.var(0), x.norm(), x.cumsum(0), x.argmax(0), x.topk(2, dim=0), x.sort(0), x.std()


@case(ANY_BATCH)
def scatters(x):
    index = torch.arange(x.shape[0])
    return torch.zeros(x.shape[0] * 2, 6).index_add(0, index * 2, x), x.index_select(0, index), x[index]


@case(ANY_BATCH)
def einsums(x):
    return torch.einsum("ij,kj->ik", x, x), torch.einsum("i...->...", x)


@case(ANY_BATCH)
def normalization(x):
    return F.layer_norm(x, (6,)), F.layer_norm(x, x.shape[1:]), F.batch_norm(x, None, None, training=True)


@case(lambda: [(filled(n, 3, 8, 8),) for n in (2, 3, 5)])
def convolution(x):
    return F.conv2d(x, torch.ones(2, 3, 3, 3), padding=1).flatten(1).view(x.shape[0], -1)


@case(lambda: [(filled(2, 3, n, n + 1),) for n in (8, 10, 13)])
def convolution_of_any_image(x):
    y = F.conv2d(x, torch.ones(2, 3, 3, 3), stride=2)
    return F.interpolate(y, size=x.shape[-2:]), y.shape


@case(lambda: [(filled(n, 4), filled(4, m)) for n, m in ((3, 5), (6, 8), (7, 9))])
def matrix_product(x, y):
    return x @ y, (x @ y).shape[0] + y.shape[1]


@case(lambda: [(filled(n, 4), filled(n, 4)) for n in (3, 6, 7)])
def equal_sizes(x, y):
    return torch.cat([x, y], dim=1) + x.shape[0], x + y


@case(lambda: [(filled(3, 4), filled(3, 4)), (filled(6, 4), filled(6, 4)), (filled(6, 4), filled(7, 4))])
def equal_sizes_that_part(x, y):
    return torch.cat([x, y]), x.shape[0] == y.shape[0]


@case(lambda: [(filled(n, 4), filled(1, 4)) for n in (3, 6, 7)])
def broadcast(x, y):
    return x + y, torch.broadcast_shapes(x.shape, y.shape), torch.broadcast_tensors(x, y)


@case(batches(4, 6, 1, 9, 1, 0, 7, 0), compiles=4)
def zero_and_one(x):
    return x.sum(0), x.shape[0]


@case(batches(1, 4, 6))
def one_first(x):
    return x * x.shape[0]


@case(batches(1, 2, 3, 1))
def from_one_up(x):
    return x.reshape(-1)


@case(lambda: [(filled(6, n).t(),) for n in (4, 6, 8)], compiles=2)
def strides(x):
    return x * 2, x.stride(), x.is_contiguous(), x.contiguous().stride(0)


@case(lambda: [(filled(n + 2, 6)[n // 2 :],) for n in (4, 6, 8)])
def storage_offsets(x):
    return x * 2


@case(lambda: [(filled(n + 2, 6)[n // 2 :],) for n in (4, 6, 8)])
def storage_offsets_read(x):
    return x * 2, x.storage_offset()


@case(lambda: [(torch.empty(n, 0),) for n in (4, 1 << 40, (1 << 50) + 3)])
def huge_sizes(x):
    return x * 2, x.shape[0] * 3 // 2


@case(ANY_BATCH)
def in_place(x):
    y = x.clone()
    y[: y.shape[0] // 2] += 1
    y[y.shape[0] - 1] = 0
    return y.mul_(y.shape[0])


@case(ANY_BATCH)
def random_of_size(x):
    return torch.rand(x.shape[0], 2).shape, torch.randn_like(x).size(), torch.randint(5, (x.shape[0],)).shape


@case(ANY_BATCH, compiles=3)
def unpacked(x):
    rows, columns = x.shape
    (r, c), n = x.size(), x.dim()
    return x.view(columns, rows) * r * c * n


@case(ANY_BATCH)
def meshgrids(x):
    rows, columns = torch.meshgrid(torch.arange(x.shape[0]), torch.arange(x.shape[1]), indexing="ij")
    return rows + columns


@case(numbers(2, 3, 5, 4))
def rows_taken(x, n):
    return x[:n], x[n], x.narrow(0, 0, n), x.new_zeros(n, n)


@case(ANY_BATCH)
def element_counts(x):
    return x * 2, x.shape.numel(), x.size().numel() // 2, x.nelement(), x.nbytes


def _sequences():
    torch.manual_seed(7)
    layers = torch.nn.GRU(3, 4), torch.nn.LSTM(4, 2, batch_first=True)
    return [(torch.ones(2, n, 3), *layers) for n in (4, 6, 8, 10, 5)]


@case(_sequences, compiles=6, whole=False)
def recurrent_layers_of_any_length(x, gru, lstm):
    """Their steps are no part of a graph whose length changes: it would be another one for each length."""
    h = gru(x.transpose(0, 1) * 2)[0].transpose(0, 1) + 1
    return lstm(h.sin())[0].relu() * 2


@case(batches(4, 6, 8, 10))
def a_recurrent_layer_of_any_batch(x):
    return _GRU(x.unsqueeze(0))[0] + 1


_GRU = torch.nn.GRU(6, 2)
