"""``torchmux conformance show``: single cases of a published run, or of a file that ``--json`` wrote."""

from __future__ import annotations

import argparse
import fnmatch
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from .screen import show

if TYPE_CHECKING:
    from torchmux.conformance.scores import Told


def show_cases(name: str, arguments: argparse.Namespace, styles: dict[str, str]) -> int:
    """Print what became of cases: a table by operator, or those with an outcome, one a line.

    ``name`` is a backend with published results, or a file.
    """
    from torchmux.conformance import scores

    try:
        run = _run(name, arguments.level)
        found = scores.told(run)
    except (OSError, ValueError) as error:
        print(f"torchmux: {error}", file=sys.stderr)
        return 2
    patterns = arguments.case or ["*"]
    found = [each for each in found if any(fnmatch.fnmatchcase(each.case, pattern) for pattern in patterns)]
    if arguments.outcome:
        found = [each for each in found if each.outcome in arguments.outcome]
        show(*(_line(each, styles) for each in found))
    else:
        show(_matrix(found, styles))
    level, versions = run["level"], run["environment"]
    show(f"{len(found)} cases of {run['backend']}, {level}, torch {versions['torch']}, {run['date']}")
    return 0


def _run(name: str, level: str | None) -> dict[str, Any]:
    """The run that is meant.

    Raises:
        OSError: the file cannot be read.
        ValueError: nothing is published of this backend at this level.
    """
    if name.endswith(".json"):
        return json.loads(Path(name).read_text())
    from torchmux.conformance import scores

    runs = scores.published()
    fit = [run for run in runs if run["backend"] == name and level in (None, run["level"])]
    if fit:
        return next((run for run in fit if "cases" in run), fit[0])
    known = ", ".join(f"{run['backend']} ({run['level']})" for run in runs)
    raise ValueError(f"nothing is published of {name!r}{f' at level {level}' if level else ''}; there is {known}")


def _line(each: Told, styles: dict[str, str]) -> Text:
    share = f" ({each.share:.0%})" if each.outcome == "fallback" else ""
    reason = f": {each.reason}" if each.reason else ""
    return Text.assemble((each.outcome, styles.get(each.outcome, "")), f"{share}  {each.case}{reason}")


def _matrix(found: list[Told], styles: dict[str, str]) -> Table:
    """A row for each operator, model or subject: how many of its cases have which outcome."""
    rows: dict[str, dict[str, int]] = {}
    for each in found:
        counts = rows.setdefault(each.case.rpartition("/")[0], {})
        counts[each.outcome] = counts.get(each.outcome, 0) + 1
    outcomes = [name for name in styles if any(name in counts for counts in rows.values())]
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("cases", no_wrap=True)
    for name in outcomes:
        table.add_column(name, justify="right", style=styles[name])
    for row, counts in rows.items():
        table.add_row(row, *(str(counts.get(name, "")) for name in outcomes))
    return table
