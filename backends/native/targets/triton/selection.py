"""Who computes the abstract operations on a GPU: torch's operators, which are cuBLAS, cuDNN and flash attention.

A bias that a statement of its own adds to a product goes into the library's kernel, which saves a pass over the result.
"""

from __future__ import annotations

from typing import Any

import torch

from ...ir import index
from ...ir.expressions import Buffer, Node, Statement
from ...ir.products import Attention, Convolution, Product
from ...ir.program import Call, Program, TensorRef
from ..torch_calls import call_of

_FLOATS = (torch.float32, torch.bfloat16, torch.float16)


def select(program: Program) -> None:
    """Replace what is abstract in ``program``."""
    biased = _biased(program)
    gone = {id(product) for product, _ in biased.values()}
    items = [biased[id(item)][1] if id(item) in biased else item for item in program.items if id(item) not in gone]
    abstract = (Product, Convolution, Attention)
    program.items = [call_of(item) if isinstance(item, abstract) else item for item in items]


def _biased(program: Program) -> dict[int, tuple[Product, Call]]:
    """For each statement that only adds a bias to a product, by identity: the product and a call that does both."""
    products = {item.target: item for item in program.items if isinstance(item, Product)}
    readers: dict[Buffer, int] = {}
    written: dict[Buffer, int] = {}
    for item in program.items:
        for buffer in item.reads:
            readers[buffer] = readers.get(buffer, 0) + 1
        for buffer in {item.target} if isinstance(item, Statement) else item.writes:
            written[buffer] = written.get(buffer, 0) + 1
    seen = {ref.buffer for ref in program.outputs if isinstance(ref, TensorRef)}
    found: dict[int, tuple[Product, Call]] = {}
    for item in program.items:
        if not isinstance(item, Statement) or item.reduced or written[item.target] != 1 or item.target.over is not None:
            continue
        product, bias = _sum_of(item, products)
        if product is None or bias is None or readers[product.target] != 1 or product.target in seen:
            continue
        if (call := _call(item, product, bias)) is not None:
            found[id(item)] = product, call
    return found


def _sum_of(statement: Statement, products: Any) -> tuple[Product | None, Buffer | None]:
    """The product and the bias, if the statement adds them and nothing else."""
    value = _bare(statement.value)
    if value.op != "add":
        return None, None
    left, right = map(_bare, value.args)
    for load, other in ((left, right), (right, left)):
        if load.op != "load" or other.op != "load" or load.args or other.args or load.attr[0] not in products:
            continue
        product: Product = products[load.attr[0]]
        bias, at = other.attr
        whole = statement.position
        if len(bias.sizes) != 1 or bias.strides != (1,) or bias.sizes[0] != product.n or load.attr[1] is not whole:
            continue
        column = index.not_negative(at) and index.less(at, product.n)
        if column and _same(index.remainder(whole - at, product.n), 0):
            return product, bias
    return None, None


def _bare(node: Node) -> Node:
    """``node`` without conversions between the types of floats."""
    while node.op in ("cast", "round") and node.args[0].dtype in _FLOATS:
        node = node.args[0]
    return node


def _call(statement: Statement, product: Product, bias: Buffer) -> Call | None:
    """The call for ``product`` plus ``bias``; its result is what the statement would write, element for element."""
    target, left, right = statement.target, product.left, product.right
    types = {target.dtype, product.target.dtype, left.buffer.dtype, right.buffer.dtype, bias.dtype}
    sizes = product.target.sizes
    if len(types) != 1 or target.dtype not in _FLOATS or len(sizes) != 2:
        return None
    if not _same(target.numel, product.m * product.n) or not _same(statement.kept_size, target.numel):
        return None
    target.sizes, target.strides = sizes, product.target.strides  # who reads it says which elements are meant
    shift = TensorRef(bias, bias.sizes, bias.strides, 0)
    origins = [*product.origins, *statement.origins]
    return Call(torch.ops.aten.addmm.default, (shift, left, right), {}, [target], origins)


def _same(a: Any, b: Any) -> bool:
    return a is b or (type(a) is int and a == b)
