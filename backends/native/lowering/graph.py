"""From an ATen graph to a program of the loop IR."""

from __future__ import annotations

import math
import operator
from collections.abc import Set
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from torchmux.registry.errors import NodesRefused

from ..devices import device_of
from ..ir import index
from ..ir.expressions import operators_in
from ..ir.forms import Forms
from ..ir.index import Index
from ..ir.layout import image_layout
from ..ir.operations import Unsupported
from ..ir.program import Computed, Extent, Program, Solved, TensorRef
from ..ir.sizes import SymbolicSizes, multiple, told_by
from ..ir.values import Place, Value
from ..rewrites.convolution_operator import CONVOLUTION
from ..rewrites.decisive import decisive
from ..rewrites.freezing import is_frozen
from . import Context, calls, complex_numbers, float8, table
from .pointwise import converted
from .registry import COMPLEX, KEEP_COST, SUPPORTED, as_stored, aten
from .writes import Writes, is_write, values_in

OPAQUE = (torch.uint64,)
"""Types of what operators hand to each other: the state of the numbers that attention has drawn."""

LONGEST_CHAIN = 48
"""A value is stored once so many operators lead to it since memory was read, because walks of expressions recur."""


def lower(gm: GraphModule, forms: Forms, *, padded: bool = False, own_products: bool = True) -> Program:
    """The program of ``gm``, an ATen graph with ``meta["val"]`` on its nodes, for a target that has ``forms``.

    With ``padded``, there are gaps between the rows of what is written for products of matrices.  Without
    ``own_products``, the library computes all of these.

    Raises:
        NodesRefused: nodes that cannot be lowered, with the reasons.
    """
    return _Lowering(gm, Program(forms, device_of(gm), padded=padded, own_products=own_products)).run()


def _lays_out_images(graph: Graph) -> bool:
    """Images that the caller sees have torch's layout; if there are many, as in training, this determines the rest."""
    results = [n.meta.get("val") for n in graph.output_node().args[0] if isinstance(n, Node)]
    seen = sum(isinstance(v, torch.Tensor) and v.dim() == 4 for v in results)
    return seen < 2 or seen * _SEEN <= sum(n.target in (aten.convolution.default, CONVOLUTION) for n in graph.nodes)


_SEEN = 4
"""Convolutions for each image that the caller sees, as in a network that returns the features of its stages."""


class _Lowering:
    def __init__(self, gm: GraphModule, program: Program) -> None:
        self.gm = gm
        self.program = program
        self.size = SymbolicSizes()
        self.env: dict[Node, Any] = {}
        self.refused: dict[str, str] = {}
        self.solved: dict[Node, Solved] = {}  # inputs from which the symbol in them follows
        self.writes = Writes(gm.graph, program, self.env)
        self.decisive = decisive(gm.graph)
        self.chain: dict[Node, int] = {}  # how many operators lead to a node since memory was read

    def run(self) -> Program:
        self.program.lays_out_images = _lays_out_images(self.gm.graph)
        self._name_numbers()
        self.size.name_places(n.meta.get("val") for n in self.gm.graph.nodes)
        for node in self.gm.graph.nodes:
            self.program.current = node
            if node.op == "placeholder" and _is_negative(node.meta.get("val")):
                self.program.inputs.append("")  # its users are refused
            elif node.op == "placeholder":
                self.env[node] = self._input(node)
            elif node.op == "get_attr":
                self.env[node] = self._constant(node)
            elif node.op == "output":
                if not self.refused:
                    self._outputs(node)
            else:
                try:
                    if is_write(node):
                        self._write(node)
                    else:
                        self.env[node] = self._call(node)
                except Unsupported as why:
                    self.refused[node.name] = str(why)
        if self.refused:
            raise NodesRefused(self.refused)
        self._bind_symbols()
        return self.program

    # --- inputs and outputs ---------------------------------------------------------------------------------------

    def _name_numbers(self) -> None:
        """Find out which numbers among the inputs are symbols, tell one, or have to be taken as they are.

        So has a size whose symbols nothing tells: what a forward pass saves of images as rows has their pixels alone.
        """
        inputs = [n for n in self.gm.graph.nodes if n.op == "placeholder"]
        found = [n.meta.get("val") for n in inputs]
        extents = [e for v in found if isinstance(v, torch.Tensor) for e in (*v.shape, *v.stride())]
        known = {e.node.expr for e in (*extents, *found) if isinstance(e, torch.SymInt) and e.node.expr.is_Symbol}
        for node, number in zip(inputs, found, strict=True):
            if not isinstance(number, torch.SymInt) or number.node.expr.free_symbols <= known:
                continue
            if (solved := _solved(number.node.expr)) is not None:
                self.solved[node] = solved
                known |= number.node.expr.free_symbols
            else:
                self.size.take(number.node.expr, node.name)
        known |= told_by(extents)
        for node, value in zip(inputs, found, strict=True):
            for dim, size in enumerate(value.shape if isinstance(value, torch.Tensor) else ()):
                if isinstance(size, torch.SymInt) and not self._is_told(size.node.expr, known):
                    self.size.take(size.node.expr, f"{node.name}_size_{dim}")

    def _is_told(self, expr: Any, known: Set[Any]) -> bool:
        """Whether an expression follows from known symbols, and from what is taken as it is."""
        if expr.is_number or expr in known or expr in self.size.given:
            return True
        return bool(expr.args) and all(self._is_told(part, known) for part in expr.args)

    def _input(self, node: Node) -> Any:
        fake = node.meta["val"]
        if isinstance(fake, torch.Tensor):
            sizes = tuple(self.size(s) for s in fake.shape)
            strides = self.size.strides(fake)
            buffer = self.program.buffer(fake.dtype, sizes, strides, "input", fake.device)
            self.program.inputs.append(buffer)
            return Value(sizes, fake.dtype, None, Place(buffer, strides, 0))
        if isinstance(fake, (int, torch.SymInt)) and not isinstance(fake, bool):
            value = self.size(fake)
            position = len(self.program.inputs)
            if node in self.solved:
                (symbol,) = fake.node.expr.free_symbols  # type: ignore[union-attr]
                name, factor = multiple(self.size.of(symbol, fake.node.shape_env)) or ("", 1)  # type: ignore[union-attr]
            else:
                name, factor = multiple(value) or ("", 1)
            if name:
                self.program.symbols.setdefault(name, (position, self.solved.get(node), factor))
            self.program.inputs.append(name)
            return value
        self.program.inputs.append("")
        return fake

    def _constant(self, node: Node) -> Value:
        tensor = getattr(self.gm, str(node.target))
        if tensor.dtype not in (*SUPPORTED, *COMPLEX):
            raise Unsupported(f"a constant of {tensor.dtype}")
        if tensor.numel() == 1 and tensor.device.type == "cpu" and not is_frozen(str(node.target)):
            from ..ir import operations as ops

            number = tensor.item()
            dtype = tensor.dtype
            return Value(tuple(tensor.shape), dtype, lambda at: ops.const(number, dtype))
        buffer = self.program.buffer(tensor.dtype, tuple(tensor.shape), tuple(tensor.stride()), "input", tensor.device)
        self.program.constants[buffer.name] = str(node.target)
        if is_frozen(str(node.target)):
            self.program.frozen[buffer] = str(node.target)
        return Value(buffer.sizes, tensor.dtype, None, Place(buffer, buffer.strides, 0))

    def _outputs(self, node: Node) -> None:
        returned: set[Any] = set()
        for result in node.args[0]:
            if not isinstance(result, Node):
                raise Unsupported("a constant among the outputs")
            value = self.writes.operand(node, result)
            if not isinstance(value, Value):
                self.program.outputs.append(value)
                continue
            fake = result.meta["val"]
            strides = self.size.strides(fake)
            self.program.current = result
            try:
                if _is_negative(fake):
                    raise Unsupported(_NEGATIVE)
                if fake.is_conj():
                    value = complex_numbers.conjugate(value)
                value = self._in_memory(value, strides, returned)
            except Unsupported as why:
                if result.op == "placeholder":
                    raise
                maker = result.args[0] if result.target is operator.getitem else result
                self.refused[maker.name] = str(why)
                continue
            assert value.place is not None
            value.place.buffer.kind = "output"
            if float8.is_float8(result):
                value.place.buffer.seen_as = fake.dtype
            returned.add(value.place.buffer)
            self.program.outputs.append(
                TensorRef(value.place.buffer, value.sizes, strides, value.place.offset, fake.is_conj())
            )

    def _in_memory(self, value: Value, strides: tuple[Index, ...], returned: set[Any]) -> Value:
        """``value`` in separate memory, with these strides."""
        repeated = [
            d for d, (s, t) in enumerate(zip(value.sizes, strides, strict=True)) if _is_zero(t) and not _is_zero(s)
        ]
        if repeated:  # an expanded tensor: what is repeated is stored once
            once = value
            for d in repeated:
                once = once.slice(d, 0, 1)
            once = self._in_memory(once, tuple(1 if d in repeated else t for d, t in enumerate(strides)), returned)
            return once.expand(value.sizes)
        taken = value.place is not None and (
            value.place.buffer.kind == "input" or value.place.buffer in returned or value.place.buffer.over is not None
        )
        if value.place is not None and not taken and _same_layout(value.sizes, value.place.strides, strides):
            return value
        if not _is_injective(value.sizes, strides):
            raise Unsupported("an output whose elements overlap in memory")
        if value.place is None:
            return self.program.realize(value, strides)
        return self.program.copy(value, strides)

    def _bind_symbols(self) -> None:
        """Say for each symbol where the call finds it: a number among the inputs, or a size of one of them, or, where
        there are gaps in its memory, a stride."""
        buffers = [(at, b) for at, b in enumerate(self.program.inputs) if not isinstance(b, str)]
        told: list[tuple[int, Extent, Index]] = []
        told += [(at, ("size", d), extent) for at, b in buffers for d, extent in enumerate(b.sizes)]
        told += [(at, ("stride", d), stride) for at, b in buffers for d, stride in enumerate(b.strides)]
        for position, extent, value in told:
            if (told_of := multiple(value)) is not None:
                self.program.symbols.setdefault(told_of[0], (position, extent, told_of[1]))
        missing = [name for name in self.size.seen if name not in self.program.symbols]
        for name, formula in self.size.places.items():
            self.program.symbols.setdefault(name, Computed(formula))
        if missing:
            raise Unsupported(f"the size {missing[0]}, which no input has")

    # --- calls ----------------------------------------------------------------------------------------------------

    def _call(self, node: Node) -> Any:
        if any(n.op == "placeholder" and _is_negative(n.meta.get("val")) for n in node.all_input_nodes):
            raise Unsupported(_NEGATIVE)
        if any(n not in self.env for n in node.all_input_nodes):
            raise Unsupported("an operand was not lowered")
        if node.target is operator.getitem:
            self.chain[node] = self.chain.get(node.args[0], 0)
            taken = self.writes.operand(node, node.args[0])[node.args[1]]
            self.writes.note(node, taken)
            return taken
        if isinstance(node.meta.get("val"), (torch.SymInt, int)):
            return self.size(node.meta["val"])
        ctx = Context(self.program, node, self.size, self.writes)
        _check_dtypes(node)
        args = torch.fx.map_arg(node.args, lambda n: self.writes.operand(node, n))
        kwargs = torch.fx.map_arg(dict(node.kwargs), lambda n: self.writes.operand(node, n))
        if any(isinstance(self.env[n], (torch.SymFloat, torch.SymBool)) for n in node.all_input_nodes):
            raise Unsupported("a number, other than a size, that is known only when the graph runs")
        found = _lowering_of(node)
        if found is None:
            if any(v.is_conj() or v.is_neg() for v in _tensors(node.meta["val"])):
                raise Unsupported("a conjugate or negative that torch notes, and has not computed")
            return calls.call(ctx, node.target, args, kwargs)
        before = len(self.program.items)
        result = found(ctx, *args, **kwargs)
        if node in self.decisive and isinstance(result, Value) and result.place is None:
            result = as_stored(result)
        if isinstance(result, Value) and result.rank != node.meta["val"].dim():  # an odd list of dimensions
            raise Unsupported(f"a result of {result.rank} dimensions where torch has {node.meta['val'].dim()}")
        for value in values_in(result):
            value.at(value.variables())  # an element that cannot be computed says so here, and not to a later node
        self._check_operations(result, before)
        self._keep(node, result)
        self._cut(node, result)
        self.writes.note(node, result)
        return result

    def _write(self, node: Node) -> None:
        """A write to an input, with the conversions of ``copy_``."""
        if any(n not in self.env for n in node.all_input_nodes):
            raise Unsupported("an operand was not lowered")
        target, source = self.env[node.args[0]], self.writes.operand(node, node.args[1])
        if source.dtype is not target.dtype:
            source = converted(source, target.dtype)
        self.writes.write(node, source.expand(target.sizes))

    def _cut(self, node: Node, result: Any) -> None:
        """Put a value at the end of a long chain into memory."""
        values = values_in(result)
        if all(v.place is not None for v in values):
            return
        length = 1 + max((self.chain.get(n, 0) for n in node.all_input_nodes), default=0)
        if length >= LONGEST_CHAIN * (2 if node.target in _VIEWS else 1):  # a view may repeat what is stored once
            for value in values:
                self.program.realize(value)
            return
        self.chain[node] = length

    def _check_operations(self, result: Any, before: int) -> None:
        """Raise if the target cannot compute what a lowering has made, and the operands did not need already."""
        lacks = self.program.forms.lacks()
        if not lacks:
            return
        made = [v.at(v.variables()) for v in values_in(result)]
        made += [item.value for item in self.program.items[before:] if hasattr(item, "value")]
        for node in made:
            for part in operators_in(node):
                if part.op in lacks:
                    raise Unsupported(lacks[part.op])

    def _keep(self, node: Node, result: Any) -> None:
        """Put what several nodes use into memory, if computing it again costs more."""
        if node.target is _aten.view_as_real.default:
            return  # it is in memory already, unless only one part or the other is taken of it
        if isinstance(result, Value):
            if result.place is None and _times_used(node) > 1 and self._is_worth(result):
                strides = image_layout(result) or self.size.strides(node.meta["val"])
                self.program.realize(result, strides if _is_dense(result.sizes, strides) else None)
        elif isinstance(result, tuple):
            for part in result:
                if isinstance(part, Value) and part.place is None and self._is_worth(part):
                    self.program.realize(part)

    def _is_worth(self, value: Value) -> bool:
        node = value.at(value.variables())
        if node.op == "complex":  # a product reads four numbers, and costs no more than they do
            return node.cost > _KEEP_COMPLEX
        return node.cost > KEEP_COST or len(node.loads) > 1


_KEEP_COMPLEX = 24
"""As :data:`~.registry.KEEP_COST`, for complex numbers."""

_NEGATIVE = "the negative of a tensor that torch notes, and has not computed"


def _is_negative(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_neg()


def _lowering_of(node: Node) -> Any:
    """The lowering of ``node``, if there is one."""
    values = _tensors([node.meta.get("val"), *(n.meta.get("val") for n in node.all_input_nodes)])
    if complex_numbers.has_complex(values):
        return complex_numbers.table.get(node.target)
    return (float8.table if float8.concerns(node) else table).get(node.target)


def _times_used(node: Node) -> int:
    """How many nodes use ``node``, a view counting as many as use the view."""
    return sum(_times_used(u) if u.target in _VIEWS else 1 for u in node.users)


_aten = torch.ops.aten
_VIEWS = frozenset(
    (
        _aten.view.default, _aten.permute.default, _aten.transpose.int, _aten.unsqueeze.default, _aten.squeeze.dims,
        _aten.squeeze.dim, _aten.expand.default, _aten.slice.Tensor, _aten.select.int, _aten.alias.default,
        _aten.split_with_sizes.default, _aten.unbind.int,
    )
)  # fmt: skip


def _is_dense(sizes: Any, strides: Any) -> bool:
    """Whether the strides number the elements without gaps or overlap; only known sizes count as dense."""
    if any(type(s) is not int for s in (*sizes, *strides)):
        return bool(strides == index.contiguous_strides(tuple(sizes)))
    expected = 1
    for stride, extent in sorted((t, s) for s, t in zip(sizes, strides, strict=True) if s != 1):
        if stride != expected:
            return False
        expected *= extent
    return True


def _is_permuted(sizes: Any, strides: Any) -> bool:
    """Whether dense strides, of sizes that may be symbolic, belong to the dimensions in some order."""
    left = [(s, t) for s, t in zip(sizes, strides, strict=True) if not (type(s) is int and s == 1)]
    expected: Index = 1
    while left:
        found = next((n for n, (_, stride) in enumerate(left) if stride == expected), None)
        if found is None:
            return False
        expected = expected * left.pop(found)[0]
    return True


def _is_zero(extent: Index) -> bool:
    return type(extent) is int and extent == 0


def _is_injective(sizes: Any, strides: Any) -> bool:
    """Whether no two elements share a place, as far as can be shown."""
    if any(_is_zero(s) for s in sizes):
        return True
    if any(type(s) is not int for s in (*sizes, *strides)):
        return _is_permuted(sizes, strides)
    reach = 0
    for stride, extent in sorted((t, s) for s, t in zip(sizes, strides, strict=True) if s != 1):
        if stride <= reach:
            return False
        reach += (extent - 1) * stride
    return True


def _same_layout(sizes: Any, found: Any, wanted: Any) -> bool:
    return all(a is b or a == b or (type(s) is int and s <= 1) for s, a, b in zip(sizes, found, wanted, strict=True))


def _check_dtypes(node: Node) -> None:
    if float8.concerns(node) and float8.is_lowered(node):
        return
    passed_on = _lowering_of(node) is None  # to torch's operator, which may know more types
    for value in _tensors([node.meta.get("val"), *(n.meta.get("val") for n in node.all_input_nodes)]):
        if value.dtype in COMPLEX:
            continue
        if value.dtype not in SUPPORTED and not (passed_on and value.dtype in OPAQUE):
            raise Unsupported(f"tensors of {value.dtype}")
        if value.layout is not torch.strided or value.is_quantized:
            raise Unsupported("tensors that are not dense")


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [t for v in value for t in _tensors(v)]
    return []


def why_not(node: Node) -> str | None:
    """Why ``node`` cannot be lowered, as far as the node alone shows; None if it may be."""
    if node.target is operator.getitem:
        return None
    value = node.meta.get("val")
    if isinstance(value, (torch.SymInt, int)) and not isinstance(value, bool):
        return None
    if isinstance(value, (torch.SymFloat, torch.SymBool, float, bool)):
        return "a symbolic number that is not a size"
    if _lowering_of(node) is None and not calls.is_callable(node.target):
        return f"native has no lowering for {node.target}"
    if any(type(arg) is int and not -(2**63) <= arg < 2**63 for arg in node.args):
        return "an integer beyond 64 bits, which eager refuses"
    if (number := _too_large(node)) is not None:
        return f"{number}, which its dtype cannot hold and eager may refuse"
    try:
        _check_dtypes(node)
    except Unsupported as why:
        return str(why)
    return None


def _too_large(node: Node) -> Any:
    """A constant among a node's numbers that the dtype of its result cannot hold; None if there is none."""
    value = node.meta.get("val")
    schema = getattr(node.target, "_schema", None)
    if not isinstance(value, torch.Tensor) or schema is None or value.dtype.is_complex:
        return None
    dtype = value.dtype
    info = None if dtype is torch.bool else torch.finfo(dtype) if dtype.is_floating_point else torch.iinfo(dtype)
    for position, argument in enumerate(schema.arguments):
        number = node.args[position] if position < len(node.args) else node.kwargs.get(argument.name)
        if type(number) not in (int, float) or "number" not in str(argument.type).lower():
            continue
        if argument.name == "alpha" and type(number) is float and not dtype.is_floating_point:
            return number
        if info is None or info.min <= number <= info.max:
            continue
        if not (dtype.is_floating_point and not math.isfinite(number)):
            return number
    return None


def _solved(expr: Any) -> Solved | None:
    """How the only symbol of an expression follows from its value, if the expression is linear in it."""
    if len(expr.free_symbols) != 1:
        return None
    (symbol,) = expr.free_symbols
    factor = expr.coeff(symbol)
    offset = (expr - factor * symbol).expand()
    return Solved(int(factor), int(offset)) if factor.is_Integer and factor and offset.is_Integer else None
