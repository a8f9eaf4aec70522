"""Training on several ranks, compiled and in eager: time, memory, hidden communication, and the first step.

    torchrun --nproc-per-node 2 benchmarks/distributed.py --out rows.jsonl [--size tiny] [--budget 540] [--together 3]
    python benchmarks/distributed.py --table rows.jsonl

Each row runs in processes of its own, one for each rank, so that one that fails or hangs spoils no other.  Rows are
appended to the file as they are done, and a second start goes on with those that are missing: a machine may be lent for
less time than all of them take.  ``--together`` rows compile at the same time, and are then timed in turns, a few steps
each while the others wait; their first steps are not told, since they disturb each other.  With GPUs the ranks
communicate by NCCL, and each sees only its own; without, by gloo.

``step`` rows have milliseconds for a step (median), peak memory in MiB, the share of the time of communication during
which the same rank computes, how often it communicates, how long its GPU works, with the kernels that take longest,
how long the host takes for the passes and the optimizer, and 20 losses: a step that takes longer than the GPU works
waits for the host.  ``cold`` rows have seconds of the first step with an empty cache: of ranks that share it, of ranks
that have one each, and of a single rank.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import itertools
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from distributed_rows import HOWS, PEER, rows_wanted, table

COMPILERS = ("eager", PEER, "native", "inductor")
MODELS = ("bert", "llama")
WAYS = ("ddp_around", "ddp_inside", "fsdp_blocks", "tp_blocks")
LOSSES = 20
_PROFILED = 2  # steps
_HOST_STEPS = 5
POLL = 0.2  # seconds
_PR_SET_PDEATHSIG = 1
# (batch, tokens) of a rank, by size and model
INPUTS = {"full": {"bert": (16, 512), "llama": (2, 2048)}, "tiny": {"bert": (2, 32), "llama": (2, 32)}}

Interval = tuple[float, float]


# --- the models, and the ways of distributing them -----------------------------------------------------------------


def make(name: str, size: str) -> tuple[Any, Any, dict[str, Any]]:
    """A model, its blocks, and how tensor parallelism divides each block."""
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel
    from transformers import BertConfig, BertForMaskedLM, LlamaConfig, LlamaForCausalLM

    split, joined = ColwiseParallel, RowwiseParallel
    tiny: dict[str, Any] = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
                            "num_attention_heads": 4, "vocab_size": 500}  # fmt: skip
    if name == "bert":
        still = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
        model: Any = BertForMaskedLM(BertConfig(**(tiny if size == "tiny" else {}), **still))
        plan = {f"attention.self.{each}": split() for each in ("query", "key", "value")}
        return model, model.bert.encoder.layer, plan | {
            "attention.output.dense": joined(), "intermediate.dense": split(), "output.dense": joined(),
        }  # fmt: skip
    billion = {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16, "num_attention_heads": 32,
               "num_key_value_heads": 8, "vocab_size": 32000, "max_position_embeddings": 4096}  # fmt: skip
    model = LlamaForCausalLM(LlamaConfig(**(tiny if size == "tiny" else billion), use_cache=False))
    plan = {f"self_attn.{each}_proj": split() for each in "qkv"} | {"self_attn.o_proj": joined()}
    plan |= {f"mlp.{each}_proj": split() for each in ("gate", "up")} | {"mlp.down_proj": joined()}
    return model, model.model.layers, plan


def compiler(name: str) -> Callable[[Any], Any]:
    if name == "eager":
        return lambda model: model
    if name == PEER:
        return torch.compile
    import torchmux

    return lambda model: torchmux.compile(model, backend=name)


def distributed(
    way: str, model: Any, blocks: Any, plan: dict[str, Any], compiled: Callable, device: str, bucket: float | None
) -> Any:
    """The model as it is called; ``bucket`` is the size of DDP's buckets in MiB, torch's own if None."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import parallelize_module
    from torch.nn.parallel import DistributedDataParallel

    if way == "ddp_around":
        return DistributedDataParallel(compiled(model), bucket_cap_mb=bucket)
    if way == "ddp_inside":
        return compiled(DistributedDataParallel(model, bucket_cap_mb=bucket))
    mesh = init_device_mesh(device, (dist.get_world_size(),))
    for at, block in enumerate(blocks):
        if way == "tp_blocks":
            parallelize_module(block, mesh, plan)
        blocks[at] = compiled(block)
        if way == "fsdp_blocks":
            fully_shard(blocks[at], mesh=mesh)
    if way == "fsdp_blocks":
        fully_shard(model, mesh=mesh)
    return model


# --- one rank of one row -------------------------------------------------------------------------------------------


def run_row(row: dict[str, Any], turn: Path | None) -> dict[str, Any]:
    """What this rank measures of a row; steps are timed when there is a file ``turn``, at once if that is None."""
    cuda = torch.cuda.is_available()
    device = "cuda" if cuda else "cpu"
    if cuda:
        torch.cuda.set_device(0)
        dist.init_process_group("nccl", device_id=torch.device("cuda", 0))
    else:
        torch.set_num_threads(1)
        dist.init_process_group("gloo")
    torch.manual_seed(0)
    with torch.device(device):
        model, blocks, plan = make(row["model"], row["size"])
    model = model.to(getattr(torch, row["dtype"])).train()
    batch, tokens = INPUTS[row["size"]][row["model"]]
    seed = 1 if row["way"] == "tp_blocks" else 1 + dist.get_rank()  # its ranks work on one batch
    ids = torch.randint(0, 500, (batch, tokens), generator=torch.Generator().manual_seed(seed)).to(device)
    # A tiny model has one of torch's buckets.  torch.compile takes none that is smaller than the first one, of 1 MiB.
    bucket = None if row["size"] != "tiny" else 1.0 if row["compiler"] == PEER else 0.05
    run = distributed(row["way"], model, blocks, plan, compiler(row["compiler"]), device, bucket)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=cuda and row["way"] != "tp_blocks")

    def step(passed: Callable[[], None] = lambda: None) -> torch.Tensor:
        loss: torch.Tensor = run(input_ids=ids, labels=ids).loss
        passed()
        loss.backward()
        passed()
        optimizer.step()
        optimizer.zero_grad()
        passed()
        return loss.detach()

    def finished() -> float:
        if cuda:
            torch.cuda.synchronize()
        return time.perf_counter()

    dist.barrier()
    begin = finished()
    losses = [step()]
    first = finished() - begin
    told: dict[str, Any] = {"first_step_s": round(first, 3), "torch": torch.__version__,
                            "device": torch.cuda.get_device_name() if cuda else "cpu"}  # fmt: skip
    if row["kind"] == "step":
        if turn is not None:
            del told["first_step_s"]
        losses += [step() for _ in range(2)]
        rounds = []
        for number in range(row["rounds"]):
            with _turn(turn, number):
                if cuda and number == 0:
                    torch.cuda.reset_peak_memory_stats()
                times = []
                for at in range(1 + row["steps"]):
                    dist.barrier()
                    begin = finished()
                    losses.append(step())
                    if at:  # the first step of a turn finds caches that belong to others
                        times.append(finished() - begin)
                rounds.append(statistics.median(times) * 1e3)
        losses += [step() for _ in range(LOSSES - len(losses))]
        told["ms"] = round(statistics.median(rounds), 3)
        told["rounds_ms"] = [round(ms, 3) for ms in rounds]
        told["memory_mib"] = _peak_memory(cuda)
        told["losses"] = [round(float(loss), 6) for loss in losses[:LOSSES]]
        with _turn(turn, row["rounds"]):
            told["host_ms"] = _host_times(step, finished)
            told |= _profiled(step, cuda)
    if row["compiler"] in ("native", "inductor"):
        told["report"] = _told_by_torchmux(run, blocks, row["way"])
    dist.destroy_process_group()
    return told


@contextlib.contextmanager
def _turn(turn: Path | None, number: int) -> Iterator[None]:
    """Let others work until it is turn ``number`` of this row, and say when it is over; by files beside ``turn``."""
    if turn is None:
        yield
        return
    if torch.cuda.is_available() and number == 0:
        torch.cuda.empty_cache()
    turn.with_suffix(f".{number}.ready").touch()
    while not turn.with_suffix(f".{number}").exists():
        time.sleep(POLL / 10)
    yield
    turn.with_suffix(f".{number}.done").touch()


def _peak_memory(cuda: bool) -> float:
    if cuda:
        return round(torch.cuda.max_memory_allocated() / 2**20, 1)
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return round(int(status["VmHWM"].split()[0]) / 2**10, 1)


def _told_by_torchmux(run: Any, blocks: Any, way: str) -> dict[str, Any]:
    """What the report says of what ran where, so that no row passes for what it is not."""
    import torchmux

    compiled = {"ddp_around": lambda: run.module, "ddp_inside": lambda: run}.get(way, lambda: blocks[0])()
    report = torchmux.report(compiled)
    notes = {note for entry in report.graphs for note in entry.report.notes}
    hits = sum(entry.report.cache_hits for entry in report.graphs)
    return {"graphs": report.graph_count, "breaks": len(report.breaks), "share": round(report.share, 4),
            "cache_hits": hits, "notes": sorted(notes)[:5]}  # fmt: skip


def _host_times(step: Callable[..., Any], finished: Callable[[], float]) -> list[float]:
    """How many milliseconds the host takes for the forward pass, the backward pass and the optimizer; medians."""
    every = []
    for _ in range(_HOST_STEPS):
        dist.barrier()
        times = [finished()]
        step(lambda times=times: times.append(time.perf_counter()))
        every.append([end - begin for begin, end in itertools.pairwise(times)])
    return [round(statistics.median(part) * 1e3, 3) for part in zip(*every, strict=True)]


def _profiled(step: Callable[[], Any], cuda: bool) -> dict[str, Any]:
    """What two steps under the profiler tell.

    ``hidden`` is the share of the time of communication during which this rank computes, ``sent`` how often it
    communicates in a step, ``busy_ms`` how long the device works in a step, and ``top`` the kernels that take longest.
    """
    kinds = [torch.profiler.ProfilerActivity.CPU] + [torch.profiler.ProfilerActivity.CUDA] * cuda
    with torch.profiler.profile(activities=kinds) as profile:
        for _ in range(_PROFILED):
            step()
        if cuda:
            torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        profile.export_chrome_trace(f"{folder}/trace.json")
        events = json.loads(Path(folder, "trace.json").read_text())["traceEvents"]
    spans = [e for e in events if e.get("ph") == "X" and e.get("dur")]
    if cuda:
        kernels = [e for e in spans if e.get("cat") == "kernel"]
        sent = [e for e in kernels if "nccl" in e["name"].lower()]
        computed = [e for e in kernels if "nccl" not in e["name"].lower()]
    else:
        sent = [e for e in spans if e["name"].startswith("gloo:")]
        computed = [e for e in spans if e["name"].startswith(("aten::", "CompiledFunction", "torchmux", "## Call"))]
    busy = sum(end - begin for begin, end in _union(map(_span, [*sent, *computed])))
    times: dict[str, float] = {}
    for event in (*sent, *computed):
        times[event["name"]] = times.get(event["name"], 0) + event["dur"] / _PROFILED / 1e3
    longest = sorted(times.items(), key=lambda item: -item[1])[:6]
    return {
        "hidden": hidden_share(map(_span, sent), map(_span, computed)),
        "sent": len(sent) // _PROFILED,
        "busy_ms": round(busy / _PROFILED / 1e3, 3),
        "top": {name[:80]: round(ms, 3) for name, ms in longest},
    }


def _span(event: dict[str, Any]) -> Interval:
    return float(event["ts"]), float(event["ts"]) + float(event["dur"])


def hidden_share(sent: Iterable[Interval], computed: Iterable[Interval]) -> float | None:
    """How much of the union of ``sent`` lies in the union of ``computed``, from 0 to 1; None if nothing is sent."""
    communication, compute = _union(sent), _union(computed)
    whole = sum(end - begin for begin, end in communication)
    if not whole:
        return None
    both = sum(
        max(0.0, min(end, stop) - max(begin, start))
        for begin, end in communication
        for start, stop in compute
        if start < end and stop > begin
    )
    return round(both / whole, 4)


def _union(intervals: Iterable[Interval]) -> list[Interval]:
    joined: list[Interval] = []
    for begin, end in sorted(intervals):
        if joined and begin <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        else:
            joined.append((begin, end))
    return joined


# --- the driver, which torchrun starts once for each rank ----------------------------------------------------------


@dataclass
class Started:
    """A row whose processes run; this rank's is ``process``, if it has one."""

    row: dict[str, Any]
    folder: str
    failed: str
    turn: Path
    told: Path
    log: Path
    process: subprocess.Popen | None


class Driver:
    """Starts the processes of the rows.  Those of all ranks agree through a store, and none of them uses a GPU."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.rank, self.ranks = dist.get_rank(), dist.get_world_size()
        self.until = time.monotonic() + options.budget
        self.store: Any = dist.distributed_c10d._get_default_store()

    def run(self, rows: list[dict[str, Any]]) -> None:
        steps = [row for row in rows if row["kind"] == "step"]
        size = self.options.together
        groups = [steps[at : at + size] for at in range(0, len(steps), size)]
        groups += [[row] for row in rows if row["kind"] == "cold"]
        for number, group in enumerate(groups):
            if not self._is_time():
                if self.rank == 0:
                    left = sum(map(len, groups[number:]))
                    print(f"{left} rows are left: start again with the same --out", flush=True)
                return
            if group[0]["kind"] == "cold":
                self._tell(group[0], self._cold(group[0], number))
            else:
                self._steps(group, number)

    def _is_time(self) -> bool:
        wanted = [self.rank == 0 and time.monotonic() + self.options.row_seconds / 4 < self.until]
        dist.broadcast_object_list(wanted, 0)
        return wanted[0]

    def _tell(self, row: dict[str, Any], told: dict[str, Any]) -> None:
        if self.rank == 0:
            with open(self.options.out, "a") as file:
                file.write(json.dumps(row | told) + "\n")
                file.flush()
                os.fsync(file.fileno())
            print(json.dumps({**row, **{k: v for k, v in told.items() if k != "losses"}}), flush=True)

    def _cold(self, row: dict[str, Any], number: int) -> dict[str, Any]:
        """The seconds of the first step, in processes one after the other."""
        together: dict[str, Any] = {}
        for how in self.options.cold:
            with self._started(row, f"{number}-{how}", how, waits=False) as started:
                told = self._finished(started)
            together[f"{how}_s"] = told.get("first_step_s")
            together |= {key: told[key] for key in ("failed", "device", "torch") if key in told}
        return together

    def _steps(self, group: Sequence[dict[str, Any]], number: int) -> None:
        """Time rows in turns, when all of them are ready."""
        waits = len(group) > 1
        with contextlib.ExitStack() as stack:
            started = [
                stack.enter_context(self._started(row, f"{number}.{at}", "shared", waits=waits))
                for at, row in enumerate(group)
            ]
            if waits:
                self._until(started, ".0.ready")
                for turn in range(self.options.rounds + 1):
                    # In every other round the other way round: what drifts disturbs all rows alike.
                    for each in started if turn % 2 else reversed(started):
                        each.turn.with_suffix(f".{turn}").touch()
                        self._until([each], f".{turn}.done")
            for each in started:
                self._tell(each.row, self._finished(each) | {"together": [row["compiler"] for row in group]})

    def _until(self, started: Sequence[Started], suffix: str) -> None:
        """Wait, together with the other ranks, until all rows have their file or have failed."""
        until = time.monotonic() + self.options.row_seconds
        while time.monotonic() < until and not all(self._has(each, suffix) for each in started):
            time.sleep(POLL / 10)
        dist.barrier()

    def _has(self, started: Started, suffix: str) -> bool:
        assert started.process is not None
        there = started.turn.with_suffix(suffix).exists()
        if not there and started.process.poll() is not None:
            self.store.set(started.failed, "1")
        return there or self.store.check([started.failed])

    @contextlib.contextmanager
    def _started(self, row: dict[str, Any], name: str, how: str, *, waits: bool) -> Iterator[Started]:
        """The processes of a row on all ranks, or on rank 0 ``alone``.

        Caches are new: one that the ranks share, or one for each, ``apart``.
        """
        places = [(_free_port(), tempfile.mkdtemp(prefix="torchmux-row-")) if self.rank == 0 else None]
        dist.broadcast_object_list(places, 0)
        assert places[0] is not None
        port, folder = places[0]
        ranks = 1 if how == "alone" else self.ranks
        cache = Path(folder, str(self.rank) if how == "apart" else "all")
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        names = (Path(folder, f"{kind}-{self.rank}") for kind in ("turn", "told", "log"))
        started = Started(row, folder, f"failed/{name}", *names, None)
        command = [sys.executable, __file__, "--row", json.dumps(row), "--told", str(started.told)]
        command += ["--turn", str(started.turn)] if waits else []
        with contextlib.ExitStack() as stack:
            if self.rank < ranks:
                log = stack.enter_context(started.log.open("w"))
                environment = self._environment(ranks, port, cache)
                started.process = stack.enter_context(_group(command, environment, log))
            yield started

    def _finished(self, started: Started) -> dict[str, Any]:
        """What a row has told; the largest figures of the ranks."""
        told = None if started.process is None else self._told(started, started.process)
        every: list[Any] = [None] * self.ranks
        dist.all_gather_object(every, told)
        if self.rank == 0:
            subprocess.run(["rm", "-rf", started.folder], check=False)
        return _together([each for each in every if each is not None])

    def _told(self, started: Started, process: subprocess.Popen) -> dict[str, Any]:
        until = time.monotonic() + self.options.row_seconds
        why = ""
        while process.poll() is None and not why:
            time.sleep(POLL)
            if self.store.check([started.failed]):
                why = "another rank failed"
            elif time.monotonic() > until:
                why = f"took more than {self.options.row_seconds} s"
        if not why and process.returncode == 0 and started.told.exists():
            return dict(json.loads(started.told.read_text()))
        why = why or f"exit status {process.returncode}: {started.log.read_text()[-1500:]}"
        self.store.set(started.failed, "1")
        return {"failed": why}

    def _environment(self, ranks: int, port: int, cache: Path) -> dict[str, str]:
        local = int(os.environ.get("LOCAL_RANK", self.rank))
        environment = os.environ | {
            "RANK": str(self.rank), "WORLD_SIZE": str(ranks), "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port), "TORCHMUX_CACHE_DIR": f"{cache}/torchmux",
            "TORCHINDUCTOR_CACHE_DIR": f"{cache}/inductor", "TRITON_CACHE_DIR": f"{cache}/triton",
            "TORCHELASTIC_USE_AGENT_STORE": "False",
        }  # fmt: skip
        if _gpus():
            # Code that is compiled for a GPU names it: ranks that see one each name the same.
            environment["CUDA_VISIBLE_DEVICES"] = _gpus()[local]
        return environment


@contextlib.contextmanager
def _group(command: list[str], environment: dict[str, str], log: Any) -> Iterator[subprocess.Popen]:
    """A process whose children, such as compilers, end with it."""
    process = subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _gpus() -> list[str]:
    """The GPUs of this machine as CUDA numbers them."""
    if visible := os.environ.get("CUDA_VISIBLE_DEVICES"):
        return visible.split(",")
    return [str(at) for at in range(torch.cuda.device_count())]


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _together(every: list[dict[str, Any]]) -> dict[str, Any]:
    """Of rank 0, with the largest of each figure, the least share that is hidden, and the first failure."""
    failed = [each["failed"] for each in every if "failed" in each]
    if failed:
        return {"failed": next((why for why in failed if why != "another rank failed"), failed[0])}
    told = dict(every[0])
    for key in ("first_step_s", "ms", "memory_mib"):
        if key in told:
            told[key] = max(each[key] for each in every)
    if told.get("hidden") is not None:
        told["hidden"] = min(each["hidden"] for each in every)
    return told


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="distributed.jsonl", help="the file of rows, which is continued")
    parser.add_argument("--table", metavar="FILE", help="print the rows of a file as tables, and run nothing")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS)
    parser.add_argument("--compilers", nargs="+", choices=COMPILERS, default=COMPILERS)
    parser.add_argument("--kinds", nargs="+", choices=("step", "cold"), default=("step", "cold"))
    parser.add_argument("--size", choices=tuple(INPUTS), default="full")
    parser.add_argument("--dtype", choices=("bfloat16", "float32"), default="bfloat16")
    parser.add_argument("--steps", type=int, default=4, help="how many steps are timed in each round")
    parser.add_argument("--rounds", type=int, default=7, help="how many times each row has its turn")
    parser.add_argument("--cold", nargs="+", choices=HOWS, default=HOWS, help="which first steps rows of it have")
    parser.add_argument("--together", type=int, default=1, help="how many step rows compile at the same time")
    parser.add_argument("--budget", type=float, default=540, help="seconds after which no row begins")
    parser.add_argument("--row-seconds", type=float, default=180, help="seconds that a process of a row may take")
    parser.add_argument("--row", help=argparse.SUPPRESS)
    parser.add_argument("--told", help=argparse.SUPPRESS)
    parser.add_argument("--turn", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.table:
        print(table(options.table))
    elif options.row:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # a driver that is killed leaves no process behind
        Path(options.told).write_text(json.dumps(run_row(json.loads(options.row), options.turn)))
    else:
        dist.init_process_group("gloo")
        rows: list[Any] = [rows_wanted(options) if dist.get_rank() == 0 else None]
        dist.broadcast_object_list(rows, 0)
        Driver(options).run(rows[0])
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
