"""The catalogue of graph breaks: what ends a graph, why, and the usual fix."""

from __future__ import annotations

import itertools
import textwrap
from dataclasses import dataclass
from typing import Any

from torchmux.wording import counted


@dataclass(frozen=True)
class BreakKind:
    """One entry of the catalogue. ``id`` is stable and appears in every message."""

    id: str
    what: str
    why: str
    fix: str


_KINDS = [
    BreakKind(
        "TM000",
        "error inside the tracer",
        "The tracer itself raised an exception, which is a bug in torchmux. The function is left uncaptured rather "
        "than captured incorrectly.",
        "please report the bug; until then, the function runs in eager",
    ),
    BreakKind(
        "TM001",
        "data-dependent branch",
        "The direction of an `if`, a `while` or an `assert` depends on the values in a tensor, and these are not known "
        "when the graph is built.",
        "use torch.where or torch.cond, or move the branch out of the compiled function",
    ),
    BreakKind(
        "TM002",
        "tensor value needed in Python",
        "`item()`, `tolist()`, `float(tensor)` and similar calls turn a tensor into a Python object, and no graph "
        "operator can hold one.",
        "keep the value as a tensor, or move the conversion out of the compiled function",
    ),
    BreakKind(
        "TM003",
        "call to a C function that cannot be traced",
        "The function has no bytecode, so the tracer does not know what it reads and changes.",
        "call it outside the compiled function, mark it with torchmux.assume_constant_result if its result is "
        "constant, or provide a Python equivalent with torchmux.substitute_in_graph",
    ),
    BreakKind(
        "TM004",
        "call to a function that is excluded from compilation",
        "The function is marked so, by you or by its author.",
        "remove torchmux.disable (or torch.compiler.disable) from it, or call it outside the compiled function",
    ),
    BreakKind(
        "TM005",
        "explicit graph break",
        "The program calls `graph_break`.",
        "remove the call to torchmux.graph_break (or torch._dynamo.graph_break)",
    ),
    BreakKind(
        "TM006",
        "unsupported bytecode instruction",
        "The statement compiles to an instruction for which the tracer has no handler.",
        "rewrite the statement in simpler Python",
    ),
    BreakKind(
        "TM007",
        "unsupported operation on this kind of object",
        "The tracer does not know the effect of this operation on an object of this class well enough to perform it "
        "while tracing.",
        "perform the operation outside the compiled function",
    ),
    BreakKind(
        "TM008",
        "operator whose output shape depends on data",
        "`nonzero`, `unique`, `masked_select` and similar operators return a tensor whose size is known only after "
        "they run.",
        "compute it outside the compiled function, or set torchmux.config.capture_dynamic_output_shape_ops",
    ),
    BreakKind(
        "TM009",
        "operator failed on the shapes and dtypes of this call",
        "The tracer ran the operator on tensors without data, and it raised an exception. The statement runs in eager, "
        "which raises the exception that your code would get without torchmux.",
        "correct what the error describes: eager raises it too",
    ),
    BreakKind(
        "TM010",
        "exception leaves the compiled function",
        "A graph cannot raise exceptions. The code before the statement is captured, and the statement itself runs in "
        "eager.",
        "none needed if the exception is intended: eager raises it",
    ),
    BreakKind(
        "TM011",
        "value cannot be rebuilt after the graph",
        "Objects that outlive the graph are rebuilt from its results, and the tracer does not know how to rebuild an "
        "object of this kind in this state.",
        "do not keep the object alive across a graph break, and do not return it",
    ),
    BreakKind(
        "TM012",
        "torch function that uses global state or is not an operator",
        "The function reads or changes state of the whole process, or works on functions instead of tensors. Inside a "
        "graph, it would run at a different time than in your program.",
        "call it outside the compiled function",
    ),
    BreakKind(
        "TM013",
        "tensor subclass or overridden torch function",
        "Your own class may redefine what every operator does, and the operators of a graph would not follow it. "
        "Tensors of a class that says what they consist of (`__tensor_flatten__`) are captured; the graph ends where "
        "one is made, where one that is an argument is written to, and where what it consists of cannot be compared.",
        "call it outside the compiled function",
    ),
    BreakKind(
        "TM014",
        "generator, coroutine or handler state that cannot be resumed",
        "The rest of the function would have to resume inside a generator, a coroutine or an exception handler, and "
        "CPython cannot be entered there.",
        "move the statement out of the generator, coroutine or handler",
    ),
    BreakKind(
        "TM015",
        "call nested too deeply",
        "The tracer follows every call to its end, and this one nests too deeply or repeats too often.",
        "make the recursion shallower",
    ),
    BreakKind(
        "TM016",
        "fake-tensor propagation is not implemented for this operator",
        "The tracer runs an operator on tensors without data to find out what it returns, and this operator has no "
        "such implementation.",
        "register a fake implementation with torch.library.register_fake",
    ),
    BreakKind(
        "TM017",
        "region that cannot be a graph of its own",
        "A function that is passed to another function (a branch, a checkpointed or differentiated function, the "
        "passes of an `autograd.Function`) becomes a graph inside the graph. This one does something that such a graph "
        "cannot do: it changes objects outside of it, or breaks the rules of the function that receives it.",
        "return what the region computes instead of storing it, and do not modify tensors from outside it in place",
    ),
]

CATALOGUE: dict[str, BreakKind] = {kind.id: kind for kind in _KINDS}

INTERNAL = "TM000"
DATA_DEPENDENT_BRANCH = "TM001"
TENSOR_TO_PYTHON = "TM002"
C_FUNCTION = "TM003"
DISABLED = "TM004"
ASKED_FOR = "TM005"
INSTRUCTION = "TM006"
OPERATION = "TM007"
DYNAMIC_OUTPUT = "TM008"
OPERATOR_FAILED = "TM009"
EXCEPTION = "TM010"
NOT_REBUILDABLE = "TM011"
TORCH_STATE = "TM012"
SUBCLASS = "TM013"
SUSPENDED = "TM014"
TOO_DEEP = "TM015"
NO_FAKE = "TM016"
REGION = "TM017"


NO_LINE = "<torchmux call>"
"""The file of a function that stands in for C code (:mod:`torchmux.frontend.callee`): no line of the program."""


class GraphBreak(Exception):
    """Ends the graph at the instruction being traced; raised inside the tracer.

    ``frames`` are the user's frames, innermost first, as ``(filename, line, function name)``.
    """

    def __init__(self, kind: str, reason: str, cause: BaseException | None = None) -> None:
        super().__init__(reason)
        self.kind = kind
        self.reason = reason
        self.cause = cause
        self.frames: list[tuple[str, int, str]] = []
        self.whole_frame = False  # no part of the root frame may be captured
        self.is_error = False  # the program forbids a break here
        self.is_allowed = False  # it may not: the program has no part in it
        self.only_now = False  # this call runs in eager as a whole; the next one is captured
        self.guards: Any = None  # the check of what the trace has read, which leads here again

    @property
    def where(self) -> str:
        return f"{self.frames[0][0]}:{self.frames[0][1]}" if self.frames else "?"


@dataclass(frozen=True)
class BreakRecord:
    """A graph break, as ``explain`` and ``report`` show it."""

    kind: str
    reason: str
    frames: tuple[tuple[str, int, str], ...]
    whole_frame: bool = False  # no part of the frame could be captured: it runs in eager

    @property
    def where(self) -> str:
        return f"{self.frames[0][0]}:{self.frames[0][1]}" if self.frames else "?"

    def message(self) -> str:
        """One paragraph: what happened, where in the user's code, and the usual fix."""
        kind = CATALOGUE[self.kind]
        text = f"{kind.id} {kind.what}: {self.reason}"
        verb = "at"
        for (file, line, function), same in itertools.groupby(self.frames):
            text += f"\n  {verb} {file}:{line} in {function}"
            if repeated := len(list(same)) - 1:  # a recursion
                text += f", {counted(repeated, 'time')} more"
            if verb == "at" and (source := _source_line(file, line)):
                text += f"\n     {source}"
            verb = "called from"
        return text + f"\n  fix: {kind.fix} ({link(kind.id)})"


def link(kind: str) -> str:
    """The command that explains an entry of the catalogue: an installed package has no pages."""
    return f"python -m torchmux breaks {kind}"


def page() -> str:
    """The catalogue as a page of Markdown."""
    parts = [_PREFACE]
    for kind in CATALOGUE.values():
        heading = f'<a id="{kind.id.lower()}"></a>\n\n## {kind.id}: {kind.what}'
        fix = f"{kind.fix[0].upper()}{kind.fix[1:]}."
        paragraphs = (textwrap.fill(text, 120) for text in (f"**Why.** {kind.why}", f"**Fix.** {fix}"))
        parts.append("\n\n".join([heading, *paragraphs]) + "\n")
    return "\n".join(parts)


_PREFACE = """\
# Graph breaks

This page lists what ends a graph, why, and the usual fix. The numbers are stable. `explain`, `report`, `Unsupported`
and `TORCHMUX_LOGS=graph_breaks` show them with your line, and `python -m torchmux breaks TM003` explains one of them.
After a break, capture resumes in a new graph. `python -m torchmux breaks --page` generates this page from the code.
"""


def _source_line(file: str, line: int) -> str:
    import linecache

    return linecache.getline(file, line).strip()


def record(error: GraphBreak, whole_frame: bool = False) -> BreakRecord:
    return BreakRecord(error.kind, error.reason, tuple(error.frames), whole_frame)
