"""``torchmux precompile``: code for a program ahead of its use, in the artifact cache or in files."""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from torchmux.cli.files import check_writable
from torchmux.cli.screen import console, in_a_line, show
from torchmux.cli.target import FORMS, Program, load_programs, options, positive, target

if TYPE_CHECKING:
    from .precompiling import Precompiled

_DESCRIPTION = f"""\
Compile a program for all its inputs ahead of its use, each in a process of its own, under torch.no_grad().

{FORMS}

The code goes to the artifact cache (TORCHMUX_CACHE_DIR), and with --output to a file for torchmux.load. Inputs that
cannot be compiled cost the others nothing; the exit status is 1 then. Progress is shown on terminals alone.
"""


def add_to(commands: Any) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "precompile",
        help="compile a program for several inputs ahead of its use",
        description=_DESCRIPTION,
    )
    parser.add_argument("target", type=target, metavar="TARGET", help="FILE.py:FUNCTION or MODULE:FUNCTION")
    parser.add_argument("--backend", metavar="NAME", help="the backend, or a chain such as onnxrt+native")
    parser.add_argument("--mode", help="of the backend")
    parser.add_argument("--options", type=options, metavar="JSON", help="of the backend")
    parser.add_argument("--dynamic", action="store_true", help="one code for all sizes, instead of one for each")
    parser.add_argument("--workers", type=positive, metavar="N", help="processes at the same time (all processors)")
    parser.add_argument(
        "--output", metavar="FILE", help="also write it all to this file; the target has one model then"
    )
    parser.add_argument("--no-weights", action="store_true", help="leave the weights out of the file")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Compile, and print a line for each of the inputs; 1 if some of them were not compiled.

    Raises:
        TorchmuxError: the backend is unknown or cannot run here, nothing was compiled, or the file is refused.
    """
    module, name = arguments.target
    try:
        check_writable(arguments.output)
        programs = load_programs(module, name)
    except OSError as error:
        print(f"torchmux: {in_a_line(error)}", file=sys.stderr)
        return 2
    except (Exception, SystemExit) as error:  # importing a program runs it
        print(f"torchmux: cannot load {module}:{name}: {in_a_line(error)}", file=sys.stderr)
        return 2
    groups: dict[int, list[int]] = {}
    for number, program in enumerate(programs):
        groups.setdefault(id(program.model), []).append(number)
    if arguments.output and len(groups) > 1:
        print(f"torchmux: {name}() returns {len(groups)} models, and a file holds one", file=sys.stderr)
        return 2
    found = []
    with _progress() as say:
        for numbers in groups.values():
            found.append(_precompiled(arguments, [programs[n] for n in numbers], numbers, say))
    rows = [row for each in found for row in each.rows]
    if arguments.json:
        print(json.dumps([{"name": row.name, "seconds": row.seconds, "error": row.error} for row in rows], indent=2))
    else:
        show(*(f"{row.name}: {row.error or f'{row.seconds:.1f} s'}" for row in rows))
        show(*(f"not in the file: {left}" for each in found for left in each.left_out))
    return 1 if any(row.error for row in rows) else 0


def _precompiled(
    arguments: argparse.Namespace, programs: list[Program], numbers: list[int], say: Callable[[int, int, str], None]
) -> Precompiled:
    from .precompiling import precompile_from

    backend = arguments.backend
    return precompile_from(
        functools.partial(_loaded_again, arguments.target, numbers),
        programs[0].model,
        [(program.args, program.kwargs or {}) for program in programs],
        [program.name for program in programs],
        path=arguments.output,
        workers=arguments.workers,
        weights=not arguments.no_weights,
        key=None,
        say=say,
        backend=backend.split("+") if backend and "+" in backend else backend,
        mode=arguments.mode,
        options=arguments.options,
        dynamic=arguments.dynamic,
    )


def _loaded_again(target: tuple[str, str], numbers: list[int], number: int) -> Any:
    """One of the programs, in another process."""
    program = load_programs(*target)[numbers[number]]
    return program.model, (program.args, program.kwargs or {})


@contextlib.contextmanager
def _progress() -> Iterator[Callable[[int, int, str], None]]:
    """A bar on terminals, and nothing elsewhere."""
    screen = console(stderr=True)
    columns = SpinnerColumn(), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}")
    with Progress(*columns, console=screen, disable=not screen.is_terminal, transient=True) as bar:
        task = bar.add_task("precompile")

        def say(done: int, total: int, text: str) -> None:
            bar.update(task, completed=done, total=total, description=text)

        yield say
