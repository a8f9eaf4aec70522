"""torch's own samples of its operators, each compiled alone and compared with eager."""

from __future__ import annotations

import itertools
import operator
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import Graph, GraphModule
from torch.utils._pytree import tree_flatten, tree_unflatten

from torchmux.registry import resolve

opinfo = pytest.importorskip("torch.testing._internal.common_methods_invocations")

# What has no one right answer: random numbers, whose samples set the seed themselves, and memory that nobody wrote.
UNTESTABLE = [
    "empty",
    "empty_like",
    "empty_permuted",
    "empty_strided",
    "new_empty",
    "new_empty_strided",
    "bernoulli",
    "cauchy",
    "exponential",
    "geometric",
    "log_normal",
    "multinomial",
    "normal",
    "rand",
    "rand_like",
    "randint",
    "randint_like",
    "randn",
    "randn_like",
    "uniform",
    "svd_lowrank",
    "pca_lowrank",
    "nn.functional.rrelu",
    "nn.functional.dropout",
    "nn.functional.dropout2d",
    "nn.functional.dropout3d",
    "nn.functional.alpha_dropout",
    "nn.functional.feature_alpha_dropout_with_train",
    "nn.functional.multi_head_attention_forward",
    "nn.functional.feature_alpha_dropout_without_train",
    "nn.functional.fractional_max_pool2d",
    "hash_tensor",
    "nn.functional.fractional_max_pool3d",
    "nn.functional.scaled_dot_product_attention",
    "to_sparse",
    "chalf",
    "cfloat",
    "cdouble",
]
EXAMPLES = [
    "add",
    "gelu",
    "softmax",
    "nn.functional.layer_norm",
    "cat",
    "gather",
    "var",
    "argmax",
    "addmm",
    "index_select",
    "where",
    "clamp",
]
OPERATORS = {
    f"{op.name} {op.variant_test_name}".strip(): op
    for op in opinfo.op_db
    if torch.float32 in op.dtypes and op.name not in UNTESTABLE
}


def as_function(op: Any, sample: Any) -> tuple[Any, list[torch.Tensor]]:
    """The call of a sample as a function of its tensors that returns a list of tensors."""
    flat, spec = tree_flatten((sample.input, sample.args, sample.kwargs))
    places = [i for i, v in enumerate(flat) if isinstance(v, torch.Tensor)]

    def call(*tensors: torch.Tensor) -> list[Any]:
        given = list(flat)
        for i, tensor in zip(places, tensors, strict=True):
            given[i] = tensor
        first, args, kwargs = tree_unflatten(given, spec)
        return tree_flatten(op(first, *args, **kwargs))[0]

    return call, [flat[i] for i in places]


def as_graph(call: Any, tensors: list[torch.Tensor], count: int) -> GraphModule:
    graph = Graph()
    inputs = [graph.placeholder(f"x{n}") for n in range(len(tensors))]
    result = graph.call_function(call, tuple(inputs))
    graph.output(tuple(graph.call_function(operator.getitem, (result, n)) for n in range(count)))
    mode = FakeTensorMode()
    for node, tensor in zip(inputs, tensors, strict=True):
        node.meta["example_value"] = mode.from_tensor(tensor)
    return GraphModule({}, graph)


def agree(op: Any, most: int) -> int:
    """Compare up to ``most`` samples, evenly chosen; returns how many there were to compare."""
    samples = list(itertools.islice(op.sample_inputs("cpu", torch.float32), 300))
    compared = 0
    for sample in samples[:: max(1, len(samples) // most)][:most]:
        call, tensors = as_function(op, sample)
        try:
            wanted = call(*[t.clone() for t in tensors])
        except Exception:
            continue  # a sample that this torch does not run
        if not wanted or not all(
            isinstance(t, torch.Tensor) and t.layout is torch.strided for t in [*wanted, *tensors]
        ):
            continue
        with torch.no_grad():
            run = resolve("native").compile(as_graph(call, tensors, len(wanted)), tensors, training=False)
            got = run(*[t.clone() for t in tensors])
        for mine, theirs in zip(got, wanted, strict=True):
            torch.testing.assert_close(mine, theirs, rtol=3e-5, atol=1e-5, equal_nan=True)
        compared += 1
    return compared


@pytest.mark.parametrize("name", [n for n in OPERATORS if n.split()[0] in EXAMPLES])
def test_an_operator(name: str) -> None:
    assert agree(OPERATORS[name], 2)


@pytest.mark.slow
@pytest.mark.parametrize("name", OPERATORS)
def test_every_operator(name: str) -> None:
    if not agree(OPERATORS[name], 4):
        pytest.skip("no sample that can be compared")
