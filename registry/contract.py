"""What the pipeline may ask of an implementation, and of the code that it returns: the contract, member by member.

An implementation is either a :class:`PlainFunction` or an object that follows :class:`Backend`.  Where ``graph`` is
``"aten"`` it may have any of the members of :class:`BackendExtras`; the code that it returns may have any of
:class:`CompiledPartExtras`.  Everything in the two ``Extras`` is optional: the docstring of each member says what
happens without it.  ``torchmux.backends.common.pipeline.implementation`` fills these defaults in, in one place, and
:mod:`.conforms` checks the shape of an implementation when it is loaded.

The same members stand in ``docs/backend-authors.md``; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from .report import GraphReport, Placement, Strict

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor
    from torch.fx import GraphModule, Node


PIN = "torchmux_pin"
"""The entry of a captured node's ``meta`` that holds the name of the backend that the program wants for it, if any."""


STATIC = "torchmux_static"
"""The entry, always True, in the ``meta`` of a captured graph's placeholder that is a parameter or a buffer: it is the
same tensor in every call, until the program replaces it.  Plain functions find it there; others in
:attr:`CompileRequest.static_inputs`."""


def pins_of(gm: GraphModule) -> set[str]:
    """The backends that nodes of a captured graph are pinned to."""
    return {node.meta[PIN] for node in gm.graph.nodes if PIN in node.meta}


@dataclass(frozen=True)
class SmallCalls:
    """The calls of a captured graph that torch runs: those with fewer elements than ``below`` in the input at
    ``position``.

    Examples:
        >>> torchmux.registry.contract.SmallCalls(0, 2_000, "torch records it sooner").below
        2000
    """

    position: int
    below: int
    reason: str  # which is a note of the report


@dataclass(frozen=True)
class CompileRequest:
    """Everything besides the graph that a backend may want to know.

    Examples:
        >>> def compile(gm, example_inputs, request):  # a backend's
        ...     return gm.forward if request.phase == "inference" else None
        >>> torchmux.CompileRequest(backend="mine").phase
        'inference'
    """

    backend: str
    options: Any = None  # an instance of ``spec.options``
    mode: str | None = None
    dynamic: bool | None = None
    strict: Strict = False
    phase: Literal["inference", "forward", "backward"] = "inference"
    fingerprint: str = ""
    static_inputs: tuple[int, ...] = ()  # positions of parameters and buffers among the inputs


# --- what compiles ----------------------------------------------------------------------------------------------------


class PlainFunction(Protocol):
    """The short form of an implementation, which torch's custom backends have as well."""

    def __call__(self, gm: GraphModule, example_inputs: Sequence[Any], /, **options: Any) -> CompiledPart:
        """Compile the whole graph.

        With ``graph="torch"`` in the spec, ``gm`` is the captured graph of torch-level calls and ``example_inputs`` are
        the tensors and numbers of the call, parameters and buffers included.  With ``graph="aten"`` it is called with
        each ATen graph, and gets what :meth:`Backend.compile` gets.  ``options`` are the checked options, as keywords.

        Raises:
            GraphRefused: it cannot take this graph, which it has not changed.  Eager runs the graph, and the report
                says why.
        """


@runtime_checkable
class Backend(Protocol):
    """The full form of an implementation; both members are required."""

    def supports(self, node: Node) -> Literal[True] | str:
        """``True``, or the reason why ``node`` cannot be compiled, which users read in the report.

        ``node.meta["val"]`` holds the fake tensor, the number or the tuple of these that the node makes, with shape,
        strides, dtype and device; sizes may be ``torch.SymInt``.  In a captured graph (``graph="torch"``) it is
        ``node.meta["example_value"]``.  It is called once or more for each node, before any :meth:`compile`, and must
        neither change the node nor depend on options.  Any other answer than ``True`` or a string is ``InvalidSpec``.
        """

    def compile(self, gm: GraphModule, example_inputs: Sequence[Any], request: CompileRequest) -> CompiledPart:
        """Compile ``gm``, all of whose nodes were supported.

        ``gm`` has flat placeholders and returns a flat tuple; with ``graph="aten"`` it is functional but for what it
        writes to inputs last, and each node has ``meta["val"]``.  Tensors that it holds are ``get_attr`` nodes.
        ``example_inputs`` are fake except at ``request.static_inputs`` of an inference graph, where they are the real
        parameters and buffers.  The pipeline keeps its own copy, so ``gm`` may be changed.

        Raises:
            NodesRefused: some nodes cannot be compiled after all.  The graph is split again without them.
            GraphRefused: torch is to run this graph; the message is the reason.
            Exception: anything else is a failure.  Torch runs the graph and the report says so; with ``strict`` it is
                ``CompilationFailed``.  Other errors of torchmux go to the user as they are.
        """


class BackendExtras(Protocol):
    """What an implementation with ``graph="aten"`` may have besides, a callable object too; all of it is optional."""

    def rewrite(self, gm: GraphModule, request: CompileRequest) -> GraphModule:
        """The captured graph, or a changed copy with the same inputs, before it is traced and differentiated.

        Its nodes are torch-level calls with ``meta["example_value"]``.  Asked once for each captured graph.
        Without it, the graph is traced as it was captured.  An exception is a failure as in
        :meth:`Backend.compile`.
        """

    def small_calls(self, gm: GraphModule, request: CompileRequest) -> SmallCalls | None:
        """Which calls of a captured graph with gradients torch runs sooner than its code, if that depends on sizes.

        Asked once for each such graph that is compiled.  Without it, or for None, the code runs in all calls.
        """

    def decompositions(self) -> Mapping[Any, Callable[..., Any]]:
        """From ``OpOverload`` to the function that expresses it by smaller operators; may be a mapping instead.

        Asked once for each captured graph.  Without it, graphs come in core ATen operators,
        where random operators stay whole.  An empty table decomposes nothing.  A function in it may return
        ``NotImplemented`` to leave a call as it is.
        """

    def keep_whole(self) -> Collection[Any]:
        """Composite operators (``OpOverload``) that are to arrive in one piece; may be a collection instead.

        Asked once for each captured inference graph.  Without it, composite operators
        arrive as what they are composed of, whatever ``decompositions`` says.  An operator in it must never write to an
        argument, or return one or a view of one.
        """

    def differentiate_whole(self) -> Collection[Any]:
        """Composite operators (``OpOverload``) whose gradients torch's own kernels compute better than what they are
        composed of.

        Asked once for each captured graph that is differentiated; each of them arrives in one piece, and so does the
        operator that computes its gradient.  Without it, composite operators arrive as what they are composed of.
        """

    def writes_back(self, node: Node) -> bool:
        """Whether :meth:`Backend.compile` takes ``node``, ``aten.copy_(input, value)``, as one of the last of a graph.

        Its code must read what it needs of the old content before it writes, raise whatever it raises before it
        writes, and count the write in the tensor's version (``torch.autograd.graph.increment_version``).  Asked only
        where inputs share no memory.  Without it, or where it says no, torch makes these copies after the code has run.
        """

    def makes_views(self, node: Node) -> bool:
        """Whether ``node``, a view of what a graph computes that only leaves it, costs the code nothing.

        Such code makes the result in the form that the view has.  Without it, or where it says no, torch makes the
        view after the code has run, since most code could only copy.
        """

    def takes_numbers(self) -> bool:
        """Whether floats that are known only in each call stay numbers, where an operator takes numbers.

        Asked once for each ATen graph.  Without it, or where it says no, operators get tensors in place of such floats,
        of which some need several steps (``add`` with an ``alpha``); they may round once more than eager's kernel.
        """

    def casting(self) -> Callable[[Sequence[Tensor], Sequence[Tensor]], None] | None:
        """A function ``(casts, weights)`` that rounds each weight into the tensor of half precision beside it.

        Asked once for each graph that is compiled in a region of autocast.  The weights are float32 on the CPU, and
        each cast is laid out like its weight where that has no gaps.  Without it, or for None, torch copies them.
        """

    def restore(self, artifact: str, constants: Mapping[str, Tensor]) -> CompiledPart | None:
        """The code whose ``artifact`` this is, in another process, or None if it cannot be had any more.

        ``constants`` has the tensors that the compiled graph held, by the targets of its ``get_attr`` nodes.  With it,
        a process whose graph was compiled before neither traces nor compiles; None, and everything is made anew.
        Without it, each process traces each graph, and may still find code in the artifact cache; and ``torchmux.save``
        refuses the graph.  For a saved file, the artifact cache that it finds is the file's, and has no more than what
        it asked for when the file was written.
        """


# --- what it returns --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ToolFile:
    """A file that the tool behind a backend reads, or a person, for ``torchmux.artifacts``.

    ``write(path, names, weights)`` writes it, and returns the paths of all that it has written.  ``names`` are those of
    the part's inputs by position, and ``weights`` are the inputs that become constants of the file, by position, where
    ``holds_weights``.  ``text()`` is what a person reads, None if that is nothing.  ``needs`` says what a program needs
    to run the file besides the tool.
    """

    kind: str
    suffix: str
    write: Callable[[Path, Sequence[str], Mapping[int, Tensor]], Sequence[Path]]
    text: Callable[[], str] | None = None
    holds_weights: bool = False
    needs: str = ""


class CompiledPart(Protocol):
    """What ``compile`` and plain functions return: code for one graph."""

    def __call__(self, *args: Any) -> Sequence[Any]:
        """Take the graph's flat inputs, tensors and numbers, and return the flat tuple of its outputs.

        Dtypes, shapes, devices and strides are those of the graph's ``meta["val"]``, since views of results are taken
        next.  Results share memory with inputs or one another only where the graph's own operators make them.
        Several threads may call at once.  Errors go to the user as they are.
        """


class CompiledPartExtras(Protocol):
    """What the returned code may tell of itself; all of it is optional, and read after ``compile`` has returned."""

    artifact: str | None
    """What ``restore`` needs to find this code again.  Without it, or None, the graph's recipe is not kept."""

    cache_hit: bool
    """Whether the code came from the artifact cache, which ``report.cache_hits`` counts.  Without it: no."""

    kernels: Mapping[str, str]
    """The kernels that nodes became part of: from the node's name to the kernel's, for the page that
    ``report.to_html`` writes.  Without it, the page shows no kernels."""

    kernel_seconds: Sequence[tuple[str, float]] | None
    """The kernels of the last call and the seconds that each took, in order, for the report and its page; it may change
    with each call.  Without it, or None, no times are shown."""

    library_calls: Mapping[str, str]
    """The nodes of the graph that library kernels compute, which the code calls: from the node's name to the kernel's,
    as users read it in the report.  All other nodes are the backend's own code, so an empty mapping says that all are.
    Without it, the report says that the backend does not tell which operators are its own, and ``strict="own"``
    refuses them; unless the spec has a ``library`` for all."""

    notes: Sequence[str]
    """Sentences for ``report.notes``.  Without it: none."""

    output_code: str | Sequence[str]
    """The code that was generated, for ``TORCHMUX_LOGS=output_code``.  Without it, the ``code`` of an FX module, if the
    callable is one or a method of one; else none."""

    report: GraphReport
    """With ``graph="torch"``: what ran where, instead of a report that puts every operator on the backend.  It is read
    whenever somebody asks for it, so it may change.  Without it, that report.  With ``graph="aten"`` it is not asked
    for."""

    def files(self) -> Sequence[ToolFile]:
        """The files that the code consists of, for ``torchmux.artifacts``; called when somebody asks for them.

        Without it: none.
        """

    def follow(self, report: GraphReport, placements: list[Placement]) -> None:
        """Take the report and the part's placements in it, to correct them when a call shows something else.

        Called once, before the first call of the code.  Without it, the placements stay as they are.
        """


@runtime_checkable
class CompiledGraph(Protocol):
    """What the pipeline makes of a captured graph: takes its flat inputs, returns the flat tuple of its outputs."""

    report: GraphReport

    def __call__(self, *args: Any) -> Sequence[Any]: ...
