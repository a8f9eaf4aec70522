"""Backends that nobody should choose, by functions that a worker can import; ``good`` is as eager."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import torch

_kept: list[Any] = []


def good(gm: Any, inputs: Any) -> Any:
    return gm.forward


def wrong(gm: Any, inputs: Any) -> Any:
    return lambda *args: tuple(v * 1.01 for v in gm.forward(*args))


def wrong_elsewhere(gm: Any, inputs: Any) -> Any:
    """Right on the inputs that it was compiled with, and nowhere else."""
    known = [v.clone() for v in inputs if isinstance(v, torch.Tensor)]
    results = [v.detach().clone() for v in gm.forward(*inputs)]

    def run(*args: Any) -> Any:
        same = all(torch.equal(a, b) for a, b in zip(args, known, strict=True))
        return tuple(r.clone() for r in results) if same else tuple(v + 1 for v in gm.forward(*args))

    return run


def crashing(gm: Any, inputs: Any) -> Any:
    os.kill(os.getpid(), 11)


def crashing_later(gm: Any, inputs: Any) -> Any:
    return lambda *args: os.kill(os.getpid(), 11)


def raising(gm: Any, inputs: Any) -> Any:
    raise ValueError("no such loop")


def hanging(gm: Any, inputs: Any) -> Any:
    time.sleep(1000)


def leaking(gm: Any, inputs: Any) -> Any:
    while True:
        _kept.append(torch.ones(1 << 24))


def printing(gm: Any, inputs: Any) -> Any:
    print("I am the fastest of them all")
    return gm.forward


def changing(gm: Any, inputs: Any) -> Any:
    torch.set_default_dtype(torch.float64)
    return gm.forward


def refusing(gm: Any, inputs: Any) -> Any:
    import torchmux

    raise torchmux.GraphRefused("not today")


def _after(gm: Any, each_call: Any) -> Any:
    """Eager, which does something else in each call."""

    def run(*args: Any) -> Any:
        each_call()
        return gm.forward(*args)

    return run


def wrong_later(gm: Any, inputs: Any) -> Any:
    calls: list[None] = []

    def run(*args: Any) -> Any:
        calls.append(None)
        return tuple(v + 1 if len(calls) == 2 else v for v in gm.forward(*args))

    return run


def wrong_in_threads(gm: Any, inputs: Any) -> Any:
    home = threading.get_ident()

    def run(*args: Any) -> Any:
        return tuple(v if threading.get_ident() == home else v + 1 for v in gm.forward(*args))

    return run


def overwriting(gm: Any, inputs: Any) -> Any:
    kept: list[Any] = []

    def run(*args: Any) -> Any:
        results = gm.forward(*args)
        kept[:] = kept or [r.clone() for r in results]
        return tuple(k.copy_(r) for k, r in zip(kept, results, strict=True))

    return run


def overwriting_if_asked(gm: Any, inputs: Any, **options: Any) -> Any:
    return overwriting(gm, inputs) if options else good(gm, inputs)


def writing(gm: Any, inputs: Any) -> Any:
    def run(*args: Any) -> Any:
        results = gm.forward(*args)
        args[0].mul_(2.0)
        return results

    return run


def chatty(gm: Any, inputs: Any) -> Any:
    return _after(gm, lambda: print("one more call", file=sys.stderr, flush=True))


def leaking_slowly(gm: Any, inputs: Any) -> Any:
    return _after(gm, lambda: _kept.append(torch.ones(1 << 16)))


def drawing(gm: Any, inputs: Any) -> Any:
    return _after(gm, lambda: torch.rand(1))


def drawing_in_python(gm: Any, inputs: Any) -> Any:
    random.random()
    return gm.forward


def handling(gm: Any, inputs: Any) -> Any:
    signal.signal(signal.SIGTERM, lambda number, frame: None)
    return gm.forward


def filtering(gm: Any, inputs: Any) -> Any:
    warnings.simplefilter("ignore")
    return gm.forward


def importing(gm: Any, inputs: Any) -> Any:
    sys.path.insert(0, "/nowhere")
    return gm.forward


def casting(gm: Any, inputs: Any) -> Any:
    torch.set_autocast_enabled("cpu", True)
    return gm.forward


def littering(gm: Any, inputs: Any) -> Any:
    Path("dump.txt").write_text("all that I know")
    return gm.forward


def moving(gm: Any, inputs: Any) -> Any:
    os.chdir("/")
    return gm.forward


def exporting(gm: Any, inputs: Any) -> Any:
    os.environ["FASTER"] = "1"
    return gm.forward


def threading_on(gm: Any, inputs: Any) -> Any:
    return _after(gm, lambda: threading.Thread(target=time.sleep, args=(1000,), daemon=True).start())


def lingering(gm: Any, inputs: Any) -> Any:
    """Leaves a process that would outlive it, in a session of its own; its number is in the environment's file."""
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"], start_new_session=True)
    Path(os.environ["LINGERING"]).write_text(str(process.pid))
    os.kill(os.getpid(), 9)


class Echo:
    """What answers in a process of the tests: the number of the question."""

    watches = False

    def __init__(self, told):
        pass

    def echo(self, number):
        time.sleep(0.001)
        return {"number": number}
