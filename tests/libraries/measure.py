"""One program of another library: under torchmux, under ``torch.compile`` and in eager; or all, as a page.

python tests/libraries/measure.py                  # every program that is installed, each in its own process
python tests/libraries/measure.py einops_attention # some
python tests/libraries/measure.py --write          # and docs/libraries.md
"""

from __future__ import annotations

import argparse
import copy
import importlib.metadata
import json
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import torch

HERE = Path(__file__).resolve().parent
PAGE = HERE.parents[1] / "docs" / "libraries.md"
sys.path.insert(0, str(HERE))

from programs import PROGRAMS, Program  # noqa: E402 - they stand beside this script


def missing(name: str) -> str | None:
    """The first distribution that a program needs and that is not installed."""
    for need in PROGRAMS[name].needs:
        try:
            importlib.metadata.version(need)
        except importlib.metadata.PackageNotFoundError:
            return need
    return None


def _tensors(result: Any) -> list[torch.Tensor]:
    if isinstance(result, torch.Tensor):
        return [result]
    if isinstance(result, dict):
        return [t for value in result.values() for t in _tensors(value)]
    if isinstance(result, (tuple, list)):
        return [t for value in result for t in _tensors(value)]
    return []


def _run(program: Program, compile: Any) -> tuple[list[torch.Tensor], float, Any]:
    """The results of the first call and their gradients, its seconds, and the compiled model."""
    model, args, kwargs = copy.deepcopy((program.model, program.args, program.kwargs))
    compiled = compile(model)
    torch.manual_seed(0)
    start = time.perf_counter()
    with torch.set_grad_enabled(program.trains):
        found = _tensors(compiled(*args, **kwargs))
    if program.trains:
        sum(t.float().abs().sum() for t in found if t.requires_grad).backward()
    seconds = time.perf_counter() - start
    inputs = [*args, *kwargs.values(), *(model.parameters() if isinstance(model, torch.nn.Module) else ())]
    gradients = [t.grad for t in inputs if isinstance(t, torch.Tensor) and t.is_leaf and t.grad is not None]
    with torch.set_grad_enabled(program.trains):
        compiled(*args, **kwargs)  # once more, for what is compiled at the second call
    return [t.detach().clone() for t in (*found, *gradients)], seconds, compiled


def _error(expected: list[torch.Tensor], found: list[torch.Tensor]) -> float:
    """The largest error, relative to the largest number of its tensor, or to a thousandth of the largest of all.

    A gradient that is zero in theory, as that of a bias ahead of a normalization, is noise in practice.
    """
    if [t.shape for t in expected] != [t.shape for t in found]:
        return float("inf")
    pairs = [(a.double(), b.double()) for a, b in zip(expected, found, strict=True) if a.numel()]
    least = 1e-3 * max((float(a.abs().max()) for a, _ in pairs), default=0.0) or 1e-12
    return max((float((a - b).abs().max() / a.abs().max().clamp(min=least)) for a, b in pairs), default=0.0)


def measure(name: str) -> dict[str, Any]:
    """What the page says of one program."""
    import torchmux

    warnings.filterwarnings("ignore")
    entry = PROGRAMS[name]
    torch.manual_seed(0)
    program = entry.build()
    expected, eager_seconds, _ = _run(program, lambda model: model)
    row: dict[str, Any] = {
        "program": name, "library": entry.needs[0], "version": importlib.metadata.version(entry.needs[0]),
        "eager_seconds": eager_seconds, "more": entry.more, "tolerance": program.tolerance,
    }  # fmt: skip
    for backend in ("eager", "native"):
        try:
            found, seconds, compiled = _run(program, lambda model, b=backend: torchmux.compile(model, backend=b))
        except Exception as error:
            row[f"{backend}_failed"] = f"{type(error).__name__}: {error}"[:300]
            continue
        report = torchmux.report(compiled)
        row[f"{backend}_error"], row[f"{backend}_seconds"] = _error(expected, found), seconds
        row["graphs"], row["breaks"] = report.graph_count, sorted({f"{b.kind} {b.reason}" for b in report.breaks})
    row["torch_graphs"] = torch_graphs(program)
    return row


def torch_graphs(program: Program) -> int | str:
    """How many graphs ``torch.compile`` makes of a program, or the error that it raises."""
    graphs = []

    def count(gm: Any, inputs: Any) -> Any:
        graphs.append(gm)
        return gm.forward

    try:
        _run(program, lambda model: torch.compile(model, backend=count))
    except Exception as error:
        return type(error).__name__
    return len(graphs)


def in_own_process(name: str, timeout: int = 600) -> dict[str, Any]:
    """:func:`measure` in a process of its own."""
    command = [sys.executable, str(Path(__file__)), "--one", name]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if not lines:
        return {"program": name, "failed": (done.stderr.strip().splitlines() or ["?"])[-1][:300]}
    return json.loads(lines[-1])


def _graphs(row: dict[str, Any]) -> str:
    """The number of graphs, and why it is what it is."""
    found = row.get("graphs")
    why = PROGRAMS[row["program"]].more or ("it runs in eager" if found == 0 else "")
    return f"{found}: {why}" if why else str(found)


def page(rows: list[dict[str, Any]]) -> str:
    """``docs/libraries.md``."""
    lines = [
        (HERE / "page.md").read_text().rstrip(),
        "",
        f"Measured with torch {torch.__version__.partition('+')[0]} by `python tests/libraries/measure.py --write`.",
        "",
        "| program | library | graphs | `torch.compile` | error, `eager` | error, `native` | first call, `native` |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        if "failed" in row:
            lines.append(f"| `{row['program']}` | failed: {row['failed']} | | | | | |")
            continue
        errors = [f"{row[f'{b}_error']:.0e}" if f"{b}_error" in row else "raises" for b in ("eager", "native")]
        seconds = f"{row['native_seconds']:.1f} s" if "native_seconds" in row else ""
        lines.append(
            f"| `{row['program']}` | {row['library']} {row['version']} | {_graphs(row)} | "
            f"{row['torch_graphs']} | {errors[0]} | {errors[1]} | {seconds} |"
        )
    absent = [f"`{name}`" for name in PROGRAMS if name not in {row["program"] for row in rows}]
    if absent:
        lines += ["", f"Programs that this run has not measured: {', '.join(absent)}."]
    return "\n".join([*lines, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", help="programs; all that are installed by default")
    parser.add_argument("--one", help="measure this one here, and print a line of JSON")
    parser.add_argument("--write", action="store_true", help="write docs/libraries.md")
    args = parser.parse_args()
    if args.one:
        print(json.dumps(measure(args.one)))
        return
    rows = []
    for name in args.names or [name for name in PROGRAMS if missing(name) is None]:
        rows.append(in_own_process(name))
        print(json.dumps(rows[-1], indent=1), flush=True)
    if args.write:
        PAGE.write_text(page(rows))


if __name__ == "__main__":
    main()
