"""Who computes the abstract operations on a GPU: torch's operators, which are cuBLAS, cuDNN and flash attention.

Before cuBLAS writes a product, it adds a bias, and applies GELU in its form with a tanh.  Each saves a pass over the
result.  cuBLASLt has a rectifier as well, but does not say what it makes of nan, so that stays a kernel.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch

from ...ir import index
from ...ir.expressions import Buffer, Node, Statement, operators_in
from ...ir.index import Index
from ...ir.products import Attention, Convolution, Product
from ...ir.program import Call, Program, TensorRef
from ...ir.uses import Uses
from ..biases import is_column, same
from ..rows_operator import MM_IN_ROWS
from ..torch_calls import call_of
from .tiled.candidates import in_rows

_HALF = (torch.bfloat16, torch.float16)
_FLOATS = (torch.float32, *_HALF)
_ADDMM = torch.ops.aten.addmm.default
_GELU = torch.ops.aten._addmm_activation.default


def select(program: Program) -> None:
    """Replace what is abstract in ``program``."""
    abstract = (Product, Convolution, Attention)
    items = _without_gaps(program, _activated(program, _biased(program)))
    program.items = [call_of(item) if isinstance(item, abstract) else item for item in items]


def _biased(program: Program) -> list[Any]:
    uses = Uses(program, program.items)
    products = {item.target: item for item in program.items if isinstance(item, Product)}
    calls: dict[int, Call] = {}
    gone: set[int] = set()
    for item in program.items:
        if not uses.is_whole(item):
            continue
        value, activated = _under_gelu(item.value, lambda n: _terms(n, products) is not None)
        terms = _terms(value, products)
        if terms is None or not uses.only_reader(terms[0].target):
            continue
        product, bias, _ = terms
        if _is_shift(item, *terms) and (call := _call(item, product, bias, activated)) is not None:
            calls[id(item)] = call
            gone.add(id(product))
    return [calls.get(id(item), item) for item in program.items if id(item) not in gone]


def _activated(program: Program, items: list[Any]) -> list[Any]:
    uses = Uses(program, items)
    sums = {item.results[0]: item for item in items if isinstance(item, Call) and item.op is _ADDMM}
    calls: dict[int, Call] = {}
    gone: set[int] = set()
    for item in items:
        if not uses.is_whole(item) or len(item.value.loads) != 1:
            continue
        source, at = item.value.loads[0]
        call = sums.get(source)
        if call is None or not uses.only_reader(source) or at is not item.position or len(source.sizes) != 2:
            continue
        is_alike = item.target.dtype is source.dtype and source.dtype in _HALF
        if not is_alike or not same(item.target.numel, source.numel) or not same(item.kept_size, source.numel):
            continue
        if _under_gelu(item.value, lambda n: n.op == "load" and not n.args)[1]:
            item.target.sizes, item.target.strides = source.sizes, source.strides
            origins = [*call.origins, *item.origins]
            calls[id(item)] = Call(_GELU, call.args, {"use_gelu": True}, [item.target], origins)
            gone.add(id(call))
    return [calls.get(id(item), item) for item in items if id(item) not in gone]


def _without_gaps(program: Program, items: list[Any]) -> list[Any]:
    """Products whose rows a statement would only copy, to where they have no gaps, are made there."""
    uses = Uses(program, items)
    products = {item.target: item for item in items if isinstance(item, Product) and item.unit > 1}
    calls: dict[int, Call] = {}
    gone: set[int] = set()
    for item in items:
        if not uses.is_whole(item) or item.value.op != "load" or item.value.args:
            continue
        source, at = item.value.attr
        product = products.get(source)
        if product is None or not uses.only_reader(source) or not _closes_gaps(item, product, at):
            continue
        item.target.sizes, item.target.strides = product.target.sizes, (product.n, 1)
        given = (product.left, product.right, product.n, product.unit)
        origins = [*product.origins, *item.origins]
        calls[id(item)] = Call(MM_IN_ROWS, given, {}, [item.target], origins)
        gone.add(id(product))
    return [calls.get(id(item), item) for item in items if id(item) not in gone]


def _closes_gaps(statement: Statement, product: Product, position: Index) -> bool:
    """Whether ``statement`` does nothing else than to put rows of the product, read at ``position``, side by side."""
    matrix, target = product.target, statement.target
    columns, row = product.n, matrix.strides[0]
    if target.dtype is not matrix.dtype or row == columns or product.left.strides[1] != 1:
        return False
    y, x = index.var("y0", product.m), index.var("x0", columns)
    loops = in_rows(position, statement.kept, y, x, row)
    return loops is not None and index.joined(index.substitute(statement.position, loops)) is y * columns + x


def _terms(value: Node, products: Mapping[Buffer, Product]) -> tuple[Product, Buffer, Any] | None:
    """The product and the bias that ``value`` adds, and where it reads both, if it does nothing else."""
    value = _bare(value)
    if value.op != "add":
        return None
    left, right = map(_bare, value.args)
    for load, other in ((left, right), (right, left)):
        if load.op == other.op == "load" and not load.args and not other.args and load.attr[0] in products:
            return products[load.attr[0]], other.attr[0], (load.attr[1], other.attr[1])
    return None


def _is_shift(statement: Statement, product: Product, bias: Buffer, at: tuple[Any, Any]) -> bool:
    """Whether each element of the product gets that of its column in ``bias``."""
    return at[0] is statement.position and is_column(product, at[0], bias, at[1])


def _bare(node: Node) -> Node:
    """``node`` without conversions between the types of floats."""
    while node.op in ("cast", "round") and node.args[0].dtype in _FLOATS:
        node = node.args[0]
    return node


def _call(statement: Statement, product: Product, bias: Buffer, activated: bool) -> Call | None:
    """The call for ``product`` plus ``bias``; its result is what the statement would write, element for element."""
    target, left, right = statement.target, product.left, product.right
    types = {target.dtype, product.target.dtype, left.buffer.dtype, right.buffer.dtype, bias.dtype}
    sizes = product.target.sizes
    if len(types) != 1 or target.dtype not in (_HALF if activated else _FLOATS) or len(sizes) != 2:
        return None
    if not same(target.numel, product.m * product.n) or not same(statement.kept_size, target.numel):
        return None
    target.sizes, target.strides = sizes, product.target.strides  # who reads it says which elements are meant
    shift = TensorRef(bias, bias.sizes, bias.strides, 0)
    origins = [*product.origins, *statement.origins]
    op, options = (_GELU, {"use_gelu": True}) if activated else (_ADDMM, {})
    return Call(op, (shift, left, right), options, [target], origins)


# --- GELU, however a program writes it --------------------------------------------------------------------------------

_MOST_NODES = 40

_POINTS = tuple(0.37 * n + 0.01 * n * n for n in range(-14, 15))

_FUNCTIONS: dict[str, Callable[..., float]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "neg": lambda a: -a,
    "cast": lambda a: a,
    "tanh": math.tanh,
}
"""Functions that are analytic: two that are made of them are equal if they are equal in an interval.  A ``round`` is
none, as the program asked for it."""


def _under_gelu(value: Node, is_operand: Callable[[Node], bool]) -> tuple[Node, bool]:
    """The operand of which ``value`` is the GELU with a tanh, and True; else ``value`` and False.

    A program may write the function in many ways, so it is known by its values.
    """
    nodes = list(operators_in(value))
    if len(nodes) <= _MOST_NODES and any(n.op == "tanh" for n in nodes):
        for node in nodes:
            if node.dtype.is_floating_point and is_operand(node):
                found = [_value(value, node, x) for x in _POINTS]
                if all(y is not None and _is_gelu(x, y) for x, y in zip(_POINTS, found, strict=True)):
                    return node, True
    return value, False


def _is_gelu(x: float, y: float) -> bool:
    expected = 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    return abs(y - expected) <= 1e-6 * (1 + abs(x))  # constants are written with seven digits and more


def _value(node: Node, operand: Node, x: float) -> float | None:
    """What ``node`` is where ``operand`` is ``x``; None if it depends on something else."""
    known: dict[Node, float] = {}
    for part in operators_in(node):
        if part is operand:
            known[part] = x
        elif part.op == "const" and isinstance(part.attr, (int, float)):
            known[part] = float(part.attr)
        elif part.op in _FUNCTIONS and part.dtype in _FLOATS and all(a in known for a in part.args):
            try:
                known[part] = _FUNCTIONS[part.op](*(known[a] for a in part.args))
            except ArithmeticError:
                return None
    return known.get(node)
