"""Kernels that were kept, ready to be launched in this process: machine code on a GPU, text under Triton's
interpreter."""

from __future__ import annotations

import functools
import hashlib
import linecache
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from torchmux import torch_internals as internals

from ....common import max_pooling  # noqa: F401  # which code calls
from ....common.pipeline.promises import copied
from .. import rows_operator  # noqa: F401  # which code calls
from ..loaded import Loaded

ALIGNMENT = 16
"""Kernels read memory in pieces of so many bytes, so everything that they are given starts at a multiple of it."""


def load(own: Mapping[str, Any], built: bytes, constants: Mapping[str, torch.Tensor]) -> Loaded:
    """The kernels, and what the host function launches them with; see :data:`..loaded.Loader`."""
    names: dict[str, Any]
    around = None
    if own["device"] == "interpreter":
        names = {"launch": launch}
        if built:
            found = defined(built.decode())
            names |= {name: found[name] for name in own["kernels"]}
    else:
        device = torch.device(own["device"])
        names = _on(device, own, built)
        for name, of in own["constants"].items():
            constant = constants[of].to(device)
            names[name] = aligned(constant, constant.stride())
        around = _within(device) if torch.cuda.device_count() > 1 else None
    if not own["timers"]:
        return Loaded(names, around=around)
    spent = [0.0] * own["timers"]
    return Loaded({**names, "clock": clock, "spent": spent}, _taken(spent), around)


# --- on a GPU ---------------------------------------------------------------------------------------------------------


def _on(device: torch.device, own: Mapping[str, Any], built: bytes) -> dict[str, Any]:
    """What the host function of a graph on this GPU calls.

    Raises:
        RuntimeError: the code was made for another kind of GPU.
    """
    names: dict[str, Any] = {
        "current_stream": internals.current_raw_stream,
        "new_here": internals.new_on_gpu,
        "aligned": aligned,
    }
    if own["verifies"]:
        names["bad"] = torch.zeros((), dtype=torch.int32, device=device)
    if not built:
        return names
    from . import compiling, driver

    made_for, cubins = compiling.unpacked(built)
    major, minor = torch.cuda.get_device_capability(device)
    if made_for != 10 * major + minor:
        raise RuntimeError(f"its kernels are for GPUs of compute capability {made_for / 10}, and {device} is another")
    handles = {name: driver.function_of(cubin, device) for name, cubin in cubins.items()}

    def wide_form(piece: Mapping[str, Any]) -> Callable[..., None]:
        """Compile what has 64 bits in this form: only few programs ever have so many elements."""
        jobs = {name: compiling.Job(**own["wide"][name]) for name, *_ in piece["steps"] if name in own["wide"]}
        made = dict(zip(jobs, compiling.compile_all(list(jobs.values()), made_for), strict=True))
        of_64_bits = {name: driver.function_of(cubin, device) for name, cubin in made.items()}
        return launching(_steps_of(piece, handles | of_64_bits, cubins | made), piece["slots"], device)

    for at, piece in enumerate(own["launches"]):
        names[f"launch{at}"] = launching(_steps_of(piece, handles, cubins), piece["slots"], device)
        if piece["in_64_bits"]:
            names[f"wide{at}"] = _when_needed(functools.partial(wide_form, piece))
    return names


def _steps_of(piece: Mapping[str, Any], handles: Mapping[str, Any], cubins: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    return [(handles[name], cubins[name], programs, given) for name, programs, given in piece["steps"]]


def _when_needed(make: Callable[[], Callable[..., None]]) -> Callable[..., None]:
    """A function that is made by its first call."""
    made = functools.cache(make)

    def call(*given: int) -> None:
        made()(*given)

    return call


def launching(steps: Sequence[tuple[Any, ...]], slots: int, device: torch.device) -> Callable[..., None]:
    """A function of a stream and the content of all slots that launches some kernels; see :func:`.driver.table_of`."""
    from . import driver

    function, address, count = driver.launcher(), driver.launch_address(), len(steps)
    table, filled = driver.table_of(steps), driver.slots_type(slots)

    def launch(stream: int, *given: int) -> None:
        error = function(address, table, count, filled(*given), stream)
        if error in driver.NO_CONTEXT:  # a new thread, in which nothing has called CUDA yet
            driver.enter(device)
            error = function(address, table, count, filled(*given), stream)
        if error:
            raise driver.failed(error)

    return launch


def aligned(tensor: torch.Tensor, strides: Sequence[int]) -> torch.Tensor:
    """``tensor``, or a copy of it, with these strides and where kernels can read it."""
    right = tensor.stride() == tuple(strides) or all(
        size <= 1 or a == b for size, a, b in zip(tensor.shape, tensor.stride(), strides, strict=True)
    )
    if right and tensor.data_ptr() % ALIGNMENT == 0:
        return tensor
    return copied(tensor, strides)


def _within(device: torch.device) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """What makes a function run with ``device`` as the current one."""

    def around(run: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(run)
        def there(*args: Any) -> Any:
            if torch.cuda.current_device() == device.index:
                return run(*args)
            with torch.cuda.device(device):
                return run(*args)

        return there

    return around


# --- under the interpreter --------------------------------------------------------------------------------------------


def defined(source: str) -> dict[str, Any]:
    """What ``source`` defines.  Triton reads the text of a kernel again, through ``linecache``."""
    file = f"<torchmux native {hashlib.sha256(source.encode()).hexdigest()[:16]}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    namespace: dict[str, Any] = {"__name__": "torchmux_native_kernels"}
    exec(compile(source, file, "exec"), namespace)
    return namespace


def launch(kernel: Any, programs: int, *given: Any, **constants: int) -> None:
    """Run so many programs of a kernel on the CPU."""
    if programs > 0:
        kernel[(programs,)](*given, **constants)


def clock() -> float:
    """The time when everything that was launched has run."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def _taken(spent: list[float]) -> Callable[[], list[float]]:
    def take() -> list[float]:
        found = list(spent)
        spent[:] = [0.0] * len(spent)
        return found

    return take
