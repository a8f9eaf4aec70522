"""Many architectures through the frontend, compared with torch's own: results, graphs, breaks, and capture time.

    python benchmarks/models.py --frontend [--only NAME,...] [--kind KIND ...] [--depth tiny|deep] [--json FILE]

Each architecture of ``torchmux.zoo`` runs in two separate processes, one with ``torchmux.compile`` and one with
``torch.compile``, both with a backend that runs the captured graph unchanged.  Width is tiny; ``deep`` has the number
of layers that people use.

* Inference: the first call is timed cold, including imports of the frontend, minus the shorter of two later calls.
  (`import transformers` has already imported most of torch.compile by then.)  Outputs must match eager's bit for bit.
* Training: forward and backward in ``train`` mode; outputs, gradients and buffers must match eager's.
* Graphs are counted over two equal calls, so needless recompilations show.  Breaks are those of the first call.

Results are written to FILE as JSON lines as they arrive.  Results that FILE already has are not measured again without
``--again``, so a run can be interrupted at any time.  A table of all results follows at the end.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from torchmux.wording import counted

SIDES = ("torchmux", "torch")
SECONDS = 600  # for one process

Row = dict[str, Any]


# --- one process -----------------------------------------------------------------------------------------------------


class Ours:
    """``torchmux.compile`` and its report."""

    def compile(self, model: Any) -> Callable[..., Any]:
        import torchmux

        self.compiled = torchmux.compile(model, backend="eager")
        return self.compiled

    def counts(self) -> Row:
        import torchmux

        report = torchmux.report(self.compiled)
        operators = sum(len(_operators(entry.graph)) for entry in report.graphs)
        breaks = [entry.message() for entry in report.breaks]
        return {
            "graphs": report.graph_count, "operators": operators, "breaks": breaks, "recompiles": report.recompiles
        }  # fmt: skip


class Torchs:
    """``torch.compile`` with a backend that keeps the graphs."""

    def compile(self, model: Any) -> Callable[..., Any]:
        import torch

        self.graphs: list[Any] = []
        torch._dynamo.reset()  # compilations of the same code by another model count towards its limits

        def keep(gm: Any, inputs: Any) -> Any:
            self.graphs.append(gm)
            return gm.forward

        return torch.compile(model, backend=keep)

    def counts(self) -> Row:
        from torch._dynamo.utils import counters

        breaks = [str(reason) for reason, times in counters["graph_break"].items() for _ in range(times)]
        counters.clear()
        operators = sum(len(_operators(graph)) for graph in self.graphs)
        return {"graphs": len(self.graphs), "operators": operators, "breaks": breaks, "recompiles": []}


def _operators(graph: Any) -> list[Any]:
    return [node for node in graph.graph.nodes if node.op in ("call_function", "call_method", "call_module")]


def work(side: str, name: str, depth: str) -> Row:
    """Everything about one architecture on one side; intended for a separate process."""
    import warnings

    import torch

    warnings.simplefilter("ignore")
    from torchmux.zoo import ARCHITECTURES
    from torchmux.zoo.compare import run

    torch.set_num_threads(1)
    entry = ARCHITECTURES[name]
    model = entry.build(depth)  # type: ignore[arg-type]
    inputs = entry.example(model)
    frontend = Ours() if side == "torchmux" else Torchs()
    row: Row = {"model": name, "kind": entry.kind, "side": side, "depth": depth, "torch": torch.__version__}
    begun = time.perf_counter()
    compiled = frontend.compile(model)
    found = run(compiled, inputs)
    first = time.perf_counter() - begun
    begun = time.perf_counter()
    again = run(compiled, inputs)
    second = time.perf_counter() - begun
    counts = frontend.counts()
    begun = time.perf_counter()
    run(compiled, inputs)
    row["capture_seconds"] = first - min(second, time.perf_counter() - begun)  # the second call may also compile
    row["inference"] = {
        **counts,
        **_judged([found, again], [run(copy.deepcopy(model), inputs) for _ in range(2)]),
    }
    if entry.trains:
        row["training"] = _training(entry, model, frontend)
    return row


def _training(entry: Any, model: Any, frontend: Any) -> Row:
    from torchmux.zoo.compare import train

    inputs = entry.example_with_targets(model)
    model.train()
    twins = [copy.deepcopy(model) for _ in range(3)]
    compiled = frontend.compile(twins[2])
    # The second step starts from the buffers that the first has left behind, on each side.
    found = [train(twins[2], compiled, inputs) for _ in range(2)]
    expected = [[train(twin, twin, inputs) for _ in range(2)] for twin in twins[:2]]
    counts = frontend.counts()
    judged = [_judged([result], [one, other]) for result, one, other in zip(found, *expected, strict=True)]
    return {**counts, "difference": judged[0]["difference"] or judged[1]["difference"],
            "varies": judged[0]["varies"], "digest": judged[0]["digest"]}  # fmt: skip


def _judged(found: list[Any], expected: list[Any]) -> Row:
    """How results differ from eager's; eager may differ from itself, and then no comparison is possible."""
    from torchmux.zoo.compare import difference

    differences = [difference(result, expected[0]) for result in found]
    return {
        "difference": next(filter(None, differences), ""),
        "varies": difference(expected[1], expected[0]),
        "digest": found[-1].digest(),
    }


def in_a_new_process(side: str, name: str, depth: str) -> Row:
    """:func:`work` in a process that has imported nothing yet; a failure is also a row."""
    command = [sys.executable, os.path.abspath(__file__), "--work", side, name, depth]
    failed: Row = {"model": name, "kind": "", "side": side, "depth": depth}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return {**failed, "error": f"took more than {SECONDS} s"}
    if done.returncode:
        return {**failed, "error": "\n".join(done.stderr.strip().splitlines()[-12:])}
    return json.loads(done.stdout.splitlines()[-1])


# --- all of them -----------------------------------------------------------------------------------------------------


def collect(names: Iterable[str], depth: str, file: Path | None, again: bool, sides: Iterable[str]) -> dict[str, Row]:
    """Measure what ``file`` does not have yet; the result is ``{model: {side: row}}``."""
    names = list(names)
    known: dict[tuple[str, str], Row] = {}
    if file is not None and file.exists():
        for line in file.read_text().splitlines():
            row = json.loads(line)
            if row["depth"] == depth and not (again and row["model"] in names and row["side"] in sides):
                known[row["model"], row["side"]] = row
    try:
        for number, name in enumerate(names):
            for side in sides:
                if (name, side) in known:
                    continue
                print(f"{number + 1} of {len(names)}: {name}, {side}", file=sys.stderr, flush=True)
                row = known[name, side] = in_a_new_process(side, name, depth)
                print(f"    {_progress(row)}", file=sys.stderr, flush=True)
                if file is not None:
                    with file.open("a") as stream:
                        stream.write(json.dumps(row) + "\n")
    except KeyboardInterrupt:
        print("interrupted: the results so far", file=sys.stderr)
    return {name: {side: known[name, side] for side in SIDES if (name, side) in known} for name in names}


def _progress(row: Row) -> str:
    if "error" in row:
        return f"error: {row['error'].splitlines()[-1]}"
    text = [f"{row['capture_seconds']:.2f} s"]
    for phase in ("inference", "training"):
        if phase in row:
            part = row[phase]
            wrong = f", differs: {part['difference']}" if part["difference"] else ""
            text.append(f"{phase} {counted(part['graphs'], 'graph')}, {counted(len(part['breaks']), 'break')}{wrong}")
    return "; ".join(text)


def show(results: dict[str, Row]) -> None:
    """Print the table, then what needs an explanation."""
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False, width=None if sys.stdout.isatty() else 120)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("model", "kind"):
        table.add_column(title, no_wrap=True)
    for title in ("graphs", "breaks", "training: graphs", "breaks", "result", "capture s", "torch s", "times"):
        table.add_column(title, justify="right")
    ratios = []
    for name, row in results.items():
        ours, theirs = row.get("torchmux"), row.get("torch")
        if ours is None or theirs is None:
            continue
        cells = [name, ours["kind"] or theirs["kind"]]
        for phase in ("inference", "training"):
            for what in ("graphs", "breaks"):
                cells.append(" / ".join(_count(side, phase, what) for side in (ours, theirs)))
        cells.append(_verdict(ours, theirs))
        if "error" not in ours and "error" not in theirs:
            ratios.append(theirs["capture_seconds"] / ours["capture_seconds"])
            cells += [f"{side['capture_seconds']:.2f}" for side in (ours, theirs)] + [f"{ratios[-1]:.1f}"]
        table.add_row(*cells)
    console.print(
        "torchmux / torch; capture of the first call in a process, in seconds, and torch's time as a multiple"
    )
    console.print(table)
    if ratios:
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        console.print(f"{len(ratios)} models; geometric mean of the times: {mean:.2f}")
    for line in explained(results):
        console.print(line, markup=False)


def _count(row: Row, phase: str, what: str) -> str:
    if "error" in row:
        return "!"
    if phase not in row:
        return "-"
    found = row[phase][what]
    return str(found if what == "graphs" else len(found))


def _verdict(ours: Row, theirs: Row) -> str:
    if "error" in ours:
        return "error"
    verdicts = set()
    for phase in ("inference", "training"):
        part = ours.get(phase)
        if part is None or not part["difference"]:
            continue
        if part["varies"]:
            verdicts.add("eager varies")
        elif phase in theirs and part["digest"] == theirs[phase]["digest"]:
            verdicts.add("as torch's")
        else:
            verdicts.add("differs")
    return ", ".join(sorted(verdicts)) or "equal"


def explained(results: dict[str, Row]) -> list[str]:
    """Errors, results that differ from eager's, and every row with more graphs than torch's, with what broke them."""
    lines = []
    for name, row in results.items():
        for side in row:
            if "error" in row[side]:
                lines.append(f"\n{name}, {side}: {row[side]['error']}")
        for phase in ("inference", "training"):
            part, other = (row.get(side, {}).get(phase) for side in SIDES)
            if part is None:
                continue
            if part["difference"]:
                same = other is not None and other["digest"] == part["digest"]
                note = "; torch's capture gives the same bits as torchmux's" if same else ""
                note += f"; eager differs from itself: {part['varies']}" if part["varies"] else ""
                lines.append(f"\n{name}, {phase}: {part['difference']}{note}")
            if other is not None and part["graphs"] > other["graphs"]:
                ours, theirs = (f"{side['graphs']} graphs of {side['operators']} operators" for side in (part, other))
                lines.append(f"\n{name}, {phase}: {ours}, torch {theirs}")
                lines += ["  " + text.replace("\n", "\n  ") for text in (*part["breaks"], *part["recompiles"])]
    return lines


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description="Many models, compared with torch.compile.")
    parser.add_argument("--frontend", action="store_true", help="capture: results, graphs, breaks and cold time")
    parser.add_argument("--only", metavar="NAME,...", help="these models (all)")
    parser.add_argument("--kind", nargs="*", metavar="KIND", help="only models of these kinds")
    parser.add_argument("--depth", choices=("tiny", "deep"), default="deep", help="number of layers (deep)")
    parser.add_argument("--side", choices=SIDES, help="run only this side")
    parser.add_argument("--json", metavar="FILE", type=Path, help="keep results here, as JSON lines")
    parser.add_argument("--again", action="store_true", help="also measure what FILE already has")
    parser.add_argument("--list", action="store_true", help="list the models and stop")
    parser.add_argument("--work", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work:
        print(json.dumps(work(*arguments.work)))
        return
    from torchmux.zoo import ARCHITECTURES

    names = arguments.only.split(",") if arguments.only else list(ARCHITECTURES)
    if unknown := [name for name in names if name not in ARCHITECTURES]:
        parser.error(f"no such model: {', '.join(unknown)}")
    names = [n for n in names if not arguments.kind or ARCHITECTURES[n].kind in arguments.kind]
    if arguments.list:
        print("\n".join(f"{n} ({ARCHITECTURES[n].kind})" for n in names))
        return
    if not arguments.frontend:
        parser.error("say what to measure: --frontend")
    sides = (arguments.side,) if arguments.side else SIDES
    show(collect(names, arguments.depth, arguments.json, arguments.again, sides))


if __name__ == "__main__":
    main()
