"""Puts load on server.py for some seconds, replaces its file in the middle, and says what became of each request.

    python load_test.py --seconds 300 --clients 4

It saves two files, starts the server on this machine, and ends by itself.  The exit status is 1 if a request was lost,
if an answer was not that of the version that it names, or if the server's memory grew.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import torch

import torchmux

COLUMNS, BUCKETS = 64, (1, 2, 4, 8)
MOST_GROWTH = 16.0  # MiB that the server may grow from the second quarter of the time to the last


@dataclass
class Figures:
    seconds: list[float] = field(default_factory=list)  # of each answered request
    versions: dict[int, int] = field(default_factory=dict)  # answers by version
    lost: list[str] = field(default_factory=list)
    wrong: int = 0
    memory: list[float] = field(default_factory=list)  # MiB, once each second

    def growth(self) -> float:
        """MiB from the second quarter to the last one, by their medians."""
        quarter = max(1, len(self.memory) // 4)
        return statistics.median(self.memory[-quarter:]) - statistics.median(self.memory[quarter : 2 * quarter])

    def told(self, took: float) -> dict:
        ordered = sorted(self.seconds)
        return {
            "seconds": round(took, 1),
            "answered": len(ordered),
            "per_second": round(len(ordered) / took, 1),
            "versions": self.versions,
            "lost": len(self.lost),
            "first_lost": self.lost[:3],
            "wrong": self.wrong,
            "median_ms": round(1e3 * statistics.median(ordered), 2),
            "p99_ms": round(1e3 * ordered[int(0.99 * (len(ordered) - 1))], 2),
            "memory_mib": [round(self.memory[0], 1), round(max(self.memory), 1), round(self.memory[-1], 1)],
            "growth_mib": round(self.growth(), 1),
        }


def model_of(seed: int) -> torch.nn.Module:
    torch.manual_seed(seed)
    return torch.nn.Sequential(
        torch.nn.Linear(COLUMNS, 256), torch.nn.GELU(), torch.nn.Linear(256, 16), torch.nn.Softmax(-1)
    ).eval()


def save(model: torch.nn.Module, path: Path) -> None:
    """Compile for each bucket, and save."""
    compiled = torchmux.compile(model, backend="native", dynamic=False)
    with torch.no_grad():
        for rows in BUCKETS:
            compiled(torch.zeros(rows, COLUMNS))
    torchmux.save(compiled, path)


async def client(url: str, models: dict[int, torch.nn.Module], until: float, figures: Figures, seed: int) -> None:
    """One request after the other, each checked; the one in flight at the end is waited for."""
    draw = random.Random(seed)
    async with httpx.AsyncClient(timeout=30) as http:
        while time.monotonic() < until:
            rows = torch.tensor([[draw.gauss(0, 1) for _ in range(COLUMNS)] for _ in range(draw.randint(1, 3))])
            start = time.perf_counter()
            try:
                response = await http.post(f"{url}/predict", json={"inputs": rows.tolist()})
                response.raise_for_status()
            except httpx.HTTPError as error:
                figures.lost.append(f"{type(error).__name__}: {error}")
                continue
            figures.seconds.append(time.perf_counter() - start)
            answer = response.json()
            version = answer["version"]
            figures.versions[version] = figures.versions.get(version, 0) + 1
            with torch.no_grad():
                wanted = models[version](rows)
            found = torch.tensor(answer["outputs"])
            if found.shape != wanted.shape or not torch.allclose(found, wanted, rtol=1e-4, atol=1e-6):
                figures.wrong += 1


async def watch(pid: int, until: float, figures: Figures) -> None:
    """The resident memory of the server, each second."""
    while time.monotonic() < until:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        figures.memory.append(pages * 4096 / 2**20)
        await asyncio.sleep(1)


async def swap(url: str, path: Path, after: float) -> None:
    await asyncio.sleep(after)
    async with httpx.AsyncClient(timeout=60) as http:
        damaged = path.with_name("damaged.tmx")
        damaged.write_bytes(path.read_bytes()[:-1])
        refused = await http.post(f"{url}/swap", json={"path": str(damaged)})
        assert refused.status_code == 409, refused.text  # and the old file goes on
        (await http.post(f"{url}/swap", json={"path": str(path)})).raise_for_status()


async def load(url: str, pid: int, models: dict, new: Path, seconds: float, clients: int) -> Figures:
    figures, until = Figures(), time.monotonic() + seconds
    work = [client(url, models, until, figures, seed) for seed in range(clients)]
    await asyncio.gather(*work, watch(pid, until, figures), swap(url, new, seconds / 2))
    return figures


def started(path: Path, port: int) -> subprocess.Popen:
    """The server, once it answers.

    Raises:
        RuntimeError: it does not within a minute.
    """
    server = Path(__file__).with_name("server.py")
    buckets = ",".join(map(str, BUCKETS))
    arguments = [str(path), "--columns", str(COLUMNS), "--port", str(port), "--buckets", buckets]
    process = subprocess.Popen([sys.executable, str(server), *arguments])
    until = time.monotonic() + 60
    while time.monotonic() < until and process.poll() is None:
        try:
            if httpx.get(f"http://127.0.0.1:{port}/health", timeout=5).status_code == 200:
                return process
        except httpx.HTTPError:
            time.sleep(0.2)
    process.kill()
    raise RuntimeError("the server did not start")


def run(seconds: float, clients: int) -> dict:
    """The figures of a run; ``passed`` says whether all is as it should be."""
    with tempfile.TemporaryDirectory() as folder:
        old, new = Path(folder) / "old.tmx", Path(folder) / "new.tmx"
        models = {1: model_of(1), 2: model_of(2)}
        save(models[1], old)
        save(models[2], new)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        process = started(old, port)
        url = f"http://127.0.0.1:{port}"
        try:
            begin = time.monotonic()
            figures = asyncio.run(load(url, process.pid, models, new, seconds, clients))
            took = time.monotonic() - begin
            metrics = httpx.get(f"{url}/metrics").text
        finally:
            process.terminate()
            process.wait(30)
    told = figures.told(took)
    counted = [
        line.split()[-1] for line in metrics.splitlines() if line.startswith('requests_total{status="answered"}')
    ]
    told["counted_by_server"] = int(float(counted[0])) if counted else 0
    told["passed"] = (
        not told["lost"]
        and not told["wrong"]
        and set(told["versions"]) == {1, 2}
        and told["counted_by_server"] == told["answered"]
        and told["growth_mib"] < MOST_GROWTH
    )
    return told


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--clients", type=int, default=4)
    given = parser.parse_args()
    told = run(given.seconds, given.clients)
    print(json.dumps(told, indent=1))
    sys.exit(0 if told["passed"] else 1)


if __name__ == "__main__":
    main()
