"""Results whose size depends on data, and numbers read from tensors: breaks, and eager's results."""

import torch

from .corpus import case, filled


def _data(*sizes):
    return lambda: [(filled(n, 6),) for n in sizes]


@case(_data(4, 5, 6), whole=False, compiles=4)
def item(x):
    n = (x > 0).sum().item()
    return x * n, n


@case(_data(4, 5, 6), whole=False, compiles=4)
def integer_of_tensor(x):
    n = int(x.shape[0] + x.sum())
    return x + n


@case(_data(4, 5, 6), whole=False, compiles=4)
def nonzero(x):
    return (x > 0).nonzero() + 1


@case(_data(4, 5, 6), whole=False, compiles=4)
def mask_index(x):
    y = x * 2
    return y[y > 0].sum()


@case(_data(4, 5, 6), whole=False, compiles=4)
def masked_select(x):
    y = torch.masked_select(x, x > 0)
    return y * 2, y.shape[0]


@case(_data(4, 5, 6), whole=False, compiles=3)
def unique(x):
    y = (x > 0).float().unique()
    return y + 1


@case(_data(4, 5, 6), whole=False, compiles=4)
def list_of_tensor(x):
    numbers = (x[0] * 4).int().tolist()
    return x * numbers[0], numbers


@case(_data(4, 5, 6), whole=False, compiles=4)
def repeat_interleave(x):
    counts = torch.arange(x.shape[0])
    return x.repeat_interleave(counts, dim=0) + 1


@case(_data(4, 5, 6), whole=False, compiles=4)
def branch_on_data(x):
    if x.sum() > 0:
        return x + 1
    return x - 1


@case(_data(4, 5, 6), whole=False, compiles=4)
def size_across_a_break(x):
    n = x.shape[0]
    y = x * n
    torch._dynamo.graph_break()
    return y.view(n, -1) + n


@case(_data(4, 5, 6), whole=False, compiles=4)
def derived_size_across_a_break(x):
    n = x.shape[0] * 2
    y = torch.cat([x, x])
    torch._dynamo.graph_break()
    return y.view(n, -1) + n


@case(_data(4, 5, 6), whole=False, compiles=6)
def size_in_loop_with_break(x):
    y = x
    for _ in range(2):
        y = torch.cat([y, x])
        torch._dynamo.graph_break()
    return y.sum() / y.shape[0]
