"""The process in which cases run: it may die, or hang, and the run goes on without it.

``python -m torchmux.conformance.worker`` reads a line of JSON from its input for each case that it is to run, and
writes one to its output when it begins a case and one with the result.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from typing import Any

from . import collect
from .case import Case
from .judge import judge
from .requirements import Requirements


def requirements_from(named: str, backend: str | None) -> Requirements:
    """``named`` is ``module:Class``, empty for what the backend's own description claims."""
    if not named:
        return Requirements(backend)
    module, _, name = named.partition(":")
    return getattr(importlib.import_module(module), name)()


def main() -> None:
    """Run cases until the input ends."""
    # The program's own output must not be taken for ours.
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def tell(**message: Any) -> None:
        print(json.dumps(message), file=out, flush=True)

    head = json.loads(sys.stdin.readline())
    sys.path[:0] = head["path"]
    requirements = requirements_from(head["requirements"], head["backend"])
    known: dict[str, Case] = {case.id: case for case in collect.cases(head["level"], head["patterns"])}
    tell(ready=True)
    for line in sys.stdin:
        name = json.loads(line)["case"]
        tell(begins=name)
        tell(result=judge(known[name], requirements).to_json())


if __name__ == "__main__":
    main()
