"""``torchmux bisect``: which backend, graph and operator a wrong number comes from."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import torchmux

from . import claims
from .files import check_writable
from .screen import Steps, in_a_line, show
from .target import FORMS, load_programs, target

_DESCRIPTION = f"""\
Hold a program under a backend against eager and against eager in float64, stage by stage: the capture, the split into
forward and backward, the backend. Find the first graph that is wrong alone, and the fewest of its operators that still
are. Write a script that shows the failure with only torchmux and the backend.

{FORMS}

Exit status: 0 if everything is right; 1 if something is wrong, or the backend is unknown or cannot run here; 2 if the
program cannot be imported, eager does not run it, or a file cannot be written.
"""


def add_to(commands: Any) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "bisect",
        help="find the backend, graph and operator of a wrong number",
        description=_DESCRIPTION,
    )
    parser.add_argument("target", type=target, metavar="TARGET", help="FILE.py:FUNCTION or MODULE:FUNCTION")
    parser.add_argument("--backend", metavar="NAME", help="the backend, or a chain; by default, the default backend")
    claims.add_options(parser)
    parser.add_argument(
        "--grad", choices=("yes", "no"), help="compare gradients too; by default if the model is in training mode"
    )
    parser.add_argument("--output", metavar="FILE", help="write the script here instead of printing it")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Verify, and print what is wrong and the script.

    Raises:
        TorchmuxError: the backend is unknown or cannot run here.
    """
    try:
        check_writable(arguments.output)
    except OSError as error:
        print(f"torchmux: {error}", file=sys.stderr)
        return 2
    if not arguments.requirements:
        arguments.backend = arguments.backend or torchmux.get_default_backend()
    requirements = claims.requirements_of(arguments, "--backend NAME")
    if requirements is None:
        return 2
    module, name = arguments.target
    try:
        programs = load_programs(module, name)
    except (Exception, SystemExit) as error:  # importing a program runs it
        print(f"torchmux: cannot load {module}:{name}: {in_a_line(error)}", file=sys.stderr)
        return 2
    from torchmux.conformance.judging.verifying import verify_under

    gradients = None if arguments.grad is None else arguments.grad == "yes"
    found = {}
    with Steps() as steps:
        for program in programs:
            steps.program = program.name
            if program.args and program.kwargs:
                print(f"torchmux: {program.name} has positional and keyword arguments; give one kind", file=sys.stderr)
                return 2
            try:
                found[program.name] = verify_under(
                    requirements,
                    program.model,
                    program.args or dict(program.kwargs or {}),
                    named=arguments.requirements,
                    gradients=gradients,
                    say=steps,
                )
            except ValueError as error:
                print(f"torchmux: {program.name}: {error}", file=sys.stderr)
                return 2
    if arguments.json:
        print(json.dumps({name: each.to_dict() for name, each in found.items()}, indent=2))
    else:
        for name, each in found.items():
            show(f"{name}: {each}", "")
    script = next((each.program for each in found.values() if each.program), "")
    if script and arguments.output:
        Path(arguments.output).write_text(script)
        print(f"torchmux: the script is in {arguments.output}", file=sys.stderr)
    elif script and not arguments.json:
        show(script)
    return int(not all(each.ok for each in found.values()))
