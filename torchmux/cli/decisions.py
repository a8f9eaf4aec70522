"""``torchmux decisions``: shows, ships and pins what ``backend="auto"`` has decided."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from torchmux.config import config

from .files import check_writable
from .screen import show

if TYPE_CHECKING:
    from torchmux.multiplexer.decisions import Decision

_DESCRIPTION = """\
Show, ship, pin or forget what backend="auto" has decided. KEY is the beginning of a key that `list` shows.

Exit status: 0 for success; 1 if a key is unknown or ambiguous, caching is off, or an imported decision is refused;
2 for incorrect usage, or a file that cannot be read or written.
"""

_SHORTEST = 12
_STYLES = {"chosen": "bold green", "tie": "green", "wrong": "bold red", "lost": "red", "excluded": "dim"}


def add_to(commands: Any) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "decisions",
        help='show, ship and pin what backend="auto" has decided',
        description=_DESCRIPTION,
    )
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)

    def action(name: str, about: str) -> argparse.ArgumentParser:
        made: argparse.ArgumentParser = actions.add_parser(
            name, help=about, description=about[0].upper() + about[1:] + "."
        )
        made.add_argument("--json", action="store_true", help="print JSON")
        made.set_defaults(run=run, action=name)
        return made

    action("list", "list all decisions on this machine")
    action("show", "show everything about some decisions").add_argument("keys", nargs="+", metavar="KEY")
    export = action("export", "write decisions to a file, for another machine")
    export.add_argument("file", metavar="FILE", help="the file; - for standard output")
    export.add_argument("keys", nargs="*", metavar="KEY", help="these; by default all")
    importing = action("import", "keep the decisions in a file, and say which of them hold on this machine")
    importing.add_argument("file", metavar="FILE", help="the file; - for standard input")
    forget = action("forget", "remove decisions from this machine, so that they are made again")
    forget.add_argument("keys", nargs="*", metavar="KEY")
    forget.add_argument("--all", action="store_true", help="remove all of them")
    pin = action("pin", "have a decision followed with another of its candidates")
    pin.add_argument("key", metavar="KEY")
    pin.add_argument("candidate", metavar="BACKEND", help="a backend, or a candidate as `show` names it")
    action("unpin", "have a decision followed as it was measured").add_argument("key", metavar="KEY")


def run(arguments: argparse.Namespace) -> int:
    """Run one action.

    Raises:
        TorchmuxError: a key is unknown or ambiguous, or a file has no decisions.
    """
    if not config.cache_enabled:
        print("torchmux: no decisions are kept: config.cache_enabled is False", file=sys.stderr)
        return 1
    try:
        status: int = _ACTIONS[arguments.action](arguments)
    except OSError as error:
        print(f"torchmux: cannot {arguments.action} decisions: {error}", file=sys.stderr)
        return 2
    return status


def _list(arguments: argparse.Namespace) -> int:
    from torchmux.multiplexer import decisions

    found = list(decisions.entries())
    if arguments.json:
        _print([_summary(decision) for decision in found])
    elif not found:
        show('There are no decisions on this machine. backend="auto" makes them.')
    else:
        show(_listed(found))
    return 0


def _show(arguments: argparse.Namespace) -> int:
    found = _chosen(arguments.keys)
    if arguments.json:
        _print([{"key": decision.key, **decision.to_data()} for decision in found])
        return 0
    for number, decision in enumerate(found):
        show(*([""] if number else []), _facts(decision), "", _candidates(decision), *decision.notes)
    return 0


def _export(arguments: argparse.Namespace) -> int:
    from torchmux.multiplexer import decisions

    to_stdout = arguments.file == "-"
    if not to_stdout:
        check_writable(arguments.file)
    found = _chosen(arguments.keys) if arguments.keys else list(decisions.entries())
    text = decisions.export_decisions(found)
    if to_stdout:
        sys.stdout.write(text)
        return 0
    Path(arguments.file).write_text(text, encoding="utf-8")
    if arguments.json:
        _print({"file": arguments.file, "decisions": [decision.key for decision in found]})
    else:
        show(f"{_count(len(found))} written to {arguments.file}")
    return 0


def _import(arguments: argparse.Namespace) -> int:
    from torchmux.multiplexer import decisions

    text = sys.stdin.buffer.read() if arguments.file == "-" else Path(arguments.file).read_bytes()
    found = decisions.import_decisions(text)
    if arguments.json:
        _print([each.to_dict() for each in found])
    else:
        styles = {"active": "green", "inactive": "yellow", "refused": "bold red"}
        for each in found:
            why = f": {'; '.join(each.reasons)}" if each.reasons else ""
            show(Text.assemble(f"{each.key[:_SHORTEST]}  ", (each.state, styles[each.state]), why))
        states = [each.state for each in found]
        told = ", ".join(f"{states.count(state)} {state}" for state in styles if state in states)
        show(f"{_count(len(found))}" + (f": {told}" if told else ""))
    return int(any(each.state == "refused" for each in found))


def _forget(arguments: argparse.Namespace) -> int:
    from torchmux.multiplexer import decisions

    if arguments.all == bool(arguments.keys):
        print("torchmux: give the KEYs to forget, or --all", file=sys.stderr)
        return 2
    found = list(decisions.entries()) if arguments.all else _chosen(arguments.keys)
    for decision in found:
        decisions.forget(decision)
    if arguments.json:
        _print([decision.key for decision in found])
    else:
        show(f"{_count(len(found))} forgotten")
    return 0


def _pin(arguments: argparse.Namespace) -> int:
    from torchmux.multiplexer import decisions

    pinned = decisions.pin(decisions.find(arguments.key), arguments.candidate)
    return _told(arguments, pinned, f"is pinned to {pinned.pinned}")


def _unpin(arguments: argparse.Namespace) -> int:
    from torchmux.multiplexer import decisions

    decision = decisions.unpin(decisions.find(arguments.key))
    return _told(arguments, decision, f"is followed as it was measured: {decision.choice}")


_ACTIONS = {
    "list": _list,
    "show": _show,
    "export": _export,
    "import": _import,
    "forget": _forget,
    "pin": _pin,
    "unpin": _unpin,
}


def _chosen(keys: list[str]) -> list[Decision]:
    """The decisions that the beginnings of keys name, each once; several decisions on one graph share a beginning."""
    from torchmux.multiplexer import decisions

    found = {decision.key: decision for key in keys for decision in decisions.find_all(key)}
    return list(found.values())


def _told(arguments: argparse.Namespace, decision: Decision, words: str) -> int:
    if arguments.json:
        _print(_summary(decision))
    else:
        show(f"{decision.key[:_SHORTEST]} {words}")
    return 0


def _summary(decision: Decision) -> dict[str, Any]:
    fingerprint = decision.fingerprint
    assert fingerprint is not None
    best = decision.ranking[0] if decision.ranking else None
    return {
        "key": decision.key,
        "choice": best.candidate if best else decision.choice,
        "pinned": decision.pinned,
        "milliseconds": best.milliseconds if best else None,
        "program": decision.about.get("program", ""),
        "inputs": fingerprint.inputs or [fingerprint.bucket],
        "phase": fingerprint.phase,
        "machine": fingerprint.machine,
        "made": decision.about.get("made", ""),
        "source": decision.about.get("source", ""),
    }


def _listed(found: list[Decision]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("key", "choice", "ms", "phase", "threads"):
        table.add_column(title, no_wrap=True)
    for title in ("inputs", "program"):
        table.add_column(title, overflow="fold")
    keys = [decision.key for decision in found]
    for decision in found:
        told = _summary(decision)
        choice = f"{told['choice']} (pinned)" if told["pinned"] else told["choice"]
        time = "" if told["milliseconds"] is None else f"{told['milliseconds']:.4g}"
        threads = told["machine"].get("threads", "")
        inputs = ", ".join(told["inputs"])
        cells = (_shortest(decision.key, keys), choice, time, told["phase"], threads, inputs, told["program"])
        table.add_row(*(Text(cell) for cell in cells))
    return table


def _facts(decision: Decision) -> Table:
    from torchmux.multiplexer.decisions.fingerprint import short

    fingerprint = decision.fingerprint
    assert fingerprint is not None
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    about = dict(decision.about)
    facts = {
        "key": decision.key,
        "choice": f"{decision.choice}: {decision.explanation}",
        "program": about.pop("program", ""),
        "operators": f"{about.pop('operators', '')}: {about.pop('code', '')}",
        "inputs": ", ".join(fingerprint.inputs),
        "sizes": fingerprint.bucket,
        "phase": fingerprint.phase,
        "asked": _pairs(fingerprint.asked),
        "machine": _pairs(fingerprint.machine),
        "software": _pairs(fingerprint.software),
        "candidates": _pairs({name: short(each.version) for name, each in fingerprint.candidates.items()}),
        "seconds": f"{decision.seconds:.1f}",
        **about,
    }
    for name, value in facts.items():
        if value:
            table.add_row(name, Text(value))
    return table


def _candidates(decision: Decision) -> Table:
    from torchmux.multiplexer.decisions.decision import COLUMNS

    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in COLUMNS[:-1]:
        table.add_column(title, no_wrap=True)
    table.add_column(COLUMNS[-1], overflow="fold")
    for row in decision.rows:
        *cells, verdict, reason = row.cells()
        table.add_row(*map(Text, cells), Text(verdict, style=_STYLES.get(verdict, "")), Text(reason))
    return table


def _shortest(key: str, keys: list[str]) -> str:
    """The shortest beginning that names one decision."""
    length = _SHORTEST
    while length < len(key) and sum(each.startswith(key[:length]) for each in keys) > 1:
        length += 1
    return key[:length]


def _pairs(told: dict[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in told.items() if value)


def _count(number: int) -> str:
    return f"{number} decision{'' if number == 1 else 's'}"


def _print(told: Any) -> None:
    print(json.dumps(told, indent=2))
