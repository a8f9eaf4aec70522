"""``torchmux bench``: backends side by side on one program after the other."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from .files import check_writable
from .screen import console, show

if TYPE_CHECKING:
    from torchmux.bench.programs import Source
    from torchmux.bench.results import Result, Row
    from torchmux.bench.sides import Side

_DESCRIPTION = """\
Run programs under several backends, side by side: seconds to compile, cold and warm, latencies, memory, errors against
float64, and where operators run. Each backend works in processes of its own; one that crashes, hangs or computes
something else costs its own row. The calls are timed in turns.

A PROGRAM is a model of the zoo (--list), or FILE.py:FUNCTION or MODULE:FUNCTION: a function without arguments that
returns (model, inputs), a list of such pairs, or a dict from names to such pairs. With --script, the PROGRAMs are the
arguments of the script, after --; its torchmux.compile calls are recorded, and the first call of each is measured.
"""
_STYLES = {"right": "green", "wrong": "bold red", "lost": "bold red", "unjudged": "yellow", "interrupted": "yellow"}


def add_to(commands: Any) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "bench",
        help="measure backends side by side",
        description=_DESCRIPTION,
    )
    parser.add_argument("programs", nargs="*", metavar="PROGRAM", help="models of the zoo, or functions")
    parser.add_argument("--script", metavar="FILE", help="measure what this script compiles; its arguments follow --")
    parser.add_argument(
        "--calls", type=_positive, metavar="N", help="stop the script when N compiled functions were called"
    )
    parser.add_argument("--list", action="store_true", help="list the models of the zoo")
    parser.add_argument(
        "--backends", action="append", metavar="LIST",
        help="separated by commas: NAME, NAME:MODE, NAME:OPTION=VALUE:..., or chains such as openvino+native; "
        "by default all that can run here but auto",
    )  # fmt: skip
    parser.add_argument("--batch", type=_positive, metavar="N", help="rows of the inputs, for models of the zoo")
    parser.add_argument("--dtype", type=_dtype, help="of parameters and floating-point inputs, such as bfloat16")
    parser.add_argument("--device", default="cpu", type=_device, help="cpu, cuda or cuda:N")
    parser.add_argument("--train", action="store_true", help="measure forward and backward together")
    parser.add_argument("--threads", type=_positive, metavar="N", help="of torch and the compilers, torch's by default")
    parser.add_argument(
        "--budget", type=_seconds, default=120.0, metavar="S",
        help="seconds for each compilation of a backend; a third of it, for each backend, goes to timing (120)",
    )  # fmt: skip
    parser.add_argument(
        "--memory", type=_positive, metavar="MIB", help="for a process; by default half of what is free"
    )
    parser.add_argument("--json", metavar="FILE", help="write all results here as JSON; - for standard output")
    parser.add_argument(
        "--plot", action="append", default=[], metavar="FILE", help="draw the results as .png or .svg; repeatable"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Measure, and print a table for each program; 1 if a backend is wrong or lost, 130 for Ctrl-C.

    Raises:
        TorchmuxError: a requested backend is unknown or cannot run here, or has no such option.
    """
    if why := _misuse(arguments):
        print(f"torchmux: {why}", file=sys.stderr)
        return 2
    from torchmux.bench import plot, programs

    if arguments.list:
        show(_listing(programs.names()))
        return 0
    try:
        check_writable(arguments.json, *arguments.plot)
        for file in arguments.plot:
            plot.check(file)
        for name in () if arguments.script else arguments.programs:
            if ":" not in name:
                programs.check_name(name)
    except (OSError, plot.NoPlot, programs.NoProgram) as error:
        print(f"torchmux: {error}", file=sys.stderr)
        return 2
    from torchmux.bench import results as data, sides
    from torchmux.multiplexer.workers import Lost

    excluded: dict[str, str] = {}
    if arguments.backends:
        texts = [text.strip() for each in arguments.backends for text in each.split(",") if text.strip()]
        chosen = sides.sides(texts)
    else:
        chosen, excluded = sides.available_sides(arguments.device.partition(":")[0], arguments.train)
    results: list[Result] = []
    with _progress() as steps:
        try:
            sources = list(_sources(arguments))
        except Lost as why:
            print(f"torchmux: {arguments.script or 'a program'} cannot be loaded: {why}", file=sys.stderr)
            return 2
        if not sources:
            print(f"torchmux: {arguments.script} calls nothing that torchmux.compile returned", file=sys.stderr)
            return 2
        for source in sources:
            results.append(_measure(source, chosen, arguments, steps))
            if results[-1].interrupted:
                break
    for result in results:
        result.rows += [data.Row(name, "excluded", why) for name, why in excluded.items()]
        if arguments.json != "-":
            show(*_told(result), "")
    if arguments.json != "-":
        show(*_legend(results))
    if arguments.json:
        if arguments.json == "-":
            sys.stdout.write(data.to_json(results))
        else:
            data.write(Path(arguments.json), results)
    for file in arguments.plot:
        try:
            plot.draw(results, Path(file))
        except plot.NoPlot as why:
            print(f"torchmux: no {file}: {why}", file=sys.stderr)
    if results[-1].interrupted:
        return 130
    return int(any(result.failed or any(row.verdict in ("wrong", "lost") for row in result.rows) for result in results))


def _misuse(arguments: argparse.Namespace) -> str:
    """What is wrong with the combination of options, if anything is."""
    if arguments.list:
        return ""
    if arguments.script is None:
        if not arguments.programs:
            return "no program given; --list shows the models of the zoo"
        return "--calls is for --script" if arguments.calls else ""
    given = {
        "--batch": arguments.batch, "--dtype": arguments.dtype, "--train": arguments.train,
        "--device": arguments.device != "cpu",
    }  # fmt: skip
    if wrong := [name for name, value in given.items() if value]:
        return f"a script's calls are measured as they are: leave out {' and '.join(wrong)}"
    return "" if Path(arguments.script).is_file() else f"there is no file {arguments.script}"


def _sources(arguments: argparse.Namespace) -> Iterator[Source]:
    """What is to be measured.

    Raises:
        Lost: a user's program fails; the message says why.
    """
    from torchmux.bench.measure import programs_of
    from torchmux.bench.programs import Source

    threads, memory = _threads(arguments), _memory(arguments)

    def all_of(source: Source) -> Iterator[Source]:
        for number, name in enumerate(programs_of(source, threads=threads, memory=memory, within=_LOADING)):
            yield dataclasses.replace(source, number=number, name=name)

    if arguments.script:
        name = Path(arguments.script).name
        place = (os.path.abspath(arguments.script), *arguments.programs)
        yield from all_of(Source("script", place, name, arguments.calls or 0))
        return
    how: dict[str, Any] = {
        "batch": arguments.batch, "dtype": arguments.dtype, "device": arguments.device, "training": arguments.train
    }  # fmt: skip
    for text in arguments.programs:
        module, colon, function = text.rpartition(":")
        if colon:
            module = os.path.abspath(module) if module.endswith(".py") else module
            yield from all_of(Source("target", (module, function), function, **how))
        else:
            yield Source("zoo", (text,), text, **how)


_LOADING = 600.0
"""Seconds that a user's program may take before it is measured."""


def _measure(source: Source, chosen: Sequence[Side], arguments: argparse.Namespace, steps: _Steps) -> Result:
    from torchmux.bench.measure import Bench

    steps.program = source.name
    return Bench(
        source, chosen, threads=_threads(arguments), budget=arguments.budget, memory=_memory(arguments), step=steps
    ).run()


def _threads(arguments: argparse.Namespace) -> int:
    import torch

    return arguments.threads or torch.get_num_threads()


def _memory(arguments: argparse.Namespace) -> int:
    from torchmux.multiplexer.measure import default_memory

    return arguments.memory << 20 if arguments.memory else default_memory()


# --- output ----------------------------------------------------------------------------------------------------------


class _Steps:
    """What is going on: a spinner on terminals, a line for each compilation elsewhere."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.task = progress.add_task("", total=None)
        self.program = ""

    def __call__(self, what: str) -> None:
        text = f"{self.program}: {what}" if self.program else what
        self.progress.update(self.task, description=text)
        screen = self.progress.console
        if not screen.is_terminal and not what.startswith("turn "):
            screen.print(Text(text))


@contextlib.contextmanager
def _progress() -> Iterator[_Steps]:
    screen = console(stderr=True)
    columns = SpinnerColumn(), TimeElapsedColumn(), TextColumn("{task.description}", markup=False)
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as progress:
        yield _Steps(progress)


def _told(result: Result) -> Iterator[Any]:
    """The tables of one program, and what there is to say about it."""
    from torchmux.bench.results import machine_in_words

    device = str(result.source["device"])
    yield Text(f"{result.title} ({machine_in_words(result.threads, device)}, {result.seconds:.0f} s)", style="bold")
    if result.failed:
        yield Text(f"the program fails: {result.failed}", style="bold red")
        if "No module named 'transformers'" in result.failed:
            yield 'Models of the zoo need transformers: python -m pip install "torchmux[demo]"'
        return
    shown = [row for row in result.rows if row.verdict != "excluded"]
    yield _times(shown)
    yield ""
    yield _places(shown)
    if result.doubt:
        yield f"not all can be judged: {result.doubt}."
    for row in result.rows:
        if row.reason:
            yield f"{row.verdict}: {row.side}: {row.reason}"
    if result.source.get("kind") == "target" and (wrong := [row.side for row in result.rows if row.verdict == "wrong"]):
        place = ":".join(map(str, result.source["place"]))
        yield f"torchmux bisect {place} --backend {wrong[0].partition(':')[0]} finds the operators that it comes from."
    if result.interrupted:
        yield "interrupted: these are the results so far."


def _times(rows: Sequence[Row]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("backend", no_wrap=True)
    for title in ("cold s", "warm s", "min ms", "median", "p90", "p99", "speed-up", "95 % interval"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("result")
    for row in rows:
        latency, speedup = row.latency, row.speedup
        numbers = (latency.min, latency.median, latency.p90, latency.p99) if latency else (None,) * 4
        table.add_row(
            row.side, _number(row.cold_seconds, ".2f"), _number(row.warm_seconds, ".2f"),
            *(_number(value, ".4g") for value in numbers), _number(speedup.ratio if speedup else None, ".2f"),
            f"{speedup.low:.2f} - {speedup.high:.2f}" if speedup else "-",
            Text(row.verdict, style=_STYLES.get(row.verdict, "")),
        )  # fmt: skip
    return table


def _places(rows: Sequence[Row]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("backend", no_wrap=True)
    on_accelerator = any(row.accelerator_bytes for row in rows)
    titles = ["error", "of eager's", "MiB", "peak", *(["accelerator"] if on_accelerator else [])]
    for title in (*titles, "own code", "libraries", "torch", "breaks", "crossings"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("where")
    for row in rows:
        ratio = row.error / row.eager_error if row.error is not None and row.eager_error else None
        memory = [row.memory_bytes, row.peak_bytes, *([row.accelerator_bytes] if on_accelerator else [])]
        table.add_row(
            row.side, _number(row.error, ".1e"), _number(ratio, ".1f"),
            *("-" if each is None else f"{each / 2**20:.0f}" for each in memory), *_kinds(row),
            _number(row.breaks, "d"), _number(row.crossings, "d"),
            ", ".join(f"{name} {share:.0%}" for name, share in row.placed.items()),
        )  # fmt: skip
    return table


def _kinds(row: Row) -> tuple[str, str, str]:
    """The shares of own code, library kernels, and what was left to torch."""
    if not row.kinds:
        return "-", "-", "-"
    left = f"{row.kinds.get('torch', 0.0):.0%}"
    if "untold" in row.kinds:  # some of what is neither left to torch nor told apart
        return "?", "?", left
    return f"{row.kinds.get('own', 0.0):.0%}", f"{row.kinds.get('library', 0.0):.0%}", left


def _number(value: float | None, form: str) -> str:
    return "-" if value is None or value != value else format(value, form)


def _legend(results: Sequence[Result]) -> Iterator[str]:
    """What the columns mean."""
    if not any(result.timed for result in results):
        return
    yield (
        "eager: the program, not compiled. cold, warm: the first call with compilation, with empty caches, and in "
        "another process with the caches that the first left. p90, p99: 90 and 99 of 100 calls are at least as quick."
    )
    yield (
        "error: largest difference from float64, as a share of the largest element; of eager's: as a multiple of "
        "eager's own. MiB, peak: memory that compiling and calling add. own code, libraries, torch: shares of the "
        "operators."
    )


def _listing(names: dict[str, tuple[str, str]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("model", "family", ""):
        table.add_column(title, no_wrap=True)
    for name, (family, summary) in names.items():
        table.add_row(name, family, summary)
    return table


# --- arguments -------------------------------------------------------------------------------------------------------


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive whole number")
    return int(text)


def _seconds(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 0 < found < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number of seconds")
    return found


def _dtype(text: str) -> str:
    import torch

    found = getattr(torch, text, None)
    if not isinstance(found, torch.dtype) or not found.is_floating_point:
        raise argparse.ArgumentTypeError(f"torch has no floating-point dtype {text!r}")
    return text


def _device(text: str) -> str:
    import torch

    try:
        kind = torch.device(text).type
    except RuntimeError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a device") from None
    if kind != "cpu" and not torch.cuda.is_available():
        raise argparse.ArgumentTypeError(f"there is no {text} here")
    return text
