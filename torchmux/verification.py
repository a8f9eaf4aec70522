"""``torchmux.verify``, and what it finds; ``conformance/judging/verifying.py`` has the search."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .wording import counted

Say = Callable[[str], None]


@dataclass(frozen=True)
class Operator:
    """An operator that a wrong number needs: its name and the line of the program that it comes from."""

    name: str
    where: str


@dataclass(frozen=True)
class Verification:
    """What :func:`torchmux.verify` found; ``print`` shows it as text.

    ``stages`` has the outcome (``"pass"``, ``"mismatch"`` and so on) and the reason of each stage in order: the capture
    (``eager``), the split (``aot_eager``), the backend.  ``graphs`` has those of each captured graph alone, and its
    number of operators.  ``wrong`` is the backend of the first stage that fails, for a chain the members that fail
    alone; empty if none does.  ``graph`` is the number of the first wrong graph, and ``operators`` are what is left of
    it: it is still wrong with these, and not with fewer.  ``program`` is a script that shows the failure, or empty.

    Examples:
        >>> found = torchmux.verify(torch.sin, torch.ones(3), backend="aot_eager")
        >>> found.ok, list(found.stages), found.operators
        (True, ['eager', 'aot_eager'], ())
    """

    backend: str
    stages: dict[str, tuple[str, str]]
    graphs: tuple[tuple[int, str, str], ...] = ()
    wrong: tuple[str, ...] = ()
    graph: int | None = None
    operators: tuple[Operator, ...] = ()
    reason: str = ""
    program: str = field(default="", repr=False)

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.wrong

    def to_dict(self) -> dict[str, Any]:
        """The same as data that JSON can hold."""
        return {
            "backend": self.backend,
            "ok": self.ok,
            "stages": {name: {"outcome": outcome, "reason": why} for name, (outcome, why) in self.stages.items()},
            "graphs": [{"operators": size, "outcome": outcome, "reason": why} for size, outcome, why in self.graphs],
            "wrong": list(self.wrong),
            "graph": self.graph,
            "operators": [{"name": each.name, "where": each.where} for each in self.operators],
            "reason": self.reason,
            "program": self.program,
        }

    def __str__(self) -> str:
        lines = [f"{self.backend} {'computes what eager computes' if self.ok else 'differs from eager'}"]
        for name, (outcome, why) in self.stages.items():
            lines.append(f"  {outcome:11} {name}" + (f": {why}" if why else ""))
        if self.ok:
            return "\n".join(lines)
        for number, (size, outcome, why) in enumerate(self.graphs):
            lines.append(f"  {outcome:11} graph {number}, {counted(size, 'operator')}" + (f": {why}" if why else ""))
        if self.graph is not None:
            many = "the operator" if len(self.operators) == 1 else f"these {len(self.operators)} operators together"
            lines.append(f"{' and '.join(self.wrong)}: graph {self.graph}, {many}:")
            lines += [f"  {each.name}  {each.where}".rstrip() for each in self.operators]
            lines.append(f"  {self.reason}")
        lines.append(self.advice)
        return "\n".join(lines)

    @property
    def advice(self) -> str:
        """What to do next; empty if nothing is wrong."""
        if self.ok:
            return ""
        if self.program:
            return ".program has a script that shows the failure; python -m torchmux bisect --output FILE writes it."
        if self.wrong == ("eager",):
            return "The capture is wrong: no backend is to blame. Please report it with the program."
        if self.graph is None:
            return "No graph is wrong alone. TORCHMUX_LOGS=graph,guards,bytecode prints what runs between them."
        return "The inputs are too large to write a script; call verify with smaller ones."


def verify(
    model: Callable[..., Any],
    inputs: Any,
    *,
    backend: str | Sequence[str] | None = None,
    options: Mapping[str, Any] | None = None,
    gradients: bool | None = None,
    say: Say = lambda text: None,
) -> Verification:
    """Hold a compiled program against eager and against eager in float64, and find out where a wrong number is from.

    ``model`` is a function or an ``nn.Module``; neither it nor the inputs are changed.  ``inputs`` are a tensor, a
    tuple or list of positional arguments, or a dict of keyword arguments.  ``backend`` is a name or a chain; None is
    the default backend.  ``gradients`` says whether those of the parameters and inputs are compared, too; by default
    if the model is in training mode and has parameters, or an input requires gradients.  ``say`` is told what goes on.

    A result is right if its error against float64 is at most a small multiple of eager's own.  Everything that was
    compiled in this process is discarded, as by :func:`torchmux.reset`.  The backend runs in this process: one that
    ends it ends the program, for which there is ``python -m torchmux minify``.

    Returns:
        A :class:`Verification`; ``.ok`` says whether everything is right.

    Raises:
        UnknownBackend, BackendUnavailable, InvalidOption: as :func:`torchmux.compile`.
        TypeError: ``model`` cannot be called, or ``inputs`` is something else.
        ValueError: eager itself does not run the program on these inputs.

    Examples:
        >>> import torch, torchmux
        >>> torchmux.verify(torch.nn.Linear(4, 2), torch.ones(3, 4), backend="aot_eager").ok
        True
    """
    # The suite imports this package, so it is imported by name, when it is needed.
    search = importlib.import_module("torchmux.conformance.judging.verifying")
    found: Verification = search.verify(model, inputs, backend, options, gradients, say)
    return found
