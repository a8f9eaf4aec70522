"""Biases of products in half precision are added by the library, before it rounds: as eager's ``addmm`` does.

A product that is rounded first and then added to a bias is off by more than two roundings: the numbers of a column lie
on the coarse grid of the product, so adding the same bias rounds them alike, and the error does not average out.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

import torch

from ..ir import index
from ..ir.expressions import Buffer, Node, Statement, make, operators_in, rewrite
from ..ir.index import Index
from ..ir.products import Product
from ..ir.program import Call, Program, TensorRef
from ..ir.uses import Uses

_HALF = (torch.bfloat16, torch.float16)
_ADDMM = torch.ops.aten.addmm.default


def add_biases(program: Program) -> None:
    """Give biases to the products of matrices in ``program`` of which nothing else is read than their sum."""
    uses = Uses(program, program.items)
    now: dict[int, list[Any]] = {id(item): [item] for item in program.items}  # what stands in the place of each
    for product in program.items:
        if not isinstance(product, Product) or product.target.dtype not in _HALF or product.unit > 1:
            continue
        source = product.target
        if len(source.sizes) != 2 or source in uses.returned:
            continue
        places = uses.readers.get(source, [])
        readers = [now[id(place)][-1] for place in places]  # one may have lost the bias of another product
        found = _bias(product, readers)
        if found is None:
            continue
        bias, is_rounded = found
        before: list[Any] = []
        if bias.dtype is not source.dtype:
            if not is_rounded:
                continue
            before, bias = _converted(program, bias, product)
        changed = [_without(reader, source) for reader in readers]
        target, origins = source, product.origins
        if len(changed) == 1 and _is_copy(changed[0], source):
            target, origins = changed[0].target, [*origins, *changed[0].origins]
            target.sizes, target.strides = source.sizes, source.strides  # who reads it says which elements are meant
            changed = []
        shift = TensorRef(bias, bias.sizes, bias.strides, 0)
        now[id(product)] = [*before, Call(_ADDMM, (shift, product.left, product.right), {}, [target], origins)]
        for place, reader in itertools.zip_longest(places, changed):
            now[id(place)] = [] if reader is None else [reader]
    program.items = [item for place in program.items for item in now[id(place)]]


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
        if bias.op != "load" or bias.args or not is_column(product, load.attr[1], *bias.attr):
            continue
        vector = bias.attr[0]  # which the library reads sooner than the loop did
        if vector.kind == "input" and not vector.rewritten and vector.dtype in (torch.float32, *_HALF):
            return load, vector, is_rounded
    return None


def is_column(product: Product, at: Index, bias: Buffer, column: Index) -> bool:
    """Whether ``column`` of ``bias``, a vector, is the column of the element of ``product`` at ``at``."""
    if len(bias.sizes) != 1 or bias.strides != (1,) or bias.sizes[0] != product.n:
        return False
    within = index.not_negative(column) and index.less(column, product.n)
    return within and same(index.remainder(at - column, product.n), 0)


def same(a: Any, b: Any) -> bool:
    """Whether two sizes or positions are known to be equal."""
    return a is b or (type(a) is int and a == b)


def _is_copy(statement: Statement, source: Buffer) -> bool:
    """Whether ``statement`` writes all of ``source`` to a buffer of its own, in the same order."""
    target, value = statement.target, statement.value
    return (
        value.op == "load"
        and value.attr == (source, statement.position)
        and target.dtype is source.dtype
        and target.over is None
        and not target.rewritten
        and same(target.numel, source.numel)
        and same(statement.kept_size, source.numel)
    )


def _converted(program: Program, bias: Buffer, product: Product) -> tuple[list[Any], Buffer]:
    """The statement that rounds ``bias``, and what it writes."""
    target = program.buffer(product.target.dtype, bias.sizes)
    at = index.var("j0", product.n)
    column = index.the_var(at)
    value = make("load", (), torch.float32, (bias, at))
    kept = () if column is None else (column,)
    return [Statement(target, at, value, kept, origins=list(product.origins))], target


def _without(statement: Statement, sums: Buffer) -> Statement:
    """``statement`` with elements of ``sums`` in the place of what adds something to them."""

    def change(old: Node, args: tuple[Node, ...]) -> Node:
        if old.op == "add":
            for each in old.args:
                if each.op == "load" and each.attr[0] is sums:
                    return each
        return old if args == old.args else make(old.op, args, old.dtype, old.attr)

    return dataclasses.replace(statement, value=rewrite(statement.value, change, {}))
