"""Where a wrong number comes from: which backend, which graph, which operators.

A program passes several stages on the way to its compiler, and each is a backend: ``eager`` runs what was captured,
``aot_eager`` runs that split and functionalized, and the backend compiles it.  The first stage that differs from eager
is where to look.  If it is not the capture, each graph is judged alone, and the first wrong one is reduced, part by
part.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree

import torchmux
from torchmux.registry.names import JOINT, class_with_article, members_of, normalize
from torchmux.registry.resolve import usable_spec
from torchmux.verification import Operator, Say, Verification
from torchmux.wording import counted

from .. import graphs, literals
from ..case import Case, Trial
from ..graphs import Sample
from ..minify import Search, signature_of
from ..outcome import Outcome, Result
from ..requirements import Requirements, requirements_from
from .judge import judge


class _Numbers(Requirements):
    """The claims of a backend but for who computes what: this is about what is computed."""

    def __init__(self, given: Requirements) -> None:
        super().__init__(given.name)
        self.options, self.device, self.frontend = given.options, given.device, given.frontend
        self.seconds, self.sets, self.processes, self.says = given.seconds, given.sets, given.processes, given.says

    @property
    def own_kernels(self) -> bool:
        """It does not matter here."""
        return False


def verify(
    model: Callable[..., Any],
    inputs: Any,
    backend: Any,
    options: Mapping[str, Any] | None,
    gradients: bool | None,
    say: Say,
) -> Verification:
    """What ``torchmux.verify`` does; errors as there."""
    if not callable(model):
        raise TypeError(f"verify() takes a function or a module, not {type(model).__name__}")
    if options is not None and not isinstance(options, Mapping):
        raise TypeError(f"verify() takes options as a dict, not {class_with_article(options)}")
    if gradients is not None and not isinstance(gradients, bool):
        raise TypeError(f"verify() takes gradients as True, False or None, not {class_with_article(gradients)}")
    name = _name_of(torchmux.get_default_backend() if backend is None else backend)
    usable_spec(name)
    requirements = requirements_from("", name, options)
    if options:
        torchmux.registry.resolve(name, options=requirements.options)
    return verify_under(requirements, model, inputs, gradients=gradients, say=say)


def verify_under(
    requirements: Requirements,
    model: Callable[..., Any],
    inputs: Any,
    *,
    named: str = "",
    gradients: bool | None = None,
    say: Say = lambda text: None,
) -> Verification:
    """:func:`verify` with the claims of a backend; ``named`` is where a script finds them.

    Raises:
        TypeError, ValueError: as :func:`verify`.
    """
    name, requirements = requirements.name, _Numbers(requirements)
    case = _case(model, _arguments(inputs), gradients)
    stages: dict[str, tuple[str, str]] = {}
    failing: Requirements | None = None
    for stage in _stages(requirements):
        say(f"{stage.name}: the whole program")
        result = judge(case, stage, lenient=False)
        if result.outcome is Outcome.SKIPPED:
            raise ValueError(f"verify(): {result.reason}")
        stages[stage.name] = (result.outcome.value, result.reason if result.outcome.is_failure else "")
        if result.outcome.is_failure:
            failing = stage
            break
    if failing is None:
        return Verification(name, stages)
    if failing.name == "eager" and name != "eager":
        return Verification(name, stages, wrong=("eager",), reason=stages["eager"][1])
    return _blamed(name, stages, case, failing, named if failing is requirements else "", say)


def _name_of(backend: Any) -> str:
    if isinstance(backend, str):
        return backend
    if isinstance(backend, Sequence) and backend and all(isinstance(member, str) for member in backend):
        return JOINT.join(backend)
    raise TypeError("verify() takes a backend by name, or a list of names; torchmux.register_backend gives it one")


def _stages(requirements: Requirements) -> list[Requirements]:
    """What the program passes, the backend last."""
    before = ["eager", *(["aot_eager"] if requirements.spec.graph == "aten" else [])]
    return [*(Requirements(name) for name in before if name != normalize(requirements.name)), requirements]


def _arguments(inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(inputs, torch.Tensor):
        return (inputs,), {}
    if isinstance(inputs, Mapping) and all(isinstance(key, str) for key in inputs):
        return (), dict(inputs)
    if isinstance(inputs, (tuple, list)):
        return tuple(inputs), {}
    raise TypeError(f"verify(): inputs are a tensor, a tuple, a list or a dict of them, not {type(inputs).__name__}")


def _case(model: Callable[..., Any], arguments: tuple[tuple[Any, ...], dict[str, Any]], gradients: bool | None) -> Case:
    args, kwargs = arguments
    if gradients is None:
        given = [leaf for leaf in _pytree.tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        trains = (
            isinstance(model, torch.nn.Module) and model.training and any(p.requires_grad for p in model.parameters())
        )
        gradients = trains or any(leaf.requires_grad for leaf in given)

    def run(trial: Trial) -> Any:
        module = trial.module(copy.deepcopy(model)) if isinstance(model, torch.nn.Module) else model
        given_args, given_kwargs = trial.given(copy.deepcopy((args, kwargs)))
        with torch.set_grad_enabled(gradients):
            results = trial.compile(module)(*given_args, **given_kwargs)
            if not gradients:
                return results
            tensors = [leaf for leaf in _pytree.tree_leaves(results) if isinstance(leaf, torch.Tensor)]
            ends = [t for t in tensors if t.requires_grad]
            leaves = [
                leaf for leaf in _pytree.tree_leaves((given_args, given_kwargs)) if isinstance(leaf, torch.Tensor)
            ]
            leaves = [leaf for leaf in leaves if leaf.requires_grad and leaf.is_leaf]
            if isinstance(module, torch.nn.Module):
                leaves += [p for p in module.parameters() if p.requires_grad]
            found: Any = ()
            if ends and leaves:
                weights = [torch.linspace(0.5, 1.5, max(e.numel(), 1)).to(e)[: e.numel()].view(e.shape) for e in ends]
                found = torch.autograd.grad(ends, leaves, weights, allow_unused=True)
            return _pytree.tree_map_only(torch.Tensor, torch.Tensor.detach, results), found

    return Case(getattr(model, "__name__", type(model).__name__), run)


class _Here(Search):
    """Judges candidates in this process, without writing them as text: inputs may be as large as a model."""

    def judge(self, sample: Sample) -> Result | None:
        key = f"{sample.graph.code}{[getattr(value, 'shape', value) for value in sample.inputs]}{sorted(sample.random)}"
        if key not in self.known:
            self.known[key] = judge(_case_of(sample), self.requirements, lenient=False)
        return self.known[key]


def _case_of(sample: Sample) -> Case:
    from ..reproducer import gradients_and_results

    def run(trial: Trial) -> Any:
        inputs = [
            trial.tensor(*value.shape, dtype=value.dtype, requires_grad=value.requires_grad)
            if place in sample.random
            else trial.given(value)
            for place, value in enumerate(graphs.snapshot(sample.inputs))
        ]
        return gradients_and_results(trial, copy.deepcopy(sample.graph), inputs)

    return Case("graph", run)


def _blamed(
    name: str, stages: dict[str, tuple[str, str]], case: Case, failing: Requirements, named: str, say: Say
) -> Verification:
    found = graphs.record(lambda backend: case.run(Trial(backend)))
    results: list[Result] = []
    wrong: tuple[int, Sample, Result] | None = None
    for number, sample in enumerate(found):
        say(f"graph {number}, {counted(sample.size, 'operator')}: alone under {failing.name}")
        result = judge(_case_of(sample), failing, lenient=False)
        results.append(result)
        if result.outcome.is_failure and wrong is None:
            wrong = (number, sample, result)
    told = tuple(
        (sample.size, result.outcome.value, result.reason if result.outcome.is_failure else "")
        for sample, result in zip(found, results, strict=True)
    )
    if wrong is None:
        return Verification(name, stages, told, wrong=(failing.name,), reason=stages[failing.name][1])
    number, sample, result = wrong
    search = _Here(None, case, failing, named, failing.seconds, say, signature_of(result))
    small = search.reduced(sample)
    last = search.judge(small)
    values = _values(small)
    operators = tuple(
        Operator(_words(node, values), str(node.meta.get("source_line", ""))) for node in graphs.computing(small.graph)
    )
    try:
        program = search.program(small)
    except literals.NotWritable:
        program = ""
    reason = (last or result).reason
    return Verification(name, stages, told, _members(failing, small), number, operators, reason, program)


def _members(failing: Requirements, sample: Sample) -> tuple[str, ...]:
    """The members of a chain that are wrong alone; the chain itself if none is, and a backend that is no chain."""
    members = members_of(failing.name) or []
    alone = [m for m in members if judge(_case_of(sample), requirements_from("", m), lenient=False).outcome.is_failure]
    return tuple(alone) or (failing.name,)


def _values(sample: Sample) -> dict[str, Any]:
    """The value of each node, inputs among them, by name."""
    inputs = (node.name for node in sample.graph.graph.nodes if node.op == "placeholder")
    return {**graphs.values_of(sample), **dict(zip(inputs, sample.inputs, strict=True))}


def _words(node: torch.fx.Node, values: Mapping[str, Any]) -> str:
    """An operator with the dtypes and sizes of its tensors."""
    target = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", str(node.target))
    tensors = [values[each.name] for each in node.all_input_nodes if isinstance(values.get(each.name), torch.Tensor)]
    shown = ", ".join(f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}" for tensor in tensors)
    return f"{target}({shown})"
