"""Whether tensors are equal, where that does not depend on their numbers."""

import torch

from .corpus import case


def numbers_and_indices():
    return torch.arange(12, dtype=torch.float32).reshape(3, 4), torch.arange(3)


@case(one_graph=True, inputs=numbers_and_indices)
def case_equal_by_what_is_known(x, i):
    others = x[0], x[:2], x.t()
    return x + 1, [torch.equal(x, other) for other in others], x.equal(x[0]), torch.equal(i, i), i.equal(i)


@case(inputs=numbers_and_indices)
def case_equal_by_the_numbers(x, i):
    nan = x * float("nan")
    return torch.equal(x, x), torch.equal(nan, nan), torch.equal(i, i + 0), nan.equal(nan), torch.equal(x, x.clone())


@case(inputs=numbers_and_indices)
def case_equal_of_other_kinds(x, i):
    try:
        return torch.equal(x, i)
    except RuntimeError as error:
        return x * 2, str(error)
