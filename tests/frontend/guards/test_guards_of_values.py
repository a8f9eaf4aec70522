"""Guards of containers, numbers, tensors and torch's global state."""

import enum
import math
import sys

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import torchmux

from .guarding import Other, Thing, case, cases_of, check, vector


class Color(enum.Enum):
    RED = 1
    BLUE = 2


# --- containers ---------------------------------------------------------------------------------------------------


@case
def list_argument():
    yield lambda x, items: x * len(items) + items[0], (vector(), [1, 2])
    yield vector(), [1, 2, 3]
    yield vector(), [2, 2]
    yield vector(), (2, 2)
    yield vector(), [torch.ones(3), 2]


@case
def empty_list():
    yield lambda x, items: x + 1 if items else x - 1, (vector(), [])
    yield vector(), [0]


@case
def list_iteration():
    yield lambda x, items: [x * i for i in items], (vector(), [1, 2])
    yield vector(), [2, 1]
    yield vector(), [1]


@case
def dictionary_argument():
    yield lambda x, table: x * table["a"], (vector(), {"a": 1})
    yield vector(), {"a": 2}
    yield vector(), {"a": 2, "b": 1}
    yield vector(), {"a": torch.ones(3)}


@case
def dictionary_keys():
    yield lambda x, table: [x * len(k) for k in table], (vector(), {"a": 1, "bb": 1})
    yield vector(), {"bb": 1, "a": 1}
    yield vector(), {"a": 1}


@case
def dictionary_key_type():
    yield lambda x, table: [x if k is True else x * 2 for k in table], (vector(), {1: 0})
    yield vector(), {True: 0}
    yield vector(), {1.0: 0}


@case
def dictionary_key_appears():
    yield lambda x, table: x + table.get("b", 1) + ("c" in table), (vector(), {"a": 1})
    yield vector(), {"b": 5}
    yield vector(), {"c": 5}


@case
def dictionary_is_empty():
    yield lambda x, table: x + 1 if table else x - 1, (vector(), {})
    yield vector(), {"a": 1}


@case
def dictionary_class():
    class Loud(dict):
        def __getitem__(self, key):
            return 100

    yield lambda x, table: x * table["a"], (vector(), {"a": 1})
    yield vector(), Loud(a=1)


@case
def set_argument():
    yield lambda x, names: x + len(names) if "a" in names else x, (vector(), {"a"})
    yield vector(), {"a", "b"}
    yield vector(), {"b"}


@case
def order_of_a_set():
    grown = set(range(100))
    for i in range(100):
        if i not in (9, 16):
            grown.discard(i)
    yield lambda x, names: [x * n for n in names], (vector(), {16, 9})
    yield vector(), grown
    yield vector(), {16, 9}


@case
def nested_argument():
    yield lambda x, tree: x * tree["a"][0]["b"], (vector(), {"a": [{"b": 1}]})
    yield vector(), {"a": [{"b": 2}]}


@case
def two_lists_become_one():
    def append(x, a, b):
        a.append(1)
        return x * len(b)

    yield append, (vector(), [1], [1])
    shared = [1]
    yield vector(), shared, shared


@case
def two_dictionaries_become_one():
    def store(x, a, b):
        a["k"] = 5
        return x * b["k"]

    yield store, (vector(), {"k": 1}, {"k": 1})
    shared = {"k": 1}
    yield vector(), shared, shared


@case
def two_objects_become_one():
    def store(x, a, b):
        a.value = 5
        return x * b.value

    yield store, (vector(), Thing(1), Thing(1))
    shared = Thing(1)
    yield vector(), shared, shared


@case
def nested_list_becomes_the_outer_one():
    def append(x, a, b):
        a.append(1)
        return x * len(b[0])

    yield append, (vector(), [1], [[1]])
    shared = [1]
    yield vector(), shared, [shared]


@case
def identity_of_lists():
    shared = [1]
    yield lambda x, a, b: x + 1 if a is b else x - 1, (vector(), [1], [1])
    yield vector(), shared, shared


@case
def keyword_arguments():
    yield lambda x, **kwargs: [x * len(k) * v for k, v in kwargs.items()], (vector(),), {"a": 1}
    yield (vector(),), {"bb": 1}
    yield (vector(),), {"bb": 1, "a": 1}


# --- numbers and strings ------------------------------------------------------------------------------------------


@case
def numbers():
    yield lambda x, n: (x + n, n), (vector(), 1)
    for n in (True, 1.0, 0, 0.0, -0.0, float("nan"), float("inf"), 2**70, 1j, False):
        yield vector(), n


@case
def signed_zero():
    yield lambda x, n: (x * n, math.copysign(1, n)), (vector(), 0.0)
    yield vector(), -0.0


@case
def signed_zero_of_complex_numbers():
    yield lambda x, n: (x + 1, n), (vector(), complex(0.0, 0.0))
    yield vector(), complex(-0.0, 0.0)
    yield vector(), complex(0.0, float("nan"))


@case
def strings():
    yield lambda x, s: (x * len(s), s), (vector(), "a")
    yield vector(), "bb"
    yield vector(), "{x}"
    yield vector(), b"a"


@case
def long_strings():
    yield lambda x, s: (x + 1 if s.endswith("a") else x, s), (vector(), "a" * 100)
    yield vector(), "a" * 99 + "b"


@case
def none():
    yield lambda x, other: x * 2 if other is None else x + other, (vector(), None)
    yield vector(), 0
    yield vector(), torch.ones(3)
    yield vector(), None


@case
def enum_member():
    yield lambda x, c: x * c.value, (vector(), Color.RED)
    yield vector(), Color.BLUE


@case
def dtype_argument():
    yield lambda x, t: x.to(t), (vector(), torch.float64)
    yield vector(), torch.int32


@case
def slice_argument():
    yield lambda x, s: x[s], (vector(), slice(0, 2))
    yield vector(), slice(0, 1)
    yield vector(), slice(None, None, 2)
    yield vector(), 1


@case
def class_argument():
    yield lambda x, cls: x + cls(2).value, (vector(), Thing)
    yield vector(), Other
    yield vector(), lambda v: Thing(v + 1)


# --- tensors ------------------------------------------------------------------------------------------------------


@case
def shape():
    yield lambda x: x.reshape(-1) * x.dim() + x.shape[0], (torch.ones(2, 3),)
    yield (torch.ones(3, 2),)
    yield (torch.ones(4, 5),)
    yield (torch.ones(6),)
    yield (torch.ones(1, 6),)
    yield (torch.ones(0, 6),)


@case
def stride():
    yield lambda x: (x + 1, x.is_contiguous(), x.stride()), (torch.ones(3, 3),)
    yield (torch.ones(3, 3).t(),)
    yield (torch.ones(3, 6)[:, ::2],)


@case
def storage_offset():
    base = torch.arange(8.0)
    yield lambda x: x + x.storage_offset(), (base[:4],)
    yield (base[4:],)


@case
def dtype():
    yield lambda x: (x + 1, x.dtype), (torch.ones(3),)
    yield (torch.ones(3, dtype=torch.float64),)
    yield (torch.ones(3, dtype=torch.int64),)


@case
def device():
    yield lambda x: (x + 1, x.device.type), (torch.ones(3),)
    yield (torch.ones(3, device="meta"),)


@case
def requires_grad():
    yield lambda x: (x * 2, x.requires_grad), (torch.ones(3),)
    yield (torch.ones(3, requires_grad=True),)


@case
def is_leaf():
    leaf = torch.ones(3, requires_grad=True)
    yield lambda x: (x * 2, x.is_leaf), (leaf,)
    yield (leaf * 1,)


@case
def grad():
    x = torch.ones(3, requires_grad=True)
    yield lambda t: t.detach() + 1 if t.grad is None else t.detach() + t.grad, (x,)
    x.sum().backward()
    yield (x,)


@case
def class_of_tensor():
    yield (
        lambda x: (x.detach() * 2, type(x) is torch.Tensor, isinstance(x, torch.nn.Parameter)),
        (torch.ones(3, requires_grad=True),),
    )
    yield (torch.nn.Parameter(torch.ones(3)),)


@case
def tensor_becomes_something_else():
    yield lambda x: x * 2, (torch.ones(3),)
    yield (3,)
    yield ([3],)
    yield ("a",)


@case
def two_tensors_become_one():
    def change(a, b):
        a.add_(1)
        return b * 2, a is b

    yield change, (torch.ones(3), torch.ones(3))
    shared = torch.ones(3)
    yield shared, shared
    yield torch.ones(3), torch.ones(3)


@case
def one_tensor_becomes_two():
    def change(a, b):
        a.add_(1)
        return b * 2, a is b

    shared = torch.ones(3)
    yield change, (shared, shared)
    yield torch.ones(3), torch.ones(3)


@case
def two_tensors_become_views_of_one():
    def change(a, b):
        a.add_(1)
        return b * 2

    yield change, (torch.ones(3), torch.ones(3))
    base = torch.ones(4)
    yield base[:3], base[1:]


@case
def tensor_attribute():
    marked = torch.ones(3)
    yield lambda x: x * getattr(x, "by", 1), (torch.ones(3),)
    marked.by = 5
    yield (marked,)


@case
def conjugate():
    x = torch.ones(3, dtype=torch.complex64) * 1j
    yield lambda t: torch.view_as_real(t.resolve_conj()) + t.is_conj(), (x,)
    yield (x.conj(),)


@case
def inference_tensor():
    yield lambda x: (x * 2, x.is_inference()), (torch.ones(3),)
    with torch.inference_mode():
        made = torch.ones(3)
    yield (made,)


# --- torch's global state -----------------------------------------------------------------------------------------


@case
def grad_mode():
    x = torch.ones(3, requires_grad=True)
    yield lambda t: (t * 2, torch.is_grad_enabled()), (x,)
    with torch.no_grad():
        yield (x,)
    with torch.inference_mode():
        yield (torch.ones(3),)
    yield (x,)


@case
def dispatch_modes():
    yield lambda x: x + torch._C._len_torch_dispatch_stack(), (torch.ones(3),)
    with FlopCounterMode(display=False):
        yield (torch.ones(3),)
    yield (torch.ones(3),)


@case
def inference_mode_without_tensors():
    yield lambda n: (torch.ones(n), torch.is_inference_mode_enabled()), (3,)
    with torch.inference_mode():
        yield (3,)


@case
def autocast():
    a = torch.ones(3, 3)
    yield lambda t: (t @ t, torch.is_autocast_enabled("cpu")), (a,)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        yield (a,)
        with torch.autocast("cpu", enabled=False):
            yield (a,)
    with torch.autocast("cpu", dtype=torch.float16):
        yield (a,)


@case
def default_dtype():
    yield lambda x: (torch.ones(2), torch.tensor(1.5), x.int() / 2), (vector(),)
    torch.set_default_dtype(torch.float64)
    try:
        yield (vector(),)
    finally:
        torch.set_default_dtype(torch.float32)


@case
def default_device():
    yield lambda x: (torch.ones(2).device.type, x + 1), (vector(),)
    with torch.device("meta"):
        yield (torch.ones(3, device="cpu"),)


@case
def deterministic_flag():
    yield lambda x: (x + 1, torch.are_deterministic_algorithms_enabled()), (vector(),)
    torch.use_deterministic_algorithms(True)
    try:
        yield (vector(),)
    finally:
        torch.use_deterministic_algorithms(False)


@case
def matmul_precision():
    yield lambda x: (x + 1, torch.get_float32_matmul_precision()), (vector(),)
    torch.set_float32_matmul_precision("high")
    try:
        yield (vector(),)
    finally:
        torch.set_float32_matmul_precision("highest")


@case
def torch_function_mode():
    class Doubles(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            result = func(*args, **(kwargs or {}))
            return result * 2 if func is torch.Tensor.add else result

    yield lambda x: x.add(1), (vector(),)
    with Doubles():
        yield (vector(),)


@case
def exception_of_the_caller():
    yield lambda x: x + 1 if sys.exc_info()[1] is None else x - 1, (vector(),)
    try:
        raise KeyError
    except KeyError:
        yield (vector(),)


@case
def stride_of_a_dimension_of_size_one():
    yield lambda x: x + x.stride(0), (torch.ones(1, 3),)
    yield (torch.ones(1, 3).as_strided((1, 3), (7, 1)),)


@pytest.mark.parametrize("name", cases_of(__name__))
def test_change_is_noticed(name):
    check(cases_of(__name__)[name])


def test_subclasses_come_and_go():
    class Base:
        pass

    class First(Base):
        scale = 2

    def fn(x):
        return x * sum(each.scale for each in Base.__subclasses__()), [each.__name__ for each in Base.__subclasses__()]

    compiled, x = torchmux.compile(fn, backend="eager", fullgraph=True), torch.ones(2)

    def check():
        found, names = compiled(x)
        expected, others = fn(x)
        assert torch.equal(found, expected)
        assert names == others

    check()
    Second = type("Second", (Base,), {"scale": 5})
    check()
    Second.scale = 7
    check()
    type("Third", (First,), {"scale": 1})  # derives from another
    check()
    Second.__bases__ = (First,)
    check()
