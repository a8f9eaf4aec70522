"""Numbers that no guard knows: read from tensors, which are symbols if this is enabled, or drawn by ``random.Random``.

An optimizer reads its counts of steps in each step, and computes with them.  Those numbers stay in the graph.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import torch

from ..breaks import C_FUNCTION, DATA_DEPENDENT_BRANCH, REGION, TENSOR_TO_PYTHON, TORCH_STATE, GraphBreak
from ..capture.attempts import NeedsShapeEnv, NothingExpected
from ..guards.sources import Converted, Drawn, Source
from ..sizes import read_numbers
from ..sizes.read_numbers import as_tensor
from .base import GraphValue, Value
from .constants import ConstValue
from .containers.sequences import ListValue

if TYPE_CHECKING:
    from ..trace.tracer import FrameWriter, Tracer
    from .tensors import TensorValue

READS = frozenset({"item", "tolist", "__int__", "__float__", "__index__"})
_LONGEST_LIST = 1024
_MOST = 2**62  # of a symbolic integer


def read_number(tr: Tracer, tensor: TensorValue, name: str) -> Value:
    """``tensor.item()`` and its relatives."""
    if name == "item" and in_optimizer(tr) and tr.region is None and tensor.example.is_floating_point():
        return number_of(tr, tensor)
    if not tr.dims.scalars:
        raise GraphBreak(
            TENSOR_TO_PYTHON,
            f"Tensor.{name} on {tensor.describe()}; torchmux.config.capture_scalar_outputs = True captures it",
        )
    dtype = tensor.example.dtype
    if dtype.is_complex or (name == "__index__" and dtype.is_floating_point):
        raise GraphBreak(TENSOR_TO_PYTHON, f"Tensor.{name} on {tensor.describe()}")
    if not tr.symbolic:
        raise NeedsShapeEnv
    if name == "tolist":
        return _as_list(tr, tensor)
    if name == "__float__" and not dtype.is_floating_point:
        return _item(tr, tr.emit("call_method", "to", [tensor, ConstValue(torch.float64)], {}))
    if name in ("__int__", "__index__") and dtype is torch.bool:
        return _item(tr, tr.emit("call_method", "to", [tensor, ConstValue(torch.int64)], {}))
    number = _item(tr, tensor)
    if name == "__int__" and dtype.is_floating_point:
        return tr.emit("call_function", torch.sym_int, [number], {})
    return number


def _item(tr: Tracer, tensor: Value) -> Value:
    return tr.emit("call_method", "item", [tensor], {})


def _as_list(tr: Tracer, tensor: TensorValue) -> Value:
    if tensor.example.dim() == 0:
        return _item(tr, tensor)
    rows = tensor.unpack(tr)
    if len(rows) > _LONGEST_LIST:
        raise GraphBreak(
            TENSOR_TO_PYTHON, f"Tensor.tolist on {tensor.describe()}, which has more than {_LONGEST_LIST} items"
        )
    return ListValue([_as_list(tr, row) for row in rows])  # type: ignore[arg-type]


# --- numbers of optimizers ----------------------------------------------------------------------------------------


def in_optimizer(tr: Tracer) -> bool:
    """Whether what is traced is torch's code of optimizers."""
    return tr.frame is not None and str(tr.frame.namespace.get("__name__")).startswith("torch.optim.")


def number_of(tr: Tracer, tensor: TensorValue) -> Value:
    """The number in a tensor of floats, which stays in the graph."""
    if tensor.example.numel() != 1 or not tensor.example.is_floating_point():
        raise GraphBreak(TENSOR_TO_PYTHON, f"Tensor.item on {tensor.describe()}")
    tr.reads_numbers = True
    return ReadNumber.of(tr.emit("call_function", read_numbers.read, [tensor], {}))


class ReadNumber(GraphValue):
    """A float that the graph reads from a tensor, and what it computes from such floats.

    ``example`` is the tensor that it is for whoever traces the graph (:mod:`..sizes.read_numbers`).
    """

    __slots__ = ("example",)

    def __init__(self, node: Any, example: Any) -> None:
        self.node = node
        self.example = example
        self.source = None

    @classmethod
    def of(cls, carrier: Value) -> ReadNumber:
        """The number that is recorded as a tensor."""
        assert carrier.pytype() is torch.Tensor
        return cls(carrier.node, carrier.example)  # type: ignore[attr-defined]

    def pytype(self) -> type:
        return float

    def describe(self) -> str:
        return f"number {self.node.name}, read from a tensor"

    def carrier(self) -> TensorValue:
        """What operators are recorded with in its place."""
        from .tensors import TensorValue

        return TensorValue(self.node, self.example)

    def const(self, tr: Tracer) -> Any:
        raise GraphBreak(TENSOR_TO_PYTHON, f"the value of {self.describe()} is needed in Python")

    def truth(self, tr: Tracer) -> bool:
        raise GraphBreak(DATA_DEPENDENT_BRANCH, f"the branch depends on {self.describe()}")

    def rebuild(self, out: FrameWriter) -> str:
        tr = out.tr
        if self.node.graph is not tr.main:
            raise GraphBreak(REGION, f"{self.describe()} outlives the region that read it")
        node = tr.create_node("call_function", read_numbers.held, (self.node,), {})
        node.meta["example_value"] = self.example
        return out.graph_output(ReadNumber(node, self.example).carrier()) + ".item()"


# --- numbers of Python's generators ---------------------------------------------------------------------------------


def draw(tr: Tracer, generator: Value, method: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """The next number of a ``random.Random``: the frame draws it ahead of the graph, which gets it as an input."""
    given = tuple(a.value for a in args if isinstance(a, ConstValue) and type(a.value) in (int, float))
    if generator.pytype() is not random.Random or kwargs or len(given) < len(args):
        raise GraphBreak(C_FUNCTION, f"random.Random.{method} with these arguments")
    try:
        like = getattr(random.Random(0), method)(*given)
    except Exception as error:
        raise GraphBreak(C_FUNCTION, f"random.Random.{method} with these arguments", error) from None
    if tr.region is not None or tr.exporting or generator.source is None:
        raise GraphBreak(
            TORCH_STATE, f"random.Random.{method} in a region, in an exported graph, or of a new generator"
        )
    if tr.may_expect:  # what runs again in eager would draw other numbers
        raise NothingExpected("the program draws random numbers")
    source = Drawn(generator.source, method, given, len(tr.draws))
    if type(like) is int:
        low, high = _bounds(method, given)
        if max(-low, high) > _MOST:
            raise GraphBreak(C_FUNCTION, f"random.Random.{method} with these arguments")
        number = tr.unknown_input(like, source, low, high)
        tr.draws.append(source)
        return number
    tr.draws.append(source)
    node = tr.placeholder(method)
    read = tr.create_node("call_function", read_numbers.read, (node,), {})  # which counts as no operator
    with tr.fake_mode:
        example = node.meta["example_value"] = as_tensor(like)
        read.meta["example_value"] = read_numbers.read(example)
    tr.inputs.append((node, Converted(source, as_tensor)))
    tr.real_inputs[node] = as_tensor(like)
    tr.reads_numbers = True
    return DrawnNumber(read, read.meta["example_value"], source)


def _bounds(method: str, given: tuple) -> tuple[int, int]:
    """The least and the greatest integer that a generator may give."""
    if method == "getrandbits":
        return 0, (1 << given[0]) - 1
    possible = range(given[0], given[1] + 1) if method == "randint" else range(*given)
    return min(possible[0], possible[-1]), max(possible[0], possible[-1])


class DrawnNumber(ReadNumber):
    """A float that a generator gave: what follows the graph has it without asking the graph."""

    __slots__ = ("drawn",)

    def __init__(self, node: Any, example: Any, drawn: Source) -> None:
        super().__init__(node, example)
        self.drawn = drawn

    def describe(self) -> str:
        return f"the number {self.drawn.words()}"

    def rebuild(self, out: FrameWriter) -> str:
        return out.load(self.drawn)
