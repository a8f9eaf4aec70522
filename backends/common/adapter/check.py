"""Compares new code with torch, once, before it is used.

Not all of the many converters are correct: some ignore arguments, some assume float32.  The whole part runs on the real
parameters and generated inputs.  If the results differ, or if torch's own result cannot be compared, its nodes are
tried one by one to find those that must be left to torch.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule, Interpreter, Node, map_arg

from torchmux import torch_internals as internals
from torchmux.registry.errors import GraphRefused

from ..pipeline.partition import takes_element
from .bugs import raise_mistake
from .graphs import alone, elements_in_use

log = logging.getLogger("torchmux.check")

# Of the largest value: what a whole part, and what one operator, may differ by.
_WHOLE = {torch.float32: 1e-3, torch.float64: 1e-9, torch.float16: 2e-2, torch.bfloat16: 1e-1}
_ALONE = {torch.float32: 1e-4, torch.float64: 1e-10, torch.float16: 5e-3, torch.bfloat16: 4e-2}

TOGETHER, LARGEST_TOGETHER = 32, 1 << 22
"""How many nodes are compiled beside each other to be compared, and how many numbers all their tensors may have."""

Run = Callable[..., Sequence[Any]]


class Differs(GraphRefused):
    """The compiled part does not compute what torch computes, and no single operator is to blame."""


def culprits(
    gm: GraphModule, run: Run, example_inputs: Sequence[Any], compile_alone: Callable[[GraphModule], Run], runtime: str
) -> dict[str, str]:
    """Compare ``run`` with ``gm`` itself.

    Args:
        example_inputs: real tensors where they are known; for the others, values are generated from ``meta["val"]``.
        compile_alone: makes code of a graph that consists of one node.
        runtime: its name, for the reasons.

    Returns:
        The nodes that are wrong, by name, and why; empty if the part is right.

    Raises:
        Differs: the part is wrong, its nodes are right.
        Exception: what ``run`` raised, if no node raises it alone.
    """
    with internals.without_modes(), internals.disable_autocast(), torch.no_grad(), internals.below_autograd():
        try_alone = _Alone(compile_alone, runtime)
        found_inputs = _inputs_that_run(gm, example_inputs)
        if found_inputs is None:
            return try_alone.blamed(gm)
        inputs, wanted = found_inputs
        failure, differing = None, []
        try:
            got = run(*inputs)
        except Exception as error:
            failure = error
        else:
            # Where generated numbers lead torch itself to nan, there is nothing to compare.
            known = [i for i, b in enumerate(wanted) if not b.isnan().any()]
            differing = [i for i in known if not _close(got[i], wanted[i], _WHOLE)]
            if not differing:
                return try_alone.blamed(gm, _leads_to(gm, known))
        recorder = _Recorder(gm)
        recorder.run(*inputs)
        found = try_alone.blamed(gm, values=recorder.values)
        if not found and failure is None and _is_as_far_off(gm, inputs, got, wanted, differing):
            return {}
    if not found and failure is not None:
        raise failure
    if not found and all(wanted[i].is_floating_point() for i in differing):
        raise Differs(f"{runtime}'s code does not match torch, although each operator alone does")
    return found  # integers may depend on the rounding of the numbers they come from


def differs(gm: GraphModule, run: Run, example_inputs: Sequence[Any], computes_in: torch.dtype = torch.float32) -> bool:
    """Whether ``run`` computes something else than ``gm``, on the inputs that :func:`culprits` takes.

    This is one run of each, for a compiler whose operators were tried one by one and which may still get a graph of
    them wrong.  What cannot be compared counts as right: nan, and integers that follow from rounded numbers.

    Args:
        example_inputs: as :func:`culprits` takes them; None stands for one that is not known.
        computes_in: the dtype in which float32 is computed.

    Raises:
        Exception: what ``run`` raised.
    """
    bounds = {**_WHOLE, torch.float32: _WHOLE[computes_in]}
    with internals.without_modes(), internals.disable_autocast(), torch.no_grad(), internals.below_autograd():
        found = _inputs_that_run(gm, example_inputs)
        if found is None:
            return False
        inputs, wanted = found
        got = run(*inputs)
        differing = [i for i, b in enumerate(wanted) if not b.isnan().any() and not _close(got[i], b, bounds)]
        exact = [i for i in differing if not wanted[i].is_floating_point()]
        if any(not _follows_from_floats(gm, i) for i in exact):
            return True
        rounded = [i for i in differing if i not in exact]
        return bool(rounded) and not _is_as_far_off(gm, inputs, got, wanted, rounded)


def _follows_from_floats(gm: GraphModule, result: int) -> bool:
    values = [node.meta.get("val") for node in _leads_to(gm, [result])]
    return any(isinstance(v, torch.Tensor) and v.is_floating_point() for v in values)


def _inputs_that_run(gm: GraphModule, example_inputs: Sequence[Any]) -> tuple[list[Any], Sequence[torch.Tensor]] | None:
    """Inputs that torch takes, and its results: integers that differ, or, where those are no indices, that do not.

    The gradients of a dozen layers grow from one to the next if nothing of what is made up belongs together, until an
    order of summation decides what overflows.  Smaller numbers are tried then.
    """
    first = None
    for scale in (2.0, 0.5, 0.1):
        for integers in (2, 1):
            inputs = made_up(gm, example_inputs, integers, scale)
            try:
                wanted = _Eager(gm).run(*inputs)
            except Exception as error:
                log.debug("made-up inputs do not run: %s", error)
                continue
            if all(map(_is_moderate, wanted)):
                return inputs, wanted
            first = first or (inputs, wanted)
            break
        else:
            break  # torch's refusals do not depend on the magnitude of numbers
    return first


def _is_moderate(value: torch.Tensor) -> bool:
    """Whether no square of its numbers overflows."""
    if not value.is_floating_point() or not value.numel():
        return True
    return bool(value.abs().max().double() <= math.sqrt(torch.finfo(value.dtype).max))


def _is_as_far_off(gm: GraphModule, inputs: Sequence[Any], got: Any, wanted: Any, differing: Sequence[int]) -> bool:
    """Whether torch's own results change as much when the last digits of its inputs do.

    So it is with a batch norm of two numbers, which makes much of their difference.
    """
    generator = torch.Generator().manual_seed(1)
    others = []
    for value in inputs:
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            digits = torch.randint(-4, 5, value.shape, generator=generator).to(value)
            value = value * (1 + digits * torch.finfo(value.dtype).eps)
        others.append(value)
    again = _Eager(gm).run(*others)

    def change(a: torch.Tensor, b: torch.Tensor) -> float:
        return float((a.double() - b.double()).abs().max())

    return all(
        got[i].dtype is wanted[i].dtype
        and got[i].shape == wanted[i].shape
        and change(got[i], wanted[i]) <= 8 * change(again[i], wanted[i])
        for i in differing
    )


def _leads_to(gm: GraphModule, results: Sequence[int]) -> set[Node]:
    """The nodes that go into these results."""
    outputs = gm.graph.output_node().args[0]
    seen: set[Node] = set()
    work = [outputs[i] for i in results]
    while work:
        node = work.pop()
        if node not in seen:
            seen.add(node)
            work += node.all_input_nodes
    return seen


def uncompilable(gm: GraphModule, compile_alone: Callable[[GraphModule], Run], runtime: str) -> dict[str, str]:
    """The nodes of a part of which no code can be made, by name, and why.

    What is compiled beside each other is compiled alone as well, so only halves that fail are looked at further.
    """
    alike: dict[str, list[Node]] = {}
    for node in _operators(gm):
        alike.setdefault(_description(node), []).append(node)
    found: dict[str, str] = {}

    def look(some: Sequence[list[Node]]) -> None:
        try:
            compile_alone(alone(*(nodes[0] for nodes in some)))
        except Exception as error:
            raise_mistake(error)
            if len(some) == 1:
                found.update(dict.fromkeys((node.name for node in some[0]), _told(error, runtime)))
                return
            middle = len(some) // 2
            look(some[:middle])
            look(some[middle:])

    groups = list(alike.values())
    for at in range(0, len(groups), TOGETHER):
        look(groups[at : at + TOGETHER])
    return found


def _operators(gm: GraphModule) -> list[Node]:
    return [node for node in gm.graph.nodes if node.op == "call_function" and takes_element(node) is None]


def _told(error: Exception, runtime: str) -> str:
    return f"{runtime}: {type(error).__name__}: {' '.join(str(error).split())[-200:]}"


class _Eager(Interpreter):
    """Runs a graph with torch, whose kernels may choose other strides than its fake tensors show."""

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if target is torch.ops.aten.view.default:
            target = torch.ops.aten.reshape.default
        return super().call_function(target, args, kwargs)


class _Recorder(_Eager):
    """Keeps the value of every node."""

    def __init__(self, gm: GraphModule) -> None:
        super().__init__(gm, garbage_collect_values=False)
        self.values: dict[Node, Any] = {}

    def run_node(self, n: Node) -> Any:
        self.values[n] = result = super().run_node(n)
        return result


class _Alone:
    """Compares code of single nodes with torch.

    Most are right, and code of many beside each other takes little longer to compile than code of one: what is right
    there is right.  Each of the others is compiled alone, which decides and gives the reason.
    """

    def __init__(self, compile_alone: Callable[[GraphModule], Run], runtime: str) -> None:
        self._compile = compile_alone
        self._runtime = runtime

    def blamed(
        self, gm: GraphModule, known: Collection[Node] = (), values: Mapping[Node, Any] | None = None
    ) -> dict[str, str]:
        """The nodes that are wrong, and why; a node that torch does not run counts as right.

        They are tried on the ``values`` that a run of the graph has come to, otherwise on inputs generated from their
        metadata.  ``known`` nodes are right.
        """
        tried: dict[str, _Trial] = {}
        found = {}
        for node in _operators(gm):
            if node not in known:
                told = _description(node) if values is None else node.name
                tried.setdefault(told, _Trial([], alone(node))).nodes.append(node)
        for each in tried.values():
            each.ask([values[n] for n in each.nodes[0].all_input_nodes] if values is not None else None)
        open_ones = [each for each in tried.values() if each.wanted]
        for at in range(0, len(open_ones), TOGETHER):
            self._try_together(open_ones[at : at + TOGETHER])
        for each in open_ones:
            if not each.right and (why := self._reason(each)):
                found.update(dict.fromkeys((node.name for node in each.nodes), why))
        return found

    def _try_together(self, some: Sequence[_Trial]) -> None:
        """Find those that are right; if there is no code of all of them, of one half and then of the other."""
        if len(some) < 2 or sum(each.size for each in some) > LARGEST_TOGETHER:
            return
        try:
            run = self._compile(alone(*(each.nodes[0] for each in some)))
            got = iter(run(*(value for each in some for value in each.inputs)))
        except Exception as error:
            raise_mistake(error)
            middle = len(some) // 2
            self._try_together(some[:middle])
            self._try_together(some[middle:])
            return
        for each in some:
            each.right = each.is_right([next(got) for _ in each.wanted])

    def _reason(self, tried: _Trial) -> str | None:
        """Why a node is wrong; None if it is right."""
        try:
            got = self._compile(tried.single)(*tried.inputs)
        except Exception as error:
            raise_mistake(error)
            return _told(error, self._runtime)
        return None if tried.is_right(got) else f"{self._runtime}'s code for it does not match torch"


@dataclass
class _Trial:
    """Nodes that compute the same, a graph of one, its inputs, and torch's results, which are empty without any."""

    nodes: list[Node]
    single: GraphModule
    inputs: Sequence[Any] = ()
    wanted: Sequence[torch.Tensor] = ()
    right: bool = False

    def ask(self, inputs: Sequence[Any] | None) -> None:
        """Run the node in torch, on generated inputs if none are given."""
        if not self.single.graph.output_node().args[0]:
            return
        if inputs is None:
            inputs = made_up(self.single, [None] * len(self.single.graph.find_nodes(op="placeholder")))
        try:
            self.inputs, self.wanted = inputs, _Eager(self.single).run(*inputs)
        except Exception as error:
            log.debug("made-up inputs do not run: %s", error)

    @property
    def size(self) -> int:
        """How many numbers its tensors have."""
        return sum(v.numel() for v in (*self.inputs, *self.wanted) if isinstance(v, torch.Tensor))

    def is_right(self, got: Sequence[torch.Tensor]) -> bool:
        return all(_close(a, b, _ALONE) for a, b in zip(got, self.wanted, strict=True))


def _description(node: Node) -> str:
    """Everything that determines a node's result on generated inputs."""

    def told(value: Node) -> str:
        made = value.meta["val"]
        if not isinstance(made, torch.Tensor):
            return f"{type(made).__name__} {_number(made)}"
        return f"{made.dtype} {_numbers(made.shape)} {_numbers(made.stride())} {made.device}"

    return str((node.target, map_arg(node.args, told), map_arg(dict(node.kwargs), told), elements_in_use(node)))


def made_up(gm: GraphModule, example_inputs: Sequence[Any], integers: int = 2, scale: float = 2.0) -> list[Any]:
    """Inputs for ``gm``: the real ones where they are known, otherwise small numbers from a separate generator.

    A symbolic size is what it was in the first call, one that depends on data is what it may be.

    Vectors are positive, since variances are vectors; integers are less than ``integers``, since they may be indices.
    ``scale`` is about how many times larger a matrix makes what it is multiplied with.
    """
    generator = torch.Generator().manual_seed(0)
    found = []
    for node, example in zip(gm.graph.find_nodes(op="placeholder"), example_inputs, strict=True):
        if isinstance(example, torch.Tensor) and not internals.is_fake(example):
            found.append(example.detach())
            continue
        value = node.meta["val"]
        if not isinstance(value, torch.Tensor):
            found.append(_number(value))
            continue
        shape, stride = _numbers(value.shape), _numbers(value.stride())
        made = torch.empty_strided(shape, stride, dtype=value.dtype, device=value.device)
        if not value.dtype.is_floating_point:
            numbers = torch.randint(0, 2 if value.dtype is torch.bool else integers, shape, generator=generator)
        elif value.dim() < 2:
            numbers = torch.rand(shape, generator=generator) + 0.5
        else:
            # The weights of a convolution, or of a linear layer: what they lead to stays of the order of one.
            terms = shape[-1] if value.dim() < 4 else math.prod(shape[1:])
            numbers = torch.randn(shape, generator=generator) / math.sqrt(max(terms, 1)) * scale
        found.append(_filled(made, numbers))
    return found


def _number(value: Any) -> Any:
    return (
        internals.possible_value(value) if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)) else value
    )


def _numbers(sizes: Sequence[Any]) -> list[Any]:
    return [_number(s) for s in sizes]


def _filled(made: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
    if any(stride == 0 and size > 1 for size, stride in zip(made.shape, made.stride(), strict=True)):
        return numbers.to(made)  # an expanded tensor cannot be written to
    return made.copy_(numbers)


def _close(got: torch.Tensor, wanted: torch.Tensor, bound: dict[torch.dtype, float]) -> bool:
    if got.dtype is not wanted.dtype or got.shape != wanted.shape:
        return False
    if not wanted.numel():
        return True
    if not wanted.is_floating_point():
        return bool(torch.equal(got, wanted))
    finite = torch.isfinite(wanted)
    if not torch.equal(finite, torch.isfinite(got)) or not torch.equal(wanted.isnan(), got.isnan()):
        return False
    a, b = got[finite], wanted[finite]
    return not a.numel() or bool((a - b).abs().max() <= bound[wanted.dtype] * b.abs().max().clamp(min=1e-30))
