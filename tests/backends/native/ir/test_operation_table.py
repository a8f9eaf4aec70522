"""Each operation of the table, compiled by each target that spells it, against eager and float64."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.fx import Graph

from torchmux.backends.native import targets
from torchmux.backends.native.ir import expressions, index, operations as ops
from torchmux.backends.native.ir.expressions import Node, make
from torchmux.backends.native.ir.operation_table import BY_PRINTER, KINDS, OPERATIONS
from torchmux.backends.native.ir.program import Program, TensorRef
from torchmux.backends.native.ir.values import Value
from torchmux.backends.native.ir.verify import verify_program
from torchmux.backends.native.options import NativeOptions
from torchmux.backends.native.runtime import NativeFunction
from torchmux.backends.native.schedule.schedule import schedule

from ..conftest import both_targets

FLOATS = (torch.float32, torch.float64)
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
LENGTH = 37  # some whole vectors, and a part of one

NAN, INF = math.nan, math.inf
SPECIAL = (0.0, -0.0, 1.0, -1.0, NAN, INF, -INF)


def run(target: str, inputs: list[torch.Tensor], build: Callable[[Program, list[Value]], list[Value]]) -> list[Any]:
    """What a program of statements gives for ``inputs``, compiled for ``target``."""
    chosen = targets.named(target)
    options = NativeOptions()
    with expressions.lock:
        try:
            program = Program(chosen, torch.device("cpu"))
            program.current = Graph().placeholder("test")
            given = []
            for tensor in inputs:
                buffer = program.buffer(tensor.dtype, tuple(tensor.shape), tuple(tensor.stride()), "input")
                program.inputs.append(buffer)
                given.append(program.stored(buffer))
            for value in build(program, given):
                stored = program.realize(value) if value.place is None else value
                assert stored.place is not None
                stored.place.buffer.kind = "output"
                program.outputs.append(TensorRef.of(stored))
            verify_program(program, "building the test")
            made = chosen.assemble(program, schedule(program), options, timed=False)
        finally:
            expressions.forget()
    head = {name: getattr(made, name) for name in ("python", "code", "own", "names", "constants", "timers")}
    head |= {"target": target, "notes": [], "library_calls": [], "kernels": [], "keep_scratch": False}
    return list(NativeFunction(head, chosen.build(made, options), {}, cache_hit=False)(*inputs))


def numbers(dtype: torch.dtype, low: float, high: float, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    if dtype is torch.bool:
        return torch.rand(LENGTH, generator=generator) > 0.5
    if not dtype.is_floating_point:
        bits = torch.iinfo(dtype)
        return torch.randint(max(bits.min, -120), 120, (LENGTH,), generator=generator).to(dtype)
    drawn = torch.rand(LENGTH, generator=generator, dtype=torch.float64) * (high - low) + low
    return drawn.to(dtype)


def with_special(tensor: torch.Tensor, turn: int) -> torch.Tensor:
    """The last elements are those where functions are peculiar, in another order for each operand."""
    if tensor.is_floating_point():
        turned = (*SPECIAL[turn:], *SPECIAL[:turn])
        tensor[-len(SPECIAL) :] = torch.tensor(turned, dtype=tensor.dtype)
    return tensor


def assert_right(got: torch.Tensor, eager: torch.Tensor, exact: torch.Tensor) -> None:
    """As eager where that is exact; elsewhere within twice eager's error and some units, element by element."""
    assert got.dtype is eager.dtype
    assert got.shape == eager.shape
    if not got.is_floating_point():
        assert torch.equal(got, eager)
        return
    assert torch.equal(got.isnan(), eager.isnan())
    finite = exact.isfinite() & eager.isfinite()
    torch.testing.assert_close(got[~finite], eager[~finite], rtol=0, atol=0, equal_nan=True)
    unit = torch.finfo(got.dtype).eps
    a, b, c = (t[finite].double() for t in (got, eager, exact))
    allowed = 2 * (b - c).abs() + 8 * unit * c.abs() + torch.finfo(got.dtype).tiny
    assert bool(((a - c).abs() <= allowed).all()), (a - c).abs().max()


# Name: what torch has for it, and between which numbers operands are drawn.
EAGER: dict[str, tuple[Callable[..., torch.Tensor], tuple[float, float]]] = {
    "add": (torch.add, (-3, 3)),
    "sub": (torch.sub, (-3, 3)),
    "mul": (torch.mul, (-3, 3)),
    "div": (torch.div, (-3, 3)),
    "and": (torch.bitwise_and, (0, 1)),
    "or": (torch.bitwise_or, (0, 1)),
    "xor": (torch.bitwise_xor, (0, 1)),
    "not": (torch.logical_not, (0, 1)),
    "bitwise_not": (torch.bitwise_not, (0, 1)),
    "bits_32": (lambda x: x.float().view(torch.int32), (-3, 3)),
    "bits_64": (lambda x: x.view(torch.int64), (-3, 3)),
    "number_32": (lambda x: x.view(torch.float32), (2**30, 2**31 - 2**24)),
    "number_64": (lambda x: x.view(torch.float64), (2**61, 2**62)),
    "neg": (torch.neg, (-3, 3)),
    "abs": (torch.abs, (-3, 3)),
    "maximum": (torch.maximum, (-3, 3)),
    "minimum": (torch.minimum, (-3, 3)),
    "lt": (torch.lt, (-1, 1)),
    "le": (torch.le, (-1, 1)),
    "gt": (torch.gt, (-1, 1)),
    "ge": (torch.ge, (-1, 1)),
    "eq": (torch.eq, (-1, 1)),
    "ne": (torch.ne, (-1, 1)),
    "where": (torch.where, (-3, 3)),
    "exp": (torch.exp, (-100, 85)),
    "expm1": (torch.expm1, (-1e-2, 1e-2)),
    "exp2": (torch.exp2, (-120, 120)),
    "log": (torch.log, (1e-3, 30)),
    "log1p": (torch.log1p, (-1e-2, 1e-2)),
    "log2": (torch.log2, (1e-3, 30)),
    "log10": (torch.log10, (1e-3, 30)),
    "erf": (torch.erf, (-3, 3)),
    "erfc": (torch.erfc, (-3, 3)),
    "normal_cdf": (lambda x: torch.erfc(x * -math.sqrt(0.5)) / 2, (-3, 3)),
    "normal_pdf": (lambda x: torch.exp(x * x / -2) / math.sqrt(2 * math.pi), (-3, 3)),
    "tanh": (torch.tanh, (-4, 4)),
    "sin": (torch.sin, (-9, 9)),
    "cos": (torch.cos, (-9, 9)),
    "tan": (torch.tan, (-1.5, 1.5)),
    "asin": (torch.asin, (-1, 1)),
    "acos": (torch.acos, (-1, 1)),
    "atan": (torch.atan, (-3, 3)),
    "sinh": (torch.sinh, (-9, 9)),
    "cosh": (torch.cosh, (-9, 9)),
    "asinh": (torch.asinh, (-9, 9)),
    "acosh": (torch.acosh, (1, 9)),
    "atanh": (torch.atanh, (-0.9, 0.9)),
    "lgamma": (torch.lgamma, (3, 30)),
    "sqrt": (torch.sqrt, (0, 9)),
    "floor": (torch.floor, (-9, 9)),
    "ceil": (torch.ceil, (-9, 9)),
    "trunc": (torch.trunc, (-9, 9)),
    "rint": (torch.round, (-9, 9)),
    "copysign": (torch.copysign, (-3, 3)),
    "pow": (torch.pow, (0.1, 5)),
    "atan2": (torch.atan2, (-3, 3)),
    "hypot": (torch.hypot, (-3, 3)),
    "nextafter": (torch.nextafter, (-3, 3)),
    "fmod": (torch.fmod, (-9, 9)),
}


def dtypes_of(name: str) -> list[torch.dtype]:
    """The types of the result's letter, of which operands that share it are."""
    letter = OPERATIONS[name].operands[-1]
    return [d for d in (*FLOATS, *INTEGERS, torch.bool) if d in KINDS[letter]]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("name", "target"),
    [(name, target) for name in EAGER for target in ("cpu", "triton")],
    indirect=["target"],
)
def test_an_operation(name: str, target: str) -> None:
    operation = OPERATIONS[name]
    function, bounds = EAGER[name]
    given: list[list[torch.Tensor]] = []
    for dtype in dtypes_of(name):
        if dtype is torch.bool and operation.operands == ("T", "T"):
            continue  # bools are compared as numbers: operations.py never makes this
        letters = enumerate(operation.operands)
        operands = [
            with_special(numbers(torch.bool if letter == "B" else dtype, *bounds, seed=n), n) for n, letter in letters
        ]
        given += [operands, [o[3] for o in operands]]  # vectors, and a single number

    def build(program: Program, values: list[Value]) -> list[Value]:
        rest = iter(values)
        made = []
        for operands in given:
            taken = [next(rest) for _ in operands]
            (only, *others) = KINDS[operation.result]
            result = taken[-1].dtype if others else only

            def element(at: Any, taken: list[Value] = taken, result: torch.dtype = result) -> Node:
                nodes = [v.at(at) for v in taken]
                return make(name, tuple(nodes), result)

            made.append(Value(taken[-1].sizes, result, element))
        return made

    results = run(target, [o for operands in given for o in operands], build)
    for got, operands in zip(results, given, strict=True):
        wide = [o.double() if o.is_floating_point() else o for o in operands]
        assert_right(got, function(*operands), function(*wide).to(torch.float64))


@both_targets
@pytest.mark.parametrize(
    ("name", "function", "by"),
    [
        ("floor_div", torch.floor_divide, -7),
        ("floor_rem", torch.remainder, -7),
        ("shl", torch.bitwise_left_shift, 3),
        ("shr", torch.bitwise_right_shift, 3),
    ],
)
def test_integers_with_a_number(name: str, function: Any, by: int, target: str) -> None:
    given = [numbers(dtype, 0, 0, seed=0) for dtype in INTEGERS]
    numbers_by = [abs(by) if dtype is torch.uint8 else by for dtype in INTEGERS]

    def build(program: Program, values: list[Value]) -> list[Value]:
        def combined(value: Value, by: int) -> Value:
            return Value(
                value.sizes, value.dtype, lambda at: ops.binary(name, value.at(at), ops.const(by, value.dtype))
            )

        return [combined(v, by) for v, by in zip(values, numbers_by, strict=True)]

    for got, x, other in zip(run(target, given, build), given, numbers_by, strict=True):
        assert torch.equal(got, function(x, other))


@both_targets
def test_what_printers_write_themselves(target: str) -> None:
    """Constants, indices, reading under a condition, conversions, verified indices, and results of reductions."""
    x = numbers(torch.float32, -9, 9, seed=1)
    rows = torch.randint(-LENGTH, LENGTH, (LENGTH,))
    conversions = [
        (a, b) for a in (*FLOATS, *INTEGERS, torch.bool) for b in (*FLOATS, *INTEGERS, torch.bool) if a is not b
    ]
    sources = {dtype: numbers(dtype, 0, 100, seed=2) for dtype in (*FLOATS, *INTEGERS, torch.bool)}

    def build(program: Program, values: list[Value]) -> list[Value]:
        a, at, *others = values
        by_type = dict(zip(sources, others, strict=True))
        large = ops.const(-(2**63), torch.int64)
        made = [
            Value((LENGTH,), torch.float64, lambda i: ops.const(0.1, torch.float64)),
            Value((LENGTH,), torch.int64, lambda i: ops.binary("add", ops.from_index(i[0] * 3), large)),
            Value(
                (LENGTH,),
                torch.float32,
                lambda i: ops.masked(_below(i[0], 5), a.at((i[0] + 32,)), ops.const(7.0, torch.float32)),
            ),
            Value(
                (LENGTH,), torch.float32, lambda i: a.at((index.data(ops.check(at.at(i), LENGTH, wrap=True, fault=1)),))
            ),
            Value((LENGTH,), torch.bfloat16, lambda i: ops.round_to(a.at(i), torch.bfloat16)),
            Value((LENGTH,), torch.float16, lambda i: ops.round_to(a.at(i), torch.float16)),
        ]
        total = program.reduce("sum", a, [0], torch.float32, lambda node: node).squeeze(0)
        made.append(Value((LENGTH,), torch.float32, lambda i: ops.binary("sub", a.at(i), total.at(()))))
        place = program.reduce("argmax", a, [0], torch.int64, lambda node: node).squeeze(0)
        made.append(Value((), torch.int64, place.at))
        for source, wanted in conversions:
            made.append(_converted(by_type[source], wanted))
        return made

    expected = [
        torch.full((LENGTH,), 0.1, dtype=torch.float64),
        torch.arange(LENGTH) * 3 - 2**63,
        torch.cat([x[32:], torch.full((32,), 7.0)]),
        x[rows],
        x.bfloat16(),
        x.half(),
        x - x.double().sum().float(),
        x.argmax(),
        *(sources[a].to(b) for a, b in conversions),
    ]
    results = run(target, [x, rows, *sources.values()], build)
    for got, wanted in zip(results, expected, strict=True):
        torch.testing.assert_close(got, wanted, rtol=0, atol=1e-5 if got is results[6] else 0)


def _verified(at: Node) -> index.Index:
    return index.data(ops.check(at, LENGTH, wrap=True, fault=1))


def _below(at: Any, bound: int) -> Node:
    return ops.compare("lt", ops.from_index(at), ops.from_index(bound))


def _converted(value: Value, dtype: torch.dtype) -> Value:
    return Value(value.sizes, dtype, lambda at: ops.cast(value.at(at), dtype))


def test_every_operation_is_run() -> None:
    written_by_printers = {name for name, op in OPERATIONS.items() if op.cpp.text == BY_PRINTER}
    # Complex numbers are two nodes in each statement (lowering/test_complex.py).
    assert written_by_printers == {"const", "index", "load", "result", "cast", "round", "check", "pair", "complex"}
    assert {*EAGER, "floor_div", "floor_rem", "shl", "shr", "within", *written_by_printers} == set(OPERATIONS)


def test_the_table_is_whole() -> None:
    for operation in OPERATIONS.values():
        letters = {*operation.operands, operation.result}
        assert letters <= KINDS.keys()
        assert operation.cost >= 0
        assert (operation.triton == BY_PRINTER) == (operation.cpp.text == BY_PRINTER)


def test_folding_is_what_the_code_computes() -> None:
    seven, three = ops.const(7, torch.int64), ops.const(3, torch.int64)
    for name, wanted in (("add", 10), ("sub", 4), ("mul", 21)):
        assert ops.binary(name, seven, three).attr == wanted
    for name in sorted(ops.COMPARE):
        assert ops.compare(name, seven, three).attr is bool(EAGER[name][0](torch.tensor(7), torch.tensor(3)))
    # A sum of floats is rounded where the code runs.
    third = ops.const(1 / 3, torch.float32)
    assert ops.binary("add", third, third).op == "add"
