"""The symbolic sizes and numbers of a graph: how they enter it, which nodes hold them, and what they become."""

from __future__ import annotations

import contextlib
import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from torchmux import torch_internals as ti

from .. import breaks
from ..breaks import GraphBreak
from ..capture.attempts import NeedsShapeEnv, SizesOfDataGivenUp
from ..guards.computed import Computed, key_of, of_numpy, without_warning
from ..guards.kinds.numbers import AtLeast, AtMost, Decides, FitsFloat32, IsInt64
from ..guards.sources import Converted, Size, Source
from ..marks.tensor_marks import Mark
from ..trace.tracer import Tracer
from ..values.base import GraphValue, Value
from ..values.constants import (
    CHANGING,
    CONST_TYPES,
    NUMPY_NUMBERS,
    ComputedValue,
    ConstValue,
    NumpyNumberValue,
    SymValue,
    sym_result,
)
from ..values.containers.sequences import TupleValue
from ..values.tensors import TensorValue
from .dynamic import Dims, DynamicDims
from .read_numbers import as_tensor
from .shape_env import ShapeSource, check_bounds

_MOST_UNROLLED = 2000
"""Operators of loops over sizes that depend on data in one graph; compiling more takes longer than it saves."""

# Operators that mean the same for Python's numbers, which the graph computes with.
_PYTHONS = frozenset(
    {
        operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.pow,
        operator.neg, operator.pos, operator.abs, operator.lt, operator.le, operator.gt, operator.ge, operator.eq,
        operator.ne, torch.sym_max, torch.sym_min, torch.sym_float, torch.sym_int, torch.sym_not,
        math.floor, math.ceil, math.trunc, round, *ti.symbolic_math().values(),
    }
)  # fmt: skip
_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


def _of_nested(tensor: torch.Tensor, dims: Dims) -> Dims:
    """What is symbolic of a part of a nested tensor, whose class marks what follows from the lengths of its rows."""
    ragged = getattr(tensor, "_dynamo_propagated_dynamic_indices", ())
    return Dims({index: "auto" for index in {*dims.sizes, *ragged} if tensor.shape[index] > 1})


def _outside(node: torch.fx.Node) -> torch.fx.Node:
    """What a region's parameter stands for, where that is a node from outside."""
    while "captured" in node.meta:
        node = node.meta["captured"]
    return node


class SymbolicNumbers(Tracer):
    """The part of a trace that keeps ShapeEnv and the graph together."""

    def __init__(self, dims: DynamicDims, symbolic: bool) -> None:
        self.dims = dims
        self.symbolic = symbolic
        self.fake_mode = ti.fake_tensor_mode(
            symbolic=symbolic,
            where=lambda: self.user_place()[0],
            scalars=dims.scalars,
            dynamic_outputs=dims.dynamic_outputs,
        )
        self.fake_mode.refuses_dtypes = True
        self.shape_env = self.fake_mode.shape_env
        self.shape_inputs: list[tuple[Any, Source]] = []  # (fake tensor or symbol, source), for shape guards
        self.marked: list[tuple[torch.Tensor, Any, Dims, Source]] = []  # inputs with marks, for their constraints
        self.float_inputs: dict[Any, Source] = {}  # symbol -> where the float comes from
        self.has_unbacked = False
        self.reads_nested = False  # whether an input is part of a nested tensor
        self._symbol_nodes: dict[Any, Any] = {}
        self._symbols: dict[Any, Any] = {}  # symbol -> its SymInt
        self._numbers: dict[Source, Value] = {}
        self._formulas: dict[str, Callable] = {}  # by their text
        self._computations: dict[Any, Source] = {}
        self._origins: dict[Any, str] = {}  # unbacked symbol -> the operator and line that it comes from

    # --- inputs ----------------------------------------------------------------------------------------------------

    def dims_of(self, tensor: torch.Tensor, source: Source) -> Dims:
        """What is symbolic of an input."""
        dims = self.dims.of_tensor(tensor, source)
        if self.reads_nested:
            dims = _of_nested(tensor, dims)
        if dims and not self.symbolic:
            raise NeedsShapeEnv
        check_bounds(tensor, dims, source)
        return dims

    def bind_sizes(self, tensor: torch.Tensor, example: Any, dims: Dims, source: Source) -> None:
        """Turn the symbols among an input's sizes into separate inputs before the tensor."""
        for index, size in enumerate(example.shape):
            if isinstance(size, torch.SymInt):
                where = Size(source, index)
                self._bind_symbol(size, where, tensor.shape[index])
                if dims.sizes.get(index) == "unbacked":
                    self._origins.setdefault(size.node.expr, f"dimension {index} of {source.words()}, marked unbacked")
                    self._bound_unbacked(size, where, dims.marked[index])
        if "unbacked" in dims.sizes.values():
            ti.new_unbacked_symbols(self.shape_env, example)  # they are bound: no operator has to bring them
        if dims.marked:
            self.marked.append((tensor, example, dims, source))

    def _bound_unbacked(self, size: Any, source: Source, mark: Mark) -> None:
        self.has_unbacked = True
        if mark.low is not None:
            torch._check(size >= mark.low)
            self.guards.add(AtLeast(source, mark.low))
        if mark.high is not None:
            torch._check(size <= mark.high)
            self.guards.add(AtMost(source, mark.high))

    def _bind_symbol(self, size: Any, source: Source, real: int) -> None:
        expr = size.node.expr
        if not expr.is_symbol or expr in self._symbol_nodes:
            return
        node = self.placeholder(str(expr))
        node.meta["example_value"] = size
        self._symbol_nodes[expr] = node
        self._symbols[expr] = size
        self.inputs.append((node, source))
        self.real_inputs[node] = real

    def number_input(self, number: int | float, source: Source) -> Value:
        """A number from outside that has been seen to change: symbolic."""
        if not self.symbolic:
            raise NeedsShapeEnv
        known = self._numbers.get(source)
        if known is None:
            known = self._numbers[source] = self._number_input(number, source)
        return known

    def _number_input(self, number: int | float, source: Source) -> Value:
        if type(number) is float:
            return self._float_input(number, source)
        assert type(number) is int
        self.guards.add(IsInt64(source))
        shape_source = ShapeSource(f"t{len(self.shape_inputs)}")
        symbol = self._new_symbol(number, shape_source)
        sym = self.shape_env.create_symintnode(symbol, hint=number, source=shape_source)
        self.shape_inputs.append((sym, source))
        self._bind_symbol(sym, source, number)
        if sym.node.expr not in self._symbol_nodes:  # ShapeEnv knows it to be a constant already
            self.guards.equals(source, number)
            return ConstValue(number)
        return SymValue(sym, self._symbol_nodes[sym.node.expr], source)

    def _new_symbol(self, number: int | float, source: Any) -> Any:
        return self.shape_env.create_unspecified_symbol(number, source=source, dynamic_dim=ti.dim_kinds().DYNAMIC)

    def _float_input(self, number: float, source: Source) -> Value:
        """As torch passes floats to backends: a tensor without dimensions, whose item is the number."""
        # Inf and nan are constants: what ShapeEnv takes for granted of numbers does not hold for them.  Graphs of ATen
        # turn a number into a float32 tensor where it meets one, and torch refuses to do so with a larger number.
        self.guards.add(FitsFloat32(source))
        shape_source = ShapeSource(f"t{len(self.shape_inputs)}")
        symbol = self._new_symbol(number, shape_source)
        sym = self.shape_env.create_symfloatnode(symbol, hint=number, source=shape_source)
        self.shape_inputs.append((sym, source))
        with torch.inference_mode(False) if self.inference_modes else contextlib.nullcontext():
            tensor = as_tensor(number)
            fake = self.fake_mode.from_tensor(tensor, static_shapes=True)
        fake.item_memo = sym
        where = Converted(source, as_tensor)
        node = self.placeholder("f_" + str(symbol))
        node.meta["example_value"] = fake
        self.inputs.append((node, where))
        self.real_inputs[node] = tensor
        with self.recording_main():  # wherever it was met: later nodes anywhere may use it
            item = self.number_node("call_method", "item", (node,), sym)
        self._symbol_nodes[sym.node.expr] = item
        self.float_inputs[sym.node.expr] = source
        return SymValue(sym, item, source)

    def unknown_input(self, number: int, source: Source, low: int, high: int) -> Value:
        """An integer from outside between two bounds that no guard may ask for: like one that depends on data."""
        if not self.symbolic:
            raise NeedsShapeEnv
        sym = self.shape_env.create_unbacked_symint()
        ti.new_unbacked_symbols(self.shape_env, sym)  # it is bound: no operator has to bring it
        self.has_unbacked = True
        self._origins[sym.node.expr] = source.words()
        torch._check(sym >= low)
        torch._check(sym <= high)
        self._bind_symbol(sym, source, number)
        return SymValue(sym, self._symbol_nodes[sym.node.expr])

    def number_source(self, node: Any) -> Source | None:
        """Where the compiled frame finds the number of a node, if it is an input."""
        node = _outside(node)
        if isinstance(node.meta.get("example_value"), torch.SymFloat):
            expr = node.meta["example_value"].node.expr
            return self.float_inputs.get(expr) if self._symbol_nodes.get(expr) is node else None
        if node.op != "placeholder":
            return None
        return next((source for placeholder, source in self.inputs if placeholder is node), None)

    def number_and_source(self, value: SymValue) -> tuple[Any, Any] | None:
        """A symbolic number in this call, and where later calls find it; None if inputs do not tell."""
        source = None if self.depends_on_data(value.sym) else self._source_of(value.node)
        return None if source is None else (self._evaluate(value.node), source)

    def is_number(self, real: Any, source: Source, value: SymValue) -> bool:
        """Let the number that ``source`` leads to be one that the trace has computed; guarded.  False if it is not."""
        known = self.number_and_source(value)
        if known is None or type(known[0]) is not type(real) or known[0] != real:
            return False
        self.guards.equals(self._computation(operator.eq, (source, known[1])), True)
        self._numbers[source] = value
        return True

    # --- numbers that Python computes ------------------------------------------------------------------------------

    def computed(self, function: Callable, args: list[Value], kwargs: dict[str, Value] | None = None) -> Value | None:
        names, values = tuple(kwargs or ()), (*args, *(kwargs or {}).values())
        if self.exporting or not any(isinstance(value, (SymValue, *CHANGING)) for value in values):
            return None
        operands: list[Any] = []
        given: list[Any] = []
        for value in values:
            if isinstance(value, CHANGING):
                operands.append(value.computed if isinstance(value, ComputedValue) else value.source)
                given.append(value.known())
            elif isinstance(value, SymValue):
                source = None if self.depends_on_data(value.sym) else self._source_of(value.node)
                if source is None:
                    return None
                operands.append(source)
                given.append(self._evaluate(value.node))
            elif value.is_const():
                given.append(value.const(self))
                operands.append(given[-1])
            else:
                return None
        plain, numpy_computes = len(args), of_numpy(function, given)
        if numpy_computes:
            given, operands, function, plain = [function, *given], [function, *operands], without_warning, plain + 1
        try:
            result = function(*given[:plain], **dict(zip(names, given[plain:], strict=True)))
        except Exception:
            return None  # whoever asked calls it with constants
        if numpy_computes and type(result) not in CONST_TYPES:
            return None
        return self._result_of(result, self._computation(function, tuple(operands), names))

    def _computation(self, function: Callable, operands: tuple, names: tuple[str, ...] = ()) -> Source:
        parent = next(each for each in operands if isinstance(each, Source))
        key = key_of(function, operands, names)
        return self._computations.setdefault(key, Computed(function, operands, names, parent))

    def _source_of(self, node: Any) -> Any:
        """Where the frame finds what a node computes: a number, a source, or None if inputs do not tell."""
        if type(node) in (int, float, bool):
            return node
        if not isinstance(node, torch.fx.Node):
            return None
        if (source := self.number_source(node)) is not None:
            return source
        if node.op == "call_method" or node.target is operator.getitem:
            return self._source_of_size(node.meta.get("example_value"))
        if node.op != "call_function" or node.kwargs:
            return None
        operands = tuple(self._source_of(each) for each in node.args)
        return None if None in operands else self._computation(node.target, operands)

    def _source_of_size(self, size: Any) -> Source | None:
        """Where the frame finds what is read from a tensor inside the graph: it computes it from the inputs' sizes."""
        if not isinstance(size, torch.SymInt) or size.node.hint is None:
            return None
        symbols = sorted(size.node.expr.free_symbols, key=str)
        nodes = [self._symbol_nodes.get(symbol) for symbol in symbols]
        sources = [None if node is None else self.number_source(node) for node in nodes]
        if not sources or None in sources:
            return None
        text = f"lambda {', '.join(map(str, symbols))}: {ti.as_python(size.node.expr)}"
        function = self._formulas.get(text)
        if function is None:
            function = self._formulas[text] = eval(text, ti.shape_guard_namespace())
        numbers = [self._evaluate(node) for node in nodes]
        return self._computation(function, tuple(sources)) if function(*numbers) == size.node.hint else None

    def _result_of(self, result: Any, computation: Source) -> Value:
        if type(result) is tuple:
            items = (self._computation(operator.getitem, (computation, index)) for index in range(len(result)))
            return TupleValue([self._result_of(*each) for each in zip(result, items, strict=True)])
        if type(result) in (bool, np.bool_):
            self.guards.equals(computation, result)
            return ConstValue(result)
        if type(result) in NUMPY_NUMBERS and self.takes_numpy_number(result, computation):
            return NumpyNumberValue(self, result, computation)
        if type(result) in (int, float) and self.dims.takes_data(result, computation):
            return self.number_input(result, computation)
        return ComputedValue(self, result, computation)

    # --- sizes -----------------------------------------------------------------------------------------------------

    def size_value(self, owner: GraphValue, dim: int) -> Value:
        assert isinstance(owner, TensorValue)
        rank = owner.example.dim()
        if not -rank <= dim < rank:
            message = f"Dimension out of range (expected to be in range of [{-rank}, {rank - 1}], but got {dim})"
            raise GraphBreak(breaks.OPERATOR_FAILED, message)
        return self.sym_property(owner, "size", dim, owner.example.shape[dim])

    def sym_property(self, owner: GraphValue, method: str, dim: int | None, value: Any) -> Value:
        """A size, stride, element count or storage offset: a constant, an input symbol, or a node that reads it."""
        if not isinstance(value, torch.SymInt):
            return ConstValue(value)
        known = self._symbol_nodes.get(value.node.expr)
        if known is None and not value.node.expr.is_number:
            args = (owner.node,) if dim is None else (owner.node, dim)
            known = self.number_node("call_method", method, args, value)
        return sym_result(self, value, known)

    def node_of_symbol(self, expr: Any) -> Any:
        """The node of an expression of sizes, if there is one."""
        return self._symbol_nodes.get(expr)

    # --- numbers that depend on data -------------------------------------------------------------------------------

    def note_new_symbols(self, node: Any, name: str) -> None:
        """Remember which symbols the result of an operator has brought."""
        if self.shape_env is None or not self.shape_env.pending_fresh_unbacked_symbols:
            return
        if self.region is not None:
            raise GraphBreak(breaks.REGION, f"{self.region.what} calls {name}, whose result has a data-dependent size")
        try:
            bindings = ti.new_unbacked_symbols(self.shape_env, node.meta["example_value"])
        except LookupError as error:
            why = f"{name}, which is made of operators that have such outputs"
            raise GraphBreak(breaks.DYNAMIC_OUTPUT, why, error) from None
        if bindings:
            if self.assumptions.sizes_of_data and self.op_count > _MOST_UNROLLED:
                raise SizesOfDataGivenUp(f"a loop has more than {_MOST_UNROLLED} operators")
            self.has_unbacked = True
            node.meta["unbacked_bindings"] = bindings
            for symbol in bindings:
                self._origins[symbol] = f"{name} at {node.meta['source_line']}"

    def depends_on_data(self, sym: Any) -> bool:
        """Whether a symbolic number follows from no size and no argument."""
        return self.has_unbacked and any(s in self._origins for s in sym.node.expr.free_symbols)

    def undecided(self, expr: Any, question: str) -> GraphBreak:
        """The break for a question about a symbolic number whose answer only the data knows."""
        origins = [f"{s} is {self._origins[s]}" for s in sorted(expr.free_symbols, key=str) if s in self._origins]
        return GraphBreak(
            breaks.DATA_DEPENDENT_BRANCH,
            f"{question} depends on {expr}" + (f", where {'; '.join(origins)}" if origins else "")
            + ", which depends on data; torch._check(...) can state what is known about it",
        )  # fmt: skip

    # --- giving up symbols -----------------------------------------------------------------------------------------

    def specialize(self, value: GraphValue) -> Any:
        """The number that a symbolic one is in this call, from now on a constant, guarded."""
        assert isinstance(value, SymValue)
        sym = value.sym
        if isinstance(sym, torch.SymInt):
            return self._answer(sym, int, "a number needed in Python")
        floats = [s for s in sym.node.expr.free_symbols if s in self.float_inputs]
        if not floats:
            answer = self._answer(sym, value.pytype(), "a number needed in Python")
            # Python's own arithmetic on the sizes, which ShapeEnv's may miss by a rounding
            return answer if self.depends_on_data(sym) else self._evaluate(value.node)
        self.fix(sym)
        return self._evaluate(value.node)

    def fix(self, sym: Any) -> None:
        """Make every symbol in an expression with floats a constant."""
        for symbol in sorted(sym.node.expr.free_symbols, key=str):
            source = self.float_inputs.get(symbol)
            if source is not None:
                self.guards.equals(source, self._evaluate(self._symbol_nodes[symbol]))
            elif symbol in self._symbols:
                self._answer(self._symbols[symbol], int, "a number needed in Python")
            else:
                raise self.undecided(sym.node.expr, "a number needed in Python")

    def sources_of_floats(self, names: frozenset[str]) -> frozenset[str]:
        """Where the named symbolic floats come from, in words; all of them if none of ours is named."""
        known = {str(symbol): source for symbol, source in self.float_inputs.items()}
        wanted = [known[name] for name in names if name in known] or known.values()
        return frozenset(source.words() for source in wanted)

    def _answer(self, sym: Any, kind: Any, question: str) -> Any:
        try:
            return kind(sym)  # ShapeEnv records the equality as a guard
        except ti.fake_tensor_errors()["guard"]:
            raise self.undecided(sym.node.expr, question) from None

    def decide(self, sym: Any, node: Any = None) -> bool:
        """The truth of a symbolic number in this call, guarded; ``node`` computes it."""
        if isinstance(sym, bool):
            return sym
        if isinstance(sym, torch.SymBool | torch.SymFloat) and not self._is_exact(sym.node.expr):
            numbers: list[Source] = []
            if (tree := self._tree(node, numbers)) is not None and numbers and not self.depends_on_data(sym):
                answer = bool(self._evaluate(node))
                self.guards.add(Decides(numbers[0], tuple(numbers), tree, answer))
                return answer
            self.fix(sym)
        return self._answer(sym if isinstance(sym, torch.SymBool) else sym != 0, bool, "the branch")

    def _tree(self, node: Any, numbers: list[Source]) -> Any:
        """How the program computes a number, as ``Decides`` has it; None if that cannot be done again from inputs."""
        if type(node) in (int, bool):
            return repr(node)
        if type(node) is float:
            return repr(node) if math.isfinite(node) else f"float({str(node)!r})"
        if not isinstance(node, torch.fx.Node):
            return None
        if (source := self.number_source(node)) is not None:
            if source not in numbers:
                numbers.append(source)
            return numbers.index(source)
        if node.op != "call_function" or node.target not in _PYTHONS or node.kwargs:
            return None
        operands = [self._tree(each, numbers) for each in node.args]
        return None if None in operands else (node.target, *operands)

    def _is_exact(self, expr: Any) -> bool:
        """Whether ShapeEnv may reorder what a comparison computes: arithmetic on floats does not bear that."""
        if expr.is_symbol or not any(s in self.float_inputs for s in expr.free_symbols):
            return True
        return expr.is_Relational and all(side.is_symbol or side.is_number for side in expr.args)

    def _evaluate(self, node: Any) -> Any:
        """What a node that computes a number gives in this call, by Python's own arithmetic."""
        if not isinstance(node, torch.fx.Node):
            return node
        node = _outside(node)
        example = node.meta["example_value"]
        if node.op == "placeholder":
            return self.real_inputs[node]
        if node.op == "call_method" and node.target == "item" and node.args[0] in self.real_inputs:
            return self.real_inputs[node.args[0]].item()
        if isinstance(example, torch.SymInt):
            return example.node.hint  # not int(), which would turn it into a constant
        if node.op != "call_function" or node.target is operator.getitem:
            return {torch.SymFloat: float, torch.SymBool: bool}[type(example)](example)
        return node.target(*map(self._evaluate, node.args), **{k: self._evaluate(v) for k, v in node.kwargs.items()})
