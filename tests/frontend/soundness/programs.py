"""Runs the programs of ``corpus/``, each in a process of its own, compiled and in eager.

    python -P tests/frontend/soundness/programs.py FILE BACKEND

A program is a text behind a line ``## name``.  Its function ``f`` is called twice, then once after each line that
begins with ``--``, whose code runs first, and once more.  Arguments come from ``args()``, or are one tensor.  What is
in ``log`` is compared as well.  A program that calls ``ob`` says itself what to compare; ``C`` compiles.
"""

from __future__ import annotations

import math
import os
import signal
import sys
import types
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch

import torchmux

CORPUS = Path(__file__).with_name("corpus")
_SECONDS = 120


class Program(NamedTuple):
    name: str
    text: str
    changes: list[str]


def programs(path: Path) -> list[Program]:
    found: list[Program] = []
    for part in path.read_text().split("## ")[1:]:
        name, _, rest = part.partition("\n")
        lines = rest.split("\n")
        text = "\n".join(line for line in lines if not line.startswith("-- "))
        found.append(Program(name, text, [line[3:] for line in lines if line.startswith("-- ")]))
    return found


def look(value: Any, depth: int = 0) -> Any:
    """What can be compared between processes."""
    if isinstance(value, torch.Tensor):
        name = "tensor" if type(value) in (torch.Tensor, torch.nn.Parameter) else type(value).__name__
        plain = value.detach().resolve_conj().resolve_neg()
        if plain.is_floating_point():
            plain = (plain.double() * 2**12).round() / 2**12 + 0.0 * plain.double()  # backends round differently
        return name, str(value.dtype), tuple(value.shape), value.stride(), value.requires_grad, repr(plain.tolist())
    if isinstance(value, (int, float, complex, str, bytes, type(None))):
        return type(value).__name__, repr(value)
    if depth < 6 and isinstance(value, (dict, types.MappingProxyType)):
        return type(value).__name__, [(look(k, depth + 1), look(v, depth + 1)) for k, v in value.items()]
    if depth < 6 and isinstance(value, (set, frozenset)):
        return type(value).__name__, sorted(repr(look(each, depth + 1)) for each in value)
    if depth < 6 and isinstance(value, (list, tuple)):
        return type(value).__name__, [look(each, depth + 1) for each in value]
    return type(value).__name__


def _observe(program: Program, compile_: Callable) -> list[Any]:
    seen: list[Any] = []

    def ob(*values: Any) -> None:
        for value in values:
            try:
                seen.append(look(value() if callable(value) and not isinstance(value, torch.nn.Module) else value))
            except BaseException as error:
                seen.append(("raises", type(error).__name__))

    names: dict[str, Any] = {
        "__name__": "program", "torch": torch, "F": torch.nn.functional, "nn": torch.nn, "math": math, "types": types,
        "sys": sys, "os": os, "C": compile_, "ob": ob,
    }  # fmt: skip
    exec(compile(program.text, f"<{program.name}>", "exec", dont_inherit=True), names)
    if "ob(" in program.text:
        return seen
    f, args = compile_(names["f"]), lambda: names.get("args", lambda: (torch.ones(2),))()
    for change in ("", "", *program.changes, ""):
        exec(change, names)
        given = args()
        given = given if isinstance(given, tuple) else (given,)
        try:
            result = look(f(*given))
        except BaseException as error:
            result = ("raises", type(error).__name__)
        seen.append((change, result, look(list(given)), look(names.get("log"))))
    return seen


def _alone(program: Program, compile_: Callable) -> str:
    """What the program shows in a process of its own, which its changes to torch and Python do not outlive."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        signal.alarm(_SECONDS)
        try:
            shown = "\n".join(map(repr, _observe(program, compile_)))
        except BaseException as error:
            shown = f"the program itself fails: {type(error).__name__}: {error}"
        with os.fdopen(write, "w") as out:
            out.write(shown)
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as shown_by_child:
        found = shown_by_child.read()
    status = os.waitpid(child, 0)[1]
    return found if status == 0 else f"the process ended with status {status}"


def difference(program: Program, backend: str) -> str:
    """How compiled and eager differ; nothing if they do not."""
    want = _alone(program, lambda f, **_: f)
    if "the program itself fails" in want or "the process ended" in want:
        return f"{program.name}: eager: {want}"
    got = _alone(program, lambda f, **options: torchmux.compile(f, backend=backend, **options))
    pairs = zip(want.split("\n"), got.split("\n"), strict=False)
    first = next(((a, b) for a, b in pairs if a != b), (want[-200:], got[-200:]))
    return "" if want == got else f"{program.name}: eager {first[0]}, compiled {first[1]}"


def _warm(backend: str) -> None:
    """Import before the first fork what every program needs."""
    for x in (torch.ones(2), torch.ones(3, requires_grad=True)):
        torchmux.compile(lambda x: torch.relu(x) * 2, backend=backend)(x)
    torchmux.reset()


def main(file: str, backend: str, first: str = "0", step: str = "1") -> int:
    """Run every ``step``-th program of a file, from the ``first`` on; 1 if any differs."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    _warm(backend)
    found = [difference(program, backend) for program in programs(CORPUS / file)[int(first) :: int(step)]]
    print("\n".join(each for each in found if each))
    return int(any(found))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
