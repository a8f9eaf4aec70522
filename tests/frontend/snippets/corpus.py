"""The registry of snippets for differential testing, and what decides whether two runs of one did the same.

A snippet is a function that mixes tensors with one feature of Python. It is run eagerly and compiled, on inputs made
anew for each run, and everything that can be seen afterwards must agree: what it returned or raised, the inputs, the
globals that it changes, and which of all these are the same object or share memory.
"""

import collections
import copy
import importlib
import pathlib
import sys
import types
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

CASES = {}


@dataclass(frozen=True)
class Case:
    name: str
    function: Any
    # Whether torch's own Dynamo captures it with fullgraph=True; None where that is not known.
    one_graph: bool | None
    inputs: Any
    # Names of globals of its module that it changes: compared after each run and put back.
    changes: tuple

    @property
    def module(self):
        return sys.modules[self.function.__module__]


def tensor():
    """The input of most snippets: distinct values of both signs, exact in float32."""
    return (torch.arange(12, dtype=torch.float32).reshape(3, 4) - 4.5) / 4


def only_tensor():
    return (tensor(),)


def case(one_graph=None, inputs=only_tensor, changes=()):
    """Register a function named ``case_...`` as a snippet."""

    def register(function):
        name = function.__name__.removeprefix("case_")
        assert name not in CASES, f"two snippets are named {name}"
        CASES[name] = Case(name, function, one_graph, inputs, changes)
        return function

    return register


def load():
    """All snippets, by name."""
    for path in sorted(pathlib.Path(__file__).parent.glob("cases_*.py")):
        importlib.import_module(f"{__package__}.{path.stem}")
    return CASES


class Runner:
    """One way to run a snippet, with inputs and globals of its own, called as often as wanted."""

    def __init__(self, case, function):
        torch.default_generator.manual_seed(0)
        self.case = case
        self.function = function
        self.arguments = case.inputs()
        self.globals = {name: copy.deepcopy(getattr(case.module, name)) for name in case.changes}

    def call(self):
        """Call once; everything that can be seen afterwards."""
        module = self.case.module
        originals = {name: getattr(module, name) for name in self.case.changes}
        vars(module).update(self.globals)
        torch.default_generator.manual_seed(1)  # torch.manual_seed takes 2 ms
        result = error = None
        try:
            result = self.function(*self.arguments)
        except Exception as raised:
            error = raised.with_traceback(None)
        finally:
            grad_mode = torch.is_grad_enabled()
            torch.set_grad_enabled(True)
            self.globals = {name: vars(module).get(name) for name in originals}
            vars(module).update(originals)
        return {
            "result": result,
            "error": error,
            "arguments": self.arguments,
            "globals": self.globals,
            "grad mode": grad_mode,
            "random": torch.rand(2),
        }


def assert_alike(case, function, calls=2):
    """Fail unless `function` does what the snippet does, call by call, on inputs that live as long as the calls."""
    expected, actual = Runner(case, case.function), Runner(case, function)
    for number in range(1, calls + 1):
        assert_same(expected.call(), actual.call(), f"call {number}: ")


# Private attributes of a module that hold its state; the others hold hooks under running numbers.
_MODULE_STATE = ("_parameters", "_buffers", "_modules")


def assert_same(a, b, path="", memo=None):
    """Fail unless two values are alike all the way down, bit for bit, sharing the same objects in the same places.

    Numbers of tensors may differ by ``memo["close"]`` where it is given.
    """
    memo = {} if memo is None else memo
    assert _class(a) is _class(b), f"{path}: {type(a).__name__} and {type(b).__name__}"
    if isinstance(a, complex):
        assert repr(a) == repr(b), f"{path}: {a!r} and {b!r}"
        return
    if isinstance(a, (bool, int, str, bytes, types.NoneType, type, range, slice, types.ModuleType, torch.device)):
        assert a == b, f"{path}: {a!r} and {b!r}"
        return
    if isinstance(a, float):
        assert a.hex() == b.hex(), f"{path}: {a!r} and {b!r}"
        return
    if isinstance(a, tuple):
        assert len(a) == len(b), f"{path}: {len(a)} and {len(b)} items"
        for index, (x, y) in enumerate(zip(a, b, strict=True)):
            assert_same(x, y, f"{path}[{index}]", memo)
        if hasattr(a, "__dict__"):
            assert_same(vars(a), vars(b), path, memo)
        return
    if _met_before(memo, "object", id(a), id(b), path):
        return
    # What is compared must live as long as the memo that knows it by its address.
    memo.setdefault("alive", []).append((a, b))
    if isinstance(a, torch.Tensor):
        _same_tensors(a, b, path, memo)
    elif type(a) is dict:
        _same_dicts(a, b, path, memo)
    elif isinstance(a, np.ndarray):
        assert a.dtype == b.dtype and a.tolist() == b.tolist(), f"{path}: {a} and {b}"
    elif isinstance(a, (set, frozenset)):
        assert a == b, f"{path}: {a!r} and {b!r}"
    elif isinstance(a, torch.nn.Module):
        kept = [name for name in vars(a) if not name.startswith("_") or name in _MODULE_STATE]
        other = [name for name in vars(b) if not name.startswith("_") or name in _MODULE_STATE]
        _same_dicts({n: vars(a)[n] for n in kept}, {n: vars(b)[n] for n in other}, path, memo)
    elif isinstance(a, BaseException):
        # Python's words for running out of stack hang on the very instruction.
        assert str(a) == str(b) or isinstance(a, RecursionError), f"{path}: {a!r} and {b!r}"
        assert type(a.__cause__) is type(b.__cause__), f"{path}: caused by {a.__cause__!r} and {b.__cause__!r}"
    elif isinstance(a, types.FunctionType):
        assert a.__code__ is b.__code__, f"{path}: functions {a.__qualname__} and {b.__qualname__}"
        cells = [[cell.cell_contents for cell in function.__closure__ or ()] for function in (a, b)]
        assert_same(*cells, f"{path}.__closure__", memo)
    else:
        _same_objects(a, b, path, memo)


def _class(value):
    # A parametrized module has a class of its own, made for it from the one it had.
    cls = type(value)
    return cls.__base__ if issubclass(cls, torch.nn.Module) and "parametrizations" in vars(value)["_modules"] else cls


def _met_before(memo, kind, a, b, path):
    """Whether the pair is known; it is an error when one of the two is known as the partner of another."""
    known = memo.setdefault((kind, "a", a), b), memo.setdefault((kind, "b", b), a)
    assert known == (b, a), f"{path}: one run uses one {kind} here and elsewhere, the other run does not"
    known_pairs = memo.setdefault("pairs", set())
    if (kind, a, b) in known_pairs:
        return True
    known_pairs.add((kind, a, b))
    return False


def _same_tensors(a, b, path, memo):
    for what in ("dtype", "shape", "device", "requires_grad", "layout"):
        x, y = getattr(a, what), getattr(b, what)
        assert x == y, f"{path}.{what}: {x} and {y}"
    assert a.stride() == b.stride(), f"{path}: strides {a.stride()} and {b.stride()}"
    if a.device.type == "meta":
        return
    if a.layout is not torch.strided:
        a, b = a.to_dense(), b.to_dense()
    if "close" in memo:
        torch.testing.assert_close(a, b, rtol=memo["close"], atol=memo["close"], msg=lambda text: f"{path}: {text}")
    else:
        bits = [t.detach().resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8) for t in (a, b)]
        assert torch.equal(*bits), f"{path}: {a} and {b}"
    if a.numel():
        storages = [t.untyped_storage().data_ptr() for t in (a, b)]
        _met_before(memo, "memory", *storages, path)
    if a.is_leaf and b.is_leaf:
        assert_same(a.grad, b.grad, f"{path}.grad", memo)
    # Compilers mark parameters under names of torch's own; the user's attributes are what counts.
    kept = [{name: t.__dict__[name] for name in vars(t) if not name.startswith("_dynamo_")} for t in (a, b)]
    assert_same(*kept, path, memo)


def _same_dicts(a, b, path, memo):
    assert list(a) == list(b), f"{path}: keys {list(a)} and {list(b)}"
    for key in a:
        assert_same(a[key], b[key], f"{path}[{key!r}]", memo)


def _same_objects(a, b, path, memo):
    compared = False
    if isinstance(a, dict):
        compared = True
        _same_dicts(a, b, path, memo)
    elif isinstance(a, (list, collections.deque)):
        compared = True
        assert_same(tuple(a), tuple(b), path, memo)
    elif isinstance(a, types.GeneratorType):
        compared = True  # where one stands shows when it goes on
        assert a.__qualname__ == b.__qualname__, f"{path}: generators {a.__qualname__} and {b.__qualname__}"
    elif hasattr(type(a), "__next__") and type(a).__module__ == "builtins":
        # Where an iterator of a container stands is told only by what pickles it.
        compared = True
        assert_same(a.__reduce__(), b.__reduce__(), path, memo)
    attributes, others = _attributes(a), _attributes(b)
    if attributes is not None:
        compared = True
        _same_dicts(attributes, others, path, memo)
    if not compared:
        assert a == b, f"{path}: {a!r} and {b!r}"


def _attributes(value):
    """The instance attributes of an object, in slots too; None when its class has no room for any."""
    found = dict(vars(value)) if hasattr(value, "__dict__") else None
    for cls in type(value).__mro__:
        slots = cls.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            found = {} if found is None else found
            if name in ("__dict__", "__weakref__"):
                continue
            if hasattr(value, name):
                found[name] = getattr(value, name)
    return found
