"""Branches, loops, `else` of loops, unpacking, chained comparisons, conditional expressions."""

import itertools

import torch

from .corpus import case, tensor


@case(one_graph=True)
def case_if_on_shape(x):
    if x.shape[0] > 2:
        return x + 1
    return x - 1


@case(one_graph=False)
def case_if_on_tensor_value(x):
    if x.sum() > 0:
        y = x * 2
    else:
        y = x * 3
    return y + 1


@case(one_graph=False)
def case_while_on_tensor_value(x):
    steps = 0
    while x.abs().max() > 0.5:
        x = x / 2
        steps += 1
    return x, steps


@case(one_graph=True)
def case_for_range(x):
    for i in range(4):
        x = x * i + 1
    return x


@case(one_graph=True)
def case_for_else_break(x):
    for i in range(5):
        if i == 3:
            x = x + i
            break
    else:
        x = x * 0
    return x


@case(one_graph=True)
def case_for_else_no_break(x):
    for i in range(3):
        if i > 7:
            break
        x = x + i
    else:
        x = x * 2
    return x


@case(one_graph=True)
def case_while_else_continue(x):
    n = 0
    while n < 6:
        n += 1
        if n % 2:
            continue
        x = x + n
    else:
        x = -x
    return x, n


@case(one_graph=True)
def case_nested_loops_break_outer(x):
    found = None
    for i in range(3):
        for j in range(3):
            if i * j == 2:
                found = (i, j)
                break
            x = x + i - j
        if found:
            break
    return x, found


@case(one_graph=True)
def case_iterate_rows(x):
    total = torch.zeros(4)
    for row in x:
        total = total + row.relu()
    return total


@case(one_graph=True)
def case_unpack_rows(x):
    a, *rest = x
    first, second = rest
    return a + second, first


@case(one_graph=True)
def case_unpack_nested(x):
    (a, b), [c, *d] = (x, x + 1), [x.sin(), 1, 2]
    return a + b + c, d


@case(one_graph=True)
def case_swap(x):
    a, b = x, x * 2
    a, b = b, a
    return a - b


@case(one_graph=True)
def case_chained_comparison(x):
    n = x.size(1)
    if 1 < n <= 4 != 5:
        return x.exp()
    return x


@case(one_graph=True)
def case_conditional_expression(x):
    scale = 2 if x.dim() == 2 else 3
    return x * scale if scale else x


@case(one_graph=True)
def case_and_or_values(x):
    name = None or "" or "name"
    width = x.shape[1] and x.shape[0]
    return x + len(name), width, (0 or []), (1 and None)


@case(one_graph=True)
def case_walrus(x):
    if (n := x.numel()) > 10:
        return x * n
    return x, n


@case(one_graph=True, inputs=lambda: (tensor(), None))
def case_none_argument(x, bias):
    if bias is not None:
        x = x + bias
    return x * 2


@case(one_graph=True, inputs=lambda: (tensor(), "gelu"))
def case_string_dispatch(x, kind):
    if kind == "relu":
        return x.relu()
    elif kind in ("gelu", "silu"):
        return torch.nn.functional.gelu(x)
    raise ValueError(kind)


@case(one_graph=True, inputs=lambda: (tensor(), True, 3))
def case_flags(x, flag, n):
    while flag:
        x = x + n
        n -= 1
        flag = n > 0
    return x, n, flag


@case(one_graph=True)
def case_assert_passes(x):
    assert x.dim() == 2, "two dimensions"
    return x.t()


@case(one_graph=True)
def case_augmented_assignment_rebinds(x):
    y = x
    n = 5
    n //= 2
    n **= 3
    y = y + n
    return y, n


@case(one_graph=False)
def case_break_in_the_middle_of_work(x):
    y = x * 2
    print(end="")
    z = y + 1
    print(end="")
    return z * y


@case(one_graph=False)
def case_item_then_branch(x):
    n = int(x.sum().item())
    return x[:1] if n % 2 else x[:2], n


@case(one_graph=True)
def case_del_local(x):
    y = x + 1
    del x
    x = y * 2
    del y
    return x


class Restarts:
    """An iterator that begins anew when it is asked for an iterator."""

    def __init__(self, size):
        self.size, self.asked = size, []

    def __iter__(self):
        self.asked.append("iter")
        self.number = 0
        return self

    def __next__(self):
        self.asked.append("next")
        self.number += 1
        if self.number > self.size:
            raise StopIteration
        return self.number


def noting(log):
    for number in range(5):
        log.append(number)
        yield number


@case(one_graph=True)
def case_unpacking_asks_for_no_more_than_it_needs(x):
    restarts, log = Restarts(3), []
    first, *rest = restarts
    found = [first, rest]
    for make in (lambda: Restarts(2), lambda: Restarts(5), lambda: noting(log), itertools.count):
        try:
            a, b = make()
            found.append((a, b))
        except ValueError as error:
            found.append(str(error))
    try:
        a, b, *rest = Restarts(1)
    except ValueError as error:
        found.append(str(error))
    a, *middle, b = noting(log)
    return x + a, b, middle, found, restarts.asked, log
