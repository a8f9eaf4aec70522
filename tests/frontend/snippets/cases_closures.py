"""Closures: cells read, written, shared, late-bound, returned, and made by classes."""

from typing import Callable, Dict, List, Literal, Optional, Tuple, TypeVar, Union

import torch

from .corpus import case


@case(one_graph=True)
def case_closure_reads(x):
    scale = x.size(0)

    def inner(t):
        return t * scale

    return inner(x)


@case(one_graph=True)
def case_nonlocal(x):
    count = 0

    def step(t):
        nonlocal count
        count += 1
        return t + count

    return step(step(x)), count


@case(one_graph=True)
def case_nonlocal_tensor(x):
    total = torch.zeros(4)

    def add(row):
        nonlocal total
        total = total + row

    for row in x:
        add(row)
    return total


@case(one_graph=True)
def case_late_binding(x):
    functions = [lambda t: t + i for i in range(3)]  # noqa: B023
    return [function(x) for function in functions]


@case(one_graph=True)
def case_bound_by_default(x):
    functions = [lambda t, i=i: t + i for i in range(3)]
    return [function(x) for function in functions]


@case(one_graph=True)
def case_two_closures_share_a_cell(x):
    value = x

    def get():
        return value

    def put(t):
        nonlocal value
        value = t

    put(get() * 2)
    put(get() + 1)
    return get(), value


@case(one_graph=True)
def case_returned_closure(x):
    y = x * 2

    def later(t):
        return t + y

    return later, later(x)


@case(one_graph=True)
def case_returned_counter(x):
    count = 0

    def counter():
        nonlocal count
        count += 1
        return count

    counter()
    return x + counter(), counter


@case(one_graph=True)
def case_three_levels(x):
    a = 1

    def outer(t):
        b = 2

        def middle(u):
            def inner(v):
                return v + a + b

            return inner(u) * b

        return middle(t) - a

    return outer(x)


def make_scaler(scale):
    offset = torch.ones(4)

    def scaler(x):
        return x * scale + offset

    return scaler


scaler_of_two = make_scaler(2)


@case(one_graph=True)
def case_global_closure(x):
    return scaler_of_two(x)


def make_accumulator():
    total = []

    def accumulate(x):
        total.append(x)
        return len(total)

    return accumulate, total


@case(one_graph=True, inputs=lambda: (torch.ones(2), *make_accumulator()))
def case_closure_from_outside_is_changed(x, accumulate, total):
    accumulate(x * 2)
    return x + accumulate(x), total[-1]


def make_stepper():
    steps = 0

    def step(x):
        nonlocal steps
        steps += 1
        return x + steps

    return step


@case(one_graph=True, inputs=lambda: (torch.ones(2), make_stepper()))
def case_cell_from_outside_is_changed(x, step):
    return step(x), step(x) * 2


@case(one_graph=False)
def case_unbound_cell(x):
    def reader():
        return later

    if x.dim() == 3:
        later = 1
    return reader()


@case(one_graph=False)
def case_deleted_local(x):
    y = x + 1
    del y
    return y  # noqa: F821


@case(one_graph=False)
def case_class_in_function_uses_cell(x):
    scale = 3

    class Local:
        def apply(self, t):
            return t * scale

    return Local().apply(x)


@case(one_graph=True)
def case_recursive_closure(x):
    def walk(tree):
        if isinstance(tree, (list, tuple)):
            return sum(walk(node) for node in tree)
        return tree

    return walk([x, (x * 2, [x * 3])])


@case(one_graph=True)
def case_cell_of_an_argument(x):
    def change():
        nonlocal x
        x = x * 2

    change()
    change()
    return x


Item = TypeVar("Item")


@case(one_graph=True)
def case_annotations_of_typing(x):
    def inner(
        tensors: List[torch.Tensor], table: Dict[str, List[Item]], mode: Literal["a", 3], *rest: Tuple[int, ...]
    ) -> Optional[Callable[[int], "torch.Tensor"]]:
        return tensors[0] * len(table)

    return (
        inner([x], {"a": []}, 3),
        inner.__annotations__["tensors"] is List[torch.Tensor],
        Optional[int] == Union[int, None],
    )
