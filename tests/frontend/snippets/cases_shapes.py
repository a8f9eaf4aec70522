"""Python arithmetic on sizes, and sizes that change between what could be captured."""

import math

import torch

from .corpus import case, tensor


@case(one_graph=True)
def case_size_arithmetic(x):
    rows, columns = x.shape
    return x.reshape(rows * columns // 2, -1), rows**2, -columns, rows / columns, divmod(rows, 2), rows % columns


@case(one_graph=True)
def case_shape_as_value(x):
    return x.shape, x.shape[:1] + (2,), list(x.shape), tuple(x.size()), x.shape == (3, 4), torch.Size((3, 4)) == x.shape


@case(one_graph=True)
def case_shape_comparisons(x):
    y = x.t()
    return x.shape != y.shape, x.size(0) < x.size(1), max(x.shape), sorted(y.shape), x.shape[::-1] == y.shape


@case(one_graph=True)
def case_size_in_loop(x):
    return [x[i] * i for i in range(x.size(0))], sum(i for i in range(x.shape[1]))


@case(one_graph=True)
def case_size_as_factor(x):
    return x * x.size(0) + x.shape[-1], x / math.sqrt(x.size(-1)), x.new_full((x.size(0),), x.size(1))


@case(one_graph=True)
def case_size_as_key(x):
    table = {3: "three", 4: "four"}
    return x, table[x.size(0)], [5, 6, 7, 8][x.size(0)], f"{x.size(1)}"


@case(one_graph=True)
def case_split_heads(x):
    rows, width = x.shape
    heads = 2
    assert width % heads == 0
    y = x.view(rows, heads, width // heads).transpose(0, 1)
    return y.transpose(0, 1).reshape(rows, width), y.shape


@case(one_graph=True)
def case_view_with_star(x):
    return x.view(*x.shape[:-1], 2, -1), x.flatten().view(x.size()), x.reshape(-1, *x.shape[1:])


@case(one_graph=True)
def case_arange_of_size(x):
    positions = torch.arange(x.size(0)).unsqueeze(1)
    return x + positions, torch.ones(x.shape), torch.zeros(*x.shape, 1), torch.tril(torch.ones(x.size(0), x.size(0)))


@case(one_graph=True)
def case_slice_with_sizes(x):
    half = x.size(1) // 2
    return torch.cat((-x[..., half:], x[..., :half]), dim=-1), x[: x.size(0) - 1], x[:, half]


@case(one_graph=True)
def case_int_conversions(x):
    n = x.size(0)
    return int(n), float(n), bool(n), str(n), hash(n) == hash(3), isinstance(n, int), type(n), math.floor(n / 2)


@case(one_graph=True, inputs=lambda: (tensor(), 3, 0.5))
def case_number_arguments(x, n, scale):
    return x * n * scale, n + 1, scale * 2, x[:n], x.repeat(n, 1)


@case(one_graph=True, inputs=lambda: (tensor(), 2))
def case_int_argument_in_branch(x, n):
    return x.sum(0) if n > 1 else x, n << 2, n | 8, n & 3, ~n


@case(one_graph=True, inputs=lambda: (tensor(), float("nan"), -0.0, 10**30))
def case_odd_numbers(x, nan, zero, big):
    return nan, zero, big + 1, x * zero, nan != nan, math.copysign(1, zero)  # noqa: PLR0124


@case(one_graph=True)
def case_empty_tensor(x):
    y = x[:0]
    return y, y.shape, y.sum(), torch.cat([y, x]), y.numel() == 0


@case(one_graph=True)
def case_zero_dimensions(x):
    s = x.sum()
    return s, s.shape, s.dim(), s.view(1), s + 1


class Grows:
    def __init__(self):
        self.x = torch.ones(2, 4)


@case(one_graph=True, inputs=lambda: (tensor(), Grows()))
def case_size_changes_between_calls(x, state):
    state.x = torch.cat([state.x, x])
    return state.x.sum(0) * state.x.size(0)


@case(one_graph=True)
def case_numel_guard(x):
    if x.numel() > 100 or x.size(0) == x.size(1):
        return x
    return x.unsqueeze(-1).expand(-1, -1, x.ndim)
