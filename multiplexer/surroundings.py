"""The state of a process that decides what is computed, and how fast: told to workers, and not theirs to change.

``SETTINGS`` are torch's own; :func:`told` packs them and :func:`restore` makes them those of another process.
:func:`observed` has these and everything else that a backend must leave as it is.
"""

from __future__ import annotations

import contextlib
import locale
import os
import random
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch

from torchmux import torch_internals as internals

from .nursery import descendants


class Setting(NamedTuple):
    """A setting of torch; ``read`` may raise where torch says that it has no answer."""

    name: str
    read: Callable[[], Any]
    write: Callable[[Any], Any]


def _attribute(path: str) -> Setting:
    owner_path, _, name = path.rpartition(".")

    def owner() -> Any:
        found: Any = torch
        for part in owner_path.split("."):
            found = getattr(found, part)
        return found

    return Setting(f"torch.{path}", lambda: getattr(owner(), name), lambda value: setattr(owner(), name, value))


def _deterministic() -> tuple[bool, bool]:
    return torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()


def _set_deterministic(value: tuple[bool, bool]) -> None:
    torch.use_deterministic_algorithms(value[0], warn_only=value[1])


def _autocast() -> tuple[bool, dict[str, tuple[bool, torch.dtype]]]:
    devices = {"cpu": (torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu"))}
    if torch.backends.cuda.is_built():
        devices["cuda"] = (torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda"))
    return torch.is_autocast_cache_enabled(), devices


def _set_autocast(value: tuple[bool, dict[str, tuple[bool, torch.dtype]]]) -> None:
    cache, devices = value
    for device, (enabled, dtype) in devices.items():
        torch.set_autocast_enabled(device, enabled)
        torch.set_autocast_dtype(device, dtype)
    torch.set_autocast_cache_enabled(cache)


def _set_default_device(devices: tuple[Any, ...] | None) -> None:
    torch.set_default_device(devices[-1] if devices else None)


THREAD_SETTINGS: tuple[Setting, ...] = (
    Setting("torch's grad mode", torch.is_grad_enabled, torch.set_grad_enabled),
    Setting("torch's autocast", _autocast, _set_autocast),
    Setting("torch's default device", internals.default_devices, _set_default_device),
)
"""Settings that each thread has for itself."""

SETTINGS: tuple[Setting, ...] = (
    Setting("torch's number of threads", torch.get_num_threads, torch.set_num_threads),
    Setting("torch's default dtype", torch.get_default_dtype, torch.set_default_dtype),
    Setting("torch's deterministic algorithms", _deterministic, _set_deterministic),
    # Before the precisions of single backends, which it sets.
    Setting(
        "torch's precision of matrix products",
        torch.get_float32_matmul_precision,
        torch.set_float32_matmul_precision,
    ),
    *(
        _attribute(path)
        for path in (
            "backends.fp32_precision",
            "backends.cuda.matmul.fp32_precision",
            "backends.cudnn.conv.fp32_precision",
            "backends.cudnn.rnn.fp32_precision",
            "backends.mkldnn.matmul.fp32_precision",
            "backends.mkldnn.conv.fp32_precision",
            "backends.mkldnn.rnn.fp32_precision",
            "backends.cuda.matmul.allow_fp16_reduced_precision_reduction",
            "backends.cuda.matmul.allow_bf16_reduced_precision_reduction",
            "backends.cudnn.enabled",
            "backends.cudnn.benchmark",
            "backends.cudnn.deterministic",
            "backends.mkldnn.enabled",
            "backends.mkldnn.deterministic",
            "backends.opt_einsum.enabled",
            "backends.opt_einsum.strategy",
            "utils.deterministic.fill_uninitialized_memory",
        )
    ),
    *(
        Setting(f"torch's {getter.__name__.lstrip('_')}", getter, setter)
        for setter, getter in internals.switches().items()
    ),
    *THREAD_SETTINGS,
)


def _read(setting: Setting) -> Any:
    try:
        return setting.read()
    except (RuntimeError, AttributeError, AssertionError):  # another torch, or it was set in ways that do not agree
        return None


def told(settings: tuple[Setting, ...] = SETTINGS) -> dict[str, Any]:
    """The settings of this process and thread, for :func:`restore`."""
    return {setting.name: _read(setting) for setting in settings}


def restore(state: Mapping[str, Any]) -> None:
    """Make the settings of this process and thread those of the one that told them."""
    for setting in SETTINGS:
        if setting.name in state and state[setting.name] != _read(setting):
            setting.write(state[setting.name])


def observed() -> dict[str, Any]:
    """What a backend must leave as it is, by names for people; for :func:`changes`."""
    numpy = sys.modules.get("numpy")
    return {
        **{name: repr(value) for name, value in told().items()},
        "the working directory": os.getcwd(),
        "the environment": dict(os.environ),
        "the signal handlers": _handlers(),
        "the filters of warnings": repr(warnings.filters),
        "the path of imports": list(sys.path),
        "the locale": locale.setlocale(locale.LC_ALL),
        "the random numbers of Python": hash(random.getstate()),
        "the random numbers of numpy": repr(numpy.random.get_state()[1:3]) if numpy is not None else "",
        "the standard streams": (id(sys.stdin), id(sys.stdout), id(sys.stderr)),
        "the limit of recursion": sys.getrecursionlimit(),
    }


def changes(before: Mapping[str, Any], backend: str) -> list[str]:
    """What is not as it was, and matters to others than the backend.

    These do not: variables of the environment that were not set and have its name (runtimes tell their own libraries so
    what to do), or that torch sets whoever asks it to trace, folders after all others in the path of imports, a higher
    limit of recursion, and handlers of signals that would have ended the process (they say where it crashed).
    """
    now = observed()
    found = []
    for name, was in before.items():
        if now[name] == was:
            continue
        details: list[str] = []
        if name == "the environment":
            own = backend.lower().split("+")  # the members of a chain
            names = {key for key in {*was, *now[name]} if was.get(key) != now[name].get(key)}
            details = sorted(
                key
                for key in names
                if key in was or (key not in _OF_TORCH and not any(part in key.lower() for part in own))
            )
        elif name == "the signal handlers":
            names = {key for key in was if was[key] != now[name][key]}
            details = sorted(key for key in names if key not in _FATAL or was[key] != _DEFAULT)
        elif name == "the path of imports":
            details = [folder for folder in now[name] if folder not in was] if now[name][: len(was)] != was else []
            details = details or (["its order"] if now[name][: len(was)] != was else [])
        elif name == "the limit of recursion":
            details = [str(now[name])] if now[name] < was else []
        else:
            found.append(name)
        if details:
            found.append(f"{name} ({', '.join(details[:3])})")
    return found


def torch_random() -> str:
    """The state of torch's generator for the CPU, which a call may advance as eager does."""
    return str(hash(torch.get_rng_state().numpy().tobytes()))


def threads_and_processes() -> tuple[int, int]:
    """How many threads this process has, and how many processes it and they have started."""
    try:
        return len(os.listdir("/proc/self/task")), len(descendants(os.getpid()))
    except OSError:
        return threading.active_count(), 0


_OF_TORCH = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")
_FATAL = ("SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGABRT")
_DEFAULT = (repr(signal.SIG_DFL), False, False)


def _handlers() -> dict[str, tuple[str, bool, bool]]:
    """Python's handler of each signal, and whether the process handles or ignores it, by C code too."""
    masks = {"SigCgt": 0, "SigIgn": 0}
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            name, _, mask = line.partition(":")
            if name in masks:
                masks[name] = int(mask, 16)
    return {
        number.name: (
            repr(signal.getsignal(number)),
            bool(masks["SigCgt"] >> (number - 1) & 1),
            bool(masks["SigIgn"] >> (number - 1) & 1),
        )
        for number in signal.Signals
    }
