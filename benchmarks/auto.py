"""``backend="auto"`` compared with every single backend, all in turns in the same run.

    python benchmarks/auto.py [--device cpu|cuda] [--rows NAME ...] [--quick] [--backends LIST] [--threads N]
                              [--budget S] [--auto-budget S] [--cap S] [--freeze]
                              [--jobs N --within S] [--once]
                              [--resume FILE] [--json FILE] [--markdown FILE]
    python benchmarks/auto.py --show FILE ... [--json FILE] [--markdown FILE]

A row is a workload of ``torchmux.zoo`` with a batch, in inference or training: ``bert 8``, ``resnet18 1 training``.  On
the CPU these are the models of ``native_cpu.py`` and six of other families, with batches of 1 and 8, and two of them in
training; with ``--device cuda`` four models in bfloat16 with a batch of 32, in inference and training.

A row has a column for eager (the program, not compiled), one for each candidate that ``auto`` may choose (each backend
with each set of options that it declares worth trying), and one for ``auto``, which waits for its decision.

* *best*: the quickest single candidate of the row; *auto/best* is its time divided by auto's, a geometric mean over
  turns with its 95 % interval: 1 or more means that ``auto`` is at least as quick;
* *decision*: seconds of auto's first call, with empty caches: what a user waits who waits for the decision;
* *chosen*: what ``auto`` chose, graph by graph.

At the end, for each single candidate, the geometric mean over all rows of its time divided by auto's.  A candidate that
does not do a row (it is wrong, crashes, or takes too long) runs eager there.  The best *fixed* backend is the one with
the lowest of these means.

``--resume FILE`` keeps each finished row in FILE and does not measure again what FILE has, so that a run can be
interrupted at any time.  ``--json`` and ``--markdown`` are written anew after each row.

``--jobs N`` measures N rows at a time, each with one thread and pinned to a core, in ``--within`` seconds in all.
``--once`` leaves out the second compilation of each side, in a process with warm caches: the times are the same.
``--show`` measures nothing: it joins files of ``--json`` and prints their table and what follows from them.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from auto_rows import spread

from torchmux.bench.latency import Ratio, ratio
from torchmux.bench.measure import Bench
from torchmux.bench.programs import Source
from torchmux.bench.results import Result, Row, environment, from_json, machine_in_words, to_json
from torchmux.bench.sides import Side, available_sides, sides
from torchmux.multiplexer.measure import default_memory
from torchmux.registry.resolve import known_spec

CPU = (
    "mlp", "chain", "bert", "gpt2", "llama", "vit", "resnet50", "t5",
    "wav2vec2", "detr", "gnn", "lstm", "unet", "mixtral",
)  # fmt: skip
CPU_TRAINING = ("bert4", "resnet18")
CUDA = ("resnet50", "bert", "gpt2", "vit")
CUDA_BACKENDS = "inductor,inductor:reduce-overhead,inductor:max-autotune,cudagraphs,native"
LIGHT = ("mlp", "chain", "gnn", "lstm")
QUICK = ("mlp 1", "gnn 1", "lstm 1")
AUTO = "auto"
FEWEST_CALLS = 10  # medians of turns are compared, no percentiles


class Task(NamedTuple):
    """A row: a workload with a batch."""

    workload: str
    batch: int
    training: bool = False

    @property
    def name(self) -> str:
        return f"{self.workload} {self.batch}{' training' if self.training else ''}"

    def source(self, device: str) -> Source:
        dtype = None if device == "cpu" else "bfloat16"
        return Source(
            "zoo", (self.workload,), self.name, batch=self.batch, dtype=dtype, device=device, training=self.training
        )


def tasks(device: str) -> dict[str, Task]:
    """All rows for a device, by name."""
    if device == "cpu":
        found = [Task(name, batch) for name in CPU for batch in (1, 8)]
        found += [Task(name, batch, True) for name in CPU_TRAINING for batch in (1, 8)]
    else:
        found = [Task(name, 32, training) for training in (False, True) for name in CUDA]
    return {task.name: task for task in found}


def candidates(given: str | None, device: str, training: bool, freeze: bool) -> list[Side]:
    """Eager, and each backend as ``auto`` may choose it."""
    if given is None and device != "cpu":
        given = CUDA_BACKENDS
    if given is not None:
        return sides([text for text in given.split(",") if text])
    found = []
    for side in available_sides(device, training)[0]:
        found.append(side)
        tries = known_spec(side.backend).tries if not side.is_baseline else ()
        for options in tries:
            if (freeze and not training) or not options.get("freeze"):
                label = ":".join([side.label, *(f"{key}={value}" for key, value in options.items())])
                found.append(Side(label, side.backend, None, dict(options)))
    return found


def auto_side(singles: Sequence[Side], device: str, budget: float, freeze: bool) -> Side:
    """``auto`` that may choose among the backends of the single sides, and waits for its decision.

    On a GPU it may use CUDA graphs, as the single sides do.
    """
    names = dict.fromkeys(side.backend for side in singles if isinstance(side.backend, str) and not side.is_baseline)
    given: dict[str, Any] = {"wait": True, "budget_s": budget, "freeze": freeze, "allow": list(names)}
    if device != "cpu":
        given["also_mode"] = "max-autotune" if any(s.mode == "max-autotune" for s in singles) else "reduce-overhead"
    return Side(AUTO, AUTO, None, given)


# --- what follows from the measurements ------------------------------------------------------------------------------


def timed(result: Result) -> dict[str, Row]:
    """The rows with times, by side."""
    return {row.side: row for row in result.timed}


def best_single(result: Result) -> Row | None:
    """The quickest side but ``auto``."""
    singles = [row for name, row in timed(result).items() if name != AUTO]
    return min(singles, key=lambda row: statistics.median(row.turns), default=None)


def against_best(result: Result) -> Ratio | None:
    """The time of the best single side divided by auto's."""
    best, auto = best_single(result), timed(result).get(AUTO)
    return None if best is None or auto is None else ratio(best.turns, auto.turns)


def fixed(results: Sequence[Result]) -> dict[str, tuple[float, int]]:
    """For each single side, the geometric mean of its time divided by auto's, and the rows in which eager stood in.

    Rows without a time of ``auto`` or of eager are left out.
    """
    found = {}
    complete = [result for result in results if AUTO in timed(result) and "eager" in timed(result)]
    for name in dict.fromkeys(row.side for result in complete for row in result.rows if row.side != AUTO):
        logs, missing = [], 0
        for result in complete:
            rows = timed(result)
            missing += name not in rows
            logs.append(math.log(ratio(rows.get(name, rows["eager"]).turns, rows[AUTO].turns).ratio))
        found[name] = (math.exp(statistics.fmean(logs)), missing)
    return found


# --- output ----------------------------------------------------------------------------------------------------------


def cells(result: Result, columns: Sequence[str]) -> list[str]:
    """A line of the table."""
    rows, found, best = timed(result), against_best(result), best_single(result)
    times = [f"{rows[name].latency.median:.4g}" if name in rows else "-" for name in columns]  # type: ignore[union-attr]
    auto = next((row for row in result.rows if row.side == AUTO), None)
    against = f"{found.ratio:.3f} ({found.low:.3f}-{found.high:.3f})" if found is not None else "-"
    decision = f"{auto.cold_seconds:.1f}" if auto is not None and auto.cold_seconds is not None else "-"
    chosen = ", ".join(auto.chosen) if auto is not None else ""
    return [result.program, *times, best.side if best is not None else "-", against, decision, chosen]


def head(columns: Sequence[str]) -> list[str]:
    return ["row", *columns, "best", "auto/best", "decision s", "chosen"]


def columns_of(results: Iterable[Result]) -> list[str]:
    """The sides of all rows, ``auto`` last."""
    names = dict.fromkeys(row.side for result in results for row in result.rows)
    return [*(name for name in names if name != AUTO), AUTO]


def summary(results: Sequence[Result]) -> list[str]:
    """The two numbers that count, and what did not work."""
    ratios = [found.ratio for result in results if (found := against_best(result)) is not None]
    lines = []
    if ratios:
        lines.append(f"auto / best single candidate: lowest {min(ratios):.3f}, {len(ratios)} rows")
    means = fixed(results)
    for name, (mean, missing) in sorted(means.items(), key=lambda pair: pair[1][0]):
        note = f", eager in {missing} rows" if missing else ""
        lines.append(f"auto is {mean:.3f} times as fast as {name} everywhere (geometric mean{note})")
    if means:
        lines.append(f"best fixed backend: {min(means, key=lambda name: means[name][0])}")
    for result in results:
        if result.failed:
            lines.append(f"{result.program}: fails: {result.failed}")
        lines += [f"{result.program}, {row.side}: {row.verdict}: {row.reason}" for row in result.rows if row.reason]
    return lines


def markdown(results: Sequence[Result], title: str) -> str:
    columns = columns_of(results)
    lines = [title, "", "Milliseconds per call (median).", ""]
    table = [head(columns), ["---"] * len(head(columns)), *(cells(result, columns) for result in results)]
    lines += [f"| {' | '.join(line)} |" for line in table]
    return "\n".join([*lines, "", *(f"* {line}" for line in summary(results)), ""])


def show(results: Sequence[Result]) -> None:
    columns = columns_of(results)
    table = [head(columns), *(cells(result, columns) for result in results)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for line in table:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
    print()
    print("\n".join(summary(results)), flush=True)


# --- the run ---------------------------------------------------------------------------------------------------------


def measure(task: Task, arguments: argparse.Namespace) -> Result:
    """One row.  ``auto`` comes after eager, so that a cap on the row costs others."""
    singles = candidates(arguments.backends, arguments.device, task.training, arguments.freeze)
    order = [singles[0], auto_side(singles, arguments.device, arguments.auto_budget, arguments.freeze), *singles[1:]]
    bench = Bench(
        task.source(arguments.device), order, threads=arguments.threads, memory=default_memory(), cap=arguments.cap,
        budget=max(arguments.budget, arguments.auto_budget * 2), step=_step(task.name), calls=FEWEST_CALLS,
        twice=not arguments.once,
    )  # fmt: skip
    return bench.run()


def _step(name: str) -> Any:
    def step(what: str) -> None:
        if not what.startswith("turn "):
            print(f"{name}: {what}", file=sys.stderr, flush=True)

    return step


def kept(file: Path | None, threads: int) -> dict[str, Result]:
    """The rows that an earlier run has finished on this machine, with this software and as many threads.

    A line that was cut off is measured again.
    """
    if file is None or not file.exists():
        return {}
    found = {}
    for line in file.read_text().splitlines():
        try:
            (result,) = from_json(line)
        except ValueError:
            continue
        if json.loads(line)["environment"] == environment() and result.threads == threads:
            found[result.program] = result
    return found


class Kept:
    """Results in the order of the rows, and the files that have them."""

    def __init__(self, order: Sequence[str], arguments: argparse.Namespace, title: str) -> None:
        self.order, self.arguments, self.title = list(order), arguments, title
        self.found: dict[str, Result] = {}

    @property
    def results(self) -> list[Result]:
        return [self.found[name] for name in self.order if name in self.found]

    def add(self, result: Result, *, is_new: bool) -> None:
        """A finished row."""
        self.found[result.program] = result
        if is_new and self.arguments.resume:
            line = json.dumps(json.loads(to_json([result])))
            with self.arguments.resume.open("a") as file:
                file.write(f"{line}\n")
        self.write()
        columns = columns_of([result])
        pairs = zip(head(columns), cells(result, columns), strict=True)
        print("  ".join(f"{key} {value}" if key != "row" else value for key, value in pairs), flush=True)

    def write(self) -> None:
        if self.arguments.json:
            self.arguments.json.write_text(to_json(self.results))
        if self.arguments.markdown:
            self.arguments.markdown.write_text(markdown(self.results, self.title))


def joined(files: Sequence[Path]) -> tuple[list[Result], str]:
    """The results of several files, each row from the last file that has it, and their machine in words.

    Raises:
        SystemExit: they are of different machines or versions.
    """
    found: dict[str, Result] = {}
    places: dict[str, None] = {}
    for file in files:
        text = file.read_text()
        told = json.loads(text)["environment"]
        places[
            ", ".join(f"{told[key]}" for key in ("gpu", "processor", "torch", "torchmux", "python") if told[key])
        ] = None
        found |= {result.program: result for result in from_json(text)}
    if len(places) > 1:
        raise SystemExit(f"these files are of different machines or versions: {'; '.join(places)}")
    threads = max((result.threads for result in found.values()), default=1)
    return list(found.values()), f"{next(iter(places))}, {threads} thread{'s' * (threads != 1)}"


def main() -> None:
    parser = argparse.ArgumentParser(description="auto compared with every single backend, in turns.")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--rows", nargs="+", metavar="NAME", help="such as 'bert 8' or bert; all by default")
    parser.add_argument("--quick", action="store_true", help=f"only {', '.join(QUICK)}")
    parser.add_argument("--backends", metavar="LIST", help="the single candidates, as for torchmux bench")
    parser.add_argument("--threads", type=int, help="of each process; all cores by default, 1 with --jobs")
    parser.add_argument("--budget", type=float, default=120.0, help="seconds for each compilation of a candidate (120)")
    parser.add_argument("--auto-budget", type=float, default=180.0, help="seconds for auto's decision (180)")
    parser.add_argument("--cap", type=float, default=1200.0, help="seconds for a row (1200)")
    parser.add_argument("--freeze", action="store_true", help="promise that weights do not change: more candidates")
    parser.add_argument("--once", action="store_true", help="compile each side once, with empty caches")
    parser.add_argument("--jobs", type=int, metavar="N", help="rows at a time, each on a core of its own")
    parser.add_argument(
        "--within", type=float, default=3600.0, metavar="S", help="seconds for all rows of --jobs (3600)"
    )
    parser.add_argument("--resume", type=Path, metavar="FILE", help="keep finished rows here, and do not repeat them")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything measured here")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the table here")
    parser.add_argument(
        "--show", type=Path, nargs="+", metavar="FILE", help="join files of --json, and measure nothing"
    )
    given = parser.parse_args()
    if given.show:
        results, title = joined(given.show)
        known = [*tasks("cpu"), *tasks("cuda")]
        all_of = Kept([*known, *(r.program for r in results if r.program not in known)], given, title)
        all_of.found = {result.program: result for result in results}
        all_of.write()
        print(title)
        show(all_of.results)
        return
    if given.jobs is not None and given.threads not in (None, 1):
        parser.error("--jobs has a core for each row: leave --threads out")
    given.threads = given.threads or (1 if given.jobs else os.cpu_count() or 1)
    known_tasks = tasks(given.device)
    wanted = given.rows or (QUICK if given.quick else list(known_tasks))
    chosen = [
        name for name in known_tasks if any(name == each or known_tasks[name].workload == each for each in wanted)
    ]
    if unknown := [
        each for each in wanted if not any(each in (name, known_tasks[name].workload) for name in known_tasks)
    ]:
        parser.error(f"no row is named {', '.join(unknown)}; there are {', '.join(known_tasks)}")
    title = machine_in_words(given.threads, given.device)
    all_rows = Kept(chosen, given, title)
    for result in kept(given.resume, given.threads).values():
        if result.program in chosen:
            all_rows.add(result, is_new=False)
    missing = [name for name in chosen if name not in all_rows.found]
    failed: dict[str, str] = {}
    if given.jobs:
        failed = spread(
            sorted(missing, key=lambda name: _length(known_tasks[name])), jobs=given.jobs, within=given.within,
            arguments=_passed_on(given), done=lambda result: all_rows.add(result, is_new=True),
        )  # fmt: skip
    else:
        for name in missing:
            result = measure(known_tasks[name], given)
            if result.interrupted:
                break
            all_rows.add(result, is_new=True)
    print(f"\n{title}")
    show(all_rows.results)
    for name, why in failed.items():
        print(f"{name}: not measured: {why}")


def _length(task: Task) -> tuple[bool, int, bool]:
    """Sorts rows by how long they take: training first, then large batches; small models last."""
    return not task.training, -task.batch, task.workload in LIGHT


def _passed_on(given: argparse.Namespace) -> list[str]:
    """The arguments of a row's own process."""
    told = ["--device", given.device, "--threads", str(given.threads), "--budget", str(given.budget)]
    told += ["--backends", given.backends] if given.backends else []
    return told + ["--freeze"] * given.freeze + ["--once"] * given.once


if __name__ == "__main__":
    main()
