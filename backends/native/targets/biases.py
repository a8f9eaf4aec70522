"""Biases of products in half precision are added by the library, before it rounds: as eager's ``addmm`` does.

A product that is rounded first and then added to a bias is off by more than two roundings: the numbers of a column lie
on the coarse grid of the product, so adding the same bias rounds them alike, and the error does not average out.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch

from ..ir import index
from ..ir.expressions import Buffer, Node, Statement, make, operators_in, rewrite
from ..ir.index import Index
from ..ir.products import Product
from ..ir.program import Call, Program, TensorRef

_HALF = (torch.bfloat16, torch.float16)
_ADDMM = torch.ops.aten.addmm.default


def add_biases(program: Program) -> None:
    """Give biases to the products of matrices in ``program`` of which nothing else is read than their sum."""
    items: list[Any] = list(program.items)
    for product in [i for i in items if isinstance(i, Product) and i.target.dtype in _HALF and i.unit == 1]:
        if len(product.target.sizes) != 2 or product.target in program.returned:
            continue
        readers = [i for i in items if product.target in i.reads]
        found = _bias(product, readers)
        if found is None:
            continue
        bias, is_rounded = found
        at = items.index(product)
        shift = bias
        if bias.dtype is not product.target.dtype:
            if not is_rounded:
                continue
            shift = program.buffer(product.target.dtype, bias.sizes)
            items.insert(at, _converted(bias, shift, product))
        changed = {id(i): _without(i, product.target) for i in readers}
        target, origins = product.target, product.origins
        if len(readers) == 1 and _is_copy(changed[id(readers[0])], product.target):
            target, origins = readers[0].target, [*origins, *readers[0].origins]
            target.sizes, target.strides = product.target.sizes, product.target.strides  # readers say what they mean
            items.remove(readers[0])
        ref = TensorRef(shift, shift.sizes, shift.strides, 0)
        call = Call(_ADDMM, (ref, product.left, product.right), {}, [target], origins)
        items = [call if i is product else changed.get(id(i), i) for i in items]
    program.items = items


def _bias(product: Product, readers: Sequence[Any]) -> tuple[Buffer, bool] | None:
    """What all readers add to each element of ``product``, and whether they round it first; None if there is no such
    thing."""
    found: set[tuple[Buffer, bool]] = set()
    for reader in readers:
        if not isinstance(reader, Statement) or any(a.node.loads for a in index.data_atoms(reader.position)):
            return None
        nodes = list(operators_in(reader.value))
        reads = {n for n in nodes if n.op == "load" and n.attr[0] is product.target}
        sums = {n: s for n in nodes if (s := _sum(n, product)) is not None}
        users = {load for n in nodes for load in n.args if load in reads and n not in sums}
        if users or reader.value in reads or {load for load, _, _ in sums.values()} != reads:
            return None
        found |= {(bias, is_rounded) for _, bias, is_rounded in sums.values()}
    return found.pop() if len(found) == 1 else None


def _sum(node: Node, product: Product) -> tuple[Node, Buffer, bool] | None:
    """The element of ``product`` that ``node`` adds to that of its column in a bias, and the bias."""
    if node.op != "add":
        return None
    for load, other in (node.args, reversed(node.args)):
        if load.op != "load" or load.args or load.attr[0] is not product.target:
            continue
        is_rounded = other.op == "round" and other.attr is product.target.dtype
        bias = other.args[0] if is_rounded else other
        if bias.op == "load" and not bias.args and _is_column(product, load.attr[1], *bias.attr):
            return load, bias.attr[0], is_rounded
    return None


def _is_column(product: Product, at: Index, bias: Buffer, column: Index) -> bool:
    """Whether ``column`` of ``bias``, an input that nothing writes to, is the column of the element ``at``."""
    is_vector = bias.kind == "input" and not bias.rewritten and bias.strides == (1,) and bias.sizes[0] == product.n
    if not is_vector or bias.dtype not in (torch.float32, *_HALF):
        return False
    within = index.not_negative(column) and index.less(column, product.n)
    rest = index.remainder(at - column, product.n)
    return within and type(rest) is int and rest == 0


def _is_copy(statement: Statement, source: Buffer) -> bool:
    """Whether ``statement`` writes all of ``source`` to a buffer of its own, in the same order."""
    target, value = statement.target, statement.value
    return (
        value.op == "load"
        and value.attr == (source, statement.position)
        and target.dtype is source.dtype
        and target.over is None
        and not target.rewritten
        and _same(target.numel, source.numel)
        and _same(statement.kept_size, source.numel)
    )


def _same(a: Index, b: Index) -> bool:
    return a is b or (type(a) is int and a == b)


def _converted(bias: Buffer, target: Buffer, product: Product) -> Statement:
    """The statement that rounds ``bias`` into ``target``."""
    at = index.var("j0", product.n)
    column = index.the_var(at)
    value = make("load", (), torch.float32, (bias, at))
    return Statement(target, at, value, () if column is None else (column,), origins=list(product.origins))


def _without(statement: Statement, sums: Buffer) -> Statement:
    """``statement`` with elements of ``sums`` in the place of what adds something to them."""

    def change(old: Node, args: tuple[Node, ...]) -> Node:
        if old.op == "add":
            for each in old.args:
                if each.op == "load" and each.attr[0] is sums:
                    return each
        return old if args == old.args else make(old.op, args, old.dtype, old.attr)

    return dataclasses.replace(statement, value=rewrite(statement.value, change, {}))
