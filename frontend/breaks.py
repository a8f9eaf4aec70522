"""The catalogue of graph breaks: what ends a graph, why, and the usual way out."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class BreakKind:
    """One entry of the catalogue; ``id`` is stable and appears in every message."""

    id: str
    what: str
    fix: str


_KINDS = [
    BreakKind("TM000", "error inside the tracer", "please report it; the function runs in eager meanwhile"),
    BreakKind(
        "TM001",
        "data-dependent branch",
        "use torch.where, or torch.cond, or move the branch out of the compiled function",
    ),
    BreakKind(
        "TM002", "tensor value needed in Python", "keep the value a tensor, or take it out of the compiled function"
    ),
    BreakKind(
        "TM003",
        "call of a C function that cannot be traced",
        "call it outside, or mark it with torchmux.assume_constant_result if its result is constant",
    ),
    BreakKind(
        "TM004", "call of a function marked not to be compiled", "remove torchmux.disable from it, or call it outside"
    ),
    BreakKind("TM005", "graph break asked for", "remove the call of torchmux.graph_break"),
    BreakKind("TM006", "bytecode instruction that is not understood", "rewrite the statement in plainer Python"),
    BreakKind(
        "TM007", "operation on this kind of object that is not understood", "do it outside the compiled function"
    ),
    BreakKind(
        "TM008",
        "operator whose output shape depends on data",
        "compute it outside, or set torchmux.config.capture_dynamic_output_shape_ops",
    ),
    BreakKind("TM009", "operator failed on the shapes and dtypes of this call", "see the error: eager raises it too"),
    BreakKind("TM010", "exception leaves the compiled function", "nothing to do if it is meant: eager raises it"),
    BreakKind(
        "TM011",
        "value cannot be rebuilt after the graph",
        "do not keep it alive across a graph break, or do not return it",
    ),
    BreakKind(
        "TM012",
        "torch function that works on global state or is not an operator",
        "call it outside the compiled function",
    ),
    BreakKind("TM013", "tensor subclass or overridden torch function", "call it outside the compiled function"),
    BreakKind(
        "TM014",
        "generator, coroutine or handler state that cannot be resumed",
        "move the statement out of the generator or handler",
    ),
    BreakKind("TM015", "call nested too deeply", "make the recursion shallower"),
    BreakKind(
        "TM016",
        "fake-tensor propagation is not implemented for this operator",
        "register a fake implementation with torch.library.register_fake",
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
        return text + f"\n  way out: {kind.fix}"


def _source_line(file: str, line: int) -> str:
    import linecache

    return linecache.getline(file, line).strip()


def record(error: GraphBreak, whole_frame: bool = False) -> BreakRecord:
    return BreakRecord(error.kind, error.reason, tuple(error.frames), whole_frame)
