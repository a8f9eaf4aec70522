"""Published results: the outcome of each backend with everything it depends on, small enough to ship with the package.

``python -m torchmux.conformance.scores RUN.json ...`` takes what ``torchmux conformance --json`` wrote, the parts of a
run together, writes them to ``results/`` and the tables to ``docs/conformance.md``.  Reading imports nothing heavy.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.resources
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from torchmux.registry.report import counts_in_words

OUTCOMES = ("pass", "slow", "fallback", "unsupported", "mismatch", "crash", "timeout", "xfail", "xpass", "skipped")
_KEY = ("backend", "options", "level", "device", "suite", "fingerprint", "environment")
_LEVELS = ("quick", "full")


def published(device: str | None = "cpu") -> list[dict[str, Any]]:
    """All published results on a device (on any, if None), by backend, the full level before the quick one."""
    folder = importlib.resources.files(__package__) / "results"
    if not folder.is_dir():
        return []
    found = [json.loads(file.read_text(encoding="utf-8")) for file in folder.iterdir() if file.name.endswith(".json")]
    found = [run for run in found if device in (None, device_of(run))]
    return sorted(found, key=lambda run: (run["backend"], device_of(run), -_LEVELS.index(run["level"])))


def device_of(run: Mapping[str, Any]) -> str:
    """Where the cases of a run made their tensors."""
    return str(run.get("device", "cpu"))  # runs did not say so before there was --device


def score(backend: str) -> dict[str, Any] | None:
    """The published results of a backend, those of the higher level if there are two."""
    return next((run for run in published() if run["backend"] == backend), None)


def words(run: Mapping[str, Any]) -> str:
    """One line with the count of each outcome, the level and the versions."""
    counts = ", ".join(f"{run['totals'][name]} {name}" for name in OUTCOMES if run["totals"].get(name))
    return f"conformance, {run['level']}, torch {run['environment']['torch']}, {run['date']}: {counts}"


def joined(runs: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Runs with the same key, merged into one, with each case once.

    Parts of a run may come from machines with different processors, but with the same vector instructions; all
    processors are named.

    Raises:
        ValueError: two runs with one key have different outcomes for a case.
    """
    found: dict[str, dict[str, Any]] = {}
    for run in runs:
        environment = {**run["environment"], "processor": None}
        told = {**run, "environment": environment, "device": device_of(run)}
        key = json.dumps([told[name] for name in _KEY], sort_keys=True)
        known = found.setdefault(key, {**run, "environment": environment, "processors": set(), "results": {}})
        known["processors"].add(run["environment"]["processor"])
        known["date"] = max(known["date"], run["date"])
        for result in run["results"]:
            other = known["results"].setdefault(result["case"], result)
            if {other["outcome"], result["outcome"]} == {"pass", "slow"}:
                continue  # how fast it is depends on the machine's other work
            if other["outcome"] != result["outcome"]:
                raise ValueError(f"{result['case']} is {other['outcome']} in one run, {result['outcome']} in another")
    for run in found.values():
        run["environment"]["processor"] = " and ".join(sorted(run.pop("processors")))
        run["results"] = list(run["results"].values())
    return list(found.values())


def small(run: Mapping[str, Any]) -> dict[str, Any]:
    """The published part of a run: the counts by group, and each failure by name.

    Raises:
        ValueError: cases of its level are missing, or torch's frontend captured them.
    """
    if run.get("frontend", "torchmux") != "torchmux":
        raise ValueError(f"{run['backend']}, {run['level']}: the run was made with --frontend {run['frontend']}")
    if run["cases"] != len(run["results"]):
        raise ValueError(f"{run['backend']}, {run['level']}: {len(run['results'])} results for {run['cases']} cases")
    from .outcome import Result
    from .report import kinds, summary, totals

    results = [Result.from_json(dict(result)) for result in run["results"]]
    failures = [r for r in results if r.outcome.is_failure or r.outcome.value == "xfail"]
    return {
        **{name: run[name] for name in (*_KEY, "date") if name != "device"},
        "device": device_of(run),
        "totals": totals(results),
        "kinds": kinds(results),
        "groups": summary(results),
        "failures": {
            r.case: [r.outcome.value, _published_reason(r.reason)] for r in sorted(failures, key=lambda r: r.case)
        },
        "cases": _each(results),
    }


def _each(results: Sequence[Any]) -> dict[str, dict[str, list[Any]]]:
    """What became of each case, by what it is about (an operator, a model, a subject) and the rest of its name.

    A case that passed has its outcome only; others have the share that the backend ran and the reason as well.
    """
    found: dict[str, dict[str, list[Any]]] = {}
    for result in sorted(results, key=lambda r: r.case):
        home, _, name = result.case.rpartition("/")
        told: list[Any] = [result.outcome.value]
        if told != ["pass"]:
            told += [round(result.share, 3), _published_reason(result.reason)[:120]]
        found.setdefault(home, {})[name] = told
    return found


@dataclasses.dataclass(frozen=True)
class Told:
    """What was published of one case."""

    case: str
    outcome: str
    share: float = 1.0
    reason: str = ""


def told(run: Mapping[str, Any]) -> list[Told]:
    """Each case of a run, published or as ``--json`` wrote it.

    Raises:
        ValueError: it was published when runs kept counts and failures only.
    """
    if "results" in run:
        return [Told(r["case"], r["outcome"], r["share"], r["reason"]) for r in run["results"]]
    if "cases" not in run:
        raise ValueError(
            f"the results of {run['backend']} ({run['level']}, {run['date']}) were published without those of single "
            f"cases; publish a new run, or name a file that `torchmux conformance {run['backend']} --json FILE` wrote"
        )
    return [Told(f"{home}/{name}", *rest) for home, each in run["cases"].items() for name, rest in each.items()]


def _published_reason(reason: str) -> str:
    """A reason without the file that a failed compilation leaves on the machine of the run."""
    return re.split(r"\s+The (?:graph|source) is in ", reason, maxsplit=1)[0][:300]


def scoreboard(runs: Sequence[Mapping[str, Any]]) -> str:
    """The published results as tables of Markdown."""
    if not runs:
        return "Nothing is published yet."
    present = [name for name in OUTCOMES if any(run["totals"].get(name) for run in runs)]
    told = any(run.get("kinds") for run in runs)  # before version 7 of the suite, runs did not say
    titles = ["backend", "level", *present, *(["operators"] if told else []), "versions", "date"]
    lines = [_row(titles), _row(["---"] * len(titles))]
    for run in runs:
        counts = [str(run["totals"].get(name, 0)) for name in present]
        kinds = [counts_in_words(run.get("kinds", {})) or "not told"] if told else []
        lines.append(_row([_named(run), run["level"], *counts, *kinds, _versions(run), run["date"]]))
    machines = sorted({_machine(run) for run in runs})
    lines += ["", f"Suite {', '.join(sorted({run['suite'] for run in runs}))}. Machines: {'; '.join(machines)}."]
    for run in runs:
        if run["failures"]:
            lines += ["", f"### What fails under {_placed(run)} ({run['level']})", ""]
            lines += [_row(["case", "outcome", "reason"]), _row(["---"] * 3)]
            lines += [_row([f"`{case}`", outcome, _plain(why)]) for case, (outcome, why) in run["failures"].items()]
    return "\n".join(lines)


def faults() -> str:
    """The faults of the loopback backends, and the case that catches each, as a Markdown table."""
    from .loopback import ALL

    lines = [_row(["kind", "fault", "what it does", "caught as", "by, alone"]), _row(["---"] * 5)]
    for name, fault in ALL.items():
        lines.append(_row([fault.kind, f"`{name}`", fault.text, f"`{fault.outcome.value}`", f"`{fault.case}`"]))
    return "\n".join(lines)


def filled(page: str) -> str:
    """A page with regenerated tables, each between the comments that name it."""
    for name, text in (("scoreboard", scoreboard(published(None))), ("faults", faults())):
        first, last = f"<!-- {name} -->", f"<!-- end of {name} -->"
        before, found, rest = page.partition(first)
        if found:
            page = f"{before}{first}\n{text}\n{last}{rest.partition(last)[2]}"
    return page


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _plain(text: str) -> str:
    """The text in a form that a table cell can hold."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;").replace("[", "\\[")


def _named(run: Mapping[str, Any]) -> str:
    """The backend of a run, with the options that the run gave it."""
    options = run.get("options") or {}
    with_options = f" with {', '.join(f'{name}={value!r}' for name, value in options.items())}" if options else ""
    return _plain(f"{_placed(run)}{with_options}")


def _placed(run: Mapping[str, Any]) -> str:
    """The backend of a run, with the device if that is not the CPU."""
    return f"`{run['backend']}`" + ("" if device_of(run) == "cpu" else f" on {device_of(run)}")


def _versions(run: Mapping[str, Any]) -> str:
    environment = run["environment"]
    own = re.sub(r"\b([0-9a-f]{12})[0-9a-f]{52}\b", r"\1", run["fingerprint"])  # a digest needs no more
    parts = [own, f"torch {environment['torch']}", f"Python {environment['python']}"]
    return _plain(", ".join(dict.fromkeys(part for part in parts if part)))


def _machine(run: Mapping[str, Any]) -> str:
    environment = run["environment"]
    gpu = "" if device_of(run) == "cpu" else environment.get("gpu", "")
    return _plain(", ".join(part for part in (environment["system"], environment["processor"], gpu) if part))


def main() -> None:
    """Publish runs."""
    parser = argparse.ArgumentParser(prog="python -m torchmux.conformance.scores", description="Publish runs.")
    parser.add_argument("runs", nargs="*", metavar="RUN.json", help="what torchmux conformance --json wrote")
    parser.add_argument("--results", default="conformance/results", metavar="FOLDER", help="where results are kept")
    parser.add_argument("--page", default="docs/conformance.md", metavar="FILE", help="the page with the tables")
    arguments = parser.parse_args()
    folder = Path(arguments.results)
    folder.mkdir(parents=True, exist_ok=True)
    for run in joined(json.loads(Path(path).read_text()) for path in arguments.runs):
        where = "" if device_of(run) == "cpu" else f"-{device_of(run)}"
        name = f"{run['backend']}{where}-{run['level']}.json"
        (folder / name).write_text(json.dumps(small(run), indent=1) + "\n")
    page = Path(arguments.page)
    page.write_text(filled(page.read_text()))


if __name__ == "__main__":
    main()
