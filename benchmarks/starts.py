"""How soon a new process has the first result of a saved BERT-base: torchmux's files beside eager and torch's own.

    python benchmarks/starts.py [--rounds N] [--sides NAME,...] [--threads N] [--layers N] [--json FILE]

A model with random weights is saved once for each side in an empty folder.  Then each round runs each side in a new
process, in turns, with the files in the page cache and Python's bytecode on disk.  A process measures its imports, what
it takes to load, and the first call; the result must be that of eager.

* ``eager``: the model without initialized weights, a state dict in safetensors, and the call: what loading is held
  against.
* ``native``, ``onnxrt``, ``openvino``, ``tvm``: ``torchmux.load`` of a file of ``torchmux.save``, weights included.
* ``torch.compile``: the same model as ``eager`` with Inductor's caches full.
* ``AOTInductor``: ``torch._inductor.aoti_load_package`` of a package, weights included.

The table shows the least seconds of all rounds, and their ratios to those of the first side; ``processor`` is the time
of the processor that loading and the first call take, which other work on the machine disturbs least.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

OURS = ("native", "onnxrt", "openvino", "tvm")
SIDES = ("eager", *OURS, "torch.compile", "AOTInductor")
TOLERANCE = 1e-3

Row = dict[str, Any]


def inputs() -> Any:
    import torch

    return torch.randint(0, 30000, (1, 128), generator=torch.Generator().manual_seed(0))


def new_model(layers: int) -> Any:
    """BERT-base with any weights; ``return_dict=False`` lets AOTInductor return plain tensors."""
    import torch
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    return BertModel(BertConfig(num_hidden_layers=layers, return_dict=False)).eval()


# --- made once -------------------------------------------------------------------------------------------------------


def prepare(side: str, folder: Path, layers: int) -> None:
    """Write what ``side`` loads."""
    import torch

    model, x = new_model(layers), inputs()
    with torch.no_grad():
        if side == "eager":
            from safetensors.torch import save_file

            save_file({name: t.contiguous() for name, t in model.state_dict().items()}, folder / "weights.safetensors")
            torch.save(model(x)[0], folder / "wanted.pt")
        elif side in OURS:
            import torchmux

            compiled = torchmux.compile(model, backend=side)
            compiled(x)
            torchmux.save(compiled, folder / f"{side}.tmx")
        elif side == "AOTInductor":
            program = torch.export.export(model, (x,))
            torch._inductor.aoti_compile_and_package(program, package_path=str(folder / "package.pt2"))
        else:
            torch.compile(model)(x)


# --- in each process -------------------------------------------------------------------------------------------------


def start(side: str, folder: Path, threads: int, layers: int) -> Row:
    """The seconds of one process, whose first result must be right."""
    begun = time.perf_counter()
    import torch

    if side in OURS:
        import torchmux

        loader: Callable[[], Any] = lambda: torchmux.load(folder / f"{side}.tmx")  # noqa: E731
    elif side == "AOTInductor":
        import torch._inductor

        loader = lambda: torch._inductor.aoti_load_package(str(folder / "package.pt2"))  # noqa: E731
    else:
        import transformers.models.bert.modeling_bert  # noqa: F401
        from safetensors.torch import load_file

        def loader() -> Any:
            model = _without_weights(layers)
            model.load_state_dict(load_file(folder / "weights.safetensors"), assign=True)
            return torch.compile(model) if side == "torch.compile" else model

    torch.set_num_threads(threads)
    x = inputs()
    imported, worked = time.perf_counter(), time.process_time()
    program = loader()
    loaded = time.perf_counter()
    with torch.no_grad():
        found = program(x)[0]
    done, worked = time.perf_counter(), time.process_time() - worked
    error = float((found - torch.load(folder / "wanted.pt")).abs().max())
    assert error < TOLERANCE, f"{side} is off by {error}"
    return {
        "side": side, "imports": imported - begun, "load": loaded - imported, "call": done - loaded,
        "processor": worked, "error": error,
    }  # fmt: skip


def _without_weights(layers: int) -> Any:
    """The model with memory that nobody has filled, as libraries make it before they load weights."""
    import torch

    kept = {name: getattr(torch.nn.init, name) for name in dir(torch.nn.init) if name.endswith("_")}
    for name in kept:
        if not name.startswith("_"):
            setattr(torch.nn.init, name, lambda tensor, *args, **kwargs: tensor)
    try:
        return new_model(layers)
    finally:
        for name, function in kept.items():
            setattr(torch.nn.init, name, function)


# --- all of them -----------------------------------------------------------------------------------------------------


def run(side: str, folder: Path, options: argparse.Namespace, *more: str) -> str:
    own = {
        "TORCHMUX_CACHE_DIR": str(folder / "torchmux"), "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
        "OMP_NUM_THREADS": str(options.threads), "TOKENIZERS_PARALLELISM": "false",
        # The bytecode of all packages is on disk after the first round, as if pip had installed each of them.
        "PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(folder / "bytecode"),
    }  # fmt: skip
    command = [
        sys.executable, "-P", os.path.abspath(__file__), "--one", side, "--folder", str(folder),
        "--threads", str(options.threads), "--layers", str(options.layers), *more,
    ]  # fmt: skip
    done = subprocess.run(command, env={**os.environ, **own}, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{side} failed:\n{done.stderr[-3000:]}")
    return done.stdout


def measure(options: argparse.Namespace, folder: Path) -> list[Row]:
    sides = options.sides.split(",")
    rows = []
    for side in sides:
        run(side, folder, options, "--prepare")
    for number in range(options.rounds + 1):  # the first fills the page cache
        for side in sides:
            row = json.loads(run(side, folder, options).splitlines()[-1])
            if number:
                rows.append({**row, "round": number})
    return rows


def table(rows: list[Row]) -> str:
    """A line for each side; see the docstring of this program."""
    columns = ("imports", "load", "call", "load+call", "of eager", "processor", "of eager", "with imports")
    lines = [f"{'side':<14}" + "".join(f"{name:>13}" for name in columns)]
    eager: dict[str, float] = {}
    for side in dict.fromkeys(row["side"] for row in rows):
        mine = [row for row in rows if row["side"] == side]
        least = {name: min(row[name] for row in mine) for name in ("imports", "load", "call", "processor")}
        least["both"] = min(row["load"] + row["call"] for row in mine)
        least["all"] = min(row["imports"] + row["load"] + row["call"] for row in mine)
        eager = eager or least  # the first side
        numbers = (
            least["imports"], least["load"], least["call"], least["both"], least["both"] / eager["both"],
            least["processor"], least["processor"] / eager["processor"], least["all"],
        )  # fmt: skip
        lines.append(f"{side:<14}" + "".join(f"{number:>13.3f}" for number in numbers))
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sides", default=",".join(SIDES))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--prepare", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one and options.prepare:
        prepare(options.one, options.folder, options.layers)
    elif options.one:
        print(json.dumps(start(options.one, options.folder, options.threads, options.layers)))
    else:
        with tempfile.TemporaryDirectory() as name:
            rows = measure(options, options.folder or Path(name))
        if options.json:
            options.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")
        print(table(rows))


if __name__ == "__main__":
    main()
