"""Comprehensions: nested, conditional, over dictionaries and sets, with scopes of their own."""

import bisect
import itertools

import torch

from .corpus import case


@case(one_graph=True)
def case_list_comprehension(x):
    return [x * i for i in range(3)]


@case(one_graph=True)
def case_filtered_comprehension(x):
    return [x + i for i in range(6) if i % 2 if i > 1]


@case(one_graph=True)
def case_nested_comprehension(x):
    return [[x[i, j] for j in range(2)] for i in range(2)]


@case(one_graph=True)
def case_flattening_comprehension(x):
    grid = [[1, 2], [3]]
    return torch.stack([x * n for row in grid for n in row])


@case(one_graph=True)
def case_dict_comprehension(x):
    return {name: x + i for i, name in enumerate("abc") if name != "b"}


@case(one_graph=True)
def case_set_comprehension(x):
    return x, {n % 3 for n in range(10)}


@case(one_graph=True)
def case_comprehension_scope(x):
    i = "outer"
    values = [i for i in range(3)]  # noqa: C416
    return x + values[-1], i


@case(one_graph=True)
def case_comprehension_uses_closure(x):
    scale = 2

    def inner():
        return [x * scale * i for i in range(2)]

    return inner()


@case(one_graph=True)
def case_comprehension_over_tensor(x):
    return [row.sum() for row in x], [float(v) for v in torch.ones(2)]


@case(one_graph=False)
def case_comprehension_with_walrus(x):
    values = [last := x + i for i in range(3)]
    return values, last


@case(one_graph=True)
def case_comprehension_with_call(x):
    def double(t):
        return t * 2

    return tuple(double(t) for t in (x, x + 1)), list(map(double, [x]))


@case(one_graph=False)
def case_comprehension_that_breaks(x):
    def shown(t):
        print(end="")
        return t + 1

    return [shown(x * i) for i in range(3)]


@case(one_graph=False)
def case_comprehension_raises(x):
    return [x / n + 1 // n for n in (1, 0)]


@case(one_graph=True)
def case_lambda_in_comprehension(x):
    return [f(x) for f in [lambda t, k=k: t + k for k in range(3)]]


@case(one_graph=True)
def case_generator_in_call(x):
    return torch.stack(list(row + i for i, row in enumerate(x))), any(n > 2 for n in x.shape)  # noqa: C400


@case(one_graph=True)
def case_comprehension_unpacks(x):
    pairs = [(1, (x, 2)), (3, (x + 1, 4))]
    return [a + b + c for a, (b, c) in pairs]


@case(one_graph=False)
def case_comprehensions_around_a_loop_that_runs_in_eager(x):
    names = [q for q, r in itertools.groupby("cab")]
    rest = []
    for name in names:
        bisect.insort(rest, name)
    if x.dim() == 1:
        rest = [q for q in rest if q != "a"]  # what q is put back to was never bound
    return x + len(rest)


@case(one_graph=False)
def case_variable_of_a_comprehension_read_behind_a_loop(x):
    q = x * 2
    names = [q for q, r in itertools.groupby("cab")]
    rest = []
    for name in names:
        bisect.insort(rest, name)
    return q + len([q for q in rest if q != "a"])
