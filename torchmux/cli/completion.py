"""``torchmux completion``: what a shell needs to complete commands and options."""

from __future__ import annotations

import argparse
import sys
from typing import Any

_SHELLS = ("bash", "zsh", "tcsh")


def add_to(commands: Any) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "completion",
        help="print a script with which a shell completes commands and options",
        description="Print a script with which a shell completes commands and options. It needs shtab: "
        'python -m pip install "torchmux[completion]".',
    )
    parser.add_argument("shell", choices=_SHELLS)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the script; the exit status is 1 if shtab is missing."""
    try:
        import shtab
    except ImportError:
        print('torchmux: completion needs shtab: python -m pip install "torchmux[completion]"', file=sys.stderr)
        return 1
    from .main import parser

    print(shtab.complete(parser(), shell=arguments.shell))
    return 0
