"""``torchmux conformance``: a backend against eager, case by case."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from torchmux.registry.report import counts_in_words

from . import claims, published
from .files import check_writable
from .screen import console, show

if TYPE_CHECKING:
    from torchmux.conformance.outcome import Result
    from torchmux.conformance.requirements import Requirements
    from torchmux.conformance.runner import Job

_STYLES = {
    "pass": "green", "slow": "yellow", "fallback": "yellow", "unsupported": "yellow", "mismatch": "bold red",
    "crash": "bold red",
    "timeout": "bold red", "xfail": "dim", "xpass": "bold red", "skipped": "dim",
}  # fmt: skip

_FILES = ("json", "junit", "html", "resume")
_ITS_NAME = "{}"
"""What stands for a backend's name in those of files."""


def add_to(commands: Any) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "conformance",
        help="compare a backend with eager, case by case",
        description="Compare a backend with eager: operators and graph semantics. Each case runs in a process that "
        "may die or hang without harm. Exits with 1 if anything is wrong.",
    )
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="the backends, or chains such as onnxrt+native; not needed with "
        "--requirements.  Several share eager's answers, and write files whose names have {} for the backend's.  "
        "`show NAME` prints single results of a published run, or of a file that --json wrote",
    )  # fmt: skip
    parser.add_argument(
        "--level", choices=("quick", "full"), help="quick (minutes, the default) or full (hours); with show, the "
        "higher one that is published",
    )  # fmt: skip
    parser.add_argument(
        "--outcome", action="append", choices=tuple(_STYLES), help="with show: only cases with this outcome, and why"
    )
    parser.add_argument(
        "--frontend",
        choices=("torchmux", "torch"),
        help="what captures programs: torchmux.compile, or torch.compile with the published backend torchmux_NAME",
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), help="where cases create their tensors (cpu)")
    parser.add_argument("--case", action="append", metavar="PATTERN", help="only ids that match, such as 'semantics/*'")
    parser.add_argument("--shard", metavar="I/N", default="1/1", help="run part I of N of the cases")
    parser.add_argument("--workers", type=int, default=1, help="number of parallel processes (1)")
    parser.add_argument(
        "--scheduler", metavar="ADDRESS",
        help="run the cases on a Dask cluster, such as tcp://10.0.0.5:8786; `local`: one of --workers processes here",
    )  # fmt: skip
    parser.add_argument("--resume", metavar="FILE", help="keep results in this file, and resume from it")
    claims.add_options(parser)
    parser.add_argument("--json", metavar="FILE", help="write all results here as JSON; - for standard output")
    parser.add_argument("--junit", metavar="FILE", help="write JUnit XML here")
    parser.add_argument("--html", metavar="FILE", help="write an HTML page here")
    parser.add_argument(
        "--compare", action="append", metavar="FILE", help="with --html: show another run's --json on the same page"
    )
    parser.add_argument("--reproducers", metavar="FOLDER", help="write a script for each failure here")
    parser.add_argument("--list", action="store_true", help="list the cases instead of running them")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the cases, and print the failures and a table.

    Raises:
        TorchmuxError: the backend is unknown or cannot run here.
    """
    if arguments.names[:1] == ["show"] and len(arguments.names) == 2:
        return published.show_cases(arguments.names[1], arguments, _STYLES)
    if arguments.outcome or "show" in arguments.names:
        said = " ".join(arguments.names)
        print(f"torchmux: conformance takes backends, or `show NAME`, not {said!r}", file=sys.stderr)
        return 2
    arguments.level = arguments.level or "quick"
    if len(arguments.names) > 1 and (why := _why_not_several(arguments)):
        print(f"torchmux: {why}", file=sys.stderr)
        return 2
    runs = [_Run(arguments, name) for name in arguments.names or (None,)]
    try:
        for each in runs:
            check_writable(*each.files.values())
        others = _others(arguments.compare)
    except (OSError, ValueError) as error:
        print(f"torchmux: {error}", file=sys.stderr)
        return 2
    for each in runs:
        if not each.is_usable():
            return 2
    from torchmux.conformance import collect, outcome, runner

    try:
        part, parts = map(int, arguments.shard.split("/"))
        patterns = arguments.case or ["*"]
        found = list(collect.cases(arguments.level, patterns))
        chosen = list(collect.shard(found, part, parts))
    except ValueError:
        print(f"torchmux: --shard takes a part such as 3/8, not {arguments.shard!r}", file=sys.stderr)
        return 2
    names = [case.id for case in chosen]
    if arguments.list:
        texts = {case.id: case.text for case in chosen}
        show(*(f"{name}  {texts[name]}" for name in names))
        return 0
    if not names:
        print(f"torchmux: no case matches {' or '.join(patterns)}; --list shows all cases", file=sys.stderr)
        return 2
    with _cluster(arguments) as client, _progress(len(names) * len(runs)) as progress:
        try:
            jobs = [each.job(names, progress) for each in runs]
        except outcome.OtherRun as error:
            print(f"torchmux: {error}; use another file, or delete this one", file=sys.stderr)
            return 2
        runner.run_all(jobs, workers=arguments.workers, client=client)
    whole = None if arguments.case else len(found)
    return max([each.tell(job.results, whole, others) for each, job in zip(runs, jobs, strict=True)])


class _Run:
    """One backend of a command."""

    requirements: Requirements

    def __init__(self, arguments: argparse.Namespace, name: str | None) -> None:
        self._arguments = argparse.Namespace(**vars(arguments))
        self._arguments.backend = name
        named = {key: getattr(arguments, key) for key in _FILES}
        self.files = {key: path and path.replace(_ITS_NAME, name or "") for key, path in named.items()}
        self._reproducers = arguments.reproducers and arguments.reproducers.replace(_ITS_NAME, name or "")

    def is_usable(self) -> bool:
        """Whether the backend can be judged here; else the message on stderr says why not."""
        found = claims.requirements_of(self._arguments, "its name")
        if found is None:
            return False
        found.device = self._arguments.device or found.device
        if why := _why_not_there(found.device):
            print(f"torchmux: {why}", file=sys.stderr)
            return False
        self.requirements = found
        return True

    @property
    def _on(self) -> dict[str, Any]:
        return {
            "backend": self.requirements.name,
            "level": self._arguments.level,
            "frontend": self._arguments.frontend or self.requirements.frontend,
            "options": self.requirements.options,
            "device": self.requirements.device,
        }

    def job(self, names: Sequence[str], progress: Callable[..., None]) -> Job:
        """What is to run, and what has run already.

        Raises:
            OtherRun: the file of results is of another run.
        """
        from torchmux.conformance import outcome, report, runner

        if self._reproducers:
            Path(self._reproducers).mkdir(parents=True, exist_ok=True)
        path = Path(self.files["resume"]) if self.files["resume"] else None
        job = runner.Job(
            names,
            **self._on,
            requirements=self._arguments.requirements,
            seconds=self.requirements.seconds,
            journal=outcome.Journal(path, report.key(fingerprint=self.requirements.fingerprint, **self._on)),
            progress=lambda result: progress(1, result),
        )
        progress(0, *job.results)
        return job

    def tell(self, results: Sequence[Result], cases: int | None, others: Sequence[dict[str, Any]]) -> int:
        """Write the files, and print the failures and a table; returns 1 if anything is wrong."""
        from torchmux.conformance import page, report

        backend, asked = self.requirements.name, self._arguments.requirements
        data = report.to_json(results=results, cases=cases, fingerprint=self.requirements.fingerprint, **self._on)
        if self.files["json"]:
            text = json.dumps(data, indent=1)
            if self.files["json"] == "-":
                print(text)
            else:
                Path(self.files["json"]).write_text(text)
        if self.files["junit"]:
            Path(self.files["junit"]).write_text(report.to_junit(backend, results))
        if self.files["html"]:
            Path(self.files["html"]).write_text(page.html([*others, data]))
        if self._reproducers:
            _write_reproducers(Path(self._reproducers), results)
        failures = [result for result in results if result.outcome.is_failure]
        if self.files["json"] == "-":
            return int(bool(failures))
        if len(self._arguments.names) > 1:
            show(Text(backend, style="bold"))
        show(*map(_failure_line, failures), _table(report.summary(results)))
        if failures:
            named = f" --requirements {asked}" if asked else f" --backend {backend}"
            show(f"torchmux minify {failures[0].case}{named} reduces a failure to the smallest graph that still fails.")
        if told := counts_in_words(report.kinds(results)):
            show(f"operators of all cases: {told}")
        return int(bool(failures))


def _why_not_several(arguments: argparse.Namespace) -> str:
    """Why a run cannot be for several backends; empty if it can."""
    if arguments.requirements:
        return "--requirements are those of one backend"
    paths = [getattr(arguments, key) for key in (*_FILES, "reproducers")]
    if any(path and _ITS_NAME not in path for path in paths):
        return f"several backends write several files: put {_ITS_NAME} in their names, which stands for the backend's"
    return ""


def _why_not_there(device: str) -> str:
    """Why cases cannot run on a device; empty if they can."""
    if device.partition(":")[0] != "cuda":
        return ""
    import torch

    return "" if torch.cuda.is_available() else f"--device {device} needs an NVIDIA GPU, and torch finds none here"


@contextlib.contextmanager
def _cluster(arguments: argparse.Namespace) -> Iterator[Any]:
    """A client of the Dask cluster that was asked for; None if none was."""
    if not arguments.scheduler:
        yield None
        return
    from torchmux.conformance import spread

    with spread.cluster(arguments.scheduler, arguments.workers) as client:
        yield client


def _others(paths: Sequence[str] | None) -> list[dict[str, Any]]:
    return [json.loads(Path(path).read_text()) for path in paths or ()]


def _write_reproducers(folder: Path, results: Sequence[Result]) -> None:
    for result in results:
        if script := result.details.get("reproducer"):
            (folder / f"{result.case.replace('/', '.')}.py").write_text(script)


def _failure_line(result: Result) -> Text:
    outcome = result.outcome.value
    return Text.assemble((outcome, _STYLES[outcome]), f"  {result.case}: {result.reason}")


def _table(groups: dict[str, dict[str, int]]) -> Table:
    """A table with a column for each outcome and a row for each group."""
    outcomes = [name for name in _STYLES if any(name in counts for counts in groups.values())]
    table = Table(box=None, pad_edge=False, header_style="bold", show_footer=len(groups) > 1)
    table.add_column("cases", footer="all", no_wrap=True)
    for name in outcomes:
        total = sum(counts.get(name, 0) for counts in groups.values())
        table.add_column(name, footer=str(total), justify="right", style=_STYLES[name])
    for group, counts in groups.items():
        table.add_row(group, *(str(counts.get(name, "")) for name in outcomes))
    return table


@contextlib.contextmanager
def _progress(total: int) -> Iterator[Callable[..., None]]:
    """A bar on terminals; elsewhere a line for each failure and every hundredth case.  Several threads call it."""
    columns = SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    screen = console(stderr=True)
    lock, done = threading.Lock(), 0
    with Progress(*columns, console=screen, disable=not screen.is_terminal, transient=True) as bar:
        task = bar.add_task("conformance", total=total)

        def step(fresh: int, *results: Result) -> None:
            nonlocal done
            with lock:
                for result in results:
                    done += 1
                    bar.update(task, advance=1, description=result.case)
                    if fresh and result.outcome.is_failure:
                        screen.print(_failure_line(result))
                if fresh and not screen.is_terminal and done % 100 == 0:
                    screen.print(f"{done} of {total} cases")

        yield step
