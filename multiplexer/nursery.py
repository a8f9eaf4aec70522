"""The process that forks workers: it has imported what they need, so that one starts in a hundredth of a second.

``python -m torchmux.multiplexer.nursery SOCKET PARENT`` answers requests of the program on a socket of packets, each a
line of JSON.  One with the descriptors of a worker (requests, answers, standard output and error) forks it and is
answered with its process id; one with a process id ends that worker and what it has started, and is answered with its
exit status.  An answer has the number of its request.

It runs one thread, never touches CUDA and imports no backend, so that what it forks is as good as new.  It ends with
its parent, when the parent closes the socket, or after ``IDLE_S`` without workers; all workers end with it.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
import select
import signal
import socket
import sys
import time
import traceback
from pathlib import Path
from typing import Any

IDLE_S = 120.0
"""How long it waits for requests while it has no workers."""

_POLL_S = 0.5
_PACKET = 1 << 16
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


class Nursery:
    """The state of this process."""

    def __init__(self, calls: socket.socket, parent: int) -> None:
        self.calls = calls
        self.parent = parent
        self.workers: set[int] = set()

    def serve(self) -> None:
        """Answer until there is nobody to answer to."""
        idle_since = time.monotonic()
        while os.getppid() == self.parent:
            ready, _, _ = select.select([self.calls], [], [], _POLL_S)
            if not ready:
                if not self.workers and time.monotonic() - idle_since > IDLE_S:
                    break
                continue
            packet, handles, _, _ = socket.recv_fds(self.calls, _PACKET, 4)
            if not packet:
                break
            asked = json.loads(packet)
            number = asked.pop("number")
            answer = self.fork(handles, **asked) if handles else self.end(**asked)
            self.calls.send(json.dumps({**answer, "number": number}).encode())
            idle_since = time.monotonic()

    def fork(self, handles: list[int], training: bool) -> dict[str, Any]:
        """A new worker on these descriptors, or why there can be none."""
        try:
            _prepare(training)
            if why := _unsafe():
                return {"why": why}
            nursery = os.getpid()
            pid = os.fork()
            if pid == 0:
                self._become_worker(handles, nursery)
        finally:
            for handle in handles:
                os.close(handle)
        self.workers.add(pid)
        return {"pid": pid}

    def end(self, pid: int, patience: float) -> dict[str, Any]:
        """The exit status of a worker, which is killed if it has not ended by itself within ``patience`` seconds."""
        until = time.monotonic() + patience
        ended, status = os.waitpid(pid, os.WNOHANG)
        while not ended and time.monotonic() < until:
            time.sleep(0.01)
            ended, status = os.waitpid(pid, os.WNOHANG)
        if not ended:
            for each in [*descendants(pid), pid]:
                _kill(each)
            _, status = os.waitpid(pid, 0)
        self.workers.discard(pid)
        self._end_orphans()
        return {"status": os.waitstatus_to_exitcode(status)}

    def _end_orphans(self) -> None:
        """What a worker had started and left became a child of this process."""
        for pid in descendants(os.getpid()):
            if pid not in self.workers and not any(pid in descendants(worker) for worker in self.workers):
                _kill(pid)
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, 0)

    def _become_worker(self, handles: list[int], nursery: int) -> None:
        status = 1
        try:
            os.setsid()
            _control(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != nursery:  # the nursery ended before this worker could be told to end with it
                os._exit(1)
            self.calls.close()
            # If memory runs out, the system is to end this process and not the program.
            with contextlib.suppress(OSError):
                Path("/proc/self/oom_score_adj").write_text("1000")
            os.dup2(handles[2], 1)
            os.dup2(handles[3], 2)
            for handle in handles:
                os.set_inheritable(handle, False)
            from . import worker

            worker.serve(os.fdopen(handles[0], "r"), os.fdopen(handles[1], "w"))
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)


def _prepare(training: bool) -> None:
    """Import what this and later workers need, also what torch imports at the first use."""
    import torch

    from torchmux import torch_internals
    from torchmux.backends.common.pipeline import pipeline  # noqa: F401
    from torchmux.torch_internals.tracer_stand_in import tracer_stand_in

    from . import worker  # noqa: F401

    with tracer_stand_in():
        torch_internals.fake_tensor_mode(symbolic=True).from_tensor(torch.empty(0))
    if training:
        torch_internals.aot_autograd()


def _unsafe() -> str:
    """Why this process must not fork, if so."""
    import torch

    if torch.cuda.is_initialized():
        return "CUDA is in use in the process that forks workers"
    if (threads := len(os.listdir("/proc/self/task"))) > 1:
        return f"the process that forks workers has {threads} threads"
    return ""


def descendants(pid: int) -> list[int]:
    """The processes that one has started, and those that they have, leaves first."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            for child in Path(f"/proc/{pid}/task/{task}/children").read_text().split():
                found += [*descendants(int(child)), int(child)]
    return found


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)


def _control(option: int, value: int) -> None:
    ctypes.CDLL(None).prctl(option, value)


def main() -> None:
    """Serve on the socket that the arguments name."""
    _control(_PR_SET_CHILD_SUBREAPER, 1)
    _prepare(training=False)
    gc.collect()
    gc.freeze()  # a collection in a worker must not touch, and so copy, what all share
    nursery = Nursery(socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2]))
    try:
        nursery.serve()
    finally:
        for pid in descendants(os.getpid()):
            _kill(pid)


if __name__ == "__main__":
    main()
