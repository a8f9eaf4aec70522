"""The loop IR: scalar expressions, the buffers they read and write, and statements over index spaces.

A statement computes one scalar expression for every point of a space, and stores it, or reduces it over the last
dimensions of the space first.  Expressions are immutable and interned: equal ones are the same object, which is common
subexpression elimination.  ``program.py`` lists the statements of a graph between its calls to torch's operators;
``schedule.py`` fuses them into kernels; a printer writes these as C++ or Triton.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from . import index
from .index import Index, Var
from .operation_table import OPERATIONS

lock = threading.RLock()
"""Held while a graph is compiled: the tables of interned expressions are the process's."""


def compute_type(dtype: torch.dtype) -> torch.dtype:
    """The type in which values of ``dtype`` are computed: half precision in float32."""
    return torch.float32 if dtype in (torch.bfloat16, torch.float16) else dtype


@dataclass(eq=False)
class Buffer:
    """Memory for a dense tensor.

    ``kind`` is "input", "temp" or "output", or "row" for scratch memory of a kernel; ``sizes`` and ``strides`` are
    those of the tensor that torch sees if it sees it.  ``numel`` counts the elements from the first to the last.
    Complex numbers are ``pairs`` of a real part and an imaginary part: ``dtype`` is that of the parts, ``numel`` counts
    these, and positions in the buffer are theirs.  Bytes may be ``seen_as`` numbers of 8 bits by torch.
    ``shows`` is the input whose memory the buffer is, as numbers of another dtype; nothing writes to that input.
    ``over`` is the input that the buffer is the new content of, and whose memory it shares.  What is ``rewritten`` has
    elements that are written more than once: it holds something before the first item that writes to it, which is the
    old content of ``over``, or a copy of the input ``begins``.
    """

    name: str
    dtype: torch.dtype
    sizes: tuple[Index, ...]
    strides: tuple[Index, ...]
    device: torch.device
    kind: str = "temp"
    shows: Buffer | None = None
    over: Buffer | None = None
    rewritten: bool = False
    begins: Buffer | None = None
    pairs: bool = False
    seen_as: torch.dtype | None = None

    @property
    def tensor_dtype(self) -> torch.dtype:
        """The dtype of the tensor that torch sees."""
        return self.seen_as or (self.dtype.to_complex() if self.pairs else self.dtype)

    @property
    def numel(self) -> Index:
        if any(type(s) is int and s == 0 for s in self.sizes):
            return 0
        last: Index = 1
        for extent, stride in zip(self.sizes, self.strides, strict=True):
            last = last + (extent - 1) * stride
        return last * 2 if self.pairs else last

    def __repr__(self) -> str:
        return self.name


_MOST_SHOWN = 1000


class Node:
    """A scalar expression.

    ``op`` and ``attr`` say what it is:

    * ``const`` (attr: the value), ``index`` (attr: an index expression, taken as a number),
    * ``load`` (attr: buffer and index; an optional argument is the condition under which memory may be read, the
      value is 0 otherwise),
    * ``cast``, ``round`` (attr: the half-precision type whose precision the value takes),
    * ``check`` (attr: a size, whether negative values count from the end, and the number of the fault to report): the
      argument, verified to be an index,
    * ``within`` (attr: a size): the argument, which is known to be an index without being verified,
    * ``complex``: a complex number of its two parts, of which lowering computes; no statement has it,
    * anything else is an operation of ``operation_table.py`` on the arguments.
    """

    __slots__ = ("_cost", "_free", "_loads", "args", "attr", "depth", "dtype", "number", "op")

    def __init__(self, op: str, args: tuple[Node, ...], dtype: torch.dtype, attr: Any, number: int) -> None:
        self.op, self.args, self.dtype, self.attr, self.number = op, args, dtype, attr, number
        self.depth: int = 1 + max((a.depth for a in args), default=0)
        self._free: frozenset[Var] | None = None
        self._loads: tuple[tuple[Buffer, Index], ...] | None = None
        self._cost: int | None = None

    def __repr__(self) -> str:
        return self._text([_MOST_SHOWN])

    def _text(self, left: list[int]) -> str:
        """The expression with at most ``left`` nodes: with what is shared in all places, it may be endless."""
        left[0] -= 1
        if left[0] < 0:
            return "..."
        attr = "" if self.attr is None else f"[{self.attr}]"
        return f"{self.op}{attr}({', '.join(a._text(left) for a in self.args)})"

    def _indices(self) -> tuple[Index, ...]:
        return (self.attr[1],) if self.op == "load" else (self.attr,) if self.op == "index" else ()

    @property
    def free(self) -> frozenset[Var]:
        """The loop variables that it depends on."""
        if self._free is None:
            found: frozenset[Var] = frozenset().union(*(a.free for a in self.args))
            for value in self._indices():
                found |= index.free(value)
            self._free = found
        return self._free

    @property
    def loads(self) -> tuple[tuple[Buffer, Index], ...]:
        """What it reads: buffers and indices, each pair once."""
        if self._loads is None:
            found: dict[tuple[Buffer, Index], None] = {}
            for argument in self.args:
                found.update(dict.fromkeys(argument.loads))
            if self.op == "load":
                found[self.attr] = None
            for value in self._indices():
                if isinstance(value, index.Ix):
                    for atom in value.atoms():
                        if isinstance(atom, index.Data):
                            found.update(dict.fromkeys(atom.node.loads))
            self._loads = tuple(found)
        return self._loads

    @property
    def cost(self) -> int:
        """About how many simple instructions it takes; shared parts count each time, up to a limit."""
        if self._cost is None:
            self._cost = min(OPERATIONS[self.op].cost + sum(a.cost for a in self.args), 10_000)
        return self._cost


_nodes: dict[Any, Node] = {}


def make(op: str, args: tuple[Node, ...], dtype: torch.dtype, attr: Any = None) -> Node:
    """The interned node; use ``operations.py``, which simplifies."""
    # 0.0 == -0.0 and 1 == True, so constants are distinguished by their text.
    key = (op, args, dtype, (type(attr), repr(attr)) if op == "const" else attr)
    found = _nodes.get(key)
    if found is None:
        found = _nodes[key] = Node(op, args, dtype, attr, len(_nodes))
    return found


def forget() -> None:
    """Drop the tables of interned expressions, after a graph is compiled."""
    _nodes.clear()
    index.forget()


def rewrite(node: Node, change: Callable[[Node, tuple[Node, ...]], Node], memo: dict[Node, Node]) -> Node:
    """Rebuild an expression from its leaves: ``change`` gets each node with its new arguments."""
    stack = [node]
    while stack:
        top = stack[-1]
        if top in memo:
            stack.pop()
            continue
        missing = [a for a in top.args if a not in memo]
        if missing:
            stack += missing
            continue
        stack.pop()
        memo[top] = change(top, tuple(memo[a] for a in top.args))
    return memo[node]


def substitute(node: Node, variables: Mapping[Var, Index], memo: dict[Node, Node] | None = None) -> Node:
    """The expression at other indices."""
    memo = {} if memo is None else memo

    def at(value: Index) -> Index:
        return index.substitute(value, variables, lambda n: substitute(n, variables, memo))

    def change(old: Node, args: tuple[Node, ...]) -> Node:
        if not (old.free & variables.keys()):
            return old
        if old.op == "load":
            return make("load", args, old.dtype, (old.attr[0], at(old.attr[1])))
        if old.op == "index":
            moved = at(old.attr)
            if type(moved) is int:
                return make("const", (), old.dtype, moved)
            return make("index", (), old.dtype, moved)
        return make(old.op, args, old.dtype, old.attr)

    return rewrite(node, change, memo)


def operators_in(node: Node) -> Iterator[Node]:
    """Each node of the expression once, arguments before users; expressions in indices too."""
    seen: set[Node] = set()
    order: list[Node] = []

    def visit(top: Node) -> None:
        stack: list[tuple[Node, bool]] = [(top, False)]
        while stack:
            current, done = stack.pop()
            if done:
                order.append(current)
                continue
            if current in seen:
                continue
            seen.add(current)
            stack.append((current, True))
            stack += [(a, False) for a in current.args if a not in seen]
            for value in current._indices():
                if isinstance(value, index.Ix):
                    for atom in value.atoms():
                        if isinstance(atom, index.Data):
                            stack.append((atom.node, False))

    visit(node)
    return iter(order)


@dataclass(eq=False)
class Statement:
    """``target[position] = value`` for every point of a space, or ``= reduce(value)`` over its last dimensions.

    ``kept`` and ``reduced`` are the loop variables (those of size 1 are not there); ``reduction`` is None, "sum",
    "prod", "max", "min", "argmax", "argmin", "any" or "all".  ``position`` depends on ``kept`` alone.
    """

    target: Buffer
    position: Index
    value: Node
    kept: tuple[Var, ...]
    reduced: tuple[Var, ...] = ()
    reduction: str | None = None
    origins: list[Any] = field(default_factory=list)  # the FX nodes it computes, for comments and reports

    @property
    def reads(self) -> set[Buffer]:
        return {buffer for buffer, _ in self.value.loads} | {
            b for a in index.data_atoms(self.position) for b, _ in a.node.loads
        }

    @property
    def kept_size(self) -> Index:
        return index.product(v.size for v in self.kept)

    @property
    def reduced_size(self) -> Index:
        return index.product(v.size for v in self.reduced)

    def __repr__(self) -> str:
        space = ", ".join(f"{v.key}<{v.size}" for v in self.kept)
        over = ", ".join(f"{v.key}<{v.size}" for v in self.reduced)
        reduction = f"{self.reduction} over {over}: " if self.reduction else ""
        return f"for {space}: {self.target}[{self.position}] = {reduction}{self.value}"
