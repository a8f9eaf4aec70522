"""Changes that outlive the call: globals, module state, arguments, and their order around graph breaks."""

import random

import torch

from .corpus import case, tensor

COUNTER = 0
LOG = []
TABLE = {"n": 1}
LAST = None


class State:
    steps = 0


@case(one_graph=True, changes=["COUNTER"])
def case_global_counter(x):
    global COUNTER
    COUNTER += 1
    return x + COUNTER


@case(one_graph=True, changes=["LAST"])
def case_global_tensor(x):
    global LAST
    previous = LAST
    LAST = x * 2
    return previous


@case(one_graph=True, changes=["LOG"])
def case_global_list(x):
    LOG.append(x.sum())
    LOG.append(len(LOG))
    return x + len(LOG)


@case(one_graph=True, changes=["TABLE"])
def case_global_dict(x):
    TABLE["n"] += 1
    TABLE["x"] = x
    return TABLE["n"] * x


@case(one_graph=False, changes=["COUNTER", "LOG"])
def case_order_around_break(x):
    global COUNTER
    LOG.append(("before", COUNTER))
    COUNTER += 1
    y = x + COUNTER
    print(end="")
    LOG.append(("after", COUNTER))
    COUNTER += 1
    return y * COUNTER


@case(one_graph=True, changes=["COUNTER"])
def case_global_in_callee(x):
    def bump():
        global COUNTER
        COUNTER = COUNTER + 10
        return COUNTER

    return x + bump() + bump(), COUNTER


@case(one_graph=False, changes=["LOG"])
def case_effects_before_error(x):
    LOG.append("one")
    y = x + 1
    LOG.append(y)
    raise RuntimeError("after effects")


@case(one_graph=True, inputs=lambda: (tensor(), State()))
def case_instance_hides_class_attribute(x, state):
    state.steps += 1
    return x + state.steps, State.steps


@case(inputs=lambda: (tensor(), [], {}))
def case_arguments_refer_to_one_another(x, items, table):
    items.append(table)
    table["items"] = items
    table["x"] = x + 1
    return items[0]["items"] is items


@case(one_graph=True, inputs=lambda: (tensor(), [1, 2]))
def case_new_object_is_stored(x, items):
    made = {"x": x * 2}
    items.append(made)
    made["later"] = 1
    return made


@case(one_graph=False, inputs=lambda: (tensor(), [3, 1, 2]))
def case_list_argument_is_reordered(x, items):
    items.sort()
    items.reverse()
    first = items.pop(0)
    items[:] = [n * first for n in items]
    return x * first


@case(one_graph=True, inputs=lambda: (tensor(), [1]))
def case_argument_is_cleared_and_refilled(x, items):
    n = items[0]
    items.clear()
    items.extend([n + 1, x])
    return x * n


@case(one_graph=True, inputs=lambda: (tensor(), torch.zeros(3, 4)))
def case_buffer_is_updated(x, buffer):
    buffer.mul_(0.9).add_(x, alpha=0.1)
    return buffer + x


@case(one_graph=True, inputs=lambda: (tensor(), torch.zeros(3, 4), []))
def case_tensor_change_and_list_change(x, buffer, items):
    items.append(buffer)
    buffer.add_(x)
    items.append(buffer + 1)
    return items[0] is buffer


@case(one_graph=True, inputs=lambda: (tensor(), {"a": 1}))
def case_effect_is_undone(x, table):
    table["temporary"] = x
    y = table["temporary"] + 1
    del table["temporary"]
    return y


@case(one_graph=False)
def case_python_random(x):
    random.seed(4)
    return x * random.random(), random.randint(0, 9), random.choice([1, 2, 3])


@case(one_graph=False)
def case_print_in_the_middle(x):
    y = x + 1
    print(end="")
    return y * 2


@case(one_graph=True, inputs=lambda: (tensor(), []))
def case_callback_in_argument(x, calls):
    def callback(value):
        calls.append(value)
        return value + 1

    return callback(callback(x)), len(calls)


@case(one_graph=True, changes=["TABLE"])
def case_global_object_is_replaced(x):
    global TABLE
    TABLE = {"n": TABLE["n"] + 1, "x": x}
    return x + TABLE["n"]


@case(one_graph=False, inputs=lambda: (tensor(), [0]))
def case_loop_of_effects_and_breaks(x, items):
    for i in range(3):
        items[0] += i
        x = x + items[0]
        print(end="")
        items.append(x.sum())
    return x


@case(one_graph=True, changes=["LOG"])
def case_alias_of_global(x):
    alias = LOG
    alias.append(x)
    return LOG is alias, LOG[-1] + 1
