"""Which results lie in the same place: what finishes a product works over it, and large tensors are used again."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from ..ir import index
from ..ir.expressions import Buffer
from ..ir.products import ComputedProduct, Product
from .stages import LoopNest, Store, read_by, stored_by


def reads_of(step: Any) -> set[Buffer]:
    """The buffers that a planned step reads."""
    found: set[Buffer] = read_by(step) if isinstance(step, LoopNest) else step.reads
    return found


def writes_of(step: Any) -> set[Buffer]:
    """The buffers that a planned step writes."""
    found: set[Buffer] = stored_by(step) if isinstance(step, LoopNest) else step.writes
    return found


def in_place(steps: Sequence[Any], held: Collection[Buffer]) -> dict[Buffer, Buffer]:
    """Results of products that lie where the one kernel that reads them puts its own result; none of ``held``."""
    readers: dict[Buffer, list[Any]] = {}
    writers: dict[Buffer, int] = {}
    for step in steps:
        for buffer in reads_of(step):
            readers.setdefault(buffer, []).append(step)
        for buffer in writes_of(step):
            writers[buffer] = writers.get(buffer, 0) + 1
    alias: dict[Buffer, Buffer] = {}
    for step in steps:
        if not isinstance(step, (Product, ComputedProduct)) or step.target in held:
            continue
        using = readers.get(step.target, [])
        if len(using) != 1 or not isinstance(using[0], LoopNest):
            continue
        for target in sorted(stored_by(using[0]), key=lambda b: b.name):
            if target.over is not None and target.over in readers:
                continue  # the old content is read until then
            free = writers[target] == 1 and target not in alias.values()
            if free and _takes_over(using[0], step.target, target):
                alias[step.target] = target
                break
    return alias


def taken_over(steps: Sequence[Any], tensors: Collection[Buffer]) -> dict[Buffer, Buffer]:
    """Which ``tensors`` may lie where another of them was, that only the kernel that makes the first still reads."""
    first: dict[Buffer, int] = {}
    last: dict[Buffer, int] = {}
    writers: dict[Buffer, int] = {}
    for at, step in enumerate(steps):
        for buffer in reads_of(step) | writes_of(step):
            first.setdefault(buffer, at)
            last[buffer] = at
        for buffer in writes_of(step):
            writers[buffer] = writers.get(buffer, 0) + 1
    found: dict[Buffer, Buffer] = {}
    for at, step in enumerate(steps):
        if not isinstance(step, LoopNest):
            continue
        ending = [b for b in read_by(step) if b in tensors and last[b] == at and first[b] < at]
        for target in sorted(stored_by(step), key=lambda b: b.name):
            if target in tensors and first[target] == at and writers[target] == 1:
                for source in sorted(ending, key=lambda b: b.name):
                    if _takes_over(step, source, target) and _depends(step, source, target):
                        found[target] = source
                        ending.remove(source)
                        break
    return found


def _depends(nest: LoopNest, source: Buffer, target: Buffer) -> bool:
    """Whether each element of ``target`` is made of that of ``source``, so that no thread can write it before another
    one has read it.  The threads of a row wait for each other where its reductions end."""
    steps = [step for stage in nest.stages for steps in (stage.before, stage.body) for step in steps]
    return any(
        isinstance(s, Store) and s.buffer is target and any(b is source for b, _ in s.value.loads) for s in steps
    )


def _takes_over(nest: LoopNest, source: Buffer, target: Buffer) -> bool:
    """Whether ``target`` can use the memory of ``source``: each element is read there before it is written.

    What runs once a row is a pass of its own: the loops after it may load again what it has loaded.
    """
    passes = [steps for stage in nest.stages for steps in (stage.before, stage.body)]
    stores = [(at, s) for at, steps in enumerate(passes) for s in steps if isinstance(s, Store) and s.buffer is target]
    if len(stores) != 1 or source.dtype is not target.dtype or source.numel != target.numel:
        return False
    last, store = stores[0]
    for at, steps in enumerate(passes):
        loaded = written = False  # in this pass, the element of the source; that of the target
        for step in steps:
            for buffer, position in step.value.loads:
                if buffer is source:
                    if at > last or position is not store.position or (written and not loaded):
                        return False
                    loaded = True
            if isinstance(step, Store) and any(
                b is source for a in index.data_atoms(step.position) for b, _ in a.node.loads
            ):
                return False
            written |= step is store
    return True
