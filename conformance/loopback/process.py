"""What happens to the process: crashes, hangs, leaks, its end, and the next process."""

from __future__ import annotations

import atexit
import hashlib
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch.fx import GraphModule

from ..outcome import Outcome
from .kit import Faults, Run, calls, changed

faults = Faults("process")

_ANY = "semantics/mutation/input_in_place"
_END = "life/process/an_end"


@faults(_ANY, Outcome.CRASH)
def crash(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """The process dies during a compilation."""
    os.kill(os.getpid(), signal.SIGSEGV)
    return gm.forward


@faults(_ANY, Outcome.TIMEOUT)
def hang(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """A compilation never ends."""
    while True:
        time.sleep(3600)


@faults(_ANY, Outcome.CRASH)
def failure(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Compiled code raises an exception when it is called."""

    def call(*args: Any) -> Sequence[Any]:
        raise RuntimeError("this backend's code does not run")

    return call


@faults(_ANY, Outcome.CRASH)
def quiet_exit(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """A compilation ends the process with status 0."""
    os._exit(0)


@faults("semantics/indices/read_out_of_range")
def other_exceptions(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Exceptions of operators become a ``ValueError``."""

    def call(*args: Any) -> Sequence[Any]:
        try:
            return gm.forward(*args)
        except (IndexError, RuntimeError) as error:
            raise ValueError(str(error)) from error

    return call


@faults("semantics/indices/classes_out_of_range")
def no_exceptions(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Where an operator raises an exception, the result is zero."""

    def call(*args: Any) -> Sequence[Any]:
        try:
            return gm.forward(*args)
        except (IndexError, RuntimeError):
            return [torch.zeros(()) for _ in gm.graph.output_node().args[0]]

    return call


_kept: list[Any] = []


@faults("life/calls/nothing_is_kept")
def kept_inputs(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Calls keep their inputs."""

    def call(*args: Any) -> Sequence[Any]:
        _kept.append(args)
        return gm.forward(*args)

    return call


@faults("life/calls/nothing_is_kept")
def growing_memory(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Each call loses a few hundred kilobytes."""
    return calls(gm, lambda: _kept.append(torch.ones(80_000)))


@faults("life/calls/nothing_is_kept")
def growing_files(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Each call opens a file."""
    return calls(gm, lambda: _kept.append(open(os.devnull)))


@faults("life/calls/nothing_is_kept")
def growing_threads(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Some calls start a thread that waits for ever."""
    count = iter(range(1 << 30))

    def start() -> None:
        if next(count) % 20 == 0:
            threading.Thread(target=threading.Event().wait, daemon=True).start()

    return calls(gm, start)


@faults("life/calls/nothing_is_kept_in_training")
def kept_results_in_training(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Training keeps what it saved for gradients."""

    def call(*args: Any) -> Sequence[Any]:
        results = gm.forward(*args)
        _kept.append(results)
        return results

    return call


@faults(_ANY)
def child_process(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Compiling starts a process that goes on."""
    _kept.append(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]))
    return gm.forward


@faults(_END, Outcome.CRASH)
def crash_at_the_end(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """The process dies when it ends."""
    atexit.register(lambda: os.kill(os.getpid(), signal.SIGSEGV))
    return gm.forward


@faults(_END, Outcome.CRASH)
def failure_at_the_end(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """The process ends with a status of its own."""
    atexit.register(lambda: os._exit(3))
    return gm.forward


@faults(_END, Outcome.TIMEOUT)
def hang_at_the_end(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """The process never ends."""
    atexit.register(lambda: time.sleep(3600))
    return gm.forward


@faults(_END)
def words_at_the_end(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """The process prints something when it ends."""
    atexit.register(lambda: print("the backend says goodbye", file=sys.stderr))
    return gm.forward


@faults(_END)
def files_at_the_end(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """The process leaves a file in the current folder."""
    atexit.register(lambda: Path("dump_of_a_backend.txt").write_text("graph"))
    return gm.forward


@faults("life/process/a_warm_cache")
def stale_cache(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """The key of a cache on disk leaves out the numbers of the program."""
    return _cached(gm, lambda node: (node.op, str(node.target), len(node.args)))


@faults("life/process/a_warm_cache")
def stale_wiring(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """The key of a cache on disk leaves out which operator reads which."""
    return _cached(gm, lambda node: (str(node.target) if node.op != "placeholder" else "", [
        arg for arg in node.args if not isinstance(arg, torch.fx.Node)
    ]))  # fmt: skip


def _cached(gm: GraphModule, key: Any) -> Run:
    """The graph, or one from the cache of an earlier process with the same key, as far as it runs."""
    import torchmux

    text = repr([key(node) for node in gm.graph.nodes]) + repr([t.shape for t in gm.parameters()])
    path = Path(torchmux.config.cache_dir) / f"loopback-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    first = os.environ.get("CONFORMANCE_PROCESS", "1") == "1"
    path.parent.mkdir(parents=True, exist_ok=True)
    if first:
        path.write_bytes(pickle.dumps(gm))
        return gm.forward
    if not path.exists():
        return gm.forward
    try:
        old = pickle.loads(path.read_bytes())
    except (pickle.UnpicklingError, EOFError):  # the file was cut off, which is not the fault
        return gm.forward

    def call(*args: Any) -> Sequence[Any]:
        try:
            return old.forward(*args)
        except (TypeError, RuntimeError, IndexError):
            return gm.forward(*args)

    return call


@faults("life/threads/another_thread")
def wrong_in_other_threads(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Results are zero in all threads but the one that compiled."""
    own = threading.get_ident()
    return changed(gm.forward, lambda t: t if threading.get_ident() == own else t * 0)


@faults(_END)
def files_at_home(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """A compilation leaves a file in the home folder."""
    Path.home().joinpath(".compiled").write_text("1")
    return gm.forward


@faults(_END)
def shared_memory_that_stays(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """A compilation leaves a file in shared memory."""
    name = Path("/dev/shm", f"torchmux-fault-{os.getpid()}")
    name.write_text("1")
    # It goes when the test is over.
    command = f"(sleep 25; rm -f {name}) < /dev/null > /dev/null 2>&1 &"
    subprocess.run(["/bin/sh", "-c", command], start_new_session=True, check=True)
    return gm.forward


@faults.instead("semantics/control/assertions", "_assert_async")
def no_assertions(condition: Any, *rest: Any) -> None:
    """Assertions about numbers are removed, as nobody uses their results."""
