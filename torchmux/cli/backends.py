"""``torchmux backends``: every known backend, whether it can run here, and if not, how to fix that."""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any

from rich.console import Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

import torchmux
from torchmux.conformance import scores
from torchmux.registry.names import members_of, normalize

from .screen import console, one_line, show

# Below this width a table would break words, and a list reads better.
_TABLE_WIDTH = 100
# How much of the last cell a line in a pipe has.
_PIPED = 180


def add_to(commands: Any) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "backends", help="list all known backends", description="List all known backends, or describe some of them."
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="describe these, with their options and modes")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--template", metavar="FOLDER", help="write a package with a backend of its own to this new folder"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the listing, or write the template; the exit status is 2 if it cannot be written.

    Raises:
        UnknownBackend: a given name is unknown.
    """
    if arguments.template is not None:
        return _write_template(Path(arguments.template))
    rows = torchmux.backends()
    if arguments.names:
        rows = _chosen(rows, arguments.names)
    if arguments.json:
        print(json.dumps([{**row.to_dict(), "conformance": _score(row)} for row in rows], indent=2))
        return 0
    out = console()
    if arguments.names:
        show(*(_described(row) for row in rows))
    elif out.is_terminal and out.width < _TABLE_WIDTH:
        show(*(_listed(row) for row in rows))
    else:
        show(_table(rows, lines=out.is_terminal))
    return 0


def _write_template(folder: Path) -> int:
    package = Path(torchmux.__file__).parent
    # An editable install does not map folders without modules.
    source = next(each for each in (package / "template", package.parent / "examples" / "plugin") if each.is_dir())
    try:
        shutil.copytree(source, folder, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info", "build", ".*"))
    except FileExistsError:
        print(f"torchmux: {folder} exists already; name a new folder", file=sys.stderr)
        return 2
    except (OSError, shutil.Error) as error:
        print(f"torchmux: cannot write {folder}: {error}", file=sys.stderr)
        return 2
    show(
        f"{folder} has a backend for a few operators, its tests and the conformance suite. Next:",
        f"    cd {shlex.quote(str(folder))} && python -m pip install . && python -m pytest tests",
    )
    return 0


def _chosen(rows: list[torchmux.BackendInfo], names: list[str]) -> list[torchmux.BackendInfo]:
    by_name = {row.name: row for row in rows}
    names = [member for name in names for member in members_of(name) or [name]]
    for name in names:
        if normalize(name) not in by_name:
            torchmux.lookup_backend(name)  # raises, with the closest names
    return [by_name[normalize(name)] for name in names]


def _table(rows: list[torchmux.BackendInfo], *, lines: bool) -> Table:
    """One row for each backend; with ``lines`` the last cell may have several lines."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("backend", "runs here", "version", "devices", "trains", "dynamic"):
        table.add_column(title, no_wrap=True)
    table.add_column("about", overflow="fold")
    for row in rows:
        table.add_row(
            Text(row.name, style="bold"),
            _state(row),
            row.version or "-",
            _devices(row),
            _yes(row, row.training),
            _yes(row, row.dynamic_shapes),
            Text("\n".join(_about(row)) if lines else one_line("; ".join(_about(row, short=True)), _PIPED)),
        )
    return table


def _listed(row: torchmux.BackendInfo) -> Group:
    """A backend in a few lines, for narrow terminals."""
    head = Text.assemble((row.name, "bold"), "  ", _state(row), f"  {row.version or ''}".rstrip())
    facts = []
    if row.devices:
        facts.append(f"devices: {_devices(row)}; trains: {_plain(row.training)}; dynamic: {_plain(row.dynamic_shapes)}")
    return Group(head, Padding(Text("\n".join([*_about(row), *facts])), (0, 0, 0, 2)))


def _described(row: torchmux.BackendInfo) -> Group:
    """A backend with everything that is known about it."""
    parts: list[Any] = [_listed(row)]
    if not row.error and not row.retired:
        facts = [f"dtypes: {_all_or(row.dtypes)}"]
        facts += [f"provided by: {row.distribution or 'this process'}"]
        for mode, options in torchmux.list_mode_options(backend=row.name).items():
            if options:
                facts.append(f"mode {mode!r}: {', '.join(f'{k}={v!r}' for k, v in options.items())}")
        for option in torchmux.list_options(row.name).values():
            facts.append(f"option {option.name}: {option.type}, default {option.default!r}")
            if option.help:
                facts.append(f"  {option.help}")
        parts.append(Padding(Text("\n".join(facts)), (0, 0, 0, 2)))
    return Group(*parts)


def _state(row: torchmux.BackendInfo) -> Text:
    if row.available:
        return Text("yes", style="green")
    if row.error:
        return Text("broken", style="red")
    if row.retired:
        return Text("retired", style="dim")
    if row.available is None:
        return Text("not checked", style="yellow")
    return Text("no", style="yellow")


def _about(row: torchmux.BackendInfo, *, short: bool = False) -> list[str]:
    """What it is, what prevents it from running, and how to fix that."""
    if row.error or row.retired:
        return [row.error or row.reason]
    lines = [row.summary]
    if row.distribution not in (None, "torchmux") and not row.foreign:
        lines.append(f"from {row.distribution}")
    if not row.available:
        lines.append(row.reason)
    if not short and row.distribution == "torchmux" and (found := scores.score(row.name)) is not None:
        lines.append(scores.words(found))
    if row.unverified:
        lines.append(f"unverified: {row.unverified}")
    if row.available is False and row.install:
        lines.append(f"install: {row.install}")
    return [line for line in lines if line]


def _score(row: torchmux.BackendInfo) -> dict[str, Any] | None:
    """The published results without the individual cases; only for backends that come with torchmux."""
    found = scores.score(row.name) if row.distribution == "torchmux" else None
    return {key: value for key, value in found.items() if key != "failures"} if found else None


def _devices(row: torchmux.BackendInfo) -> str:
    return _all_or(row.devices) or "-"


def _all_or(names: tuple[str, ...]) -> str:
    return "all" if "*" in names else ", ".join(names)


def _yes(row: torchmux.BackendInfo, value: bool) -> str:
    return "-" if row.error or row.retired else _plain(value)


def _plain(value: bool) -> str:
    return "yes" if value else "no"
