"""Each rule of the verifiers has something that breaks it, and is named along with the pass and the statement."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.fx import Graph

from torchmux.backends.native import targets
from torchmux.backends.native.ir import expressions, index, operations as ops
from torchmux.backends.native.ir.expressions import Buffer, Node, Statement, make
from torchmux.backends.native.ir.index import Index, Var
from torchmux.backends.native.ir.ordered_loops import Scan, Scatter
from torchmux.backends.native.ir.products import Product
from torchmux.backends.native.ir.program import Call, Program, TensorRef
from torchmux.backends.native.ir.verify import Malformed, verify_program
from torchmux.backends.native.schedule import stages
from torchmux.backends.native.schedule.kernel import Kernel
from torchmux.backends.native.schedule.schedule import Schedule, schedule
from torchmux.backends.native.schedule.stages import Fold, LoopNest, Store
from torchmux.backends.native.schedule.verify import verify_nest, verify_schedule

aten = torch.ops.aten
F32, I64, BOOL = torch.float32, torch.int64, torch.bool


@pytest.fixture(autouse=True)
def interned() -> Iterator[None]:
    with expressions.lock:
        yield
        expressions.forget()


class Made:
    """A good program for each test to break: ``b = x * 2`` and ``s = sum(b)`` along rows of 4, over an input 3 by 4."""

    def __init__(self) -> None:
        self.program = Program(targets.named("cpu"), torch.device("cpu"))
        self.program.current = Graph().placeholder("test")
        self.x = self.program.buffer(F32, (3, 4), None, "input")
        self.program.inputs.append(self.x)
        self.b = self.program.buffer(F32, (3, 4), None, "output")
        self.s = self.program.buffer(F32, (3,), None, "output")
        self.i, self.j = index.var("i", 3), index.var("j", 4)
        at = self.i * 4 + self.j
        self.double = Statement(self.b, at, ops.binary("mul", ops.load(self.x, at), number(2)), loops(self.i, self.j))
        self.sum = Statement(self.s, self.i, ops.load(self.b, at), loops(self.i), loops(self.j), "sum")
        for statement in (self.double, self.sum):
            statement.origins = [self.program.current]
            self.program.items.append(statement)
        self.program.outputs += [ref(self.b), ref(self.s)]

    def planned(self) -> tuple[Schedule, Kernel, LoopNest]:
        """The schedule, its one kernel, and the loops of that."""
        plan = schedule(self.program)
        (kernel,) = plan.steps
        return plan, kernel, stages.plan(kernel, {self.b, self.s}, 64 * 1024)


def loops(*indices: Index) -> tuple[Var, ...]:
    found = [index.the_var(i) for i in indices]
    assert all(found)
    return tuple(v for v in found if v is not None)


def number(value: Any, dtype: torch.dtype = F32) -> Node:
    return ops.const(value, dtype)


def ref(buffer: Buffer) -> TensorRef:
    return TensorRef(buffer, buffer.sizes, buffer.strides, 0)


def rejected(made: Made, rule: str, words: str, statement: Any = None) -> None:
    with pytest.raises(Malformed) as found:
        verify_program(made.program, "lowering")
    assert found.value.rule == rule
    assert words in found.value.what
    message = str(found.value)
    assert message.startswith("after lowering: ")
    assert f"[rule: {rule}]" in message
    if statement is not None:
        assert repr(statement) in message


def test_the_good_ones_pass() -> None:
    made = Made()
    verify_program(made.program, "lowering")
    plan, _, nest = made.planned()
    verify_schedule(plan, made.program, "fusion")
    verify_nest(nest, "planning loops")


# --- expressions ------------------------------------------------------------------------------------------------------

BAD_VALUES: list[tuple[str, str, Callable[[Made], Node]]] = [
    ("operations", "'frobnicate' is not in the table", lambda m: make("frobnicate", (number(1.0),), F32)),
    ("types", "add has 1 operands", lambda m: make("add", (number(1.0),), F32)),
    ("types", "its signature is 'N N -> N'", lambda m: make("add", (number(1.0), number(1, I64)), F32)),
    ("types", "gives torch.int64", lambda m: make("exp", (number(1.0),), I64)),
    ("types", "lt of (torch.float32, torch.float32)", lambda m: make("lt", (number(1.0), number(1.0)), F32)),
    ("types", "is the int 2", lambda m: make("const", (), F32, 2)),
    ("types", "300 does not fit torch.uint8", lambda m: make("cast", (make("const", (), torch.uint8, 300),), F32)),
    ("types", "holds torch.float32, and is read as torch.int64", lambda m: make("load", (), I64, (m.x, 0))),
    ("types", "rounded to torch.float64", lambda m: make("round", (number(1.0),), F32, torch.float64)),
    ("types", "torch.int64 is stored", lambda m: number(1, I64)),
    ("variables", "the value depends on k", lambda m: ops.from_index(index.var("k", 4), F32)),
    (
        "variables",
        "which changes in the loops",
        lambda m: ops.from_index(index.data(make("check", (number(1, I64),), I64, (m.j, False))), F32),
    ),
    ("symbols", "the size n is no input's", lambda m: ops.from_index(index.size("n"), F32)),
    ("bounds", "is read at 1 + 4*i + j, from 1 to 12", lambda m: ops.load(m.x, m.i * 4 + m.j + 1)),
    ("bounds", "from -1 to 10", lambda m: ops.load(m.x, m.i * 4 + m.j - 1)),
]


@pytest.mark.parametrize(("rule", "words", "value"), BAD_VALUES)
def test_a_bad_expression(rule: str, words: str, value: Callable[[Made], Node]) -> None:
    made = Made()
    made.double.value = value(made)
    rejected(made, rule, words, made.double)


def test_what_is_read_under_a_condition_may_lie_elsewhere() -> None:
    made = Made()
    before = ops.compare("ge", ops.from_index(made.j), number(1, I64))
    made.double.value = ops.masked(before, ops.load(made.x, made.i * 4 + made.j - 1), number(0))
    verify_program(made.program, "lowering")


# --- statements and programs ------------------------------------------------------------------------------------------


def _position(made: Made, position: Index) -> None:
    made.double.position = position


def _sum(made: Made, **changes: Any) -> None:
    made.program.items[1] = dataclasses.replace(made.sum, **changes)


def _foreign(made: Made) -> Buffer:
    return Buffer("elsewhere", F32, (3, 4), (4, 1), torch.device("cpu"))


def _call(made: Made, argument: TensorRef) -> None:
    target = made.program.buffer(F32, (3, 4))
    made.program.items.insert(0, Call(aten.clone.default, (argument,), {}, [target]))


def _product(made: Made, left: TensorRef, right: TensorRef, sizes: tuple[int, ...], dtype: torch.dtype = F32) -> None:
    made.program.items.insert(0, Product(made.program.buffer(dtype, sizes), left, right))


def _view(made: Made, *sizes: int) -> TensorRef:
    return TensorRef(made.x, sizes, index.contiguous_strides(sizes), 0)


BAD_PROGRAMS: list[tuple[str, str, Callable[[Made], Any]]] = [
    ("bounds", "is written at 1 + 4*i + j", lambda m: _position(m, m.i * 4 + m.j + 1)),
    ("variables", "the position depends on k", lambda m: _position(m, index.var("k", 12))),
    ("variables", "a loop comes twice", lambda m: setattr(m.double, "kept", loops(m.i, m.j, m.j))),
    ("variables", "the position depends on j, which is reduced over", lambda m: _sum(m, position=m.j)),
    ("reduction", "there is no reduction 'median'", lambda m: _sum(m, reduction="median")),
    ("reduction", "the reduction None is over 1 loops", lambda m: _sum(m, reduction=None)),
    ("reduction", "argmax of load", lambda m: _sum(m, reduction="argmax")),
    ("reduction", "any of torch.float32", lambda m: _sum(m, reduction="any")),
    ("types", "sum gives torch.float64", lambda m: _sum(m, value=ops.cast(m.sum.value, torch.float64))),
    ("buffers", "elsewhere is no buffer", lambda m: setattr(m.double, "target", _foreign(m))),
    ("buffers", "two buffers are called b1", lambda m: setattr(m.s, "name", "b1")),
    ("buffers", "of the kind 'row'", lambda m: setattr(m.b, "kind", "row")),
    ("shapes", "2 sizes and 1 strides", lambda m: setattr(m.b, "strides", (1,))),
    ("shapes", "sizes (3, -4)", lambda m: setattr(m.b, "sizes", (3, -4))),
    ("order", "b1 is read before anything is written", lambda m: m.program.items.reverse()),
    ("kinds", "in0, which is an input or a constant, is written", lambda m: setattr(m.double, "target", m.x)),
    ("kinds", "b1 is returned, and is of the kind 'temp'", lambda m: setattr(m.b, "kind", "temp")),
    ("kinds", "write 24 elements of b1, which has 12", lambda m: m.program.items.append(m.double)),
    ("kinds", "write 9 elements of b1, which has 12", lambda m: setattr(m.double, "kept", _shorter(m))),
    ("bounds", "reaches to 12", lambda m: _call(m, TensorRef(m.x, (3, 4), (4, 1), 1))),
    ("shapes", "2 sizes and 1 strides", lambda m: _call(m, TensorRef(m.x, (3, 4), (1,), 0))),
    (
        "shapes",
        "inner sizes of a product, 4 and 3, differ",
        lambda m: _product(m, _view(m, 3, 4), _view(m, 3, 4), (3, 4)),
    ),
    ("shapes", "batches of a product, 3 and 1", lambda m: _product(m, _view(m, 3, 2, 2), _view(m, 2, 6), (3, 2, 6))),
    ("shapes", "of the sizes (3, 3) goes to", lambda m: _product(m, _view(m, 3, 4), _view(m, 4, 3), (3, 4))),
    ("types", "gives torch.float64", lambda m: _product(m, _view(m, 3, 4), _view(m, 4, 3), (3, 3), torch.float64)),
]


def _shorter(made: Made) -> tuple[Var, ...]:
    made.double.position = made.i * 4 + index.var("k", 3)
    made.double.value = number(2)
    return loops(made.i, index.var("k", 3))


@pytest.mark.parametrize(("rule", "words", "breaks"), BAD_PROGRAMS)
def test_a_bad_program(rule: str, words: str, breaks: Callable[[Made], Any]) -> None:
    made = Made()
    breaks(made)
    rejected(made, rule, words)


def test_an_output_that_nothing_writes() -> None:
    made = Made()
    made.program.outputs.append(ref(made.program.buffer(F32, (2,), None, "output")))
    rejected(made, "order", "b3 is read before anything is written to it")


def test_a_statement_over_what_a_call_made() -> None:
    made = Made()
    made.program.items.insert(0, Call(aten.clone.default, (ref(made.x),), {}, [made.b]))
    rejected(made, "kinds", "b1, which a call or loop made, is written again", made.double)


def test_bad_loops_whose_order_matters() -> None:
    for change, rule, words in (
        ({"op": "mean"}, "reduction", "there is no cumulative 'mean'"),
        ({"along": loops(index.var("i", 3))[0]}, "variables", "a loop comes twice"),
        ({"position": index.var("k", 4)}, "variables", "the position depends on k"),
    ):
        made = Made()
        target = made.program.buffer(F32, (3, 4))
        at = made.i * 4 + made.j
        scan = Scan(target, at, ops.load(made.x, at), loops(made.i), loops(made.j)[0], "sum")
        made.program.items.append(scan)
        verify_program(made.program, "lowering")
        made.program.items[-1] = dataclasses.replace(scan, **change)
        rejected(made, rule, words, made.program.items[-1])
    made = Made()
    scatter = Scatter(made.b, made.j, number(1, I64), loops(made.j), (), True)
    made.program.items.append(scatter)
    rejected(made, "types", "torch.int64 is stored", scatter)


# --- schedules --------------------------------------------------------------------------------------------------------


def _members(kernel: Kernel, at: int, **changes: Any) -> None:
    member = kernel.members[at]
    kernel.members[at] = dataclasses.replace(member, statement=dataclasses.replace(member.statement, **changes))


BAD_KERNELS: list[tuple[str, str, Callable[[Made, Schedule, Kernel], Any]]] = [
    ("steps", "b1 is written 2 times, not 1", lambda m, p, k: p.steps.append(m.double)),
    ("steps", "a statement is in two kernels", lambda m, p, k: _split_twice(p, k)),
    ("steps", "not in the order of the program", lambda m, p, k: k.members.reverse()),
    ("order", "b1 is read before anything is written", lambda m, p, k: k.members.pop(0)),
    ("order", "b1 is read at 0, and computed at", lambda m, p, k: _members(k, 1, value=ops.load(m.b, 0))),
    ("variables", "a loop comes twice", lambda m, p, k: setattr(k, "space", (*k.space, k.space[0]))),
    ("variables", "which no loop here is over", lambda m, p, k: setattr(k, "space", k.space[1:])),
    ("reduction", "keeps a loop that it is over", lambda m, p, k: setattr(k, "inner", frozenset(k.space))),
    ("types", "torch.int64 is stored", lambda m, p, k: _members(k, 0, value=number(1, I64))),
    ("bounds", "is read at 100", lambda m, p, k: _members(k, 0, value=ops.load(m.x, 100))),
    ("symbols", "the size n is no input's", lambda m, p, k: _members(k, 0, value=ops.from_index(index.size("n"), F32))),
]


def _split_twice(plan: Schedule, kernel: Kernel) -> None:
    """Two kernels of one statement each, which say that they come from the same place."""
    first, second = kernel.members
    plan.steps[:] = [
        dataclasses.replace(kernel, members=[first]),
        dataclasses.replace(kernel, members=[dataclasses.replace(second, at=first.at)]),
    ]


@pytest.mark.parametrize(("rule", "words", "breaks"), BAD_KERNELS)
def test_a_bad_schedule(rule: str, words: str, breaks: Callable[[Made, Schedule, Kernel], Any]) -> None:
    made = Made()
    plan, kernel, _ = made.planned()
    breaks(made, plan, kernel)
    with pytest.raises(Malformed) as found:
        verify_schedule(plan, made.program, "fusion")
    assert found.value.rule == rule
    assert words in found.value.what
    assert str(found.value).startswith("after fusion: ")


# --- stages -----------------------------------------------------------------------------------------------------------


def _result(made: Made) -> Node:
    return make("result", (), F32, made.s)


def _row(made: Made) -> Buffer:
    return Buffer("row0", F32, (4,), (1,), torch.device("cpu"), "row")


def _first(nest: LoopNest, step: Store | Fold) -> None:
    nest.stages[0].body.insert(0, step)


def _inner(nest: LoopNest) -> Index:
    return index.var(nest.inner[0].key, nest.inner[0].size)


BAD_NESTS: list[tuple[str, str, Callable[[Made, LoopNest], Any]]] = [
    (
        "stages",
        "the reduction into b2 is used before it is finished",
        lambda m, n: _first(n, Store(m.b, 0, _result(m))),
    ),
    ("stages", "is used before it is finished", lambda m, n: n.stages[1].before.extend(n.stages.pop(0).before)),
    ("stages", "the row row0 is read before it is kept", lambda m, n: _first(n, Store(m.b, 0, ops.load(_row(m), 0)))),
    ("buffers", "row0 is no row of these loops", lambda m, n: _first(n, Store(_row(m), 0, number(1)))),
    ("variables", "the position depends on", lambda m, n: n.stages[0].before.append(Store(m.b, _inner(n), number(1)))),
    ("variables", "a loop comes twice", lambda m, n: setattr(n, "rows", (*n.rows, *n.inner))),
    ("variables", "is not the last inner loop", lambda m, n: setattr(n, "vector", n.rows[0])),
    ("types", "add has 1 operands", lambda m, n: _first(n, Store(m.b, 0, make("add", (number(1),), F32)))),
    ("bounds", "b1, which has 12 elements, is written at 12", lambda m, n: _first(n, Store(m.b, 12, number(1)))),
]


@pytest.mark.parametrize(("rule", "words", "breaks"), BAD_NESTS)
def test_bad_stages(rule: str, words: str, breaks: Callable[[Made, LoopNest], Any]) -> None:
    made = Made()
    _, _, nest = made.planned()
    breaks(made, nest)
    with pytest.raises(Malformed) as found:
        verify_nest(nest, "planning loops")
    assert found.value.rule == rule
    assert words in found.value.what
    assert str(found.value).startswith("after planning loops: ")


# --- when it runs -----------------------------------------------------------------------------------------------------


def test_debug_is_what_turns_it_on(capture, monkeypatch, tmp_path) -> None:
    from torchmux.backends.native import generate
    from torchmux.config import config

    seen = []
    monkeypatch.setattr(generate, "verify_program", lambda program, after: seen.append(after))
    for debug in (False, True):
        with config.patch(debug=debug, cache_dir=tmp_path / str(debug)):
            capture(lambda x: x * 2, torch.randn(3)).compile("native", strict=True)
        assert seen == (["lowering", "selection"] if debug else [])
