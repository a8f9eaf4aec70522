"""First calls on a GPU with an empty cache, and those of a second process with the cache that the first one left.

    python benchmarks/starts_gpu.py [--rows ROW ...] [--engines ENGINE ...] [--json FILE]

Rows and engines are those of ``native_gpu.py``.  Each measurement is a process of its own, and nothing else runs: two
processes for each engine of a row, with caches in an empty folder (torchmux's, Inductor's, Triton's).  The time is that
from ``compile()`` to the end of the first call; in training that is a forward and a backward pass.  The model is on the
GPU before, and has been called once in eager, so that no library still has to be loaded for it.

*First* and *second* are seconds; *ratio* is the engine's time divided by that of the row's first engine.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROWS = [f"{model}:inference:bf16:32" for model in ("resnet50", "bert", "gpt2", "vit", "llama")]
ROWS += [f"{model}:training:bf16:32" for model in ("resnet50", "bert", "gpt2", "vit")]
CACHES = {"TORCHMUX_CACHE_DIR": "torchmux", "TORCHINDUCTOR_CACHE_DIR": "inductor", "TRITON_CACHE_DIR": "triton"}


def first_call(row: str, engine: str) -> None:
    """Print the seconds of the first call in this process."""
    import torch
    from native_gpu import Row

    made = Row(row)
    made.call("eager")()
    torch.cuda.synchronize()
    begin = time.perf_counter()
    made.call(engine)()
    torch.cuda.synchronize()
    print(json.dumps(time.perf_counter() - begin))


def in_a_process(row: str, engine: str, caches: str) -> float:
    """The seconds of the first call in a process with these caches."""
    places = {name: os.path.join(caches, folder) for name, folder in CACHES.items()}
    command = [sys.executable, __file__, "--rows", row, "--engines", engine, "--here"]
    done = subprocess.run(command, env={**os.environ, **places}, stdout=subprocess.PIPE, text=True, check=True)
    return float(json.loads(done.stdout.splitlines()[-1]))


def main() -> None:
    """Measure, and print each row as it completes."""
    parser = argparse.ArgumentParser(description="First calls on a GPU, and those of a second process.")
    parser.add_argument("--rows", nargs="+", default=ROWS, help="model:phase:dtype:batch")
    parser.add_argument("--engines", nargs="+", default=["torch.compile", "native"], help="as native_gpu.py names them")
    parser.add_argument("--json", type=Path, help="where all numbers go, after each row")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)  # a process that measures
    arguments = parser.parse_args()
    if arguments.here:
        first_call(arguments.rows[0], arguments.engines[0])
        return
    print(f"{'':28}{'':18}{'first':>9}{'ratio':>7}{'second':>9}{'ratio':>7}", flush=True)
    results: dict[str, dict[str, list[float]]] = {}
    for row in arguments.rows:
        found = results[row] = {}
        for engine in arguments.engines:
            with tempfile.TemporaryDirectory() as caches:
                try:
                    found[engine] = [in_a_process(row, engine, caches) for _ in range(2)]
                except subprocess.CalledProcessError as error:
                    print(f"{row:28}{engine:18} fails with {error.returncode}", flush=True)
                    continue
            first, second = found[engine]
            peer = next(iter(found.values()))
            ratios = first / peer[0], second / peer[1]
            print(f"{row:28}{engine:18}{first:9.2f}{ratios[0]:7.2f}{second:9.2f}{ratios[1]:7.2f}", flush=True)
        if arguments.json:
            arguments.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
