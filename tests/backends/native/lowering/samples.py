"""torch's own samples of its operators through the native backend, judged by float64.

The samples of an operator are one graph, which is compiled once.  Run as a module it prints a line of JSON for each
operator, dtype and direction, from which the table in ``docs/native.md`` is counted:

    python tests/backends/native/lowering/samples.py --dtypes float32 --directions forward backward --shard 0/2
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import operator
import re
import sys
import time
from collections.abc import Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import Graph, GraphModule
from torch.testing._internal import common_methods_invocations as invocations
from torch.testing._internal.opinfo.core import BinaryUfuncInfo, UnaryUfuncInfo
from torch.utils._pytree import tree_leaves, tree_map_only

from torchmux.conformance import oracle
from torchmux.registry import resolve

# Memory that nobody wrote, and what tells bits apart that are no part of the value.
UNTESTABLE = (
    "empty",
    "empty_like",
    "empty_permuted",
    "empty_strided",
    "hash_tensor",
    "new_empty",
    "new_empty_strided",
    "resize_",
    "resize_as_",
)
# What draws random numbers: the same as eager, but float64 has others.
RANDOM = re.compile(
    "dropout|bernoulli|cauchy|^exponential|^geometric|^log_normal|multinomial|^normal|^rand|^uniform|rrelu|fractional|^pca|^svd_low"
)

# Samples of random operators set the seed inside of what is compiled, where it would only be set while tracing.
invocations.wrapper_set_seed = lambda call, *args, **kwargs: call(*args, **kwargs)


@dataclasses.dataclass
class Outcome:
    """What came of the samples of one operator.

    ``fallbacks`` counts the operators that ran in eager, ``calls`` those that the compiled code leaves to torch.
    """

    compared: int = 0
    difference: str = ""
    error: str = ""
    skipped: str = ""
    fallbacks: dict[str, int] = dataclasses.field(default_factory=dict)
    calls: dict[str, int] = dataclasses.field(default_factory=dict)
    share: float = 1.0


class Sample:
    """One way to call an operator: the input, the other arguments, and those by name."""

    def __init__(self, *parts: Any) -> None:
        self.parts = parts
        self.tensors = tensor_leaves(parts)

    def map(self, function: Any) -> Sample:
        return Sample(*tree_map_only(torch.Tensor, function, self.parts))

    def call(self, op: Any) -> list[torch.Tensor]:
        given, args, kwargs = self.parts
        return tensor_leaves(op.op(given, *args, **kwargs))


def name_of(op: Any) -> str:
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name


OPERATORS = {name_of(op): op for op in invocations.op_db if op.name not in UNTESTABLE}


def tensor_leaves(value: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]


class Calls:
    """Calls of an operator as one function of all their tensors that returns all their results."""

    def __init__(self, op: Any, samples: Sequence[Sample]) -> None:
        self.op = op
        self.samples = list(samples)
        self.tensors = [t for s in samples for t in s.tensors]

    def __call__(self, *tensors: torch.Tensor) -> list[torch.Tensor]:
        rest = iter(tensors)
        return [t for sample in self.samples for t in sample.map(lambda _: next(rest)).call(self.op)]


def works(op: Any, sample: Sample) -> bool:
    """Whether eager runs a sample, on dense tensors."""
    try:
        results = sample.call(op)
    except Exception:
        return False  # a sample for another device or build
    return bool(results) and all(t.layout is torch.strided for t in [*results, *sample.tensors])


def as_graph(call: Any, tensors: Sequence[torch.Tensor], count: int) -> GraphModule:
    graph = Graph()
    inputs = [graph.placeholder(f"x{n}") for n in range(len(tensors))]
    result = graph.call_function(lambda *given: call(*given), tuple(inputs))
    graph.output(tuple(graph.call_function(operator.getitem, (result, n)) for n in range(count)))
    mode = FakeTensorMode()
    for node, tensor in zip(inputs, tensors, strict=True):
        node.meta["example_value"] = mode.from_tensor(tensor)
    return GraphModule({}, graph)


def fresh(tensor: torch.Tensor, dtype: torch.dtype | None = None) -> torch.Tensor:
    """A copy with the same strides on the same part of a storage, as a leaf; floating-point numbers as ``dtype``."""
    kind = dtype if dtype is not None and tensor.is_floating_point() else tensor.dtype
    count = tensor.untyped_storage().nbytes() // tensor.itemsize
    flat = tensor.detach().as_strided((count,), (1,), 0).clone().to(kind)
    return flat.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset()).requires_grad_(tensor.requires_grad)


def with_gradients(results: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The results, and the gradients of a weighted sum of them."""
    outputs = [t for t in results if t.requires_grad]
    leaves = [t for t in inputs if t.requires_grad]
    weights = [torch.linspace(0.5, 1.5, max(o.numel(), 1)).to(o.dtype)[: o.numel()].view(o.shape) for o in outputs]
    found = torch.autograd.grad(outputs, leaves, weights, allow_unused=True)
    gradients = (torch.zeros_like(x) if t is None else t for x, t in zip(leaves, found, strict=True))
    return [*(t.detach() for t in results), *gradients]


def judge(op: Any, dtype: torch.dtype, direction: str, most: int, *, together: bool = True) -> Outcome:
    """Compile up to ``most`` samples, evenly chosen, and compare with eager and float64."""
    torch.manual_seed(0)
    backward = direction == "backward"
    made = itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=backward), 300)
    samples = [Sample(s.input, s.args, s.kwargs) for s in made]
    samples = [s for s in samples[:: max(1, len(samples) // most)][:most] if works(op, s)]
    # Samples share tensors, which a compiled graph would take for always the same.
    samples = [s.map(spread if direction == "strided" else fresh) for s in samples]
    outcome = Outcome()
    for group in [samples] if together else [[s] for s in samples]:
        try:
            if group:
                _compare(Calls(op, group), dtype, backward, outcome)
        except Exception as error:
            if together and len(group) > 1:
                return judge(op, dtype, direction, most, together=False)
            outcome.error = f"{type(error).__name__}: {str(error)[:600]}"
        if outcome.difference:
            break
    return outcome


def spread(tensor: torch.Tensor) -> torch.Tensor:
    """The same numbers, every other element of memory."""
    if tensor.layout is not torch.strided or tensor.dim() == 0:
        return tensor
    return torch.repeat_interleave(tensor.detach(), 2, dim=-1)[..., ::2].requires_grad_(tensor.requires_grad)


def _compare(calls: Calls, dtype: torch.dtype, backward: bool, outcome: Outcome) -> None:
    op = calls.op

    def run(function: Any, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        torch.manual_seed(1)
        with torch.set_grad_enabled(backward):
            results = list(function(*inputs))
            if backward and any(t.requires_grad for t in results):
                return with_gradients(results, inputs)
            return [t.detach() for t in results]

    try:
        wanted = run(calls, [fresh(t) for t in calls.tensors])
    except RuntimeError as error:
        if len(calls.samples) > 1:
            raise
        outcome.skipped = str(error)  # no gradient in eager either
        return
    exact: list[Any] = [None] * len(wanted)
    if dtype.is_floating_point and not RANDOM.search(op.name):
        try:
            wide = Calls(op, [s.map(lambda t: fresh(t, torch.float64)) for s in calls.samples])
            exact = run(wide, wide.tensors)
        except RuntimeError:
            exact = [None] * len(wanted)  # what is not there in float64
        if len(exact) != len(wanted):
            exact = [None] * len(wanted)
    count = len(calls(*calls.tensors))
    with torch.set_grad_enabled(backward):
        gm = as_graph(calls, calls.tensors, count)
        compiled = resolve("native").compile(gm, calls.tensors, training=backward)
    got = run(compiled, [fresh(t) for t in calls.tensors])
    report = compiled.report
    for placement in report.fallbacks:
        outcome.fallbacks[placement.op] = outcome.fallbacks.get(placement.op, 0) + 1
    for placement in report.library_calls:
        name = str(placement.library)
        if name.startswith("aten."):
            outcome.calls[name] = outcome.calls.get(name, 0) + 1
    outcome.share = min(outcome.share, report.share)
    if len(got) != len(wanted):
        outcome.difference = f"{len(got)} results instead of {len(wanted)}"
        return
    elementwise = isinstance(op, (BinaryUfuncInfo, UnaryUfuncInfo)) and not backward
    for n, (mine, theirs, reference) in enumerate(zip(got, wanted, exact, strict=True)):
        found = oracle.compare_tensors(str(n), mine, theirs, reference, elementwise=elementwise)
        if found is not None:
            outcome.difference = str(found)
            return
    outcome.compared += len(calls.samples)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dtypes", nargs="+", default=["float32"])
    parser.add_argument("--directions", nargs="+", default=["forward"], choices=["forward", "backward", "strided"])
    parser.add_argument("--shard", default="0/1")
    parser.add_argument("--names", nargs="*", default=None)
    parser.add_argument("--most", type=int, default=4)
    given = parser.parse_args(argv)
    part, parts = map(int, given.shard.split("/"))
    chosen = sorted(OPERATORS if given.names is None else given.names)
    for operator_name in chosen[part::parts]:
        op = OPERATORS[operator_name]
        for name in given.dtypes:
            dtype = getattr(torch, name)
            for direction in given.directions:
                backward = direction == "backward"
                if dtype not in (op.backward_dtypes if backward else op.dtypes):
                    continue
                if backward and not op.supports_autograd:
                    continue
                begun = time.perf_counter()
                outcome = judge(op, dtype, direction, given.most)
                line = {"operator": operator_name, "dtype": name, "direction": direction, **dataclasses.asdict(outcome)}
                line["seconds"] = round(time.perf_counter() - begun, 2)
                print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
