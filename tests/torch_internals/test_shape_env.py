"""Symbolic sizes: how they are made and what is known of them."""

from __future__ import annotations

import math

import pytest
import torch

from torchmux import torch_internals as ti

from .walk import checks


@checks("printed_source")
def test_what_a_shape_guard_speaks_of() -> None:
    from torch._dynamo.source import LocalSource, TensorProperty, TensorPropertySource

    x = LocalSource("x")
    assert ti.printed_source(TensorPropertySource(x, TensorProperty.SIZE, 1))[1:] == ("size", 1)
    assert ti.printed_source(TensorPropertySource(x, TensorProperty.STRIDE, 0))[1:] == ("stride", 0)
    assert ti.printed_source(TensorPropertySource(x, TensorProperty.STORAGE_OFFSET))[1:] == ("storage_offset", None)
    assert ti.printed_source(x)[1:] == ("", None)


@checks("dim_bounds", "dim_kinds", "shape_guard_namespace", "rebuild_symbolic")
def test_symbols() -> None:
    assert {"STATIC", "DYNAMIC", "DUCK", "UNBACKED", "INFER_STRIDE"} <= set(ti.dim_kinds().__members__)
    assert ti.dim_bounds(None, 8).vr.upper == 8
    assert ti.dim_bounds(3, None).vr.lower == 3
    assert callable(ti.shape_guard_namespace()["IsNonOverlappingAndDenseIndicator"])
    env = ti.fake_tensor_mode(symbolic=True).shape_env
    symbol = env.create_unbacked_symint().node.expr
    assert ti.rebuild_symbolic(symbol * 2 + 1, {symbol: 5}) == 11
    size = env.create_symintnode(symbol, hint=None)
    for expression, value in (
        (torch.sym_int(size / 2), 2),
        (torch.sym_int(size * -0.3), -1),
        (math.floor(size / 2), 2),
        (math.ceil(size / 2), 3),
        (torch.sym_int(torch.sym_float(size) * 1.5), 7),
        (torch.sym_max(size, 7) - size // 2, 5),
    ):
        assert ti.rebuild_symbolic(expression.node.expr, {symbol: 5}) == value
    assert ti.rebuild_symbolic(symbol**2, {symbol: 5}) == 25
    with pytest.raises(NotImplementedError):
        ti.rebuild_symbolic(round(size / 2).node.expr, {symbol: 5})


@checks("symbol_of", "assumptions", "holds", "as_python")
def test_what_is_taken_for_granted() -> None:
    from torch._dynamo.source import ConstantSource
    from torch.fx.experimental.symbolic_shapes import StatelessSymbolicContext

    mode = ti.fake_tensor_mode(symbolic=True)
    context = StatelessSymbolicContext(dynamic_sizes=[ti.dim_kinds().DYNAMIC])
    size = mode.from_tensor(torch.ones(6), source=ConstantSource("x"), symbolic_context=context).shape[0]
    symbol = ti.symbol_of(size)
    assert symbol is not None
    assert ti.symbol_of(size + 1) is None
    assert ti.symbol_of(6) is None
    before = len(ti.assumptions(mode))
    assert size % 2 == 0
    (condition,) = ti.assumptions(mode)[before:]
    assert ti.holds(condition, {symbol: 8})
    assert not ti.holds(condition, {symbol: 7})
    assert [eval(ti.as_python(condition), ti.shape_guard_namespace(), {str(symbol): n}) for n in (8, 7)] == [
        True,
        False,
    ]
    assert ti.assumptions(ti.new_fake_mode()) == []


@checks("depends_on_data", "new_unbacked_symbols", "insert_runtime_asserts", "python_dispatcher", "possible_value")
def test_unbacked() -> None:
    mode = ti.fake_tensor_mode(symbolic=True, where=lambda: "model.py:3", scalars=True, dynamic_outputs=True)
    graph = torch.fx.Graph()
    node = graph.placeholder("x")
    with mode, ti.python_dispatcher():
        node.meta["example_value"] = example = torch.ones(4)
        item = graph.call_method("item", (node,))
        item.meta["example_value"] = number = example.long().sum().item()
        bindings = ti.new_unbacked_symbols(mode.shape_env, number)
        assert ti.depends_on_data(number)
        torch._check(number < 5)
        with pytest.raises(ti.fake_tensor_errors()["guard"]):
            bool(number == 3)
        assert ti.possible_value(number) < 5
    assert list(bindings) == [number.node.expr]
    with mode, ti.python_dispatcher():
        pairs = torch.combinations(example)
    with pytest.raises(LookupError, match="u"):
        ti.new_unbacked_symbols(mode.shape_env, pairs)
    item.meta["unbacked_bindings"] = bindings
    graph.output((item,))
    gm = torch.fx.GraphModule({}, graph)
    ti.insert_runtime_asserts(gm, mode.shape_env)
    gm.recompile()
    assert "_assert_scalar" in gm.code
    symbol = mode.shape_env.create_unspecified_symbol(7, source=_source(), dynamic_dim=ti.dim_kinds().DYNAMIC)
    assert bool(mode.shape_env.create_symintnode(symbol, hint=7, source=_source()) > 5)
    assert mode.shape_env.guards[-1].sloc.maybe_user_loc == "model.py:3"


def _source():
    from torch._dynamo.source import LocalSource

    return LocalSource("n")


@checks("symbolic_math")
def test_symbolic_math() -> None:
    table = ti.symbolic_math()
    assert {math.sqrt, math.sin, math.log2} <= set(table)
    assert table[math.sqrt](16) == 4.0


@checks("named_source", "told_symbol", "made_symbol", "made_number")
def test_a_symbol_is_made_again_in_another_shape_env() -> None:
    from torch.fx.experimental.symbolic_shapes import StatelessSymbolicContext

    mode = ti.fake_tensor_mode(symbolic=True)
    context = StatelessSymbolicContext([ti.dim_kinds().DYNAMIC], constraint_sizes=[ti.dim_bounds(3, 64)])
    (size,) = mode.from_tensor(torch.ones(5), symbolic_context=context, source=ti.named_source("n")).shape
    symbol = ti.symbol_of(size)
    told = ti.told_symbol(mode.shape_env, symbol)
    assert told["source"]
    assert told["range"] == (3, 64)
    other = ti.fake_tensor_mode(symbolic=True).shape_env
    made = ti.made_symbol(other, told, 8)
    assert other.bound_sympy(made).upper == 64
    number = ti.made_number(other, symbol * 2 + 1, {symbol: made})
    assert number.node.hint == 17
    assert bool(number > 6)
    assert ti.made_number(other, symbol * 0 + 4, {symbol: made}) == 4
    with pytest.raises(ValueError, match="depends on data"):
        ti.told_symbol(other, other.create_unbacked_symint().node.expr)


@checks("size_range", "is_never_negative", "factor_of", "least_of", "least_size", "ranges_of", "settled", "usual_of")
def test_size_range() -> None:
    from torch.fx.experimental.symbolic_shapes import DimDynamic, StatelessSymbolicContext

    mode = ti.fake_tensor_mode(symbolic=True)
    for bounds, expected in ((None, (2, 5, None)), (ti.dim_bounds(3, 8), (3, 5, 8))):
        context = StatelessSymbolicContext([DimDynamic.DYNAMIC], constraint_sizes=[bounds])
        (size,) = mode.from_tensor(torch.ones(5), symbolic_context=context, source=_named_source()).shape
        assert ti.size_range(size) == expected
        least, usual, _ = expected
        assert ti.size_range(size * 2)[:2] == (2 * least, 2 * usual)
        assert ti.is_never_negative(size.node.shape_env, size.node.expr)
        assert ti.least_of(size.node.shape_env, size.node.expr) == least
        assert ti.usual_of(size.node.shape_env, (size * 2).node.expr) == 2 * usual
        ((name, text),) = ti.ranges_of(size * 2).items()
        assert name == str(size.node.expr)
        assert str(least) in text
        symbol, env = size.node.expr, size.node.shape_env
        assert ti.factor_of(env, symbol) == 1
        assert size % 5 == 0
        assert ti.factor_of(env, symbol) == 5
        assert ti.ranges_of(size) != {name: text}
    context = StatelessSymbolicContext([DimDynamic.DYNAMIC] * 2)
    rows, width = mode.from_tensor(torch.ones(6, 8), symbolic_context=context, source=_named_source()).shape
    part = (rows * width * width) // (2 * rows * width)  # as a view of pairs says it
    assert width % part == 0
    assert width // part == 2
    assert ti.factor_of(width.node.shape_env, width.node.expr) == 2
    places = (rows * width - 9) // 3 + 1
    assert ti.least_size(width.node.shape_env, places.node.expr) == 0
    assert places != 0
    assert places != 1
    assert ti.least_size(width.node.shape_env, places.node.expr) == 2
    blocks = (rows * width) // ((rows * width) // 4)
    assert ti.settled(width.node.shape_env, blocks.node.expr) is None
    assert rows * width == 4 * ((rows * width) // 4)
    assert ti.settled(width.node.shape_env, blocks.node.expr) == 4
    env = mode.shape_env
    number = env.create_symbol(
        -2, _named_source(), DimDynamic.DYNAMIC, None, positive=None, do_not_specialize_zero_one=True
    )
    assert not ti.is_never_negative(env, number)
    assert ti.least_of(env, number) is None
    assert ti.usual_of(env, number) == -2
    assert ti.usual_of(env, env.create_unbacked_symint().node.expr) is None


def _named_source():
    from torch._dynamo.source import LocalSource

    return LocalSource("x")
