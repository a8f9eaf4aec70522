"""The fingerprint of a captured graph in this process."""

from __future__ import annotations

import dataclasses
import hashlib
import logging
import platform
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import torch
from torch.fx import GraphModule

from torchmux.backends.common.cache.listing import Unknown
from torchmux.backends.common.cache.recipes import described_graph, named_settings
from torchmux.backends.common.pipeline.lines import line_of
from torchmux.registry.errors import TorchmuxError
from torchmux.registry.resolve import usable_spec
from torchmux.registry.spec import CompileRequest
from torchmux.version import __version__

from .fingerprint import Backend, Fingerprint, differences
from .typed import built, written

log = logging.getLogger("torchmux.cache")

FIRST_LINES = 8
"""How many operators of a graph a decision shows to its readers."""


LONGEST = 1000
"""Characters of a text in a fingerprint; a hash stands for the rest of a longer one."""


def machine(devices: Sequence[str] = ("cuda",)) -> dict[str, str]:
    """What the times on these kinds of devices depend on besides the software."""
    on_gpu = "cuda" in devices and torch.cuda.is_available()
    return {
        "processor": _processor(),
        "capability": torch.backends.cpu.get_cpu_capability(),
        "threads": str(torch.get_num_threads()),
        "gpu": torch.cuda.get_device_name() if on_gpu else "",
    }


def software() -> dict[str, str]:
    """The versions that all candidates share."""
    return {
        "torch": torch.__version__,
        "torchmux": __version__,
        "python": ".".join(platform.python_version_tuple()[:2]),
    }


def settings() -> dict[str, str]:
    """torch's settings, but those that :func:`machine` tells, and the grad mode, of which the phase tells what counts.

    Raises:
        Unknown: something is active that they do not describe.
    """
    beside = ("threads", "capability", "grad")
    return {name: _bounded(value) for name, value in named_settings().items() if name not in beside}


def key_of(
    gm: GraphModule,
    inputs: Sequence[Any],
    request: CompileRequest,
    candidates: Mapping[str, Backend],
    asked: Mapping[str, Any],
    *,
    bucket: str = "",
) -> Fingerprint | None:
    """What identifies the decision on a graph in this process; None if the graph cannot be described.

    Args:
        candidates: the backends that are measured, eager excepted.
        asked: objective, limits and whatever else the choice depends on, by name.
        bucket: of sizes; graphs with symbolic sizes have a decision for each bucket, and none without one.
    """
    try:
        described = described_graph(gm, inputs, symbolic=bool(bucket))
        told = settings()
    except Unknown as why:
        log.debug("a decision is not kept: %s", why)
        return None
    tensors = [value for value in inputs if isinstance(value, torch.Tensor)]
    own = [value for position, value in enumerate(inputs) if position not in request.static_inputs]
    fingerprint = Fingerprint(
        graph=hashlib.sha256("\n".join(described).encode()).hexdigest(),
        nodes=len(gm.graph.nodes),
        inputs=[] if bucket else [_input(value) for value in own],
        bucket=bucket,
        phase="inference" if request.phase == "inference" else "training",
        strict=str(request.strict),
        asked={name: _bounded(value if isinstance(value, str) else repr(value)) for name, value in asked.items()},
        machine=machine(sorted({value.device.type for value in tensors})),
        software=software(),
        settings=told,
        candidates={name: Backend(_bounded(each.version), each.options) for name, each in candidates.items()},
        about=_about(gm),
    )
    # As it is read again, so that it is equal to itself.
    return cast(Fingerprint, built(Fingerprint, written(dataclasses.asdict(fingerprint)), "fingerprint"))


def why_not_here(fingerprint: Fingerprint) -> list[str]:
    """Why no graph that this process captures can have this fingerprint, in words; empty if one can.

    torch's settings, and which backends fit a graph, are not known before there is a graph, and are not compared.
    """
    candidates = {}
    for name, there in fingerprint.candidates.items():
        try:
            spec = usable_spec(name)
        except TorchmuxError:
            continue
        candidates[name] = Backend(_bounded(spec.fingerprint()), there.options)
    here = fingerprint.on(machine(("cuda",) if fingerprint.machine.get("gpu") else ()), candidates, {})
    here = dataclasses.replace(here, software=software())
    return differences(here, dataclasses.replace(fingerprint, settings={}))


def _about(gm: GraphModule) -> dict[str, str]:
    """What tells a reader which graph this is."""
    calls = [node for node in gm.graph.nodes if node.op in ("call_function", "call_method")]
    lines = [line for node in calls if (line := line_of(node))]
    names = [getattr(node.target, "__name__", str(node.target)) for node in calls]
    shown = ", ".join(names[:FIRST_LINES])
    return {
        "program": str(lines[0]) if lines else "",
        "operators": str(len(calls)),
        "code": shown + (", ..." if len(names) > FIRST_LINES else ""),
        "made": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
    }


def _bounded(text: str) -> str:
    """A text that may be long, as a fingerprint has it."""
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}... {hashlib.sha256(text.encode()).hexdigest()}"


def _input(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        sizes = ",".join(map(str, value.shape))
        return f"{str(value.dtype).removeprefix('torch.')}[{sizes}] on {value.device}"
    return f"{type(value).__name__} {value}" if isinstance(value, (bool, int, float, str)) else type(value).__name__


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
