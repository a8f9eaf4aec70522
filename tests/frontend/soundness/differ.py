"""Asks a question before and after a change, compiled and in eager, each in a world of its own."""

from __future__ import annotations

import contextlib
import math
import random
import re
import threading
import types
from collections.abc import Iterator
from typing import Any

import torch

import torchmux

from . import (  # noqa: F401 - they add their worlds
    worlds_of_classes,
    worlds_of_numbers,
    worlds_of_objects,
    worlds_of_torch,
)
from .worlds import WORLDS, World

_PRELUDE = {"torch": torch, "math": math, "types": types}
_ELSEWHERE = "in another thread"  # of a change: where the question is asked after it
_PLAIN = (int, float, complex, str, bytes, bool, type(None))


def combinations() -> list[tuple[World, str, str]]:
    """Every question of every world with every change of it."""
    return [(w, question, change) for w in WORLDS for question in w.questions for change in w.changes]


def sample(count: int, seed: int) -> list[tuple[World, str, str]]:
    """A random sample of ``count`` combinations, which treats worlds equally."""
    chance = random.Random(seed)
    each: list[tuple[World, str, str]] = []
    for w in WORLDS:
        pairs = [(w, question, change) for question in w.questions for change in w.changes]
        chance.shuffle(pairs)
        each.append(pairs)  # type: ignore[arg-type]
    # in turn, so that small worlds are included as a whole
    turns: list[Any] = []
    while len(turns) < count and any(each):
        turns.extend(pairs.pop() for pairs in each if pairs)
    return turns[:count]


def difference(world: World, question: str, change: str, backend: str = "eager") -> str:
    """How compiled and eager differ; empty if they agree."""
    asked, compiled_one = _Asked(world, question, ""), _Asked(world, question, backend)
    try:
        for moment, step in (
            ("before", ""),
            ("before, again", ""),
            *((f"after {s}", s) for s in change.split("; again; ")),
            ("again", ""),
        ):
            asked.change(step)
            compiled_one.change(step)
            want, got = asked.answer(), compiled_one.answer()
            if backend != "eager":  # which computes with torch's own operators
                want, got = _rounded(want), _rounded(got)
            if want != got:
                return f"{world.name}: {question} {moment} ({change}): eager {want}, compiled {got}"
    finally:
        if world.undo:
            exec(world.undo, asked.namespace)
    return ""


class _Asked:
    """A separate instance of a world, with a function that asks its question, compiled or not."""

    def __init__(self, world: World, question: str, backend: str) -> None:
        self.elsewhere = False
        self.namespace: dict[str, Any] = {"__name__": "soundness_world", **_PRELUDE}
        exec(compile(world.text, f"<{world.name}>", "exec"), self.namespace)
        exec(compile(f"def asks(x):\n    return x + 1, ({question})", f"<{world.name}>", "exec"), self.namespace)
        function = self.namespace["asks"]
        self.asks = torchmux.compile(function, backend=backend) if backend else function

    def change(self, change: str) -> None:
        change, found, _ = change.partition(_ELSEWHERE)
        self.elsewhere = bool(found)
        with contextlib.suppress(Exception):
            exec(change, self.namespace)

    def answer(self) -> tuple:
        """The value or exception of the question, and the state of ``d`` after it."""
        if not self.elsewhere:
            return self._answer()
        found: list[tuple] = []
        thread = threading.Thread(target=lambda: found.append(self._answer()))
        thread.start()
        thread.join()
        return found[0]

    def _answer(self) -> tuple:
        try:
            answer = _look(self.asks(torch.zeros(1))[1])
        except Exception as error:
            answer = type(error).__name__
        return answer, _look(self.namespace.get("d"))


def _look(answer: Any) -> Any:
    """A form of an answer that can be compared between instances of a world."""
    if isinstance(answer, torch.Tensor):
        return "tensor", answer.dtype, repr(answer.tolist())
    if type(answer) in _PLAIN:
        return type(answer).__name__, repr(answer)
    if isinstance(answer, dict | types.MappingProxyType):
        return type(answer).__name__, [(_look(k), _look(v)) for k, v in dict.items(dict(answer))]
    if isinstance(answer, set | frozenset):
        return type(answer).__name__, sorted(repr(_look(element)) for element in answer)
    if isinstance(answer, list | tuple):
        tensors = [element for element in answer if isinstance(element, torch.Tensor)]
        memory = [each.untyped_storage().data_ptr() for each in tensors]
        shared = [memory.index(each) for each in memory]  # the first one with the same memory
        return type(answer).__name__, [_look(element) for element in answer], shared
    return type(answer).__name__


def _rounded(answer: Any) -> Any:
    """An answer as :func:`_look` gives it, with the numbers in tensors to five digits."""
    if isinstance(answer, tuple) and answer[:1] == ("tensor",):
        return (*answer[:2], re.sub(r"-?\d+\.\d+(e-?\d+)?", lambda number: f"{float(number[0]):.5g}", answer[2]))
    return type(answer)(map(_rounded, answer)) if isinstance(answer, (list, tuple)) else answer


@contextlib.contextmanager
def fresh() -> Iterator[None]:
    """Discard all compiled code, before and after."""
    torchmux.reset()
    yield
    torchmux.reset()
