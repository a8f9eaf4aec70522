"""The refusals that adapters have in common: a node for each rule, asked of every adapter."""

from __future__ import annotations

import importlib
import importlib.util

import pytest
import torch
import torch.nn.functional as F
from torch._subclasses import FakeTensorMode
from torch.fx import Graph, Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

from torchmux.backends.common.adapter import support

aten = torch.ops.aten
X = torch.randn(3, 4)
N = torch.arange(1, 4)


def traced(function, *inputs, target=None) -> Node:
    """The only operator of ``function``, or the one that ``target`` names."""
    graph = make_fx(function, tracing_mode="fake")(*inputs).graph
    calls = [n for n in graph.nodes if n.op == "call_function"]
    (node,) = [n for n in calls if target is None or n.target is target]
    return node


def by_hand(op, *values) -> Node:
    """A call of ``op`` with what a tracer does not hand over as it is; its result is like the first argument."""
    graph = Graph()
    placeholders = [graph.placeholder(f"x{at}") for at in range(len(values))]
    for node, value in zip(placeholders, values, strict=True):
        node.meta["val"] = value
    node = graph.call_function(op, tuple(placeholders))
    node.meta["val"] = values[0]
    graph.output((node,))
    return node


def with_gaps_by_sizes() -> torch.Tensor:
    """Every second element of rows of a size that is not known."""
    mode = FakeTensorMode(shape_env=ShapeEnv())
    dims = StatelessSymbolicContext([DimDynamic.DYNAMIC] * 2)
    return mode.from_tensor(torch.randn(5, 12), symbolic_context=dims)[:, ::2]


NODES = {
    "random": lambda: traced(lambda x: aten.bernoulli.p(x, 0.5), X),
    "writes": lambda: by_hand(aten.add_.Tensor, X, X),
    "addresses": lambda: traced(lambda x: aten.as_strided(x, [2, 2], [1, 1]), X.t()),
    "comparisons": lambda: traced(lambda x: aten.mode(x, 1), X, target=aten.mode.default),
    "traps": lambda: traced(lambda n: aten.floor_divide(n, n), N),
    "remainders": lambda: traced(lambda x: aten.remainder.Tensor(x, x), X),
    "bags": lambda: traced(
        lambda rows, table: F.embedding_bag(rows, table, rows[:2]), torch.arange(3), X,
        target=aten._embedding_bag_forward_only.default,
    ),
    "gaps": lambda: by_hand(aten.slice_scatter.default, with_gaps_by_sizes()),
    "numbers": lambda: by_hand(aten.mul.Tensor, X, ShapeEnv().create_unbacked_symfloat()),
    "layouts": lambda: by_hand(aten.mul.Tensor, X.to_sparse(), X.to_sparse()),
    "flags": lambda: by_hand(aten.mul.Tensor, torch._neg_view(X), torch._neg_view(X)),
    "dtypes": lambda: traced(lambda x: aten.mul.Tensor(x, x), X.to(torch.complex64)),
    "empty": lambda: traced(lambda x: aten.relu(x), X[:0]),
}  # fmt: skip

# The adapters of other runtimes, and the package that each needs to be asked.
ADAPTERS = {"onnxrt": "onnxruntime", "openvino": "openvino", "tvm": "tvm", "tensorrt": "torch_tensorrt"}
IMPORTS_ITS_RUNTIME = ("tvm",)

# Why native, which compiles torch's operators itself, takes a node all the same; None: it refuses it as well.
NATIVE = {
    "random": "it calls torch's own operator, which draws in its turn",
    "writes": None,
    "addresses": "its memory is laid out as torch's",
    "comparisons": "its comparisons see nan as torch's do",
    "traps": "its code asks whether the divisor is 0, and raises as torch does",
    "remainders": "its remainder is the one of torch's kernels",
    "gaps": "its memory is laid out as torch's, by the sizes of each call",
    "bags": "its code asks where bags begin, and raises as torch does",
    "numbers": "floats come to it as tensors (pipeline/floats.py), and lowering refuses the node if one does not",
    "layouts": None,
    "flags": "it conjugates what it reads, and lowering refuses what is negative",
    "dtypes": "it computes with complex numbers as pairs of real ones, and lowering refuses what it has no pairs for",
    "empty": "its loops run no time over nothing",
}


def common(backend: str) -> support.Common:
    if backend in IMPORTS_ITS_RUNTIME:
        pytest.importorskip(ADAPTERS[backend])
    return importlib.import_module(f"torchmux.backends.{backend}.operators").COMMON


def test_there_is_a_node_for_each_rule() -> None:
    assert set(NODES) == set(NATIVE) == set(support.RULES)


@pytest.mark.parametrize("backend", ADAPTERS)
def test_a_rule_that_an_adapter_does_without_has_a_reason(backend: str) -> None:
    rules = common(backend)
    assert set(rules.lacks) <= set(support.RULES)
    assert set(rules.words) <= set(support.RULES) - set(rules.lacks)
    for rule, why in rules.lacks.items():
        assert len(why.split()) > 5 and "\n" not in why, rule


@pytest.mark.parametrize("rule", support.RULES)
@pytest.mark.parametrize("backend", ADAPTERS)
def test_each_rule_has_its_reason(backend: str, rule: str) -> None:
    rules, node = common(backend), NODES[rule]()
    found = rules.about_operator(node) if rule in support.ABOUT_OPERATORS else rules.about_values(node)
    if rule in rules.lacks:
        assert found == ""
    else:
        told = {"layout": "torch.sparse_coo", "dtype": "complex64"}
        assert found == rules.reason(rule, **told)


@pytest.mark.parametrize("rule", support.RULES)
@pytest.mark.parametrize("backend", ADAPTERS)
def test_an_adapter_refuses_what_its_rules_refuse(backend: str, rule: str) -> None:
    """Whatever else it has to say of the node."""
    if importlib.util.find_spec(ADAPTERS[backend]) is None:
        pytest.skip(f"needs {ADAPTERS[backend]}")
    from torchmux.registry import resolve
    from torchmux.registry.loading import load_implementation

    if rule not in common(backend).lacks:
        answer = load_implementation(resolve(backend).spec).supports(NODES[rule]())
        assert isinstance(answer, str) and answer


@pytest.mark.parametrize("rule", support.RULES)
def test_native_refuses_too_or_has_a_reason_not_to(rule: str) -> None:
    from torchmux.backends.native.compiler import Native

    answer = Native().supports(NODES[rule]())
    assert (answer is True) == (NATIVE[rule] is not None), answer


def test_what_has_no_problem_is_taken() -> None:
    node = traced(lambda x: aten.relu(x), X)
    for backend in ("onnxrt", "openvino", "tensorrt"):
        assert common(backend).about_operator(node) == common(backend).about_values(node) == ""


def test_an_adapter_may_have_words_of_its_own() -> None:
    mine = support.Common("Mine", frozenset({torch.float32}), words={"dtypes": "{dtype} is nothing for {runtime}"})
    assert mine.about_values(NODES["dtypes"]()) == "complex64 is nothing for Mine"
    spared = support.Common("Mine", frozenset({torch.float32}), lambda node, value: True)
    assert spared.about_values(NODES["dtypes"]()) == ""
    blamed = support.Common("Mine", frozenset({torch.float32}), lambda node, value: "not today")
    assert blamed.about_values(traced(lambda x: aten.relu(x), X)) == "not today"


def test_names_are_remembered_from_process_to_process() -> None:
    asked = []

    def find() -> list[str]:
        asked.append(1)
        return ["b", "a"]

    assert support.remembered("names of a test", "1", find) == {"a", "b"}
    assert support.remembered("names of a test", "1", find) == {"a", "b"}
    assert len(asked) == 1
    assert support.remembered("names of a test", "2", find) == {"a", "b"}
    assert len(asked) == 2


def test_composite_operators_that_a_runtime_knows_stay_whole() -> None:
    names = ("linear", "softmax.int", "relu")
    assert support.operators_named(names) == [aten.linear.default, aten.softmax.int, aten.relu.default]
    assert support.whole(names, lambda op: True) == {aten.linear.default, aten.softmax.int}
    assert support.whole(names, lambda op: op is aten.linear.default) == {aten.linear.default}
