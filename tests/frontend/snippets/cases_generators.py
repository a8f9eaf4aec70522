"""Generators: laziness, send, throw, close, `yield from`, return values, generator expressions, iterator classes."""

import torch

from .corpus import case, tensor


def powers(x, n):
    y = x
    for _ in range(n):
        yield y
        y = y * x


def noted(log, items):
    try:
        for item in items:
            log.append(("give", item))
            yield item
    finally:
        log.append("closed")


@case(one_graph=True)
def case_generator_in_for(x):
    total = x
    for y in powers(x, 3):
        total = total + y
    return total


@case(one_graph=True)
def case_generator_to_list(x):
    return list(powers(x, 3)), tuple(powers(x, 2))


@case(one_graph=True)
def case_generator_expression(x):
    return sum(row.sum() for row in x), max(i * 2 for i in range(3))


@case(one_graph=True)
def case_generator_next(x):
    generator = powers(x, 2)
    first = next(generator)
    second = next(generator)
    return first, second, next(generator, "end")


@case(one_graph=False)
def case_generator_exhausted(x):
    generator = powers(x, 1)
    next(generator)
    next(generator)


@case(one_graph=True)
def case_generator_send(x):
    def running(t):
        total = t
        while True:
            item = yield total
            if item is None:
                return
            total = total + item

    generator = running(x)
    next(generator)
    generator.send(1)
    return generator.send(x)


@case(one_graph=True)
def case_generator_throw(x):
    def careful(t):
        try:
            yield t
        except KeyError as error:
            yield t * 2, error.args

    generator = careful(x)
    next(generator)
    return generator.throw(KeyError("thrown"))


@case(one_graph=True)
def case_generator_close(x):
    log = []
    generator = noted(log, [1, 2, 3])
    y = x + next(generator)
    generator.close()
    return y, log


@case(one_graph=True)
def case_generator_left_early(x):
    log = []
    generator = noted(log, [1, 2, 3])
    for item in generator:
        x = x + item
        if item == 2:
            break
    generator.close()
    return x, log


@case(one_graph=False)
def case_yield_from(x):
    def inner():
        yield x
        received = yield x + 1
        return received

    def outer():
        result = yield from inner()
        yield result
        yield from [1, 2]

    generator = outer()
    return next(generator), next(generator), generator.send("sent"), list(generator)


@case(one_graph=True)
def case_generator_return_value(x):
    def gives():
        yield x
        return x * 2

    generator = gives()
    next(generator)
    try:
        next(generator)
    except StopIteration as stop:
        return stop.value


@case(one_graph=True)
def case_laziness_order(x):
    log = []

    def source():
        for i in range(3):
            log.append(f"source {i}")
            yield i

    def doubled(items):
        for item in items:
            log.append(f"double {item}")
            yield item * 2

    for item in doubled(source()):
        log.append(f"use {item}")
        x = x + item
    return x, log


@case(one_graph=True)
def case_infinite_generator(x):
    def naturals():
        n = 0
        while True:
            yield n
            n += 1

    for n in naturals():
        if n > 3:
            break
        x = x + n
    return x


@case(one_graph=True)
def case_generator_raises(x):
    def failing():
        yield x
        raise ValueError("from the generator")

    seen = []
    try:
        for item in failing():
            seen.append(item + 1)
    except ValueError as error:
        seen.append(str(error))
    return seen


@case(one_graph=False)
def case_stop_iteration_in_generator(x):
    def wrong():
        yield x
        raise StopIteration

    return list(wrong())


class Countdown:
    def __init__(self, n):
        self.n = n

    def __iter__(self):
        return self

    def __next__(self):
        if self.n <= 0:
            raise StopIteration
        self.n -= 1
        return self.n


class Rows:
    def __init__(self, x):
        self.x = x

    def __iter__(self):
        for i in range(self.x.size(0)):
            yield self.x[i]


class OldSequence:
    def __getitem__(self, index):
        if index >= 3:
            raise IndexError
        return index * 10


@case(one_graph=True)
def case_iterator_class(x):
    for n in Countdown(3):
        x = x + n
    return x, list(Countdown(2)), 1 in Countdown(3)


@case(one_graph=True)
def case_iterable_with_generator_method(x):
    return [row + 1 for row in Rows(x)], sum(Rows(x))


@case(one_graph=True)
def case_old_sequence_protocol(x):
    return [x + item for item in OldSequence()], 10 in OldSequence()


@case(one_graph=False, inputs=lambda: (tensor(), iter([1, 2, 3])))
def case_iterator_argument_is_consumed(x, iterator):
    return x + next(iterator)


@case(one_graph=True, inputs=lambda: (tensor(), Countdown(5)))
def case_iterator_object_is_changed(x, countdown):
    for n in countdown:
        if n == 2:
            break
        x = x + n
    return x


@case(one_graph=True)
def case_tree_walk(x):
    def leaves(tree):
        for node in tree:
            if isinstance(node, list):
                yield from leaves(node)
            else:
                yield node

    return torch.stack(list(leaves([x, [x + 1, [x + 2]], x + 3])))


@case(one_graph=True)
def case_zip_of_generators(x):
    left, right = powers(x, 3), powers(x + 1, 2)
    pairs = [a - b for a, b in zip(left, right)]  # noqa: B905
    return pairs, list(left)


@case(one_graph=True)
def case_empty_generator(x):
    def nothing():
        return
        yield

    return x + len(list(nothing()))


@case(one_graph=False)
def case_break_inside_generator_loop(x):
    parts = []
    for y in powers(x, 3):
        print(end="")
        parts.append(y + 1)
    return parts


def shifted_after_a_break(x):
    torch._dynamo.graph_break()
    return x + 1


SEVERAL = (lambda x: x * 2, shifted_after_a_break, torch.sin)


@case(one_graph=True)
def case_generator_calls_what_a_tuple_holds(x):
    functions = (torch.cos, lambda x: x * 2, torch.nn.functional.gelu, torch.nn.ReLU())
    return tuple(f(x) for f in functions), [f(x) for f in functions], {i: f(x) for i, f in enumerate(functions)}


@case(one_graph=False)
def case_generator_breaks_in_what_it_calls(x):
    y = x.cos() + 1
    found = tuple(f(y) for f in SEVERAL)
    return found, y, list(f(y) * scale for f, scale in zip(SEVERAL, (1, 2, 3)))


@case(one_graph=False)
def case_generator_breaks_over_a_chain(x):
    import itertools

    y = x.cos() + 1
    return sum(f(y) for f in itertools.chain(SEVERAL, SEVERAL))


@case(one_graph=False)
def case_generator_function_breaks_with_all_kinds_of_arguments(x):
    def each(a, *functions, times=1, **others):
        for f in functions:
            yield f(a) * times + others["e"]

    y = x.cos() * 3
    unstarted = each(y, *SEVERAL, times=4, e=y)
    return list(unstarted), list(unstarted), y


@case(one_graph=False)
def case_generator_breaks_and_counts_outside(x):
    n = 0

    def each():
        nonlocal n
        for f in SEVERAL:
            n += 1
            yield f(x) + n

    made = each()
    y = x.sin()
    found = list(made)
    return found, n, y


@case(one_graph=False)
def case_generator_of_generator_breaks(x):
    y = x.cos()
    inner = (f(y) for f in SEVERAL)
    outer = (a + 1 for a in inner)
    return list(outer), list(inner)


@case(one_graph=False)
def case_generator_kept_over_a_break(x):
    kept = (f(x) for f in (torch.sin, torch.cos))
    y = x * 2
    torch._dynamo.graph_break()
    return list(kept), y
