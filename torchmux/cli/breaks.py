"""``torchmux breaks``: the catalogue of what ends a graph."""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import json
import sys
from typing import Any

from .screen import show


def add_to(commands: Any) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "breaks",
        help="list what ends a graph, why, and the usual fix",
        description="List what ends a graph, why, and the usual fix: all kinds, or those whose numbers a message has.",
    )
    parser.add_argument("numbers", nargs="*", metavar="TM000", help="the number in a message; default: all")
    parser.add_argument("--page", action="store_true", help="print the text of docs/graph-breaks.md")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print entries of the catalogue; the exit status is 2 for an unknown number."""
    from torchmux.frontend.breaks import CATALOGUE, page

    if arguments.page:
        sys.stdout.write(page())
        return 0
    wanted = [number.upper() for number in arguments.numbers] or list(CATALOGUE)
    for number in wanted:
        if number not in CATALOGUE:
            near = ", ".join(difflib.get_close_matches(number, CATALOGUE)) or ", ".join(CATALOGUE)
            print(f"torchmux: there is no graph break {number}; the closest are {near}", file=sys.stderr)
            return 2
    if arguments.json:
        print(json.dumps([dataclasses.asdict(CATALOGUE[number]) for number in wanted], indent=2))
        return 0
    for number in wanted:
        kind = CATALOGUE[number]
        show(f"{kind.id} {kind.what}", f"  {kind.why}", f"  fix: {kind.fix}", "")
    return 0
