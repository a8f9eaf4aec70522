"""``torchmux minify``: the smallest graph with which a backend still fails."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torchmux

from . import claims
from .files import check_writable
from .screen import console, in_a_line, show

if TYPE_CHECKING:
    from torchmux.conformance.case import Case


def add_to(commands: Any) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "minify",
        help="reduce a failure to the smallest graph that still fails",
        description="Capture a failing case of the conformance suite, or your own function, and reduce its graph as "
        "long as the backend fails in the same way. Write a script that shows the failure with only "
        "torchmux and the backend. Candidates run in a process that may die or hang. Exits with 1 if "
        "nothing fails.",
    )
    parser.add_argument("what", metavar="CASE|MODULE:NAME", help="a case, or a function or torch module to import")
    parser.add_argument("--backend", metavar="NAME", help="the backend, or a chain; not needed with --requirements")
    claims.add_options(parser)
    parser.add_argument("--inputs", metavar="FILE", help="arguments of MODULE:NAME, as torch.save wrote a list or dict")
    parser.add_argument(
        "--seconds", type=float, help="time limit for one candidate (default: the backend's requirements)"
    )
    parser.add_argument("--output", metavar="FILE", help="write the script here instead of printing it")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Search, and write or print the script.

    Raises:
        TorchmuxError: the backend is unknown or cannot run here.
    """
    try:
        check_writable(arguments.output)
    except OSError as error:
        print(f"torchmux: {error}", file=sys.stderr)
        return 2
    requirements = claims.requirements_of(arguments, "--backend NAME")
    if requirements is None:
        return 2
    from torchmux.conformance import minify

    try:
        case = _case(arguments)
    except torchmux.TorchmuxError:
        raise
    except (KeyError, ValueError) as error:
        print(f"torchmux: {error.args[0] if error.args else error}", file=sys.stderr)
        return 2
    except (Exception, SystemExit) as error:  # importing a program runs it
        print(f"torchmux: cannot load {arguments.what}: {in_a_line(error)}", file=sys.stderr)
        return 2
    said = console(stderr=True)
    try:
        found = minify.minify(
            case, requirements, arguments.requirements, seconds=arguments.seconds, say=lambda text: said.print(text)
        )
    except minify.NothingFails as error:
        print(f"torchmux: {error}", file=sys.stderr)
        return 1
    said.print(f"{found.nodes} of {found.nodes_before} nodes: {found.result.outcome.value}, {found.result.reason}")
    if arguments.output:
        Path(arguments.output).write_text(found.program)
        said.print(f"written to {arguments.output}")
    if arguments.json:
        told = {"nodes": found.nodes, "nodes_before": found.nodes_before, "program": found.program}
        print(json.dumps({**told, "outcome": found.result.outcome.value, "reason": found.result.reason}, indent=2))
    elif not arguments.output:
        show(found.program)
    return 0


def _case(arguments: argparse.Namespace) -> Case:
    """The requested case.

    Raises:
        KeyError, ImportError, AttributeError, OSError, ValueError: it does not exist.
    """
    from torchmux.conformance import collect, minify

    if ":" not in arguments.what:
        return collect.case(arguments.what)
    if not arguments.inputs:
        raise ValueError("--inputs is missing: a file with the arguments, as torch.save writes a list or a dict")
    import torch

    sys.path.insert(0, os.getcwd())
    module, _, name = arguments.what.partition(":")
    function = getattr(importlib.import_module(module), name)
    return minify.of_function(function, torch.load(arguments.inputs, weights_only=True), arguments.what)
