"""What a worker of a cluster does.  These functions run there; what they return is JSON."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from torchmux.registry.availability import availability
from torchmux.registry.errors import TorchmuxError
from torchmux.registry.lookup import backends
from torchmux.registry.resolve import known_spec

from ..candidates import EAGER
from ..decisions.identity import machine, software
from ..decisions.typed import written
from ..measure import Measurement, default_memory
from ..objectives import Objective
from ..parcel import Parcel
from .capture import Captured, field_for

_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")  # a Dask worker has them at 1
_one = threading.Lock()  # jobs of one worker would disturb each other


def describe(threads: int) -> str:
    """What this worker is: workers that say the same are of one kind, and their results are joined."""
    with _with_threads(threads):
        versions = {}
        for row in backends():
            with contextlib.suppress(TorchmuxError):
                if not (row.retired or row.error) and availability(spec := known_spec(row.name)).ok:
                    versions[row.name] = spec.fingerprint()
        told = {"machine": machine(), "software": software(), "backends": versions}
    return json.dumps(told, sort_keys=True)


def plan(captured: Captured) -> dict[str, Any]:
    """The fingerprint of a graph on this worker, the names of the candidates, simplest first, and the others."""
    with _opened(captured) as parcel:
        found = field_for(parcel.real_inputs(), parcel.training, captured.options)
        on_gpu = ("cuda",) if captured.fingerprint.machine["gpu"] else ()
        here = captured.fingerprint.on(machine(on_gpu), _measured(found.fingerprint), captured.fingerprint.settings)
        here = dataclasses.replace(here, software=software())
    names = [candidate.name for candidate in found.candidates]
    return {"fingerprint": here.to_data(), "candidates": names, "excluded": found.excluded}


def measure(captured: Captured, names: list[str]) -> dict[str, Any]:
    """Measure eager and the candidates with these names.

    The answer has the rows, without verdicts on times, and for each candidate that was timed the logarithms of its
    ratios to eager in the same turns.  ``eager`` has eager's seconds by turn.
    """
    with _one, _opened(captured) as parcel:
        found = field_for(parcel.real_inputs(), parcel.training, captured.options)
        wanted = tuple(c for c in found.candidates if c.backend == EAGER or c.name in names)
        options = captured.options
        memory = default_memory() if options.memory_mb is None else options.memory_mb << 20
        measurement = Measurement(
            parcel,
            dataclasses.replace(found, candidates=wanted, excluded={}),
            budget=options.budget_s,
            memory=memory,
            strict=False,  # eager is what the others are measured by
            objective=Objective.of(options),
            shares=False,  # a ratio needs both times of one turn
        )
        decision = measurement.decide()
        times = {name: own.turns for name, own in measurement.times.items()}
    eager = times.get(EAGER, [])
    ratios = {
        name: [math.log(a / b) for a, b in zip(turns, eager, strict=False)]
        for name, turns in times.items()
        if name != EAGER
    }
    rows = [dataclasses.asdict(row) for row in decision.rows if row.verdict != "excluded"]
    return dict(written({"rows": rows, "ratios": ratios, "eager": eager, "seconds": decision.seconds}))


def _measured(told: Any) -> Any:
    return {name: dataclasses.replace(each, options=written(each.options)) for name, each in told.items()}


@contextlib.contextmanager
def _opened(captured: Captured) -> Iterator[Parcel]:
    """The parcel, with as many threads as it was captured with."""
    with tempfile.TemporaryDirectory() as folder, _with_threads(int(captured.fingerprint.machine["threads"])):
        path = Path(folder) / "parcel"
        path.write_bytes(captured.parcel)
        yield Parcel.load(path)


@contextlib.contextmanager
def _with_threads(number: int) -> Iterator[None]:
    """This many threads of torch here, and in the processes that are started here."""
    found, variables = torch.get_num_threads(), {name: os.environ.get(name) for name in _THREADS}
    torch.set_num_threads(number)
    os.environ.update(dict.fromkeys(_THREADS, str(number)))
    try:
        yield
    finally:
        torch.set_num_threads(found)
        for name, value in variables.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
