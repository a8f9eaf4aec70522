"""Backends that are slow on one kind of operator, by functions that a worker can import; they compute as torch does."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

STEP_S = 0.01
_last: list[str] = []


def _backend(name: str, *, products: float = 0.0, others: float = 0.0, call: float = 0.0, change: float = 0.0) -> Any:
    """A backend that sleeps for each product, for each sine and the like, for each call, and after another's call."""

    def compile(gm: Any, inputs: Any) -> Callable[..., Any]:
        targets = [str(n.target) for n in gm.graph.nodes if n.op.startswith("call_")]

        def count(words: str) -> int:
            return sum(any(word in target for word in words.split()) for target in targets)

        seconds = products * count("mm linear") + others * count("sin cos tanh") + call

        def run(*args: Any) -> Any:
            time.sleep(seconds + (change if _last not in ([], [name]) else 0.0))
            _last[:] = [name]
            return gm.forward(*args)

        return run

    return compile


slow_products = _backend("slow_products", products=STEP_S)
slow_others = _backend("slow_others", others=STEP_S)
# A call costs more than any of its operators.
far_products = _backend("far_products", products=STEP_S, call=6 * STEP_S)
far_others = _backend("far_others", others=STEP_S, call=6 * STEP_S)
# They are in each other's way, which no measurement of one of them shows.
rival_products = _backend("rival_products", products=STEP_S, change=6 * STEP_S)
rival_others = _backend("rival_others", others=STEP_S, change=6 * STEP_S)
