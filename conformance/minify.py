"""The smallest graph that still fails.

A failing case, or a function with inputs, is captured, and the graph is reduced: its end, its beginning, single nodes,
sizes, values.  Each candidate has the form of the program that is finally written; a worker that may die or hang runs
it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from . import graphs, literals, reproducer
from .case import Case, Trial
from .graphs import Sample
from .outcome import Outcome, Result
from .requirements import Requirements
from .runner import CaseRunner

Say = Callable[[str], None]


class NothingFails(ValueError):
    """There is nothing to reduce: there is no failure, or no graph fails on its own."""


@dataclass(frozen=True)
class Minified:
    """The result of the search: a program, its result, and the number of nodes before the reduction."""

    program: str
    result: Result
    nodes: int
    nodes_before: int


def minify(
    case: Case,
    requirements: Requirements,
    named: str = "",
    *,
    seconds: float | None = None,
    say: Say = lambda text: None,
) -> Minified:
    """Find the smallest graph of ``case`` that fails in the same way.

    ``named`` is where a worker finds the requirements; ``seconds`` is how long a candidate may take.

    Raises:
        NothingFails: the case passes, or it fails but none of its graphs does.
    """
    head = {
        "backend": requirements.name,
        "options": dict(requirements.options or {}),
        "level": "full",
        "device": requirements.device,
        "requirements": named,
        "path": [os.getcwd()],
        "patterns": [],
    }
    runner = CaseRunner(head)
    try:
        search = Search(runner, case, requirements, named, requirements.seconds if seconds is None else seconds, say)
        return search.run()
    finally:
        runner.close()


@dataclass
class Search:
    """The search for the smallest graph with the ``signature`` of a failure; ``runner`` judges candidates."""

    runner: CaseRunner | None
    case: Case
    requirements: Requirements
    named: str
    seconds: float
    say: Say
    signature: tuple[Any, ...] = ()
    known: dict[str, Result | None] = field(default_factory=dict)

    def run(self) -> Minified:
        found = graphs.record(lambda backend: self.case.run(Trial(backend, device=self.requirements.device)))
        self.say(f"{len(found)} graphs of {', '.join(str(sample.size) for sample in found)} nodes")
        found.sort(key=lambda sample: sample.size)
        # Gradients of all results may be more than the program requests, and more than eager can compute.
        for sample in (*found, *map(graphs.without_gradients, found)):
            result = self.judge(sample)
            if result is not None and result.outcome.is_failure:
                self.signature = signature_of(result)
                self.say(f"a graph of {sample.size} nodes fails alone: {result.outcome.value}, {result.reason}")
                return self.smallest(sample)
        raise NothingFails(f"none of the {len(found)} graphs of {self.case.id} fails on its own")

    def smallest(self, sample: Sample) -> Minified:
        before = sample.size
        sample = self.reduced(sample)
        result = self.judge(sample)
        assert result is not None
        return Minified(self.program(sample), result, sample.size, before)

    def reduced(self, sample: Sample) -> Sample:
        """The sample with as few nodes, elements and exact values as the failure needs."""
        while True:
            size = (sample.size, len(sample.inputs))
            for step in (self.without_end, self.with_one_output, self.without_beginning, self.without_nodes):
                sample = step(sample)
                self.say(f"{step.__name__.replace('_', ' ')}: {sample.size} nodes, {len(sample.inputs)} inputs")
            if (sample.size, len(sample.inputs)) == size:
                break
        sample = self.with_smaller_sizes(sample)
        return self.with_any_values(sample)

    # --- steps -----------------------------------------------------------------------------------------------------

    def without_end(self, sample: Sample) -> Sample:
        """The shortest beginning that fails, found by bisection."""
        nodes, values = graphs.computing(sample.graph), self.values(sample)
        low, high, best = 0, len(nodes), sample
        while high - low > 1:
            middle = (low + high) // 2
            candidate = graphs.part(sample, nodes[:middle], values)
            if candidate is not None and self.fails(candidate):
                high, best = middle, candidate
            else:
                low = middle
        return best

    def without_beginning(self, sample: Sample) -> Sample:
        """The shortest end that fails, found by bisection."""
        nodes, values = graphs.computing(sample.graph), self.values(sample)
        low, high, best = 0, len(nodes), sample
        while high - low > 1:
            middle = (low + high) // 2
            candidate = graphs.part(sample, nodes[middle:], values)
            if candidate is not None and self.fails(candidate):
                low, best = middle, candidate
            else:
                high = middle
        return best

    def with_one_output(self, sample: Sample) -> Sample:
        """A single result, with only what it is computed from, if that fails."""
        nodes, values = graphs.computing(sample.graph), self.values(sample)
        ends = sorted(_ends(sample), key=nodes.index)
        if len(ends) == 1 and len(_needed(ends)) == len(nodes):
            return sample
        for end in ends:
            needed = _needed([end])
            candidate = graphs.part(sample, [node for node in nodes if node in needed], values, [end])
            if candidate is not None and self.fails(candidate):
                return candidate
        return sample

    def without_nodes(self, sample: Sample) -> Sample:
        """Sequences of nodes replaced by their values, longer ones first."""
        length = max(1, sample.size // 2)
        while length:
            for candidate in self.shorter(sample, length):
                if self.fails(candidate):
                    sample = candidate
                    break
            else:
                length //= 2
        return sample

    def shorter(self, sample: Sample, length: int) -> Iterator[Sample]:
        nodes, values = graphs.computing(sample.graph), self.values(sample)
        for start in range(0, len(nodes), length):
            rest = nodes[:start] + nodes[start + length :]
            candidate = graphs.part(sample, rest, values) if rest else None
            if candidate is not None:
                yield candidate

    def with_smaller_sizes(self, sample: Sample) -> Sample:
        """Dimensions cut to one, two, or half of their elements, all of one size together."""
        tensors = [value for value in sample.inputs if isinstance(value, torch.Tensor)]
        for size in sorted({size for tensor in tensors for size in tensor.shape if size > 1}, reverse=True):
            for smaller in sorted({1, 2, size // 2} - {0, size}):
                candidate = next(self.resized(sample, size, smaller), None)
                if candidate is not None:
                    sample = candidate
                    break
        return sample

    def resized(self, sample: Sample, size: int, smaller: int) -> Iterator[Sample]:
        inputs = [_narrowed(value, size, smaller) for value in sample.inputs]
        for changed in (graphs.with_number(sample, size, smaller), sample):
            candidate = graphs.with_inputs(changed, inputs)
            if graphs.runs_in_eager(candidate) and self.fails(candidate):
                yield candidate

    def with_any_values(self, sample: Sample) -> Sample:
        """Random numbers in place of inputs whose values do not matter."""
        for place, value in enumerate(sample.inputs):
            if isinstance(value, torch.Tensor) and value.is_floating_point() and value.is_contiguous():
                candidate = graphs.with_inputs(sample, sample.inputs, sample.random | {place})
                if self.fails(candidate):
                    sample = candidate
        return sample

    # --- judging ---------------------------------------------------------------------------------------------------

    def values(self, sample: Sample) -> dict[str, Any]:
        return graphs.values_of(sample)

    def fails(self, sample: Sample) -> bool:
        result = self.judge(sample)
        return result is not None and result.outcome.is_failure and signature_of(result) == self.signature

    def judge(self, sample: Sample) -> Result | None:
        """The result of a candidate; None if it cannot be written."""
        try:
            program = self.program(sample)
        except literals.NotWritable:
            return None
        if program not in self.known:
            assert self.runner is not None
            self.known[program] = self.runner.judge_program(program, self.seconds)
        return self.known[program]

    def program(self, sample: Sample) -> str:
        title = f"{self.case.id}, reduced to {sample.size} of its graph's nodes"
        return reproducer.program(title, sample.body(), self.requirements, self.named)


def signature_of(result: Result) -> tuple[Any, ...]:
    """What must stay the same: the outcome, and the kind of difference or exception."""
    if result.outcome is Outcome.MISMATCH:
        return (result.outcome, *result.details.get("kinds", ())[:1])
    if result.outcome is Outcome.CRASH:
        return (result.outcome, result.reason.partition(":")[0])
    return (result.outcome,)


def _ends(sample: Sample) -> set[torch.fx.Node]:
    (output,) = (node for node in sample.graph.graph.nodes if node.op == "output")
    return {node for node in output.all_input_nodes if node.op != "placeholder"}


def _needed(ends: Sequence[torch.fx.Node]) -> set[torch.fx.Node]:
    """``ends`` and all that they are computed from."""
    found, waiting = set[torch.fx.Node](), list(ends)
    while waiting:
        node = waiting.pop()
        if node not in found and node.op != "placeholder":
            found.add(node)
            waiting.extend(node.all_input_nodes)
    return found


def _narrowed(value: Any, size: int, smaller: int) -> Any:
    if not isinstance(value, torch.Tensor):
        return smaller if type(value) is int and value == size else value
    made = value.detach()
    for dimension, length in enumerate(made.shape):
        if length == size:
            made = made.narrow(dimension, 0, smaller)
    return made.clone(memory_format=torch.contiguous_format).requires_grad_(value.requires_grad)


def of_function(function: Callable[..., Any], inputs: Any, name: str) -> Case:
    """A case that calls a function, or a module, with inputs: a sequence, or a dict of keyword arguments."""

    def run(trial: Trial) -> Any:
        given = trial.given(inputs)
        module = trial.module(function) if isinstance(function, torch.nn.Module) else function
        compiled = trial.compile(module)
        return compiled(**given) if isinstance(given, dict) else compiled(*given)

    return Case(name, run)
