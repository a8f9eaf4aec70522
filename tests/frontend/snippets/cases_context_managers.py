"""`with`: torch's contexts, our own classes, contextlib, suppressing, breaks and errors inside."""

import contextlib

import torch

from .corpus import case, tensor


class Logged:
    def __init__(self, log, name="", swallow=False):
        self.log, self.name, self.swallow = log, name, swallow

    def __enter__(self):
        self.log.append(f"enter {self.name}")
        return self

    def __exit__(self, kind, value, traceback):
        self.log.append(f"exit {self.name} {kind.__name__ if kind else None}")
        return self.swallow


def with_grad():
    return (tensor().requires_grad_(),)


@case(one_graph=True, inputs=with_grad)
def case_no_grad(x):
    with torch.no_grad():
        y = x * 2
    return y, x * 3


@case(one_graph=True, inputs=with_grad)
def case_enable_grad_inside_no_grad(x):
    with torch.no_grad():
        a = x + 1
        with torch.enable_grad():
            b = x + 2
        c = x + 3
    return a, b, c, torch.is_grad_enabled()


@case(one_graph=True, inputs=with_grad)
def case_set_grad_enabled(x):
    with torch.set_grad_enabled(False):
        y = x * 2
    with torch.set_grad_enabled(True):
        z = x * 2
    return y, z


@case(one_graph=True, inputs=with_grad)
def case_set_grad_enabled_and_left(x):
    torch.set_grad_enabled(False)
    return x * 2


@case(one_graph=True, inputs=with_grad)
def case_no_grad_decorator(x):
    @torch.no_grad()
    def inner(t):
        return t * 2

    return inner(x), x + 1


@case(one_graph=False, inputs=with_grad)
def case_inference_mode(x):
    with torch.inference_mode():
        y = x * 2
    return y.is_inference(), y.sum().item()


@case(one_graph=True)
def case_autocast(x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = x @ x.t()
    return y, x @ x.t()


@case(one_graph=False, inputs=with_grad)
def case_break_inside_no_grad(x):
    with torch.no_grad():
        y = x * 2
        print(end="")
        z = y + x
    return y, z, x + z


@case(one_graph=True, inputs=with_grad)
def case_return_inside_no_grad(x):
    with torch.no_grad():
        return x * 2


@case(one_graph=True)
def case_user_context(x):
    log = []
    with Logged(log, "a") as context:
        x = x + len(context.name)
    return x, log


@case(one_graph=True)
def case_nested_contexts(x):
    log = []
    with Logged(log, "a"), Logged(log, "b"):
        x = x + len(log)
    return x, log


@case(one_graph=True)
def case_context_suppresses(x):
    log = []
    with Logged(log, "s", swallow=True):
        x = x + 1
        raise ValueError("gone")
    return x, log


@case(one_graph=True)
def case_context_lets_through(x):
    log = []
    try:
        with Logged(log, "t"):
            raise KeyError("seen")
    except KeyError:
        log.append("caught")
    return x, log


@case(one_graph=False, inputs=lambda: (tensor(), []))
def case_uncaught_through_context(x, log):
    with Logged(log, "u"):
        log.append(x + 1)
        raise KeyError("out")


@case(one_graph=True)
def case_return_in_context(x):
    log = []

    def work():
        with Logged(log, "r"):
            return x + 1

    return work(), log


@case(one_graph=True)
def case_break_and_continue_in_context(x):
    log = []
    for i in range(4):
        with Logged(log, str(i)):
            if i == 1:
                continue
            if i == 3:
                break
            x = x + i
    return x, log


@contextlib.contextmanager
def noting(log, value):
    log.append("before")
    try:
        yield value
    except ValueError as error:
        log.append(str(error))
    finally:
        log.append("after")


@case(one_graph=True)
def case_contextmanager(x):
    log = []
    with noting(log, x * 2) as y:
        x = x + y
    return x, log


@case(one_graph=True)
def case_contextmanager_swallows(x):
    log = []
    with noting(log, 1):
        raise ValueError("inside")
    return x, log


@case(one_graph=True)
def case_suppress(x):
    with contextlib.suppress(KeyError, IndexError):
        x = x + 1
        x = x + {}["a"]
    return x


@case(one_graph=True)
def case_nullcontext(x):
    with contextlib.nullcontext(x + 1) as y:
        return y * 2


@case(one_graph=True)
def case_exit_stack(x):
    log = []
    with contextlib.ExitStack() as stack:
        for name in "ab":
            stack.enter_context(Logged(log, name))
        stack.callback(log.append, "callback")
        x = x + 1
    return x, log


@case(one_graph=False)
def case_break_in_user_context(x):
    log = []
    with Logged(log, "b"):
        y = x + 1
        print(end="")
        z = y * 2
    return z, log


@case(one_graph=False, inputs=lambda: (tensor(), Logged([], "given")))
def case_context_object_from_outside(x, context):
    with context:
        x = x + 1
    return x


@case(one_graph=False)
def case_context_without_exit(x):
    class Half:
        def __enter__(self):
            return self

    with Half():
        return x


@case(one_graph=True)
def case_contextmanager_as_decorator(x):
    log = []

    @noting(log, None)
    def work(t):
        return t + 1

    return work(x), log


@case(one_graph=True)
def case_autocast_as_decorator(x):
    @torch.autocast("cpu", dtype=torch.bfloat16)
    def product(a):
        return a @ a.T, torch.is_autocast_enabled("cpu")

    return product(x), product(x)[0].dtype, torch.is_autocast_enabled("cpu"), product.__name__
