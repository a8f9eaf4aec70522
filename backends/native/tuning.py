"""``max_autotune``: generates the code in several ways and times them on this machine."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import GraphModule

from torchmux import torch_internals as internals

from ..common.adapter.results import hint_of
from ..common.cache.code_or_refusal import Code, code_in, of_code
from .generate import generate
from .options import NativeOptions
from .runtime import Made, loaded
from .targets.target import Target

_SECONDS = 0.5
"""How long all ways of one graph are timed together, at most; each runs at least three times."""

_WORTH = 0.03
"""The share of its time that another way must save to be kept; less is noise."""


def variants(target: Target, options: NativeOptions) -> list[NativeOptions]:
    """The ways to compile that are tried, the usual one first."""
    changes: list[dict[str, Any]] = [
        {},
        *target.variants(options),
        {"epilogue_fusion": not options.epilogue_fusion},
        {"shape_padding": not options.shape_padding},
        {"fusion": not options.fusion},
    ]
    return [dataclasses.replace(options, **change) for change in changes]


def tune(gm: GraphModule, target: Target, options: NativeOptions, *, timed: bool) -> bytes:
    """The artifact of the fastest way to compile ``gm``; ways that come to the same code count once."""
    found: dict[tuple[str, str], tuple[NativeOptions, Code]] = {}
    for variant in variants(target, options):
        made = generate(gm, target, variant, timed=timed)
        code = code_in(made)
        if code is None:
            return made
        found.setdefault((code.head["code"], repr(code.head["own"])), (variant, code))
    ways = list(found.values())
    inputs = _inputs(gm)
    if len(ways) == 1 or inputs is None:
        return of_code(ways[0][1].head, ways[0][1].code)
    runs = [loaded(code, lambda name: getattr(gm, name), cache_hit=False) for _, code in ways]
    seconds = _least_times(runs, inputs, target)
    best = min(range(len(ways)), key=seconds.__getitem__)
    if seconds[best] > seconds[0] * (1 - _WORTH):
        best = 0
    return _told(ways[best][1], [variant for variant, _ in ways], seconds, best)


def _inputs(gm: GraphModule) -> list[Any] | None:
    """Made-up inputs like those of the first call; None where sizes depend on data.  Integers are 0, which is an index
    of every tensor that has elements."""
    made: list[Any] = []
    numbers = torch.Generator().manual_seed(0)  # the program's own stay what they were
    with internals.without_modes(), torch.no_grad():
        for node in gm.graph.find_nodes(op="placeholder"):
            fake = node.meta["val"]
            if not isinstance(fake, torch.Tensor):
                made.append(fake if isinstance(fake, (int, float)) else hint_of(fake))
                continue
            sizes, strides = ([hint_of(s) for s in of] for of in (fake.shape, fake.stride()))
            if None in sizes or None in strides:
                return None
            tensor = torch.empty_strided(sizes, strides, dtype=fake.dtype, device=fake.device)
            if fake.is_floating_point():
                tensor.copy_(torch.empty(sizes, dtype=fake.dtype).uniform_(0.1, 1, generator=numbers))
            else:
                tensor.zero_()
            made.append(tensor)
    return None if None in made else made


def _least_times(runs: Sequence[Made], inputs: Sequence[Any], target: Target) -> list[float]:
    """The shortest call of each, alternating; the program's random state does not change."""
    least = [float("inf")] * len(runs)
    state = torch.get_rng_state()
    with internals.without_modes(), torch.no_grad():
        begin = time.perf_counter()
        rounds = 0
        while rounds < 3 or time.perf_counter() - begin < _SECONDS:
            for at, run in enumerate(runs):
                start = time.perf_counter()
                run(*inputs)
                target.wait()
                least[at] = min(least[at], time.perf_counter() - start)
            rounds += 1
    torch.set_rng_state(state)
    return least


def _told(code: Code, ways: Sequence[NativeOptions], seconds: Sequence[float], best: int) -> bytes:
    """The artifact with a note of what was measured."""
    usual = ways[0]
    words = []
    for at, (way, taken) in enumerate(zip(ways, seconds, strict=True)):
        changed = [f.name for f in dataclasses.fields(way) if getattr(way, f.name) != getattr(usual, f.name)]
        name = ", ".join(f"{name}={getattr(way, name)!r}" for name in changed) or "the defaults"
        words.append(f"{name} {taken * 1e3:.3f} ms{' (kept)' if at == best else ''}")
    code.head["notes"].append("native tried several ways to compile this graph: " + "; ".join(words))
    return of_code(code.head, code.code)
