"""Backends that are wrong on purpose, each in one way, to test the suite itself.

Each is ``eager`` with one fault of a kind that compilers have.  The suite has to catch every fault by the case that
``CAUGHT_AS`` names, alone.

* ``kit``: how a fault is declared, and how one operator of a graph is made wrong;
* ``numerics``: values; ``formulas`` and ``functions``: functions and derivatives that are nearly right; ``integers``:
  whole numbers and orders; ``layout``: memory, views, dtypes;
* ``simplifications``: rewrites that do not hold; ``arguments``: what operators are asked for beside tensors;
* ``gradients`` and ``engine``: training; ``corners``: faults that only some sizes, dtypes, layouts or arguments have;
  ``edges``: those that only some numbers have;
* ``state``: what lasts from call to call, or changes in the process; ``turns``: what goes wrong in some calls only;
  ``stale``: code made for something else; ``surroundings``: what is left around it;
* ``settings``: what it is told; ``lives``: what is kept too long or ends too early; ``process``: what happens to it;
  ``honesty``: what is said of it;
* ``circumstances``: faults that operators have where they are usually not tried; ``beyond``: with rare counts and
  ranges, in what only looks like what compilers have one kernel for, and in operators behind certain others.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from torchmux.registry import register_backend
from torchmux.registry.spec import ANY, BackendSpec

from ..outcome import Outcome
from ..requirements import Requirements
from . import (
    arguments,
    corners,
    edges,
    engine,
    formulas,
    functions,
    gradients,
    honesty,
    integers,
    layout,
    lives,
    numerics,
    process,
    settings,
    simplifications,
    stale,
    state,
    surroundings,
    turns,
)
from .beyond import counts, forms, kinds, operands, pairings, patterns, reach, seldom
from .circumstances import (
    algebra,
    attributes,
    calls,
    chains,
    derivatives,
    effects,
    inputs,
    integers as beside,
    keys,
    layouts,
    precision,
    process as of_process,
    programs,
    rare,
    sequences,
    sizes,
    slopes,
    surroundings as around,
    unusual,
    values,
)
from .kit import Fault

_KINDS = (
    numerics.faults, functions.faults, integers.faults, formulas.faults, simplifications.faults, corners.faults,
    edges.faults, arguments.faults, functions.arguments, layout.faults, lives.layout, gradients.faults, engine.faults,
    formulas.gradients, functions.training, lives.training, state.faults, settings.faults, surroundings.faults,
    stale.faults, turns.faults, lives.turns, process.faults, lives.process, honesty.faults, sizes.faults, beside.faults,
    precision.faults,
    layouts.faults, sequences.faults, derivatives.faults, around.process, around.turns, around.checks,
    algebra.arguments, algebra.numerics, programs.process, programs.state, programs.training,
    rare.numerics, rare.arguments, rare.layout, slopes.faults, values.numerics, values.arguments, values.edges,
    attributes.numerics, attributes.arguments, of_process.state, of_process.process, keys.faults, calls.keys,
    calls.turns, calls.state, calls.process, calls.training, calls.honesty, calls.numerics, unusual.layout,
    unusual.numerics, unusual.arguments, unusual.simplifications, unusual.training, unusual.process,
    chains.simplifications, chains.numerics, chains.layout, effects.state, effects.turns, effects.keys,
    effects.numerics, effects.training, inputs.layout, inputs.numerics, inputs.state, inputs.turns,
    counts.turns, counts.keys, counts.layout, counts.numerics, counts.training, patterns.simplifications,
    reach.layout, reach.numerics, reach.turns, reach.process, reach.state,
    forms.arguments, forms.numerics, pairings.simplifications, pairings.numerics,
    operands.arguments, operands.numerics, operands.simplifications,
    kinds.numerics, kinds.simplifications, kinds.training, seldom.numerics, seldom.layout, seldom.training,
)  # fmt: skip

ALL: dict[str, Fault] = {fault.name: fault for each in _KINDS for fault in each}

FAULTS = {name: fault.compile for name, fault in ALL.items()}

CAUGHT_AS: dict[str, tuple[Outcome, str]] = {name: (fault.outcome, fault.case) for name, fault in ALL.items()}
"""The outcome, and a case that must have it."""

_registered: set[str] = set()


class Loopback(Requirements):
    """The requirements of a backend with one fault; they are those of a correct backend."""

    seconds = 60.0

    def __init__(self, fault: str) -> None:
        super().__init__(f"loopback_{fault}")
        self.fault = fault
        if fault in _registered:
            return
        _registered.add(fault)
        everything = {"training": True, "dynamic_shapes": True, "devices": (ANY,), "dtypes": (ANY,)}
        register_backend(
            BackendSpec(
                self.name,
                ALL[fault].text,
                FAULTS[fault],
                graph="torch",
                options=ALL[fault].options,
                modes=ALL[fault].modes,
                **everything,  # type: ignore[arg-type]
            )
        )

    @property
    def own_kernels(self) -> bool:
        """Only the faults that concern this claim it."""
        return ALL[self.fault].kind == "honesty" and ALL[self.fault].options is None


def __getattr__(name: str) -> Callable[[], Loopback]:
    """``loopback:requirements_FAULT``, for a worker that receives its requirements by name."""
    fault = name.removeprefix("requirements_")
    if fault not in FAULTS or fault == name:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return functools.partial(Loopback, fault)
