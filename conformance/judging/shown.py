"""Everything that one run of a case shows, and how it differs from eager's."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import logging
import os
import random
import re
import sys
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

import torchmux

from ..case import SEED, Case, Trial
from ..oracle import Difference
from ..oracle.observation import Leaves, Raised, Refused, as_leaves, compare
from . import state
from .state import ERRORS


@dataclass
class Shown:
    """What a case returned or raised, what its calls showed, and what it changed in the process."""

    value: Any
    records: list[dict[str, Any]] = field(default_factory=list)
    changes: dict[str, str] = field(default_factory=dict)
    warned: set[tuple[str, str]] = field(default_factory=set)
    printed: str = ""
    said: str = ""

    def portable(self) -> Shown:
        """The same without what another process cannot get.

        That is an exception's object, whose type may be one that only this process has, and memory that tensors of
        several dtypes view.
        """
        if isinstance(self.value, Raised):
            words = self.value.words.removeprefix(f"{self.value.kind}: ")
            return dataclasses.replace(self, value=Raised(RuntimeError(words), self.value.kind))
        return dataclasses.replace(self, value=self.value.stored()) if isinstance(self.value, Leaves) else self

    def whole(self) -> Shown:
        """What :meth:`portable` was made of."""
        return dataclasses.replace(self, value=self.value.viewed()) if isinstance(self.value, Leaves) else self

    @property
    def raised(self) -> bool:
        return isinstance(self.value, Raised)


def observe(case: Case, trial: Trial) -> Shown:
    """Run a case.  Every run begins with the same random states, and leaves them and all other state as they were."""
    torchmux.reset()
    trial.reset()
    kept = _seed()
    always = torch.is_warn_always_enabled()
    logging.disable(logging.WARNING + 1)  # which is nobody else's level
    torch.set_warn_always(True)  # once per process would be once for one case
    before: dict[str, Any] = {}
    try:
        with _output() as printed, _errors() as said, warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            before = state.snapshot()
            try:
                value: Any = Leaves.portable(case.run(trial))
            except Exception as error:
                value = Raised(error)
            changes = state.changes(before, state.snapshot())
        # Those that torch's C++ code gives depend on which of its operators compute.
        warned = {(w.category.__name__, str(w.message)[:60]) for w in caught if "(Triggered int" not in str(w.message)}
        return Shown(value, trial.records, changes, warned, "".join(printed), "".join(said))
    finally:
        logging.disable(logging.NOTSET)
        state.restore(before, before)
        torch.set_warn_always(always)
        _put_back(kept)


@contextlib.contextmanager
def _output() -> Iterator[list[str]]:
    """What is written to standard output meanwhile, by Python or past it."""
    told: list[str] = []
    with (
        tempfile.TemporaryFile() as file,
        contextlib.redirect_stdout(io.StringIO()) as text,
        _redirected(1, file) as written,
    ):
        yield told
    told += [text.getvalue(), *written]


@contextlib.contextmanager
def _errors() -> Iterator[list[str]]:
    """What is written to standard errors meanwhile; it is written there afterwards.

    In a worker it is in a file that the process leaves only if it dies.
    """
    with contextlib.ExitStack() as stack:
        if state.watched_folder:
            path = os.path.join(state.watched_folder, ERRORS)
            stack.callback(os.remove, path)
            file: Any = stack.enter_context(open(path, "wb+"))
        else:
            file = stack.enter_context(tempfile.TemporaryFile())
        with _redirected(2, file) as written:
            yield written
    os.write(2, "".join(written).encode(errors="replace"))


@contextlib.contextmanager
def _redirected(number: int, file: Any) -> Iterator[list[str]]:
    """Send what is written to a file descriptor to a file; the list has it afterwards."""
    written: list[str] = []
    kept = os.dup(number)
    os.dup2(file.fileno(), number)
    try:
        yield written
    finally:
        os.dup2(kept, number)
        os.close(kept)
        file.seek(0)
        written.append(file.read().decode(errors="replace"))


def differences(found: Shown, draws: Sequence[tuple[Shown, Shown | None]], case: Case) -> list[Difference]:
    """All differences from eager; ``draws`` are eager's runs, each with that in float64 if there is one."""
    expected, strict = draws[0][0], not case.cancels and (case.elementwise or len(draws) == 1)
    how: dict[str, Any] = {
        "elementwise": strict,
        "strides": case.strides,
        "signs": case.signs,
        "terms": case.terms,
        "subnormals": case.subnormals,
        "independent": case.elementwise,
        "around": case.around,
    }
    pairs = [(a.value, None if b is None or b.raised else b.value) for a, b in draws]
    values = compare(found.value, pairs[: 1 if case.cancels else None], **how)
    if any(d.what == "exception" or (not d.where and d.what == "type") for d in values):
        return values
    found = _without_harmless_differences(found, expected)
    refused = {int(where[1:-1]) for where, leaf in as_leaves(expected.value) if isinstance(leaf, Refused) and where}
    records = [(_told(a, case, refused), None if b is None else _told(b, case, refused)) for a, b in draws]
    values += [
        Difference(f"call{d.where}" if d.where else "calls", d.what, d.words, d.rounded)
        for d in compare(_told(found, case, refused), records, **how)
    ]
    values += [
        Difference("", "state", f"it changes: {words}")
        for name, words in found.changes.items()
        if name not in expected.changes
    ]
    values += [
        Difference("", "warning", f"eager warns: {kind}: {words}")
        for kind, words in sorted(expected.warned - found.warned)
    ]
    if found.printed and not expected.printed:
        values.append(Difference("", "output", f"it prints: {found.printed[:200]!r}"))
    if not expected.said and (said := _undeclared(found.said)):
        values.append(Difference("", "output", f"it writes to standard errors: {said[:200]!r}"))
    return values


_OF_TORCH = re.compile(
    r"\[W\d+ [\d:.]+ \w+\.(?:cpp|cuh?|h):\d+\] Warning: "
    r"(?:(?:(?!\[W\d).)*? \(function [^\n]*\)(?:\n|\Z)|[^\n]*(?:\n|\Z))",
    re.DOTALL,
)
"""What these warnings look like where no Python code calls the operator; which ones depends on who computes it."""


def _undeclared(said: str) -> str:
    """The lines that the backend does not declare to write, but for warnings of torch's C++ code."""
    lines = (line for line in _OF_TORCH.sub("", said).splitlines(keepends=True) if line.strip())
    return "".join(line for line in lines if not any(part in line for part in state.declared_words))


def _told(shown: Shown, case: Case, refused: set[int]) -> list[dict[str, Any]]:
    """The records that are compared."""
    left_out = {"sample"} if case.strides else {"sample", "strides"}
    return [
        {name: value for name, value in record.items() if name not in left_out}
        for record in shown.records
        if record["sample"] not in refused
    ]


def _without_harmless_differences(found: Shown, expected: Shown) -> Shown:
    """``found`` without writes that change nothing, as an operator's schema may say that it writes where it does not,
    and without other places of results in memory of their own, if eager's are not at its beginning."""
    records = [dict(record) for record in found.records]
    for ours, theirs in zip(records, expected.records, strict=False):
        pairs = zip(ours.get("written", ()), theirs.get("written", ()), strict=False)
        ours["written"] = [wrote and eager_wrote for wrote, eager_wrote in pairs]
        if "begins at" in ours and "begins at" in theirs:
            ours["begins at"] = list(map(_begins, ours["begins at"], theirs["begins at"], _are_inputs(theirs)))
    return dataclasses.replace(found, records=records)


def _begins(ours: int, theirs: int, is_input: bool) -> int:
    """Where a result is to begin that begins at ``ours``, and eager's at ``theirs``, in memory of an input or not."""
    return theirs if theirs and not is_input else ours


def _are_inputs(record: dict[str, Any]) -> list[bool]:
    """Which results lie in memory of inputs."""
    shared = record["shares memory with"]
    count = len(shared) - len(record["results"])
    return [first < count for first in shared[count:]]


def _seed() -> tuple[Any, ...]:
    numpy = sys.modules.get("numpy")
    kept = torch.get_rng_state(), random.getstate(), numpy.random.get_state() if numpy else None
    torch.manual_seed(SEED)
    random.seed(SEED)
    if numpy:
        numpy.random.seed(SEED)
    return kept


def _put_back(kept: tuple[Any, ...]) -> None:
    torch.set_rng_state(kept[0])
    random.setstate(kept[1])
    if kept[2] is not None:
        sys.modules["numpy"].random.set_state(kept[2])
