"""Graphs with symbolic sizes under ``auto``: the code of each range of sizes, as it was decided.

A call whose range was not decided runs what the nearest one runs: a file measures nothing.
"""

from __future__ import annotations

import ast
import logging
from collections.abc import Callable, Mapping, Sequence
from types import CodeType
from typing import Any

import torch

from torchmux import torch_internals as ti
from torchmux.multiplexer.running.buckets import Key, Sizes, nearest
from torchmux.registry.errors import LoadRefused, Unsupported
from torchmux.registry.names import JOINT

from .frames import check
from .values import NotTold

log = logging.getLogger("torchmux.fallback")
Run = Callable[..., Sequence[Any]]


def buckets_told(built: Any, told: Callable[[Any], dict[str, Any]], captured: Callable[[], Any]) -> dict[str, Any]:
    """What is written of the code of a graph by its sizes, a ``ByBucket`` of the multiplexer.

    Args:
        told: what is written of compiled code.
        captured: what is written of the captured graph.

    Raises:
        NotTold: some of it cannot be written.
    """
    graphs: list[Any] = []
    conditions: list[list[str]] = []
    number: dict[int, int] = {}
    choices = []
    for bucket, code in built.codes.items():
        if id(code) not in number:
            number[id(code)] = len(graphs)
            graphs.append({"torch": captured(), "backend": "eager"} if code is None else told(code.compiled))
            needed = code.conditions.texts if code is not None and code.conditions is not None else []
            for text in needed:
                check(ast.parse(text, mode="eval"), conditions=True)
            conditions.append(needed)
        choices.append([list(bucket), number[id(code)]])
    backends = sorted({member for graph in graphs for member in graph["backend"].split(JOINT)})
    return {
        "backend": JOINT.join(backends),
        "places": [[str(symbol), position, dim] for symbol, (position, dim) in built.sizes.places.items()],
        "bounds": built.sizes.bounds,
        "graphs": graphs,
        "conditions": conditions,
        "choices": choices,
        "otherwise": captured() if any(conditions) and not built.is_strict else None,
    }


def buckets_again(
    told: Mapping[str, Any], again: Callable[[Mapping[str, Any]], Run], captured: Callable[[Any], Run]
) -> Run:
    """One function for all sizes.

    Args:
        again: the code of what is written of a graph.
        captured: that of a captured graph.

    Raises:
        LoadRefused: it is none that torchmux writes, or one of the graphs does not load.
    """
    places = {symbol: (position, dim) for symbol, position, dim in told["places"]}
    numbers = [n for place in places.values() for n in place if n is not None] + list(told["bounds"] or ())
    keys = [tuple(bucket) for bucket, _ in told["choices"]]
    numbers += [n for key in keys for n in key]
    if (
        not all(type(n) is int for n in numbers)
        or not all(symbol.isidentifier() for symbol in places)
        or not keys
        or any(len(key) != len(places) for key in keys)
    ):
        raise LoadRefused("A saved file has ranges of sizes that torchmux.save() does not write.")
    sizes = Sizes(places, told["bounds"])
    otherwise = _in_torch(None if told["otherwise"] is None else captured(told["otherwise"]))
    codes = []
    for graph, texts in zip(told["graphs"], told["conditions"], strict=True):
        run = again(graph)
        codes.append(_where(list(map(_condition, texts)), sizes, run, otherwise) if texts else run)
    runs: dict[Key, Run] = {key: codes[at] for key, (_, at) in zip(keys, told["choices"], strict=True)}

    def new(bucket: Key, inputs: Sequence[Any]) -> Run:
        return runs.setdefault(bucket, runs[nearest(bucket, keys)])  # type: ignore[index]

    return sizes.dispatch(runs, new)


def _condition(text: str) -> CodeType:
    try:
        tree = ast.parse(text, mode="eval")
        check(tree, conditions=True)
    except (NotTold, SyntaxError) as error:
        raise LoadRefused(f"A saved file has {error} among its sizes.") from None
    return compile(tree, "<torchmux file>", "eval")


def _where(conditions: Sequence[CodeType], sizes: Sizes, run: Run, otherwise: Run) -> Run:
    """``run`` for the calls whose sizes it was compiled for."""
    namespace = ti.shape_guard_namespace()
    namespace["__builtins__"] = {f.__name__: f for f in (abs, bool, float, int, max, min, round)}

    def call(*args: Any) -> Sequence[Any]:
        values = dict(zip(sizes.places, sizes.of(args), strict=True))
        if all(eval(condition, namespace, values) for condition in conditions):
            return run(*args)
        return otherwise(*args)

    return call


def _in_torch(run: Run | None) -> Run:
    """The captured graph in torch, which tells of each call; None refuses them."""

    def call(*args: Any) -> Sequence[Any]:
        sizes = [list(value.shape) for value in args if isinstance(value, torch.Tensor)]
        if run is None:
            raise Unsupported(
                f"The file has no code for these sizes ({sizes}), which auto's backends did not compile for, and "
                "strict=True forbids that torch runs them. Call the compiled program with them, then save it again."
            )
        log.warning("torch runs this call: a saved file has no code of a backend for the sizes %s", sizes)
        return run(*args)

    return call
