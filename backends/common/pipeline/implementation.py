"""The contract's optional members, filled in: what the pipeline asks instead of the implementation itself.

Nothing else in the pipeline or the cache looks whether an implementation, or the code that it returned, has a member.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch.fx import GraphModule, Node

from torchmux import torch_internals as internals
from torchmux.registry.contract import SmallCalls
from torchmux.registry.errors import InvalidSpec
from torchmux.registry.plain import keywords_of
from torchmux.registry.report import GraphReport, Placement, output_code_of
from torchmux.registry.spec import ANY, Backend, BackendSpec, CompiledPart, CompileRequest, ToolFile

from .decompose import Table, core_aten


@dataclass(frozen=True)
class Implementation:
    """An implementation with every member of the contract; :class:`torchmux.registry.spec.Backend` describes them."""

    supports: Callable[[Node], Literal[True] | str]
    compile: Callable[[GraphModule, Sequence[Any], CompileRequest], CompiledPart]
    rewrite: Callable[[GraphModule, CompileRequest], GraphModule]
    small_calls: Callable[[GraphModule, CompileRequest], SmallCalls | None]
    decompositions: Callable[[], Table]
    keep_whole: Callable[[], frozenset[Any]]
    differentiate_whole: Callable[[], frozenset[Any]]  # composite operators with gradient kernels that are called
    writes_back: Callable[[Node], bool]
    makes_views: Callable[[Node], bool]
    takes_numbers: Callable[[], bool]
    casting: Callable[[], Callable[[Sequence[torch.Tensor], Sequence[torch.Tensor]], None] | None]
    restore: Callable[[str, Mapping[str, torch.Tensor]], CompiledPart | None] | None  # None: nothing can be restored


@dataclass(frozen=True)
class Several(Implementation):
    """Several implementations as one; ``compiler`` stands for ``parts.Compiler``."""

    compiler: Callable[..., Any]


def as_backend(found: Any, spec: BackendSpec) -> Implementation:
    """What ``spec`` loads, with the contract's defaults for all that it does not say."""
    if isinstance(found, Implementation):
        return found
    rewrite, restore = getattr(found, "rewrite", None), getattr(found, "restore", None)
    table, whole = getattr(found, "decompositions", None), getattr(found, "keep_whole", None)
    derived = getattr(found, "differentiate_whole", frozenset)
    full = isinstance(found, Backend)
    return Implementation(
        _asked(found, spec) if full else _takes_all,
        _compile_of(found, spec) if full else _called(found),
        rewrite or _as_it_is,
        getattr(found, "small_calls", None) or _none_small,
        _core_table if table is None else lambda: dict(_value_of(table)),
        frozenset if whole is None else lambda: frozenset(_value_of(whole)),
        lambda: frozenset(derived()),
        getattr(found, "writes_back", None) or _never,
        getattr(found, "makes_views", None) or _never,
        getattr(found, "takes_numbers", None) or _no_numbers,
        getattr(found, "casting", None) or _no_casts,
        restore,
    )


def _value_of(member: Any) -> Any:
    """A member that is the value itself, or a method that returns it."""
    return member() if callable(member) else member


def _takes_all(node: Node) -> Literal[True]:
    return True


def _never(node: Node) -> bool:
    return False


def _no_numbers() -> bool:
    return False


def _no_casts() -> None:
    return None


def _as_it_is(gm: GraphModule, request: CompileRequest) -> GraphModule:
    return gm


def _none_small(gm: GraphModule, request: CompileRequest) -> None:
    return None


def _core_table() -> Table:
    return dict(core_aten())


def _called(function: Callable[..., CompiledPart]) -> Callable[..., CompiledPart]:
    def compile(gm: GraphModule, example_inputs: Sequence[Any], request: CompileRequest) -> CompiledPart:
        return function(gm, example_inputs, **keywords_of(request))

    return compile


def _compile_of(backend: Backend, spec: BackendSpec) -> Callable[..., CompiledPart]:
    if spec.graph == "torch":
        return backend.compile

    def compile(gm: GraphModule, example_inputs: Sequence[Any], request: CompileRequest) -> CompiledPart:
        with internals.without_modes():  # AOTAutograd compiles among fake tensors, and constants of a graph are real
            return backend.compile(gm, example_inputs, request)

    return compile


def _asked(backend: Backend, spec: BackendSpec) -> Callable[[Node], Literal[True] | str]:
    def supports(node: Node) -> Literal[True] | str:
        for value in _values(node):
            device = value.device.type if isinstance(value, torch.Tensor) else ANY
            if device != ANY and ANY not in spec.devices and device not in spec.devices:
                return f"{spec.name} does not run on {device}"
        answer = backend.supports(node)
        if answer is not True and (not isinstance(answer, str) or not answer):
            raise InvalidSpec(
                f"The supports() of {spec.name} answered {answer!r} for {node.target}. It must return True, or the "
                "reason why not as a string that is not empty: users read it in the report."
            )
        return answer

    return supports


def _values(node: Node) -> tuple[Any, ...]:
    value = node.meta.get("val")
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)


class Told:
    """What compiled code tells of itself, with the contract's defaults.

    It is read when it is asked for, since code that is made anew in a call may tell something else then.
    """

    __slots__ = ("run",)

    def __init__(self, run: CompiledPart) -> None:
        self.run = run

    @property
    def artifact(self) -> str | None:
        return getattr(self.run, "artifact", None)

    @property
    def cache_hit(self) -> bool:
        return bool(getattr(self.run, "cache_hit", False))

    @property
    def library_calls(self) -> Mapping[str, str] | None:
        return getattr(self.run, "library_calls", None)

    @property
    def kernels(self) -> Mapping[str, str]:
        return getattr(self.run, "kernels", None) or {}

    @property
    def notes(self) -> Sequence[str]:
        return getattr(self.run, "notes", ())

    @property
    def report(self) -> GraphReport | None:
        found = getattr(self.run, "report", None)
        return found if isinstance(found, GraphReport) else None

    @property
    def output_code(self) -> list[str]:
        return output_code_of(self.run)

    def files(self) -> Sequence[ToolFile]:
        files = getattr(self.run, "files", None)
        return () if files is None else files()

    @property
    def kernel_seconds(self) -> list[list[tuple[str, float]]]:
        """The list that each call fills with its steps and their seconds, in a list; empty without one."""
        found = getattr(self.run, "kernel_seconds", None)
        return [] if found is None else [found]

    def follow(self, report: GraphReport, placements: list[Placement]) -> None:
        """Hand report and placements to code that corrects them; other code does without."""
        follow = getattr(self.run, "follow", None)
        if follow is not None:
            follow(report, placements)
