"""From an ATen graph to a Relax function ``main``.

Every node becomes Relax through torchmux's own handler, as a call to torch's kernel (``library``), or through the
converter of TVM's PyTorch frontend.  The result must have the shape and dtype that torch gives the node.

*Memory.*  Relax tensors are contiguous; torch's need not be.  For every value whose bytes in TVM have torch's layout,
the translator remembers the Relax variable.  A torch kernel takes a view of such a variable instead of a copy.

*Sizes.*  Sizes that are known only when the graph runs are variables of ``main`` (``sizes``) and expressions of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import tvm
from torch.fx import GraphModule, Node
from tvm import relax, te
from tvm.relax.frontend.torch.exported_program_translator import ExportedProgramImporter

from torchmux import torch_internals as internals
from torchmux.registry.errors import NodesRefused

from ...common.adapter.bugs import raise_mistake
from ...common.pipeline import aliasing
from ...common.pipeline.partition import takes_element
from .. import compat
from ..layout import Layout, is_contiguous
from ..sizes import Sizes, Source, never_negative
from . import library
from .handlers import HANDLERS

_NARROW = ("int16", "int8", "uint8")
"""Integers that floats become by way of int32, of which they are the lowest bits; LLVM's vectors saturate otherwise."""

_NAMES = {
    torch.float32: "float32", torch.float64: "float64", torch.int64: "int64", torch.int32: "int32",
    torch.int16: "int16", torch.int8: "int8", torch.uint8: "uint8", torch.bool: "bool",
}  # fmt: skip

DTYPES = frozenset(_NAMES)


def converters() -> frozenset[str]:
    """The operators that the installed TVM's frontend converts, as ``packet.overload``."""
    return frozenset(ExportedProgramImporter().convert_map)


@dataclass
class Translated:
    """``module`` has one function, ``main``, from the tensors of ``inputs`` to a tuple as ``outputs`` says.

    If there are ``sizes``, their values come first, as one shape.  ``library_calls`` names the nodes that
    torch's kernels compute, and these.
    """

    module: tvm.IRModule
    inputs: list[Layout]
    outputs: list[Layout]
    sizes: list[Source]
    library_calls: dict[str, str]


def translate(gm: GraphModule, *, use_library: bool) -> Translated:
    """Translate a graph, each node with ``meta["val"]``.

    Raises:
        NodesRefused: nodes that TVM cannot express, or expresses with another meaning than torch.
        TypeError: sizes that TVM cannot express.
    """
    return Translator(gm, use_library).translate()


class Translator(ExportedProgramImporter):
    """TVM's importer, with ``env`` filled node by node under our control."""

    def __init__(self, gm: GraphModule, use_library: bool) -> None:
        super().__init__()
        self.gm = gm
        self.use_library = use_library
        self.library_calls: dict[str, str] = {}
        self._analyzer = compat.Analyzer()
        self.block_builder = relax.BlockBuilder()
        self._roots = aliasing.roots(gm.graph)
        self._memory: dict[Node, Any] = {}
        self._layouts: dict[Any, Layout] = {}
        self._refused: dict[str, str] = {}

    def translate(self) -> Translated:
        placeholders = self.gm.graph.find_nodes(op="placeholder")
        self.size = Sizes([n.meta["val"] for n in placeholders])
        placeholders = [n for n in placeholders if isinstance(n.meta["val"], torch.Tensor)]
        inputs = [Layout.of(n.meta["val"]) for n in placeholders]
        variables = [relax.Var(f"input_{i}", self._stored_type(layout)) for i, layout in enumerate(inputs)]
        sizes = [relax.Var("sizes", compat.ShapeType(self.size.variables))] if self.size.variables else []
        results = list(next(n for n in reversed(self.gm.graph.nodes) if n.op == "output").args[0])
        outputs = [Layout.of(n.meta["val"]) for n in results]
        with self.block_builder.function("main", [*sizes, *variables]):
            with self.block_builder.dataflow():
                for node, variable, layout in zip(placeholders, variables, inputs, strict=True):
                    self._enter(node, variable, layout)
                for node in self.gm.graph.nodes:
                    if node.op == "call_function":
                        self._translate_node(node)
                # What is refused has no value; the builder wants its blocks closed in any case.
                returned = (variables or sizes)[:1]
                if not self._refused:
                    returned = [self._result(n, layout) for n, layout in zip(results, outputs, strict=True)]
                output = self.block_builder.emit_output(relax.Tuple(returned))
            self.block_builder.emit_func_output(output)
        if self._refused:
            raise NodesRefused(self._refused)
        return Translated(self.block_builder.get(), inputs, outputs, self.size.sources, self.library_calls)

    def _enter(self, node: Node, variable: Any, layout: Layout) -> None:
        self.env[node] = self._logical(variable, layout)
        if layout.is_memory_of(node.meta["val"]):
            self._memory[node] = variable

    def _result(self, node: Node, layout: Layout) -> Any:
        """What ``main`` returns for a node: its value as torch stores it, or as Relax has it if torch leaves gaps."""
        if layout.order is None:
            return self.env[node]
        stored = self._memory.get(node)
        return self.emit(relax.op.permute_dims(self.env[node], layout.order)) if stored is None else stored

    # --- one node -----------------------------------------------------------------------------------------------------

    def _translate_node(self, node: Node) -> None:
        if any(n not in self.env for n in node.all_input_nodes if not isinstance(n.meta["val"], torch.SymInt)):
            return  # what it needs is missing; it is tried again without the refused nodes
        try:
            made = self._made(node)
            self._check(node, made)
        except Exception as error:  # whatever TVM raises for what it does not know
            raise_mistake(error)
            # Elements stay with the operator that makes the tuple.
            blamed = takes_element(node) or node
            self._refused[blamed.name] = f"TVM's importer: {_short(error)}"
            return
        self.env[node] = made
        value = node.meta["val"]
        if isinstance(value, torch.Tensor) and node not in self._memory and self._roots[node] is node:
            if Layout.of(value).is_usual and is_contiguous(value):
                self._memory[node] = made

    def _made(self, node: Node) -> Any:
        source = takes_element(node)
        if source is not None:
            return self._element(node, source)
        if node.target in library.ALWAYS or (self.use_library and library.has_kernel(node.target)):
            return self._library_call(node)
        handler = HANDLERS.get(node.target)
        if handler is not None:
            return handler(self, node)
        return self.convert_map[node.target.__name__](node)

    def _element(self, node: Node, source: Node) -> Any:
        made, position = self.env[source], node.args[1]
        if isinstance(made, (list, tuple)):
            stored = made[position]
            layout = self._layouts.get(stored)
            if layout is not None:
                self._memory[node] = stored
                return self._logical(stored, layout)
            return stored
        return self.emit(relax.TupleGetItem(made, position))

    def _check(self, node: Node, made: Any) -> None:
        value = node.meta["val"]
        if not isinstance(value, torch.Tensor):
            return
        found = compat.of(made)
        known = isinstance(found, compat.TensorType) and found.shape is not None
        known = known and self.is_shaped(made, self.shape(node))
        if not known or compat.dtype_of(made) != _NAMES[value.dtype]:
            raise TypeError(f"its result is {found}, but {tuple(value.shape)} {value.dtype} in torch")

    # --- torch's kernels ----------------------------------------------------------------------------------------------

    def _library_call(self, node: Node) -> Any:
        tensors: list[Any] = []
        sizes: list[Any] = []

        def size(value: Any) -> Any:
            found = self.size(value)
            if isinstance(found, int):
                return found
            sizes.append(found)
            return library.size_at(len(sizes) - 1)

        def given(argument: Node) -> list[Any]:
            if not isinstance(argument.meta["val"], torch.Tensor):
                return size(argument.meta["val"])
            stored, view = self._stored(argument)
            tensors.append(stored)
            return library.tensor_at(len(tensors) - 1, view, size)

        arguments = [library.encode(a, given) for a in node.args]
        keywords = {k: library.encode(v, given) for k, v in node.kwargs.items()}
        self.library_calls[node.name] = str(node.target)
        value = node.meta["val"]
        if node.target in library.INTO:
            text = library.recipe(node.target, arguments, keywords, [None], [None], sized=bool(sizes))
            passed = [compat.StringImm(text), *([relax.ShapeExpr(sizes)] if sizes else []), *tensors]
            return self.emit(relax.call_dps_packed(library.CALL_INTO, relax.Tuple(passed), self.type_of(value)))
        several = isinstance(value, (tuple, list))
        kept = [i for i, v in enumerate(value) if isinstance(v, torch.Tensor)] if several else [None]
        layouts = [Layout.of(value[i] if several else value) for i in kept]
        orders = [layout.order for layout in layouts]
        text = library.recipe(node.target, arguments, keywords, kept, orders, sized=bool(sizes))
        kinds = [self._stored_type(layout) for layout in layouts]
        passed = [compat.StringImm(text), *([relax.ShapeExpr(sizes)] if sizes else []), *tensors]
        if not several:
            made = self.emit(compat.call_returning(library.CALL, passed, kinds[0]))
            self._memory[node] = made
            return self._logical(made, layouts[0])
        made = self.emit(compat.call_returning(library.CALL, passed, compat.TupleType(kinds)))
        results: list[Any] = [None] * len(value)
        for at, (position, layout) in enumerate(zip(kept, layouts, strict=True)):
            assert position is not None
            results[position] = self.emit(relax.TupleGetItem(made, at))
            self._layouts[results[position]] = layout
        return results

    def _stored(self, node: Node) -> tuple[Any, list[Any] | None]:
        """Where the value of ``node`` is: a variable, and torch's view of it (None: unchanged)."""
        root, value = self._roots[node], node.meta["val"]
        stored = self._memory.get(root)
        if stored is None:
            return self.env[node], None
        if is_contiguous(value) and self.is_shaped(stored, self.shape(node)):
            return stored, None
        return stored, [list(value.shape), list(value.stride()), value.storage_offset()]

    def _logical(self, stored: Any, layout: Layout) -> Any:
        """The value with its dimensions in torch's order, of one that is stored in another."""
        if layout.order is None:
            return stored
        return self.emit(relax.op.permute_dims(stored, layout.back))

    # --- for the handlers ---------------------------------------------------------------------------------------------

    def emit(self, expression: Any) -> Any:
        return self.block_builder.emit(expression)

    def arguments(self, node: Node) -> list[Any]:
        """All arguments of the operator's schema, by position, with defaults filled in."""
        found = []
        for position, argument in enumerate(internals.operator_schema(node.target).arguments):
            if position < len(node.args):
                found.append(node.args[position])
            else:
                found.append(node.kwargs.get(argument.name, argument.default_value))
        return found

    def value(self, argument: Any) -> Any:
        """What torch knows of an argument: a fake tensor, or a number."""
        return argument.meta["val"] if isinstance(argument, Node) else argument

    def shape(self, node: Node) -> list[Any]:
        """A node's sizes: integers, and expressions of TVM where they depend on the call."""
        return [self.size(s) for s in node.meta["val"].shape]

    def number(self, argument: Any) -> Any:
        """An integer argument, or the expression for one that depends on the call."""
        return self.size(argument.meta["val"]) if isinstance(argument, Node) else argument

    def position(self, argument: Any, size: Any) -> Any:
        """An integer argument that counts from the end of a dimension if it is negative, as counted from its start.

        Raises:
            TypeError: it depends on the call which of the two it is.
        """
        at = self.number(argument)
        if isinstance(at, int):
            return at + size if at < 0 else at
        if not never_negative(argument.meta["val"]):
            raise TypeError(f"the position {at} may be negative")
        return at

    def is_shaped(self, x: Any, shape: Sequence[Any]) -> bool:
        """Whether an expression has a shape for all values of the variables."""
        found = compat.of(x).shape
        return len(found) == len(shape) and all(self.is_equal(a, b) for a, b in zip(found, shape, strict=True))

    def is_equal(self, one: Any, other: Any) -> bool:
        """Whether two sizes are the same for all values of the variables."""
        return bool(self._analyzer.can_prove_equal(one, other))

    def dtype(self, node: Node) -> str:
        return _NAMES[node.meta["val"].dtype]

    def type_of(self, value: torch.Tensor) -> Any:
        return compat.TensorType([self.size(s) for s in value.shape], _NAMES[value.dtype])

    def _stored_type(self, layout: Layout) -> Any:
        return compat.TensorType([self.size(s) for s in layout.stored_shape], _NAMES[layout.dtype])

    def scalar(self, value: Any, dtype: torch.dtype) -> Any:
        return relax.const(value, _NAMES[dtype])

    def cast(self, x: Any, dtype: torch.dtype) -> Any:
        name, was = _NAMES[dtype], compat.dtype_of(x)
        if was == name:
            return x
        if was.startswith("float") and name in _NARROW:
            x = self.emit(relax.op.astype(x, "int32"))
        return self.emit(relax.op.astype(x, name))

    def operand(self, argument: Any, dtype: torch.dtype) -> Any:
        """A tensor or number as an expression of ``dtype``."""
        if not isinstance(argument, Node):
            return self.scalar(argument, dtype)
        if isinstance(argument.meta["val"], torch.Tensor):
            return self.cast(self.env[argument], dtype)
        name = _NAMES[dtype]
        number = self.number(argument)
        return self.block_builder.emit_te(
            lambda n: te.compute([], lambda: n.astype(name)), number, primfunc_name_hint="size"
        )

    def reshape(self, x: Any, shape: Sequence[Any]) -> Any:
        if self.is_shaped(x, shape):
            return x
        return self.emit(relax.op.reshape(x, list(shape)))

    def broadcast(self, x: Any, shape: Sequence[Any]) -> Any:
        if self.is_shaped(x, shape):
            return x
        return self.emit(relax.op.broadcast_to(x, list(shape)))

    def strided_slice(self, x: Any, axis: int, begin: Any, end: Any, step: int) -> Any:
        """Elements along ``axis``; ``begin`` and ``end`` are within its size."""
        if self.is_equal(begin, 0) and step == 1 and self.is_equal(end, compat.of(x).shape[axis]):
            return x
        given = {"axes": [axis], "begin": [begin], "end": [end], "strides": [step]}
        return self.emit(relax.op.strided_slice(x, **given, assume_inbound=True))

    def full(self, value: Any, node: Node) -> Any:
        """A tensor of the node's shape and dtype, all of one number."""
        number = self.operand(value, node.meta["val"].dtype)
        shape = self.shape(node)
        return self.emit(relax.op.full(shape, number, self.dtype(node)) if shape else number)

    def elementwise(self, node: Node, formula: Any, *operands: Any) -> Any:
        """A tensor of the node's shape by a formula of one element of each operand.

        Relax's own operators would do, but its ``where`` compares conditions as 64-bit integers.
        """
        shape = self.shape(node)

        def at(x: Any, indices: Sequence[Any]) -> Any:
            kept = indices[len(indices) - len(x.shape) :]
            return x[tuple(0 if self.is_equal(size, 1) else i for size, i in zip(x.shape, kept, strict=True))]

        def made(*given: Any) -> Any:
            return te.compute(shape, lambda *indices: formula(*(at(x, indices) for x in given)))

        return self.block_builder.emit_te(made, *operands, primfunc_name_hint=node.target.overloadpacket.__name__)

    def compute(self, node: Node, element: Any) -> Any:
        """A tensor of the node's shape by a formula of the indices."""
        shape = self.shape(node)
        return self.block_builder.emit_te(lambda: te.compute(shape, element), primfunc_name_hint="computed")


def _short(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[-1][:200]}" if lines else type(error).__name__
