"""The catalogue of graph breaks: what ends a graph, why, and the usual way out."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass


@dataclass(frozen=True)
class BreakKind:
    """One entry of the catalogue; ``id`` is stable and appears in every message."""

    id: str
    what: str
    why: str
    fix: str


_KINDS = [
    BreakKind(
        "TM000",
        "error inside the tracer",
        "The tracer itself raised, which is a defect of torchmux. The function is not captured rather than captured "
        "wrongly.",
        "please report it; the function runs in eager meanwhile",
    ),
    BreakKind(
        "TM001",
        "data-dependent branch",
        "Which way an `if`, a `while` or an `assert` goes depends on the numbers in a tensor, and a graph is made "
        "without knowing them.",
        "use torch.where, or torch.cond, or move the branch out of the compiled function",
    ),
    BreakKind(
        "TM002",
        "tensor value needed in Python",
        "`item()`, `tolist()`, `float(tensor)` and the like turn a tensor into a Python object, which no operator of a "
        "graph can hold.",
        "keep the value a tensor, or take it out of the compiled function",
    ),
    BreakKind(
        "TM003",
        "call of a C function that cannot be traced",
        "The function has no bytecode, and it is not known what it reads and changes.",
        "call it outside, or mark it with torchmux.assume_constant_result if its result is constant, or give its "
        "equivalent in Python with torchmux.substitute_in_graph",
    ),
    BreakKind(
        "TM004",
        "call of a function marked not to be compiled",
        "The function, or who wrote it, asked for this.",
        "remove torchmux.disable (or torch.compiler.disable) from it, or call it outside",
    ),
    BreakKind(
        "TM005",
        "graph break asked for",
        "The program calls `graph_break`.",
        "remove the call of torchmux.graph_break (or torch._dynamo.graph_break)",
    ),
    BreakKind(
        "TM006",
        "bytecode instruction that is not understood",
        "The statement compiles to an instruction that the tracer has no handler for.",
        "rewrite the statement in plainer Python",
    ),
    BreakKind(
        "TM007",
        "operation on this kind of object that is not understood",
        "What the operation does to an object of this class is not known well enough to do it while tracing.",
        "do it outside the compiled function",
    ),
    BreakKind(
        "TM008",
        "operator whose output shape depends on data",
        "`nonzero`, `unique`, `masked_select` and the like return a tensor whose size is known only once they ran.",
        "compute it outside, or set torchmux.config.capture_dynamic_output_shape_ops",
    ),
    BreakKind(
        "TM009",
        "operator failed on the shapes and dtypes of this call",
        "The operator was tried on tensors without data, and raised. The statement runs in eager, which raises what "
        "your code would have got without torchmux.",
        "see the error: eager raises it too",
    ),
    BreakKind(
        "TM010",
        "exception leaves the compiled function",
        "A graph has no way to raise. What comes before the statement is captured, the statement itself runs in eager.",
        "nothing to do if it is meant: eager raises it",
    ),
    BreakKind(
        "TM011",
        "value cannot be rebuilt after the graph",
        "What lives on after the graph is made anew from the graph's results, and it is not known how to make an "
        "object of this kind in this state.",
        "do not keep it alive across a graph break, or do not return it",
    ),
    BreakKind(
        "TM012",
        "torch function that works on global state or is not an operator",
        "The function changes or asks for something that belongs to the whole process, or works on functions instead "
        "of tensors. In a graph it would act at another time than in your program.",
        "call it outside the compiled function",
    ),
    BreakKind(
        "TM013",
        "tensor subclass or overridden torch function",
        "A class of your own may redefine what every operator does, which an operator of a graph would not follow.",
        "call it outside the compiled function",
    ),
    BreakKind(
        "TM014",
        "generator, coroutine or handler state that cannot be resumed",
        "The rest of the function would have to go on in the middle of a generator, of a coroutine or of the handling "
        "of an exception, where CPython cannot be entered.",
        "move the statement out of the generator or handler",
    ),
    BreakKind(
        "TM015",
        "call nested too deeply",
        "Every call is traced to its end, and this one goes too deep or repeats too often for that.",
        "make the recursion shallower",
    ),
    BreakKind(
        "TM016",
        "fake-tensor propagation is not implemented for this operator",
        "What an operator returns is found by running it on tensors without data, and this one has no such "
        "implementation.",
        "register a fake implementation with torch.library.register_fake",
    ),
    BreakKind(
        "TM017",
        "region that cannot be a graph of its own",
        "A function that another one is given (a branch, what is checkpointed or differentiated, the passes of an "
        "`autograd.Function`) becomes a graph inside the graph. It does something there that such a graph cannot do: "
        "it changes what exists outside of it, or the rules of the function that takes it are not met.",
        "return what the region computes instead of storing it, and change no tensor from outside of it in place",
    ),
]

CATALOGUE: dict[str, BreakKind] = {kind.id: kind for kind in _KINDS}

PAGE = "docs/graph-breaks.md"

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


class GraphBreak(Exception):
    """Raised inside the tracer; ends the graph at the instruction being traced.

    ``frames`` are the user's frames, innermost first, as ``(filename, line, function name)``.
    """

    def __init__(self, kind: str, reason: str, cause: BaseException | None = None) -> None:
        super().__init__(reason)
        self.kind = kind
        self.reason = reason
        self.cause = cause
        self.frames: list[tuple[str, int, str]] = []
        self.whole_frame = False  # nothing of the root frame may be captured
        self.is_error = False  # the program asked not to break here
        self.only_now = False  # this call runs in eager as a whole; the next one is captured

    @property
    def where(self) -> str:
        return f"{self.frames[0][0]}:{self.frames[0][1]}" if self.frames else "?"


@dataclass(frozen=True)
class BreakRecord:
    """A graph break as ``explain`` and ``report`` show it."""

    kind: str
    reason: str
    frames: tuple[tuple[str, int, str], ...]
    whole_frame: bool = False  # nothing of the frame could be captured: it runs in eager

    @property
    def where(self) -> str:
        return f"{self.frames[0][0]}:{self.frames[0][1]}" if self.frames else "?"

    def message(self) -> str:
        """One paragraph: what happened, where in the user's code, and the way out."""
        kind = CATALOGUE[self.kind]
        text = f"{kind.id} {kind.what}: {self.reason}"
        for index, (file, line, function) in enumerate(self.frames):
            text += f"\n  {'at' if index == 0 else 'called from'} {file}:{line} in {function}"
            source = _source_line(file, line)
            if index == 0 and source:
                text += f"\n     {source}"
        return text + f"\n  way out: {kind.fix} ({link(kind.id)})"


def link(kind: str) -> str:
    """Where an entry of the catalogue is explained."""
    return f"{PAGE}#{kind.lower()}"


def page() -> str:
    """The catalogue as the text of the page that messages link to."""
    parts = [_PREFACE]
    for kind in CATALOGUE.values():
        heading = f'<a id="{kind.id.lower()}"></a>\n\n## {kind.id}: {kind.what}'
        fix = f"{kind.fix[0].upper()}{kind.fix[1:]}."
        paragraphs = (textwrap.fill(text, 120) for text in (f"**Why.** {kind.why}", f"**Way out.** {fix}"))
        parts.append("\n\n".join([heading, *paragraphs]) + "\n")
    return "\n".join(parts)


_PREFACE = """\
# Graph breaks

What ends a graph, why, and the usual way out. The number is stable; `explain`, `report`, `Unsupported` and
`TORCHMUX_LOGS=graph_breaks` give it with your line. Behind a break capture goes on, in a new graph. This page is made
from the code by `python -m torchmux breaks --page`.
"""


def _source_line(file: str, line: int) -> str:
    import linecache

    return linecache.getline(file, line).strip()


def record(error: GraphBreak, whole_frame: bool = False) -> BreakRecord:
    return BreakRecord(error.kind, error.reason, tuple(error.frames), whole_frame)
