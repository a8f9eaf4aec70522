"""The generated tables of ``which-backend.md``; ``python docs/tables.py`` writes them.

``python docs/tables.py RUN.json ...`` takes what ``torchmux bench --json`` wrote, all runs together, and keeps it in
``data/bench.json`` without the single calls.
"""

from __future__ import annotations

import datetime
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from torchmux.bench import results
from torchmux.conformance import scores

DOCS = Path(__file__).parent
PAGE = DOCS / "which-backend.md"
DATA = DOCS / "data" / "bench.json"
_NOT_COUNTED = ("skipped",)
_WRONG = ("mismatch", "crash", "timeout", "xpass")


def suite() -> str:
    """What share of the cases of its highest published level each backend passes."""
    lines = ["| backend | level | cases | pass | fallback | unsupported | wrong | known |", "|---" * 8 + "|"]
    for name in dict.fromkeys(run["backend"] for run in scores.published()):
        run = scores.score(name)
        assert run is not None
        counts = {outcome: run["totals"].get(outcome, 0) for outcome in scores.OUTCOMES if outcome not in _NOT_COUNTED}
        cases = sum(counts.values())
        shares = " | ".join(f"{counts[outcome] / cases:.1%}" for outcome in ("pass", "fallback", "unsupported"))
        wrong = sum(counts[outcome] for outcome in _WRONG)
        lines.append(f"| `{name}` | {run['level']} | {cases} | {shares} | {wrong} | {counts['xfail']} |")
    return "\n".join([*lines, "", "*known*: cases that fail and are declared, with the reason."])


def numbers() -> str:
    """Speed-ups and seconds of the first call of what ``torchmux bench`` measured."""
    text = DATA.read_text()
    measured = results.from_json(text)
    sides = list(dict.fromkeys(row.side for each in measured for row in each.rows if row.side != "eager"))
    lines = [f"| program | {' | '.join(f'`{side}`' for side in sides)} |", "|---" * (len(sides) + 1) + "|"]
    for each in measured:
        rows = {row.side: row for row in each.rows}
        lines.append(f"| {each.title} | {' | '.join(_cell(rows.get(side)) for side in sides)} |")
    head = json.loads(text)
    environment = head["environment"]
    names = " ".join(each.title for each in measured)
    threads = measured[0].threads
    told = (
        f"Measured on {head['date']} with {environment['processor']}, {threads} "
        f"thread{'' if threads == 1 else 's'}, torch {environment['torch']}, on a machine with other work to do: "
        f"`torchmux bench {names} --threads {threads}`."
    )
    reasons = [row.reason for each in measured for row in each.rows if row.verdict == "wrong"]
    times = [float(found[1]) for why in reasons if (found := re.search(r"([\d.e+]+) times what is allowed", why))]
    if times:
        told += (
            f"\n\n*wrong*: the results are off by {min(times):.1f} to {max(times):.1f} times what the "
            "[oracle](conformance-oracle.md) allows beside eager's own error."
        )
    if any(row.verdict == "lost" for each in measured for row in each.rows):
        told += "\n\n*lost*: no result within the budget of `bench`."
    return "\n".join([*lines, "", told])


def _cell(row: results.Row | None) -> str:
    if row is None or row.verdict != "right" or row.speedup is None:
        return "-" if row is None else row.verdict
    return f"{row.speedup.ratio:.2f} ({row.cold_seconds or 0.0:.1f} s)"


def filled(page: str) -> str:
    """The page with its tables as they are now."""
    for name, table in (("numbers", numbers()), ("suite", suite())):
        first, last = f"<!-- {name} -->", f"<!-- end of {name} -->"
        before, _, rest = page.partition(first)
        page = f"{before}{first}\n{table}\n{last}{rest.partition(last)[2]}"
    return page


def keep(files: Sequence[Path]) -> None:
    """Replace the kept results by those of some runs, all of one machine."""
    runs = [json.loads(file.read_text()) for file in files]
    latest = max(file.stat().st_mtime for file in files)
    programs = [each for run in runs for each in run["programs"]]
    for row in (row for each in programs for row in each["rows"]):
        row["turns"], row["sample"] = [], []
    date = datetime.datetime.fromtimestamp(latest, datetime.UTC).date().isoformat()
    DATA.write_text(json.dumps({**runs[0], "date": date, "programs": programs}, indent=1) + "\n")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        keep([Path(name) for name in sys.argv[1:]])
    PAGE.write_text(filled(PAGE.read_text()))
