"""NumPy's arrays, as the tensors that share their memory; and its functions, of arrays and of plain numbers.

An array from outside enters the graph as ``torch.from_numpy`` makes a tensor of it, and an array that the program makes
of tensors leaves it as ``Tensor.numpy()`` does.  In between, a closed set of NumPy's functions becomes torch's.  NumPy
itself says which dtypes a function computes in and returns; everything else ends the graph.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ..breaks import C_FUNCTION, DATA_DEPENDENT_BRANCH, OPERATION, GraphBreak
from ..guards.forms import memory_of
from ..guards.sources import Const, Converted, Source
from ..trace.operator_table import BINARY, COMPARE, UNARY
from .base import Raised, Value, call_handler
from .builtin_methods import BuiltinMethodValue, call_builtin_method
from .classes import RealValue, refused_call
from .constants import CONST_TYPES, ConstValue, NumpyNumberValue, SymValue
from .containers.iteration import SequenceIterator
from .containers.sequences import ListValue, TupleValue
from .tensors import TensorValue

if TYPE_CHECKING:
    from ..trace.tracer import FrameWriter, Tracer

DTYPES = {
    np.dtype(name): getattr(torch, name)
    for name in ("float32", "float64", "int8", "int16", "int32", "int64", "uint8", "bool")
}
_OF_TORCH = {dtype: array_dtype for array_dtype, dtype in DTYPES.items()}
_NUMBERS = (bool, int, float)
_ANY = "bif"  # kinds of dtypes: bool, signed integer, float
_WITH_UNSIGNED = "biuf"


def _table(functions: dict[np.ufunc, Any], kinds: str) -> dict[np.ufunc, tuple[Any, str]]:
    return {ufunc: (function, kinds) for ufunc, function in functions.items()}


# What each computes, and the kinds of dtypes for which torch computes the same, special values included.
_UFUNCS: dict[np.ufunc, tuple[Any, str]] = {
    **_table(
        {
            np.add: torch.add, np.multiply: torch.mul, np.maximum: torch.maximum, np.minimum: torch.minimum,
            np.equal: torch.eq, np.not_equal: torch.ne, np.less: torch.lt, np.less_equal: torch.le,
            np.greater: torch.gt, np.greater_equal: torch.ge, np.logical_and: torch.logical_and,
            np.logical_or: torch.logical_or, np.logical_xor: torch.logical_xor, np.logical_not: torch.logical_not,
        },
        _WITH_UNSIGNED,
    ),
    **_table({np.floor_divide: torch.floor_divide, np.remainder: torch.remainder,
              np.subtract: torch.sub, np.negative: torch.neg, np.square: torch.square, np.absolute: torch.abs}, "if"),
    **_table({np.bitwise_and: torch.bitwise_and, np.bitwise_or: torch.bitwise_or,
              np.bitwise_xor: torch.bitwise_xor, np.invert: torch.bitwise_not}, "biu"),
    **_table(
        {
            np.true_divide: torch.true_divide, np.power: torch.pow, np.exp: torch.exp, np.exp2: torch.exp2,
            np.expm1: torch.expm1, np.log: torch.log, np.log2: torch.log2, np.log10: torch.log10,
            np.log1p: torch.log1p, np.sqrt: torch.sqrt, np.sin: torch.sin, np.cos: torch.cos, np.tan: torch.tan,
            np.arcsin: torch.asin, np.arccos: torch.acos, np.arctan: torch.atan, np.arctan2: torch.atan2,
            np.sinh: torch.sinh, np.cosh: torch.cosh, np.tanh: torch.tanh, np.floor: torch.floor,
            np.ceil: torch.ceil, np.trunc: torch.trunc, np.rint: torch.round, np.isnan: torch.isnan,
            np.isinf: torch.isinf, np.isfinite: torch.isfinite, np.fmax: torch.fmax, np.fmin: torch.fmin,
            np.hypot: torch.hypot,
        },
        "f",
    ),
}  # fmt: skip
_BINARY = {
    "+": np.add, "-": np.subtract, "*": np.multiply, "/": np.true_divide, "**": np.power, "&": np.bitwise_and,
    "//": np.floor_divide, "%": np.remainder,
    "|": np.bitwise_or, "^": np.bitwise_xor, "==": np.equal, "!=": np.not_equal, "<": np.less, "<=": np.less_equal,
    ">": np.greater, ">=": np.greater_equal,
}  # fmt: skip
_UNARY = {"-": np.negative, "~": np.invert}
# Functions of torch that want a tensor first, and the operators that do not.
_NUMBER_FIRST = {torch.add: operator.add, torch.mul: operator.mul, torch.sub: operator.sub,
                 torch.true_divide: operator.truediv, torch.pow: operator.pow}  # fmt: skip
# Functions of torch that take no numbers.
_OF_TENSORS = (torch.maximum, torch.minimum, torch.fmax, torch.fmin, torch.atan2, torch.hypot, torch.logical_and,
               torch.logical_or, torch.logical_xor)  # fmt: skip


class AnyArray(Value):
    """Every kind of array."""

    __slots__ = ()

    def in_graph(self, tr: Tracer) -> ArrayValue:
        """One that operators of the graph can read."""
        raise NotImplementedError

    def for_writing(self, tr: Tracer) -> ArrayValue:
        """One that shares its memory."""
        raise NotImplementedError


class ArrayValue(AnyArray):
    """A NumPy array over the memory of ``tensor``; ``is_number``: NumPy would return a number instead."""

    __slots__ = ("is_number", "tensor")

    def __init__(self, tensor: TensorValue, is_number: bool = False, source: Source | None = None) -> None:
        self.tensor = tensor
        self.is_number = is_number
        self.source = source

    def in_graph(self, tr: Tracer) -> ArrayValue:
        return self

    for_writing = in_graph

    @property
    def dtype(self) -> np.dtype:
        return _OF_TORCH[self.tensor.example.dtype]

    def pytype(self) -> type:
        return self.dtype.type if self.is_number else np.ndarray

    def truth(self, tr: Tracer) -> bool:
        raise GraphBreak(DATA_DEPENDENT_BRANCH, f"the branch depends on the value of {self.describe()}")

    def length(self, tr: Tracer) -> Value:
        return self.tensor.length(tr)

    def iter(self, tr: Tracer) -> Value:
        return SequenceIterator(self.unpack(tr))

    def unpack(self, tr: Tracer) -> list[Value]:
        items: list[Any] = self.tensor.unpack(tr)
        return [number(tr, x) if x.example.dim() == 0 else ArrayValue(x) for x in items]

    def contains(self, tr: Tracer, item: Value) -> Value:
        raise self.not_understood(f"membership in {self.describe()}")

    def getattr(self, tr: Tracer, name: str) -> Value:
        if name == "shape":
            return TupleValue(self.tensor.sizes(tr).unpack(tr))
        if name in ("ndim", "size"):
            return self.tensor.call_method(tr, "dim" if name == "ndim" else "numel", [], {})
        if name == "dtype":
            return ConstValue(self.dtype)
        if name == "T":
            return METHODS["transpose"](tr, self)
        if name in METHODS or name in ("__len__", "__iter__", "__getitem__"):
            return BuiltinMethodValue(self, np.ndarray, name)
        raise GraphBreak(C_FUNCTION, f"{self.pytype().__name__}.{name}")

    def call_c_method(self, tr: Tracer, cls: type, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return call_builtin_method(tr, self, cls, name, args, kwargs)

    def rebuild(self, out: FrameWriter) -> str:
        return f"{out.value(self.tensor)}.numpy()" + ("[()]" if self.is_number else "")


class KnownArrayValue(AnyArray):
    """An array that the program makes of constants: NumPy computes with it for real, as long as only constants join.

    ``joined`` is the same array in the graph, once something else has joined; once that may be ``written`` to, there
    is no other.
    """

    __slots__ = ("array", "joined", "written")

    def __init__(self, array: np.ndarray) -> None:
        self.array = array
        self.joined: ArrayValue | None = None
        self.written = False
        self.source = None

    def pytype(self) -> type:
        return np.ndarray

    def truth(self, tr: Tracer) -> bool:
        if self.written:
            return self.in_graph(tr).truth(tr)
        return tr.fold(bool, [self.array], {}).truth(tr)

    def length(self, tr: Tracer) -> Value:
        return tr.fold(len, [self.array], {})

    def iter(self, tr: Tracer) -> Value:
        return self.for_writing(tr).iter(tr)

    def getattr(self, tr: Tracer, name: str) -> Value:
        if name in ("shape", "ndim", "size", "dtype"):
            return tr.lift(getattr(self.array, name)) if name != "dtype" else ConstValue(self.array.dtype)
        if self.written or name == "T":  # a view
            return self.for_writing(tr).getattr(tr, name)
        if name in METHODS or name in ("tolist", "item"):
            return BuiltinMethodValue(self, np.ndarray, name)
        raise GraphBreak(C_FUNCTION, f"ndarray.{name}")

    def call_c_method(self, tr: Tracer, cls: type, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if name not in METHODS and name not in ("tolist", "item"):
            raise GraphBreak(C_FUNCTION, f"ndarray.{name}")
        return computed(tr, getattr(self.array, name), args, kwargs)

    def getitem(self, tr: Tracer, key: Value) -> Value:
        if self.written or not key.is_const() or self._may_share(key.const(tr)):
            return self.for_writing(tr).getitem(tr, key)
        return computed(tr, operator.getitem, [self, key], {})

    def setitem(self, tr: Tracer, key: Value, value: Value) -> None:
        self.for_writing(tr).setitem(tr, key, value)

    def _may_share(self, key: Any) -> bool:
        try:
            return bool(self.array[key].ndim)  # a view
        except IndexError:
            return False

    def in_graph(self, tr: Tracer) -> ArrayValue:
        if self.joined is None:
            if self.array.dtype not in DTYPES:
                raise GraphBreak(OPERATION, f"a NumPy array of {self.array.dtype}")
            constant = wrap_array(tr, self.array.copy(), None)
            assert isinstance(constant, ArrayValue)
            self.joined = made(tr.emit("call_method", "clone", [constant.tensor], {}), of_numbers=False)
        return self.joined

    def for_writing(self, tr: Tracer) -> ArrayValue:
        """The array of the graph, which from now on is the only one."""
        array = self.in_graph(tr)
        self.written = True
        return array

    def rebuild(self, out: FrameWriter) -> str:
        if self.written:
            return out.value(self.in_graph(out.tr))
        return f"{out.names.const(self.array)}.copy()"


def computed(tr: Tracer, function: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """What NumPy makes of known arrays and constants: a new array, or a number."""

    def plain(value: Value) -> Any:
        return value.array if isinstance(value, KnownArrayValue) else value.const(tr)

    try:
        found = function(*map(plain, args), **{name: plain(value) for name, value in kwargs.items()})
    except Exception as error:
        raise Raised(tr.exception(error)) from None
    if type(found) is not np.ndarray:
        return tr.lift(found)
    given = [v.array for v in (*args, *kwargs.values()) if isinstance(v, KnownArrayValue)]
    if isinstance(owner := getattr(function, "__self__", None), np.ndarray):
        given.append(owner)
    if any(np.may_share_memory(found, each) for each in given):
        raise GraphBreak(C_FUNCTION, "a view of a NumPy array that is made of constants")
    return KnownArrayValue(found)


def in_graph(tr: Tracer, value: Value) -> Value:
    """The same array as one that the graph computes with; what is no array stays as it is."""
    return value.in_graph(tr) if isinstance(value, AnyArray) else value


def known_array(tr: Tracer, value: Value) -> Value:
    """``np.array`` of constants."""
    found = np.array(_plain(tr, value))
    if found.dtype.kind not in _WITH_UNSIGNED:
        raise GraphBreak(C_FUNCTION, f"numpy.array of {value.describe()}")
    return KnownArrayValue(found)


def _plain(tr: Tracer, value: Value) -> Any:
    if isinstance(value, ListValue | TupleValue):
        return [_plain(tr, item) for item in value.unpack(tr)]
    if not isinstance(value, ConstValue):
        raise GraphBreak(C_FUNCTION, f"numpy.array of {value.describe()}")
    return value.value


def made_of_constants(tr: Tracer, function: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """What a function of NumPy's makes of constants: an array of a dtype that torch has."""
    found = computed(tr, function, args, kwargs)
    if isinstance(found, KnownArrayValue) and found.array.dtype not in DTYPES:
        raise GraphBreak(C_FUNCTION, f"numpy.{function.__name__} of {found.array.dtype}")
    return found


def number(tr: Tracer, element: TensorValue) -> Value:
    """What NumPy makes of an element: a number, which later writes to the array do not change."""
    copied = tr.emit("call_method", "clone", [element], {})
    assert isinstance(copied, TensorValue)
    return ArrayValue(copied, is_number=True)


# --- in and out -------------------------------------------------------------------------------------------------------


def wrap_array(tr: Tracer, array: np.ndarray, source: Source | None) -> Value:
    """The value of an existing array."""
    source = source or Const(array, "a constant array")
    try:
        tensor = memory_of(array)
    except (TypeError, ValueError) as error:
        raise GraphBreak(OPERATION, f"NumPy array {source.words()}: {error}") from None
    if tensor.dtype not in _OF_TORCH:
        raise GraphBreak(OPERATION, f"NumPy array {source.words()} of {array.dtype}")
    value = tr.tensor_input(tensor, Converted(source, memory_of))
    assert isinstance(value, TensorValue)
    made = ArrayValue(value, source=source)
    tr.identity_matters(made)  # two of the same memory would be two inputs
    return made


def array_of(tr: Tracer, tensor: TensorValue) -> Value:
    """``tensor.numpy()``."""
    example = tensor.example
    if example.requires_grad or example.device.type != "cpu" or example.dtype not in _OF_TORCH or example.is_neg():
        raise GraphBreak(C_FUNCTION, f"Tensor.numpy of {tensor.describe()}")
    return ArrayValue(tensor)


def tensor_of(tr: Tracer, array: Value, copy: bool, dtype: Value | None = None) -> Value:
    """``torch.from_numpy`` and ``torch.tensor`` of an array."""
    assert isinstance(array, ArrayValue)
    found = tr.emit("call_method", "clone" if copy or array.is_number else "detach", [array.tensor], {})
    if dtype is not None and dtype.const(tr) is not None:
        found = tr.emit("call_method", "to", [found, dtype], {})
    return found


def made(found: Value, *, of_numbers: bool = True) -> ArrayValue:
    """What NumPy returns for a computed tensor: a number, where it has no dimensions."""
    assert isinstance(found, TensorValue)
    return ArrayValue(found, is_number=of_numbers and found.example.dim() == 0)


def to_dtype(tr: Tracer, value: Value, dtype: np.dtype) -> Value:
    """A tensor of this dtype; of a number, Python's number."""
    if isinstance(value, ArrayValue):
        if value.dtype == dtype:
            return value.tensor
        return tr.emit("call_method", "to", [value.tensor, ConstValue(DTYPES[dtype])], {})
    if isinstance(value, SymValue):
        whole = dtype.kind == "f" and value.pytype() is int
        return tr.emit("call_function", torch.sym_float, [value], {}) if whole else value
    return ConstValue(dtype.type(value.const(tr)).item())


# --- universal functions ----------------------------------------------------------------------------------------------


def binary(tr: Tracer, symbol: str, left: Value, right: Value) -> Value:
    """``left <symbol> right``, where one of them is an array."""
    if not any(map(_of_the_graph, (left, right))) and all(
        isinstance(v, KnownArrayValue) or v.is_const() for v in (left, right)
    ):
        return computed(tr, {**BINARY, **COMPARE}[symbol][0], [left, right], {})
    left, right = in_graph(tr, left), in_graph(tr, right)
    if symbol == "@":
        return matmul(tr, left, right)
    ufunc = _BINARY.get(symbol)
    if ufunc is None:
        raise GraphBreak(C_FUNCTION, f"{left.describe()} {symbol} {right.describe()}")
    return apply_ufunc(tr, ufunc, [left, right])


def unary(tr: Tracer, symbol: str, value: Value) -> Value:
    if isinstance(value, KnownArrayValue) and not value.written:
        return computed(tr, UNARY[symbol][0], [value], {})
    value = in_graph(tr, value)
    if symbol not in _UNARY:
        raise GraphBreak(C_FUNCTION, f"{symbol}{value.describe()}")
    return apply_ufunc(tr, _UNARY[symbol], [value])


def apply_ufunc(tr: Tracer, ufunc: np.ufunc, args: list[Value]) -> Value:
    refused = GraphBreak(C_FUNCTION, f"numpy.{ufunc.__name__} of {', '.join(a.describe() for a in args)}")
    if ufunc not in _UFUNCS or len(args) != ufunc.nin:
        raise refused
    function, kinds = _UFUNCS[ufunc]
    given: list[Any] = []
    args = list(args)
    for position, value in enumerate(args):
        if isinstance(value, ArrayValue):
            given.append(value.dtype)
        elif isinstance(value, NumpyNumberValue):
            given.append(np.dtype(value.pytype()))
            args[position] = value.symbol()
        elif isinstance(value, SymValue) and value.pytype() in (int, float):
            given.append(value.pytype())
        elif isinstance(value, ConstValue) and type(value.value) in (*_NUMBERS, np.float32, np.float64, np.int64):
            number = value.value
            given.append(type(number) if type(number) in (int, float) else np.dtype(type(number)))
        else:
            raise refused
    try:
        *loops, result = ufunc.resolve_dtypes((*given, None))
    except TypeError:
        raise refused from None
    if any(loop.kind not in kinds or loop not in DTYPES for loop in loops) or result not in DTYPES:
        raise refused
    for value, loop in zip(args, loops, strict=True):
        if isinstance(value, ConstValue) and loop.kind in "iu":
            limits = np.iinfo(loop)
            if not limits.min <= value.value <= limits.max:
                raise refused  # an error, or a comparison that is decided otherwise
        if isinstance(value, SymValue) and (loop.kind == "b" or (loop.kind in "iu" and loop != np.int64)):
            raise refused
    if ufunc in _WITH_REST and not _is_positive(args[1]):
        raise refused  # by zero, torch raises an error for integers, and signs of zeros differ
    if not isinstance(args[0], ArrayValue):
        function = _NUMBER_FIRST.get(function, function)
    given = [to_dtype(tr, v, d) for v, d in zip(args, loops, strict=True)]
    if function in _OF_TENSORS:
        given = [_as_tensor(tr, v, d) for v, d in zip(given, loops, strict=True)]
    found = tr.emit("call_function", function, given, {})
    assert isinstance(found, TensorValue)
    if ufunc is np.remainder and loops[0].kind == "f":  # whose zero has the divisor's sign
        found = tr.emit("call_function", torch.add, [found, ConstValue(0.0)], {})
        assert isinstance(found, TensorValue)
    if found.example.dtype != DTYPES[result]:
        found = tr.emit("call_method", "to", [found, ConstValue(DTYPES[result])], {})
    return made(found)


_WITH_REST = frozenset({np.floor_divide, np.remainder})


def _is_positive(divisor: Value) -> bool:
    return isinstance(divisor, ConstValue) and 0 < divisor.value < np.inf


def _as_tensor(tr: Tracer, value: Value, dtype: np.dtype) -> Value:
    if isinstance(value, TensorValue):
        return value
    return tr.emit("call_function", torch.scalar_tensor, [value], {"dtype": ConstValue(DTYPES[dtype])})


def plain_array(value: Value, what: str) -> ArrayValue:
    if not isinstance(value, ArrayValue) or value.is_number:
        raise GraphBreak(C_FUNCTION, f"numpy.{what} of {value.describe()}")
    return value


def dtype_of(tr: Tracer, value: Value) -> np.dtype:
    try:
        found = np.dtype(value.const(tr))
    except TypeError:
        raise GraphBreak(C_FUNCTION, f"{value.describe()} as a NumPy dtype") from None
    if found not in DTYPES:
        raise GraphBreak(C_FUNCTION, f"NumPy arrays of {found}")
    return found


def matmul(tr: Tracer, left: Value, right: Value) -> Value:
    a, b = plain_array(left, "matmul"), plain_array(right, "matmul")
    dims = a.tensor.example.dim(), b.tensor.example.dim()
    if a.dtype != b.dtype or a.dtype.kind != "f" or not all(1 <= d <= 2 for d in dims):
        raise GraphBreak(C_FUNCTION, f"numpy.matmul of {a.dtype} and {b.dtype} with {dims} dimensions")
    return made(tr.emit("call_function", torch.matmul, [a.tensor, b.tensor], {}))


def filled(tr: Tracer, function: Any, shape: Value, dtype: Value | None, *value: Value) -> Value:
    """``np.zeros``, ``np.ones``, ``np.empty`` and, with a number, ``np.full``."""
    of_value = np.dtype(value[0].pytype()) if value and issubclass(value[0].pytype(), _NUMBERS) else None
    if value and (of_value is None or (dtype is not None and dtype_of(tr, dtype) != of_value)):
        raise GraphBreak(C_FUNCTION, f"numpy.full of {value[0].describe()}")
    wanted = of_value or np.dtype(np.float64) if dtype is None else dtype_of(tr, dtype)
    sizes = TupleValue(shape.unpack(tr)) if shape.pytype() is not int else TupleValue([shape])
    named: dict[str, Value] = {"dtype": ConstValue(DTYPES[wanted]), "device": ConstValue(torch.device("cpu"))}
    return made(tr.emit("call_function", function, [sizes, *value], named), of_numbers=False)


METHODS: dict[str, Any] = {}  # of arrays
ArrayValue.METHODS = METHODS

# Functions of NumPy's, beside the universal ones, that take arrays.
FUNCTIONS: dict[Any, Any] = {}
# Those of both tables whose results share no memory with their arguments.
OF_COPIES: set[Any] = set()


def _call(tr: Tracer, function: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """A function of NumPy's, of which an argument is an array or holds one."""
    name = f"numpy.{function.__name__}"
    if not any(map(_of_the_graph, (*args, *kwargs.values()))) and not kwargs.keys() & {"out", "where"}:
        return computed(tr, function, args, kwargs)
    known = FUNCTIONS.get(function)
    copies = isinstance(function, np.ufunc) or known in OF_COPIES
    args = [in_graph(tr, value) if copies or isinstance(value, KnownArrayValue) else value for value in args]
    if isinstance(function, np.ufunc):
        if kwargs:
            raise GraphBreak(C_FUNCTION, f"{name} with {', '.join(kwargs)}")
        return matmul(tr, *args) if function is np.matmul and len(args) == 2 else apply_ufunc(tr, function, args)
    if known is None:
        raise GraphBreak(C_FUNCTION, name)
    return call_handler(known, name, (tr, *args), kwargs)


def holds_array(value: Value) -> bool:
    """Whether a value is an array, or a list or tuple with one in it."""
    items = getattr(value, "_items", None)
    if isinstance(items, list) and any(isinstance(item, AnyArray) for item in items):
        return True
    return isinstance(value, AnyArray)


def _of_the_graph(value: Value) -> bool:
    if isinstance(value, KnownArrayValue):
        return value.written
    return holds_array(value)


# --- functions of numbers ---------------------------------------------------------------------------------------------
# Models compute constants with ``np.log`` and ``np.sqrt``; the results are NumPy's scalars, constants like any number.

_DISPATCHED: type = type(np.prod)  # functions of NumPy's that let other arrays take over
_PURE = frozenset(
    {np.prod, np.sum, np.mean, np.max, np.min, np.round, np.clip}
)  # of those, what makes numbers of numbers
MAKERS = frozenset({np.linspace, np.logspace, np.eye, np.identity, np.tri})  # and what makes arrays of them
_OF_KNOWN_ARRAYS = frozenset(
    {
        np.cumprod, np.sort, np.argsort, np.searchsorted, np.digitize, np.bincount, np.convolve, np.correlate,
        np.median, np.percentile, np.quantile, np.average, np.nansum, np.nanmean, np.trace, np.kron, np.cross, np.cov,
        np.interp, np.polyval, np.pad, np.count_nonzero, np.allclose, np.array_equal, np.isclose, np.ptp, np.vander,
        np.diag, np.tril, np.triu, np.vstack, np.hstack, np.column_stack, np.linalg.norm, np.linalg.inv, np.linalg.det,
    }
)  # fmt: skip


class NumpyFunctionValue(RealValue):
    """A function of numbers that NumPy computes; called for real where all its arguments are constants."""

    __slots__ = ()

    def call(self, tr: Tracer, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if any(map(holds_array, (*args, *kwargs.values()))):
            return _call(tr, self.obj, args, kwargs)
        if self.obj in MAKERS:
            return made_of_constants(tr, self.obj, args, kwargs)
        if not isinstance(self.obj, (np.ufunc, type)) and self.obj not in _PURE:
            raise refused_call(self.obj)
        if (of_this_call := tr.computed(self.obj, args, kwargs)) is not None:
            return of_this_call
        plain = [_number(tr, value) for value in args]
        named = {name: _number(tr, value) for name, value in kwargs.items()}
        found = tr.fold(self.obj, plain, named)
        if not found.is_const():
            raise GraphBreak(C_FUNCTION, f"numpy.{self.obj.__name__} returns more than a number")
        return found


def _number(tr: Tracer, value: Value) -> Any:
    plain = value.const(tr)
    parts = plain if type(plain) in (list, tuple, torch.Size) else [plain]
    if not all(type(part) in CONST_TYPES for part in parts):
        raise GraphBreak(C_FUNCTION, f"a NumPy function on {value.describe()}")
    return plain


def wrap_numpy(tr: Tracer, obj: Any, source: Source | None) -> Value | None:
    """The value of an array, or of a function of NumPy's; None for what is neither or does more than compute."""
    if isinstance(obj, np.ndarray):
        return wrap_array(tr, obj, source)
    tables = (_PURE, FUNCTIONS, MAKERS, _OF_KNOWN_ARRAYS)
    if isinstance(obj, np.ufunc) or (type(obj) is _DISPATCHED and any(obj in table for table in tables)):
        if source is not None:
            tr.guards.is_object(source, obj)
        return NumpyFunctionValue(obj, source)
    return None
