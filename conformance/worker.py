"""The process in which cases run: it may die or hang, and the run continues without it.

``python -m torchmux.conformance.worker`` reads a line of JSON that says for which backend it works, then one for each
case or program to run.  It writes a line to its output for each sample that it starts, and one with the result.  A copy
of it may do so in its place: when the copy has ended, it says how, and reads for which backend the next one works.  Or
else it answers for eager.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any

import torch

import torchmux

from . import collect, reproducer
from .case import END_OF_A_CASE, Case
from .judging import referee as referees, state
from .judging.judge import as_expected, judge
from .outcome import Outcome, Result
from .requirements import Requirements, requirements_from

SETTLE_AFTER = 25
"""How many cases leave objects behind before the garbage collector is told to look at them no more."""


def main() -> None:
    """Run cases until the input ends, here or in copies of this process, as the first line says."""
    # The program's own output must not be mistaken for the worker's.
    environment = dict(os.environ)
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def tell(**message: Any) -> None:
        print(f"\n{json.dumps(message)}", file=out, flush=True)

    head = json.loads(sys.stdin.readline())
    referees.end_with(head["parent"])
    sys.path[:0] = head["path"]
    # A graph that torch runs since a compiler has a bug is right, but no fallback that the backend means.
    torchmux.config.fail_on_compiler_errors = True
    # What is judged is what backends compile, however small.
    torchmux.config.leave_small_graphs = False
    # float32 is float32: by default, cuDNN computes some convolutions in TF32, and eager's may be others.  The cases'
    # import of torch's tests freezes the setting.
    torch.backends.cudnn.allow_tf32 = False
    known: dict[str, Case] = {case.id: case for case in collect.cases(head["level"], head["patterns"])}
    if "serves" in head:
        questions, answers, device = head["serves"]
        referees.serve(questions, answers, known.__getitem__, device)
        return
    while head["copies"]:
        state.settle()
        original, copy = os.getpid(), os.fork()
        if not copy:
            os.setsid()
            referees.end_with(original)
            tell(copy=os.getpid())
            break
        tell(ended=os.waitstatus_to_exitcode(os.waitpid(copy, 0)[1]))
        if not (line := sys.stdin.readline()):
            return
        head = json.loads(line)
    _serve(head, known, environment, tell)


def _serve(
    head: dict[str, Any], known: dict[str, Case], environment: dict[str, str], tell: Callable[..., None]
) -> None:
    """Run the cases that the input asks for."""
    referee = referees.copied(known.__getitem__)  # the requirements may load the backend
    referee.folder = head.get("answers", "")
    requirements = requirements_from(head["requirements"], head["backend"], head.get("options"))
    requirements.frontend = head.get("frontend") or requirements.frontend
    requirements.device = head["device"]
    if torch.device(requirements.device).type != "cpu":
        # They change at the first convolution of half precision, under each backend: a library of CUDA's, it seems.
        requirements.sets = (*requirements.sets, "actions of signals")
        referee.close()
        referee = referees.started(head, requirements.device, environment)
        referees.warm_up(requirements.device)
    tell(ready=True, files=list(requirements.files))

    def script(case: Case, sample: int | None) -> str:
        return reproducer.script(case, requirements, head["requirements"], sample)

    # -P leaves the current folder out; this one is new, and nobody else's.
    state.watched_folder = os.getcwd()
    ran = 0
    for line in sys.stdin:
        asked = json.loads(line)
        if "died" in asked:
            died = Result.from_json(asked["died"])
            died.details["reproducer"] = script(known[died.case], died.details.get("sample"))
            tell(result=as_expected(died, requirements.expectation(known[died.case])).to_json())
            continue
        if "program" in asked:
            tell(result=judge_program(asked["program"], requirements).to_json())
            continue
        if ran and not ran % SETTLE_AFTER:
            torchmux.reset()
            state.settle()
        ran += 1
        case = known[asked["case"]]
        result = judge(case, requirements, lambda number: tell(sample=number), referee=referee)
        if result.outcome.is_failure or result.outcome is Outcome.XFAIL:
            result.details["reproducer"] = script(case, result.details.get("sample"))
        os.write(2, f"{END_OF_A_CASE}\n".encode())
        tell(result=result.to_json())
    referee.close()


def judge_program(text: str, requirements: Requirements) -> Result:
    """The result of a program that :func:`reproducer.program` wrote."""
    scope: dict[str, Any] = {"__name__": "minified"}
    try:
        exec(compile(text, "<minified>", "exec"), scope)
    except Exception as error:
        return Result("program", Outcome.SKIPPED, f"it does not run: {type(error).__name__}: {error}")
    return judge(Case("program", scope["case"]), requirements, lenient=False)


if __name__ == "__main__":
    main()
