"""The process of one candidate: it compiles, runs and times one graph, and may die of it.

It reads lines of JSON and answers each with one.  The worker of eager is also the referee: it judges what the others
have computed, so that no backend shares a process with its judge.

What a compile leaves behind is told in the log: runtimes have threads, caches and messages.  What *each call* adds is
a fault, and so is a change of anything that the program or another backend depends on.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pickle
import resource
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TextIO

import torch

from torchmux.config import config
from torchmux.conformance import oracle
from torchmux.conformance.oracle import DRAWS, observation, reach
from torchmux.conformance.oracle.observation import Draws
from torchmux.registry import register_backend
from torchmux.registry.loading import import_path

from . import surroundings
from .candidates import pin, resolved
from .parcel import PARCEL, Parcel
from .sharing import segments
from .trial import LIKE_THE_CALL, SEED, WORDS, Trials, inputs_of, wide

_MESSAGE = 400


class Worker:
    """What is known in one process."""

    watches = True  # what it changes and prints is told, and rules the candidate out

    def __init__(self, told: dict[str, Any]) -> None:
        self.parcel = Parcel.load(Path(told["parcel"]))
        surroundings.restore(self.parcel.state)
        self.trials = Trials(self.parcel)
        self.gm = self.parcel.graph(self.trials.real)
        self.told = told
        self.run: Callable[..., Any] | None = None
        self.like: list[str] = []
        self._draws: dict[str, Draws] = {}  # by inputs
        self._drawing_s = 0.0
        self.folder = Path(told["folder"])
        self.memory: Memory | None = None

    def compile(self) -> dict[str, Any]:
        """Compile for the candidate; the answer tells the seconds, and what is left to torch."""
        for text in self.told["specs"]:
            register_backend(pickle.loads(bytes.fromhex(text)))
        self.memory = Memory()
        random = surroundings.torch_random()
        before = time.perf_counter()
        backend = resolved(
            self.told["backend"], self.told["options"], dynamic=self.parcel.dynamic, strict=self.parcel.strict
        )
        pin(self.gm, self.told["pins"])
        with self.parcel.compiling(self.gm):
            compiled = backend.compile(
                self.gm, self.trials.real, training=self.parcel.training, static_inputs=self.parcel.static_inputs
            )
        self.run = compiled
        seconds = time.perf_counter() - before
        report = compiled.report
        why = next((p.reason for p in report.placements if not report.is_requested(p)), "")
        answer: dict[str, Any] = {"seconds": seconds, "share": report.share, "why": why}
        if surroundings.torch_random() != random:
            answer["changed"] = ["torch's random numbers"]
        return answer

    def cut(self, to: str, most: int) -> dict[str, Any]:
        """Write the pieces that the graph can be cut into, and one that computes next to nothing, as parcels."""
        try:
            found = segments.cut(self.gm, self._fresh, most)
            made = segments.pieces(self.parcel, self.gm, self._fresh(), found)
            for number, piece in enumerate([*made, segments.tiny(self.parcel, self.gm)]):
                folder = Path(to) / f"piece{number}"
                folder.mkdir()
                piece.save(folder / PARCEL)
        except segments.Whole as why:
            return {"why": str(why)}
        calls = [number for number, node in enumerate(self.gm.graph.nodes) if node.op.startswith("call_")]
        return {"segments": [dataclasses.asdict(each) for each in found], "calls": calls}

    def _fresh(self) -> list[Any]:
        """Inputs for one run, of which nothing is shared with the next."""
        torch.manual_seed(SEED)
        values = self.trials.inputs("call")
        for position in self.parcel.static_inputs:
            needs = values[position].requires_grad
            values[position] = values[position].detach().clone().requires_grad_(needs)
        return values

    def results(self, to: str, names: list[str]) -> dict[str, Any]:
        """Run the graph in these ways, and write what each shows; the answer names what was written.

        A run that shows the same bits as an earlier one with the same inputs is as right, and is not written.
        """
        assert self.run is not None
        written: list[str] = []
        for name, found in self.trials.runs(self.run, names):
            if (first := inputs_of(name)) in written:
                known = torch.load(f"{to}-{first}", weights_only=False, mmap=True)
                if observation.identical(found, {key: known[key] for key in found}):
                    continue
            torch.save(found, f"{to}-{name}")
            written.append(name)
        return {"written": written}

    def reference(self, seconds: float, drawing: float) -> dict[str, Any]:
        """Compute what all others are held against: eager, and eager in float64 where that is possible.

        The answer names the runs with other inputs that eager can do, and that there is time for.

        Args:
            seconds: in which runs with other inputs begin.
            drawing: seconds in which later judgments may measure eager's error again, all together.
        """
        began = time.monotonic()
        self._drawing_s = drawing
        for name in ("call", *LIKE_THE_CALL):
            if name != "call" and time.monotonic() - began > seconds:
                break
            try:
                self._keep(f"eager-{name}", self.trials.observed(self.gm.forward, name))
            except Exception:
                if name == "call":
                    raise
                continue  # the graph has no results on such inputs
            if name != "call":
                self.like.append(name)
            try:
                exact = self.trials.observed(wide(self.gm), name, wide=True)
            except Exception:  # the graph insists on a type: eager alone is the measure
                continue
            self._keep(f"exact-{name}", exact)
            del exact
            _release()
        return {"like": self.like}

    def judge(self, of: str, names: list[str]) -> dict[str, Any]:
        """The first difference between what a candidate has written and eager's, and its error in the call."""
        error = 0.0
        for name in names:
            got = torch.load(f"{of}-{name}", weights_only=False, mmap=True)
            os.unlink(f"{of}-{name}")
            expected, exact = (self._kept(f"{which}-{inputs_of(name)}") for which in ("eager", "exact"))
            wrong = self._difference(got, expected, exact, inputs_of(name))
            _release()
            if wrong:
                return {"wrong": f"{wrong[0]}{WORDS[name]}{wrong[1]}"}
            if name == "call":
                error = _error(got["results"], (exact or expected)["results"])
        return {"wrong": "", "error": error}

    def _difference(self, got: Any, expected: Any, exact: Any, inputs: str) -> tuple[str, str] | None:
        """What to say before and after the words for the run, if there is a difference.

        Eager's error may be small by chance, above all in a sum that cancels.  It is therefore measured again, on
        inputs that differ by about what rounding does, before a result is wrong.
        """
        if (said := _other_effects(got, expected)) is not None:
            return said, ""
        if inputs not in self._draws:
            self._draws[inputs] = Draws(expected, _as_in_eager(exact, expected))
        known = self._draws[inputs]
        few = ""

        def again() -> bool:
            nonlocal few
            if self._drawing_s <= 0:
                few = f"; there was time to measure eager's error {known.number} of {DRAWS} times"
                return False
            began = time.monotonic()
            is_drawn = self._draw(inputs, exact is not None)
            self._drawing_s -= time.monotonic() - began
            return is_drawn

        differences = known.judge({**expected, **got}, again)
        return ("", f": {differences[0]}{few}") if differences else None

    def _draw(self, inputs: str, with_exact: bool) -> bool:
        """Run eager once more; False if it cannot."""
        known, exact = self._draws[inputs], None
        try:
            eager = self.trials.observed(self.gm.forward, inputs, draw=known.number)
            if with_exact:
                exact = self.trials.observed(wide(self.gm), inputs, wide=True, draw=known.number)
        except Exception:  # what eager does may depend on the last bit
            return False
        known.add(eager, _as_in_eager(exact, eager), reach(known.number))
        return True

    def time(self, calls: int, callers: int = 1) -> dict[str, Any]:
        """Seconds of so many calls, after one that does not count; what the calls have left, and the peak of memory.

        With several ``callers``, each of them a thread with inputs of its own, one number: all seconds by all calls.
        """
        assert self.run is not None and self.memory is not None
        ready = [self.trials.call(self.run) for _ in range(callers)]
        if callers == 1:
            ready[0]()
        said = os.fstat(2).st_size
        found = _seconds(ready[0], calls) if callers == 1 else [_together(ready, calls)]
        del ready
        sys.stderr.flush()
        threads, processes = surroundings.threads_and_processes()
        return {
            "seconds": found,
            "peak": self.memory.peak(),
            "left": {"memory": self.memory.now(), "threads": threads, "processes": processes},
            "said": os.pread(2, _MESSAGE, said).decode(errors="replace"),
        }

    def _keep(self, name: str, value: Any) -> None:
        torch.save(value, self.folder / name)

    def _kept(self, name: str) -> Any:
        path = self.folder / name
        return torch.load(path, weights_only=False, mmap=True) if path.exists() else None


def _release() -> None:
    """Give memory of the device back that only the allocator still has: the processes share one device."""
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()


def _seconds(call: Callable[[], None], calls: int) -> list[float]:
    found = []
    for _ in range(calls):
        before = time.perf_counter()
        call()
        found.append(time.perf_counter() - before)
    return found


def _together(each: Sequence[Callable[[], None]], calls: int) -> float:
    """The seconds by call when so many threads call at once, after one call of each that does not count."""
    ready, ends = threading.Barrier(len(each)), list[tuple[float, float]]()
    grad_mode = torch.is_grad_enabled()

    def work(call: Callable[[], None]) -> None:
        with torch.set_grad_enabled(grad_mode):
            call()
            ready.wait()
            began = time.perf_counter()
            for _ in range(calls):
                call()
            ends.append((began, time.perf_counter()))

    with ThreadPoolExecutor(len(each)) as pool:
        for done in [pool.submit(work, call) for call in each]:
            done.result()
    return (max(end for _, end in ends) - min(began for began, _ in ends)) / (calls * len(each))


class Memory:
    """The memory that this process takes from now on: what it maps from files, as libraries are, does not count."""

    def __init__(self) -> None:
        self._counted = _status("RssAnon")
        self._cuda = torch.cuda.memory_allocated() if torch.cuda.is_initialized() else 0
        if self._cuda:
            torch.cuda.reset_peak_memory_stats()
        try:
            Path("/proc/self/clear_refs").write_text("5")  # the highest level begins at the present one again
            self._is_exact = True
        except OSError:
            self._is_exact = False

    def now(self) -> int:
        """Bytes that were added, on the device too."""
        device = torch.cuda.memory_allocated() - self._cuda if torch.cuda.is_initialized() else 0
        return _status("RssAnon") - self._counted + device

    def peak(self) -> int:
        """The largest number of bytes that were added at one time; those on the device, if anything is there."""
        if torch.cuda.is_initialized():
            return torch.cuda.max_memory_allocated() - self._cuda
        if not self._is_exact:
            return max(0, self.now())
        return max(0, _status("VmHWM") - _status("RssFile") - _status("RssShmem") - self._counted)


def _status(name: str) -> int:
    """Bytes of one kind of memory of this process, as Linux counts them; elsewhere the most there has been of all."""
    try:
        with open("/proc/self/status", encoding="ascii") as file:
            return next((int(line.split()[1]) * 1024 for line in file if line.startswith(name + ":")), 0)
    except OSError:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return (peak if sys.platform == "darwin" else peak * 1024) if name in ("RssAnon", "VmHWM") else 0


def _other_effects(got: dict[str, Any], expected: dict[str, Any]) -> str | None:
    """What it does to inputs and random numbers that eager does not, or the other way around."""
    if "written" in got:
        ours, theirs = set(got["written"]), set(expected["written"])
        if ours != theirs:
            which = ", ".join(str(p) for p in sorted(ours ^ theirs))
            says = "it writes to" if ours - theirs else "it does not write to"
            return f"{says} input {which}, unlike eager, "
    if "random" in got and observation.compare(got["random"], [(expected["random"], None)]):
        return "it draws other random numbers than eager "
    return None


def _as_in_eager(exact: dict[str, Any] | None, eager: dict[str, Any]) -> dict[str, Any] | None:
    """A run in float64, with what does not depend on the precision: float64 inputs are others, in other memory."""
    if exact is None:
        return None
    written = {p: v for p, v in exact["written"].items() if p in eager["written"]}
    return {**exact, "written": written, "sharing": eager["sharing"]}


def _error(got: Any, reference: Any) -> float:
    """The largest distance of results from the float64 ones, or from eager's."""
    pairs = zip(got, reference, strict=True)
    return max((oracle.distance(a, r) for a, r in pairs), default=0.0)


def _begin(asked: dict[str, Any]) -> Any:
    """Take the place of the program: its environment, its paths, its settings.

    ``worker`` is the path of the class that answers, if it is not :class:`Worker`.
    """
    if dict(os.environ) != asked["environment"]:
        os.environ.clear()
        os.environ.update(asked["environment"])
    sys.path[:] = asked["path"]
    for name, value in pickle.loads(bytes.fromhex(asked["config"])).items():
        setattr(config, name, value)
    # What a backend leaves where it runs is seen, and goes with the folder.
    os.chdir(tempfile.mkdtemp(dir=asked["folder"]))
    kind = asked.pop("worker", None)
    return (Worker if kind is None else import_path(kind))(asked)


def serve(requests: TextIO, answers: TextIO) -> None:
    """Answer until the input ends."""
    worker: Any = None
    before: dict[str, Any] = {}
    for line in requests:
        asked = json.loads(line)
        what = asked.pop("do")
        try:
            if worker is None:
                worker = _begin(asked)
                before = surroundings.observed()
                answer: dict[str, Any] = {}
            else:
                answer = getattr(worker, what)(**asked)
                sys.stdout.flush()
                if what != "time":  # the next turn uses it again
                    _release()
                if worker.watches:
                    answer["changed"] = [*answer.get("changed", []), *_changed(before, worker.told["backend"])]
                    answer["printed"] = os.pread(1, _MESSAGE, 0).decode(errors="replace")
        except Exception as error:
            words = " ".join(str(error).split())[:_MESSAGE]
            answer = {"raised": f"{type(error).__name__}: {words}"}
        print(json.dumps(answer), file=answers, flush=True)


def _changed(before: Mapping[str, Any], backend: str) -> list[str]:
    found = surroundings.changes(before, backend)
    if "the working directory" not in found and (left := sorted(os.listdir())):
        found.append(f"the working directory, where it leaves {', '.join(left[:3])}")
    return found


def main() -> None:
    """``python -m torchmux.multiplexer.worker REQUESTS ANSWERS PARENT``, where it cannot be forked."""
    requests, answers, parent = map(int, sys.argv[1:])
    for handle in (requests, answers):
        os.set_inheritable(handle, False)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
    serve(os.fdopen(requests, "r"), os.fdopen(answers, "w"))


if __name__ == "__main__":
    main()
