"""How a fault is declared, and how one operator of a graph is made wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import GraphModule, Interpreter, Node

from ..outcome import Outcome

Run = Callable[..., Sequence[Any]]
Compile = Callable[..., Run]
Change = Callable[..., Any]


@dataclass(frozen=True)
class Fault:
    """A backend with one fault, the case that catches it alone, and the outcome of that case."""

    kind: str
    compile: Compile
    case: str
    outcome: Outcome
    options: type | None = None
    modes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.compile.__name__

    @property
    def text(self) -> str:
        return " ".join((self.compile.__doc__ or "").split())


class Faults:
    """The faults of one kind, which decorated functions and :meth:`operator` fill."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._found: list[Fault] = []

    def __call__(self, case: str, outcome: Outcome = Outcome.MISMATCH, **taken: Any) -> Callable[[Compile], Compile]:
        """A backend that is wrong as a whole; ``taken`` are the options and modes that it takes."""

        def add(compile: Compile) -> Compile:
            self._found.append(Fault(self.kind, compile, case, outcome, **taken))
            return compile

        return add

    def operator(self, case: str, *names: str, outcome: Outcome = Outcome.MISMATCH) -> Callable[[Change], Change]:
        """A fault in operators: the function gets their right result and their arguments."""

        def add(change: Change) -> Change:
            def compile(gm: GraphModule, inputs: Sequence[Any]) -> Run:
                return with_operators(gm, dict.fromkeys(names, change))

            compile.__name__, compile.__doc__ = change.__name__, change.__doc__
            self._found.append(Fault(self.kind, compile, case, outcome))
            return change

        return add

    def instead(self, case: str, *names: str) -> Callable[[Change], Change]:
        """A fault in operators: the function runs in their place."""

        def add(change: Change) -> Change:
            def compile(gm: GraphModule, inputs: Sequence[Any]) -> Run:
                return with_operators(gm, {}, dict.fromkeys(names, change))

            compile.__name__, compile.__doc__ = change.__name__, change.__doc__
            self._found.append(Fault(self.kind, compile, case, Outcome.MISMATCH))
            return change

        return add

    def results(self, case: str, outcome: Outcome = Outcome.MISMATCH) -> Callable[[Change], Change]:
        """A fault in each floating-point result: the function gets the right one."""

        def add(change: Change) -> Change:
            def compile(gm: GraphModule, inputs: Sequence[Any]) -> Run:
                return changed(gm.forward, change)

            compile.__name__, compile.__doc__ = change.__name__, change.__doc__
            self._found.append(Fault(self.kind, compile, case, outcome))
            return change

        return add

    def arguments(self, case: str, *names: str, outcome: Outcome = Outcome.MISMATCH) -> Callable[[Change], Change]:
        """A fault in operators: the function returns the arguments that they get, with its own in their place."""

        def add(change: Change) -> Change:
            def compile(gm: GraphModule, inputs: Sequence[Any]) -> Run:
                return with_operators(gm, {}, given=dict.fromkeys(names, change))

            compile.__name__, compile.__doc__ = change.__name__, change.__doc__
            self._found.append(Fault(self.kind, compile, case, outcome))
            return change

        return add

    def compiling(self, case: str) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
        """A fault in what each compilation does besides compiling."""

        def add(change: Callable[[], Any]) -> Callable[[], Any]:
            def compile(gm: GraphModule, inputs: Sequence[Any]) -> Run:
                change()
                return gm.forward

            compile.__name__, compile.__doc__ = change.__name__, change.__doc__
            self._found.append(Fault(self.kind, compile, case, Outcome.MISMATCH))
            return change

        return add

    def __iter__(self) -> Iterator[Fault]:
        return iter(self._found)


def changed(run: Run, change: Change) -> Run:
    """``run`` with its floating-point results changed."""

    def call(*args: Any) -> Sequence[Any]:
        return [change(r) if isinstance(r, torch.Tensor) and r.is_floating_point() else r for r in run(*args)]

    return call


def with_gradient(tensor: Any, change: Callable[[torch.Tensor], Any]) -> Any:
    """The same tensor, whose gradient is changed on its way back."""
    if not isinstance(tensor, torch.Tensor) or not tensor.requires_grad or not torch.is_grad_enabled():
        return tensor
    seen = tensor.view_as(tensor)
    seen.register_hook(change)
    return seen


def with_operators(
    gm: GraphModule,
    changes: dict[str, Change],
    instead: dict[str, Change] | None = None,
    given: dict[str, Change] | None = None,
) -> Run:
    """The graph with the results of some operators changed, others ``instead`` of theirs, or others ``given``."""

    class Changed(Interpreter):
        def run_node(self, node: Node) -> Any:
            if node.op not in ("call_function", "call_method"):
                return super().run_node(node)
            own = node.target if isinstance(node.target, str) else node.target.__name__
            name = own.strip("_")
            args, keywords = self.fetch_args_kwargs_from_env(node)
            if instead and (replaced := instead.get(own) or instead.get(name)):
                return replaced(*args, **keywords)
            if given and name in given:
                return getattr(self, node.op)(node.target, *given[name](*args, **keywords))
            result = super().run_node(node)
            return changes[name](result, *args, **keywords) if name in changes else result

    def call(*args: Any) -> Sequence[Any]:
        return Changed(gm).run(*args)

    return call


def calls(gm: GraphModule, before: Callable[[], Any]) -> Run:
    """The graph, with something that happens before each call."""

    def call(*args: Any) -> Sequence[Any]:
        before()
        return gm.forward(*args)

    return call
