"""Who says what is right: eager, in a process in which no backend has run.

What a backend leaves behind (flags, patched functions, memory that it has written to) must not change eager's answers,
or both would be wrong in the same way.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import io
import json
import os
import signal
import struct
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any

import torch

from ..case import Case, Trial
from .shown import Shown, observe

_PR_SET_PDEATHSIG = 1


class Died(Exception):
    """Eager's process ended: eager itself crashes in this case."""


class Referee:
    """Eager's answers from this process, for scripts and tests; :class:`Apart` has a process of its own."""

    def answer(self, case: Case, device: str, *, wide: bool = False, draw: int = 0) -> Shown:
        """What eager shows, in float64 if ``wide``."""
        return observe(case, Trial(device=device, wide=wide, draw=draw, precision=case.precision))


class Apart(Referee):
    """Eager's answers from another process; :func:`copied` and :func:`started` make one.

    A ``folder`` keeps the answers for others that ask the same, such as the judge of another backend.
    """

    folder = ""

    def __init__(self, asked: int, answers: int, wait: Callable[[], Any]) -> None:
        self._asked, self._answers, self._wait = asked, answers, wait

    def answer(self, case: Case, device: str, *, wide: bool = False, draw: int = 0) -> Shown:
        """What eager shows, in float64 if ``wide``.

        Raises:
            Died: eager's process ended.
            RuntimeError: what it shows cannot be sent.
        """
        question = (case.id, device, wide, draw)
        # The first model of a process imports a library, which is a change of eager's as well: in the same case.
        is_kept = bool(self.folder) and not case.id.startswith("models/")
        kept = os.path.join(self.folder, hashlib.sha256(repr(question).encode()).hexdigest()) if is_kept else ""
        if kept and os.path.exists(kept):
            return torch.load(kept, weights_only=False).whole()
        try:
            _send(self._asked, question)
            data = _message(self._answers)
        except OSError:
            data = b""
        if not data:
            raise Died
        told = torch.load(io.BytesIO(data), weights_only=False)
        if isinstance(told, str):
            raise RuntimeError(f"eager's answer to {case.id} cannot be told to another process: {told}")
        if kept:
            with open(part := f"{kept}.{os.getpid()}", "wb") as file:
                file.write(data)
            os.replace(part, kept)
        return told.whole()

    def close(self) -> None:
        """End the process, and wait for it."""
        os.close(self._asked)
        os.close(self._answers)
        self._wait()


def copied(find: Callable[[str], Case]) -> Apart:
    """A copy of this process as it is now, for cases on a CPU: drivers of other devices work in no copy."""
    torch.cuda.is_available()  # the copy remembers the answer, and does not ask
    questions, asked = os.pipe()
    answers, told = os.pipe()
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        os.close(asked)
        os.close(answers)
        with contextlib.suppress(BaseException):
            end_with(parent)
            serve(questions, told, find)
        os._exit(0)
    os.close(questions)
    os.close(told)
    return Apart(asked, answers, lambda: os.waitpid(child, 0))


def started(head: Mapping[str, Any], device: str, environment: Mapping[str, str]) -> Apart:
    """A new worker process that loads no backend, for cases on a device; ``head`` says which cases.

    Raises:
        RuntimeError: eager cannot use the device there.
    """
    questions, asked = os.pipe()
    answers, told = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "torchmux.conformance.worker"],
        stdin=subprocess.PIPE, pass_fds=(questions, told), env=dict(environment), text=True,
    )  # fmt: skip
    os.close(questions)
    os.close(told)
    assert process.stdin is not None
    with contextlib.suppress(OSError):  # it ended, and gives no answer
        process.stdin.write(json.dumps({**head, "parent": os.getpid(), "serves": [questions, told, device]}) + "\n")
        process.stdin.close()
    apart = Apart(asked, answers, process.wait)
    problem = _receive(answers)
    if problem != "":
        apart.close()
        raise RuntimeError(f"eager cannot run on {device}: {problem or 'its process ended'}")
    return apart


def warm_up(device: str) -> str:
    """Use the device once, so that what its driver starts belongs to no case; returns what is wrong with it.

    The first attention in half precision settles for the whole process which of torch's kernels comes first.
    """
    try:
        (torch.ones(2, 2, device=device) @ torch.ones(2, 2, device=device)).sum().item()
        if torch.device(device).type == "cuda":
            queries = torch.ones(1, 1, 8, 64, dtype=torch.float16, device=device)
            torch.nn.functional.scaled_dot_product_attention(queries, queries, queries).sum().item()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def end_with(parent: int) -> None:
    """Die with the process that started this one, even during a call that never ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def serve(asked: int, answers: int, find: Callable[[str], Case], device: str = "cpu") -> None:
    """Answer questions about cases until there are no more; the first answer says what is wrong with a device."""
    if device != "cpu":
        _send(answers, warm_up(device))
    silent = os.open(os.devnull, os.O_RDWR)
    os.dup2(silent, 0)
    os.dup2(silent, 1)
    here = Referee()
    while (question := _receive(asked)) is not None:
        name, device, wide, draw = question
        try:
            _send(answers, here.answer(find(name), device, wide=wide, draw=draw).portable())
        except Exception as error:  # it would end this process, and look like a crash of eager
            _send(answers, f"{type(error).__name__}: {error}")


def _send(to: int, message: Any) -> None:
    stored = io.BytesIO()
    torch.save(message, stored)
    data = stored.getbuffer()
    rest = memoryview(struct.pack("<Q", len(data)) + data)
    while rest:
        rest = rest[os.write(to, rest) :]


def _receive(source: int) -> Any:
    """The next message; None at the end."""
    data = _message(source)
    return torch.load(io.BytesIO(data), weights_only=False) if data else None


def _message(source: int) -> bytes:
    """The next message as it was sent; empty at the end."""
    head = _read(source, 8)
    if len(head) < 8:
        return b""
    (size,) = struct.unpack("<Q", head)
    data = _read(source, size)
    return data if len(data) == size else b""


def _read(source: int, size: int) -> bytes:
    parts = []
    while size and (part := os.read(source, min(size, 1 << 20))):
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
