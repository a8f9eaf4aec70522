"""``torchmux demo``: runs real models through every available backend and prints a table of the results."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import importlib.util
import json
import math
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

import torchmux

from .screen import console, show

if TYPE_CHECKING:
    from torchmux.demo.trial import Trial

_NAMES = ("bert", "gpt2", "llama", "vit", "resnet")
_STYLES = {"right": "green", "wrong": "bold red", "failed": "bold red", "unavailable": "yellow"}


def add_to(commands: Any) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "demo",
        help="run real models through every available backend",
        description="Run models of transformers, with random weights, through every available backend; exits with 1 "
        "if any result is wrong. Nothing is downloaded.",
    )
    parser.add_argument("--models", nargs="+", choices=_NAMES, default=_NAMES, metavar="MODEL", help=", ".join(_NAMES))
    parser.add_argument(
        "--backends", nargs="+", metavar="BACKEND", help="use these, separated by spaces or commas, instead of all"
    )
    size = parser.add_mutually_exclusive_group()
    size.add_argument(
        "--full-size", dest="size", action="store_const", const="full", help="base sizes; takes a long time"
    )
    size.add_argument("--tiny", dest="size", action="store_const", const="tiny", help="the smallest sizes")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run, size="small")


def run(arguments: argparse.Namespace) -> int:
    """Run all trials, then print the table.

    Raises:
        TorchmuxError: a requested backend is unknown or cannot run here.
    """
    if importlib.util.find_spec("transformers") is None:
        print(
            'torchmux: the demo needs transformers, which is not installed: python -m pip install "torchmux[demo]"',
            file=sys.stderr,
        )
        return 1
    asked_for = [name for text in arguments.backends or () for name in text.split(",") if name]
    for name in asked_for:
        torchmux.lookup_backend(name)
    backends, left_out = _backends(asked_for)
    starts: dict[str, float] = {}
    trials = list(_trials(arguments.models, backends, arguments.size, starts))
    if arguments.json:
        told = {"trials": [_plain(trial) for trial in trials], "starts": starts, "skipped": left_out}
        print(json.dumps(told, indent=2))
    else:
        show(_table(trials), "", *_notes(trials, starts, left_out))
    return int(any(trial.outcome in ("wrong", "failed") for trial in trials))


def _plain(trial: Trial) -> dict[str, Any]:
    """A trial as JSON has it, where what was not reached is null."""
    fields = dataclasses.asdict(trial)
    return {k: None if isinstance(v, float) and math.isnan(v) else v for k, v in fields.items()}


def _backends(asked_for: list[str] | None) -> tuple[list[str], list[str]]:
    """The backends to run, and why the others are skipped."""
    if asked_for:
        return asked_for, []
    chosen, left_out = [], []
    for row in torchmux.backends():
        if not row.available:
            left_out.append(f"{row.name}: {row.error or row.reason}")
        elif "cpu" not in row.devices and "*" not in row.devices:
            left_out.append(f"{row.name}: it does not run on the CPU, and these models are there")
        else:
            chosen.append(row.name)
    return chosen, left_out


def _trials(models: list[str], backends: list[str], size: Any, starts: dict[str, float]) -> Iterator[Trial]:
    """Each model on each backend, with progress on stderr; fills ``starts`` with the seconds to start each compiler."""
    from torchmux.demo import models as families, trial

    with _progress(len(backends) + len(models) * len(backends)) as step, trial.empty_caches():
        for backend in backends:
            step(f"starting {backend}")
            # Whatever prevents a backend from starting also prevents it from running, and is reported there.
            with contextlib.suppress(Exception):
                starts[backend] = trial.start(backend)
        for name in models:
            subject = trial.subject(families.MODELS[name], size)
            for backend in backends:
                step(f"{name} on {backend}")
                result = trial.run(subject, backend)
                step.done(result)
                yield result


class _Steps:
    """Progress: a bar on terminals, and one line for each trial everywhere."""

    def __init__(self, progress: Progress, total: int) -> None:
        self.progress = progress
        self.task = progress.add_task("", total=total)
        self.started = 0

    def __call__(self, what: str) -> None:
        """``what`` starts, and the step before is complete."""
        self.progress.update(self.task, description=what, completed=self.started)
        self.started += 1

    def done(self, trial: Trial) -> None:
        """Print a line for a finished trial."""
        text = f"{trial.model} on {trial.backend}: {trial.outcome}"
        if trial.outcome == "right":
            text += f", first result after {trial.compile_seconds:.1f} s"
        self.progress.console.print(Text(text, style="dim"))


@contextlib.contextmanager
def _progress(total: int) -> Iterator[_Steps]:
    screen = console(stderr=True)
    columns = (
        SpinnerColumn(),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as progress:
        yield _Steps(progress, total)


def _table(trials: list[Trial]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("model")
    table.add_column("backend")
    for title in ("compile s", "speed-up", "error", "of eager's", "own code", "libraries", "torch", "breaks"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("result")
    previous = None
    for trial in trials:
        if previous not in (None, trial.model):
            table.add_row()
        previous = trial.model
        table.add_row(
            trial.model,
            trial.backend,
            _number(trial.compile_seconds, ".1f"),
            _number(trial.speedup, ".2f"),
            _number(trial.error, ".1e"),
            _number(_ratio(trial), ".1f"),
            *_kinds(trial),
            str(trial.breaks) if trial.graphs or trial.breaks else "-",
            Text(trial.outcome, style=_STYLES[trial.outcome]),
        )
    return table


def _kinds(trial: Trial) -> tuple[str, str, str]:
    """The shares of own code, library kernels, and what was left to torch."""
    shares = trial.shares
    if not shares:
        return "-", "-", "-"
    left = _number(shares.get("torch", 0.0), ".0%")
    if "untold" in shares:  # some of what is neither left to torch nor told apart
        return "?", "?", left
    return _number(shares.get("own", 0.0), ".0%"), _number(shares.get("library", 0.0), ".0%"), left


def _ratio(trial: Trial) -> float:
    return trial.error / trial.eager_error if trial.eager_error else math.nan


def _number(value: float, form: str) -> str:
    return "-" if math.isnan(value) else format(value, form)


def _notes(trials: list[Trial], starts: dict[str, float], left_out: list[str]) -> Iterator[str]:
    """What the columns mean, what went wrong, and what was skipped."""
    from torchmux.demo.trial import TOLERANCE

    yield (
        "compile s: time to the first result, with empty caches. speed-up: eager's median time divided by the "
        "backend's, in alternating calls."
    )
    yield (
        "error: largest difference from the same model in float64, relative to the largest value; of eager's: the same "
        f"as a multiple of eager's own error. More than {TOLERANCE:g} is wrong."
    )
    yield (
        "own code, libraries, torch: share of operators, over all calls, that are the backend's own code, kernels of a "
        "library that it calls, and left to torch. ?: the backend does not tell own code from libraries."
    )
    libraries: dict[str, dict[str, None]] = {}
    for trial in trials:
        libraries.setdefault(trial.backend, {}).update(dict.fromkeys(trial.libraries))
    for backend, names in libraries.items():
        if names:
            yield f"libraries that {backend} calls: {', '.join(names)}."
    if starts:
        times = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in starts.items())
        yield f"Time to start each compiler, once per process and not included in the table: {times}."
    for trial in trials:
        if trial.message:
            yield f"{trial.outcome}: {trial.model} on {trial.backend}: {trial.message}"
    for reason in left_out:
        yield f"skipped: {reason}"
