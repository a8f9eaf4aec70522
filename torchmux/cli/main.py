"""The parser, and dispatch to one command."""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import platform
import sys
from collections.abc import Sequence

import torchmux
from torchmux.deploy import command as precompile

from . import (
    backends,
    bench,
    bisect,
    breaks,
    cache,
    completion,
    conformance,
    decisions,
    demo,
    doctor,
    explain,
    minify,
    style,
    tune,
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit status is 0 for success, 1 for a failure, 2 for incorrect usage, 130 for Ctrl-C."""
    arguments = parser().parse_args(argv)
    try:
        status: int = arguments.run(arguments)
        sys.stdout.flush()
    except torchmux.TorchmuxError as error:
        print(" ".join([f"torchmux: {error}", *getattr(error, "__notes__", ())]), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader, such as `head`, has what it needs.  Python would complain again when it closes the stream.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return status


def parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    made = argparse.ArgumentParser(
        prog="torchmux",
        description="One front door for every PyTorch compiler.",
        epilog="Exit status: 0 for success; 1 for a failure that the command found, or a backend that is unknown or "
        "cannot run here; 2 for incorrect usage, such as a program that cannot be imported or a file that cannot be "
        "written; 130 for Ctrl-C.",
    )
    made.add_argument("--version", action="version", version=_version())
    commands = made.add_subparsers(title="commands", metavar="COMMAND", required=True)
    every = (
        backends, doctor, explain, breaks, demo, bench, bisect, conformance, minify, cache, decisions, tune,
        precompile, completion,
    )  # fmt: skip
    for command in every:
        command.add_to(commands)
    style.apply(made)
    return made


def _version() -> str:
    try:
        torch = f"torch {importlib.metadata.version('torch')}"
    except importlib.metadata.PackageNotFoundError:
        torch = "without torch"
    return f"torchmux {torchmux.__version__} ({torch}, Python {platform.python_version()})"
