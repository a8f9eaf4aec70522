"""``torchmux tune``: decides for a program ahead of its use, on the machines of a Dask cluster."""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

import torchmux
from torchmux.config import config

from .screen import console, in_a_line, show
from .target import FORMS, Program, load_programs, options, positive, target

if TYPE_CHECKING:
    from torchmux.multiplexer.decisions import Decision
    from torchmux.multiplexer.tuning.capture import Recorder

_DESCRIPTION = f"""\
Measure the backends on the graphs of a program, spread over a Dask cluster, and keep the decisions that backend="auto"
follows.

{FORMS}

Each job measures eager and some candidates on one worker. Candidates are compared by their ratios to eager, and only
among workers of the same kind: processor, threads, GPU and versions. There is a file of decisions for each kind, for
`torchmux decisions import`; the decisions are also kept on this machine, and at config.decisions.

An interrupted run keeps what is measured. The same command goes on from there.
"""


def add_to(commands: Any) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "tune",
        help="decide for a program ahead of its use, on a cluster",
        description=_DESCRIPTION,
    )
    parser.add_argument("target", type=target, metavar="TARGET", help="FILE.py:FUNCTION or MODULE:FUNCTION")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--scheduler", metavar="ADDRESS", help="of a Dask cluster, such as tcp://10.0.0.5:8786")
    where.add_argument(
        "--workers",
        type=positive,
        default=1,
        metavar="N",
        help="processes here, which disturb each other (1)",
    )
    parser.add_argument(
        "--threads", type=positive, metavar="N", help="torch's threads where the program will run (as many as here)"
    )
    parser.add_argument(
        "--grad",
        choices=("no_grad", "inference_mode", "train"),
        default="no_grad",
        help="how the program will be called; train measures forward and backward (no_grad)",
    )
    parser.add_argument("--dynamic", action="store_true", help="the program will be compiled with dynamic=True")
    parser.add_argument("--options", type=options, default={}, metavar="JSON", help="the options of auto")
    parser.add_argument("--group", type=positive, default=2, metavar="N", help="candidates in one job (2)")
    parser.add_argument("--output", metavar="FOLDER", default=".", help="for the files of decisions (here)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Capture, measure, and write the decisions; the exit status is 1 if nothing can be measured.

    Raises:
        TorchmuxError: Dask is not installed, or the cluster has no workers.
    """
    import torch

    from torchmux.multiplexer import SPEC
    from torchmux.multiplexer.options import AutoOptions
    from torchmux.multiplexer.tuning import spread
    from torchmux.multiplexer.tuning.capture import Recorder
    from torchmux.registry.options import build_options

    module, name = arguments.target
    output = Path(arguments.output)
    try:
        output.mkdir(parents=True, exist_ok=True)
        programs = load_programs(module, name)
    except (Exception, SystemExit) as error:  # importing a program runs it
        print(f"torchmux: cannot load {module}:{name}: {in_a_line(error)}", file=sys.stderr)
        return 2
    options = build_options(SPEC, None, arguments.options)
    assert isinstance(options, AutoOptions)
    if options.objective not in ("latency", "throughput"):
        raise torchmux.InvalidOption(
            f"tune compares times, for the objectives 'latency' and 'throughput'. For {options.objective!r}, let auto "
            "measure where the program runs."
        )
    recorder = Recorder(options)
    found = torch.get_num_threads()
    if arguments.threads is not None:
        torch.set_num_threads(arguments.threads)
    try:
        for program in programs:
            _capture(program, recorder, arguments.grad, True if arguments.dynamic else None)
    except torchmux.TorchmuxError:
        raise
    except Exception as error:
        print(f"torchmux: {recorder.name} raised {in_a_line(error)}", file=sys.stderr)
        return 1
    finally:
        torch.set_num_threads(found)
    for skipped in recorder.skipped:
        print(f"torchmux: not measured: {skipped}", file=sys.stderr)
    if not recorder.captured:
        print("torchmux: there is no graph that can be measured", file=sys.stderr)
        return 1
    try:
        with spread.cluster(arguments.scheduler, arguments.workers) as client, _progress() as say:
            decided = spread.tune(recorder.captured, client, group=arguments.group, say=say)
    except OSError as error:
        print(f"torchmux: there is no scheduler at {arguments.scheduler}: {in_a_line(error)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        kept = (
            "what is measured is kept, and the same command goes on from there" if config.cache_enabled else "stopped"
        )
        print(f"torchmux: {kept}", file=sys.stderr)
        raise
    files = _written(decided, output)
    if arguments.json:
        print(json.dumps({str(file): [each.key for each in held] for file, held in files.items()}, indent=2))
        return 0
    for file, held in files.items():
        show(f"{file}: {len(held)} decision{'' if len(held) == 1 else 's'}")
        show(*(f"  {each.key[:12]}  {each.about['graph']}: {_choice(each)}, {each.reason}" for each in held))
    return 0


def _capture(program: Program, recorder: Recorder, grad: str, dynamic: bool | None) -> None:
    import torch

    recorder.name = program.name
    torchmux.reset()  # unless they are to be symbols, sizes are constants, as in the first call of a program
    compiled = torchmux.compile(program.model, backend=recorder.spec(), dynamic=dynamic)
    context: Any = {"no_grad": torch.no_grad, "inference_mode": torch.inference_mode, "train": torch.enable_grad}[grad]
    with context():
        program.call(compiled)
    torchmux.reset()


def _written(decided: list[Decision], output: Path) -> dict[Path, list[Decision]]:
    """The files, one for each kind of machine."""
    from torchmux.multiplexer import decisions

    kinds: dict[str, list[Decision]] = {}
    for decision in decided:
        assert decision.fingerprint is not None
        told = decision.fingerprint.machine
        words = re.sub(r"[^A-Za-z0-9]+", "-", f"{told['processor']} {told['gpu']} {told['threads']} threads").strip("-")
        kinds.setdefault(words.lower(), []).append(decision)
    files = {}
    for words, held in kinds.items():
        path = output / f"decisions-{words}.json"
        path.write_text(decisions.export_decisions(held), encoding="utf-8")
        files[path] = held
    return files


def _choice(decision: Decision) -> str:
    return decision.ranking[0].candidate if decision.ranking else decision.choice


@contextlib.contextmanager
def _progress() -> Iterator[Callable[[int, int, str], None]]:
    """A bar on terminals, and a line for each job elsewhere."""
    screen = console(stderr=True)
    columns = SpinnerColumn(), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}")
    with Progress(*columns, console=screen, disable=not screen.is_terminal, transient=True) as bar:
        task = bar.add_task("tune")

        def say(done: int, total: int, text: str) -> None:
            bar.update(task, completed=done, total=total, description=text)
            if text and not screen.is_terminal:
                print(f"{done} of {total}: {text}", file=sys.stderr)

        yield say
