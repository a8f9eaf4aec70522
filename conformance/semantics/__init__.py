"""Cases for the meaning of a graph, independent of its operators; each docstring says what must hold."""

from __future__ import annotations

from collections.abc import Iterator

from ..case import Case
from . import (
    accuracy,
    aliasing,
    control,
    corners,
    dtypes,
    gradients,
    indices,
    integers,
    layers,
    modes,
    mutation,
    numbers,
    randomness,
    shapes,
    special,
    speed,
    structure,
    training,
    turns,
    use,
)
from .arguments import (
    algebra,
    attributes,
    edges,
    everywhere,
    functions,
    identities,
    inputs,
    kinds,
    operands,
    orders,
    rare,
    reductions,
    seldom,
    selections,
    slopes,
    smallest,
    unusual,
    values,
    widths,
    windows,
)
from .programs import (
    chains,
    circumstances,
    counts,
    derivatives,
    effects,
    joins,
    keys,
    lives,
    modules,
    patterns,
    recipes,
    sequences,
)

SUBJECTS = (
    mutation.case, aliasing.case, numbers.case, special.case, integers.case, accuracy.case, shapes.lengths,
    indices.case, layers.case, randomness.case, structure.case, control.case,
    shapes.case, training.case, modes.case, use.case, gradients.case, dtypes.case, corners.case, turns.case, speed.case,
    windows.case, reductions.case, selections.case, functions.case, algebra.case, edges.case, widths.case,
    identities.case, derivatives.case, modules.case, keys.case, lives.case, everywhere.case,
    rare.case, slopes.case, smallest.case, values.case, attributes.case,
    orders.case, joins.case, chains.case, effects.case, unusual.case, inputs.case,
    seldom.case, counts.case, patterns.case, recipes.case, operands.case, sequences.case,
    kinds.case, circumstances.case,
)  # fmt: skip


def cases() -> Iterator[Case]:
    """All of them."""
    for subject in SUBJECTS:
        yield from subject
