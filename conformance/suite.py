"""The suite as tests for a third party: one file, run by pytest.

    from torchmux.conformance.suite import *

    class Mine(Requirements):
        backend = "mine"

Each case is a test.  ``pass``, ``slow`` and ``fallback`` pass, the latter two under their own names.  ``unsupported``
is skipped with the reason.  ``xfail`` is an expected failure, and ``xpass`` a failure.  ``mismatch``, ``crash`` and
``timeout`` fail, with a script that reproduces the failure.  A case runs in a process that may die; pytest and its
other tests continue.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from torchmux.registry.resolve import usable_spec

from . import collect
from .outcome import Outcome, Result
from .plugin import RESULT
from .reproducer import in_words
from .requirements import Expected, Requirements
from .runner import CaseRunner

__all__ = ["Expected", "Requirements", "conformance_runners", "pytest_generate_tests", "test_conformance"]

_Runners = dict[type[Requirements], CaseRunner]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test for each case and each ``Requirements`` class of the module.

    Raises:
        UsageError: there is no such class, its backend cannot run here, or there is no such part.
    """
    if "conformance_case" not in metafunc.fixturenames:
        return
    claimed = _classes(metafunc.module)
    level = metafunc.config.getoption("conformance_level", "quick")
    patterns = metafunc.config.getoption("conformance_case", None) or ["*"]
    try:
        part, parts = map(int, (metafunc.config.getoption("conformance_shard", None) or "1/1").split("/"))
        names = [case.id for case in collect.shard(collect.cases(level, patterns), part, parts)]
    except ValueError as error:
        raise pytest.UsageError(f"--shard takes a part such as 3/8: {error}") from error
    found = [(each, name) for each in claimed for name in names]
    ids = [name if len(claimed) == 1 else f"{each.__name__}-{name}" for each, name in found]
    metafunc.parametrize("conformance_case", found, ids=ids)


def _classes(module: Any) -> list[type[Requirements]]:
    found = [
        value
        for value in vars(module).values()
        if inspect.isclass(value) and issubclass(value, Requirements) and value.__module__ == module.__name__
    ]
    if not found:
        raise pytest.UsageError(f"{module.__file__} has no class derived from Requirements")
    for each in found:
        usable_spec(each().backend)  # raises an error that says what is missing
    return found


@pytest.fixture(scope="module")
def conformance_runners() -> Iterator[_Runners]:
    """The processes in which the cases of a module run."""
    runners: _Runners = {}
    yield runners
    for runner in runners.values():
        runner.close()


def test_conformance(
    conformance_case: tuple[type[Requirements], str], conformance_runners: _Runners, request: pytest.FixtureRequest
) -> None:
    """One case, against eager."""
    claimed, name = conformance_case
    requirements, level = claimed(), request.config.getoption("conformance_level", "quick")
    if claimed not in conformance_runners:
        conformance_runners[claimed] = _runner(claimed, requirements, level, request)
    result = conformance_runners[claimed].run(name, requirements.seconds)
    request.node.stash[RESULT] = {
        "backend": requirements.name,
        "options": dict(requirements.options or {}),
        "level": level,
        "fingerprint": requirements.fingerprint,
        "result": result.to_json(),
    }
    _end(result)


def _runner(
    claimed: type[Requirements], requirements: Requirements, level: str, request: pytest.FixtureRequest
) -> CaseRunner:
    # A worker imports torch's samples only if a case of this run needs them.
    subjects = sorted({item.callspec.params["conformance_case"][1].partition("/")[0] for item in _cases(request)})
    return CaseRunner(
        {
            "backend": requirements.name,
            "level": level,
            "device": requirements.device,
            "requirements": f"{Path(inspect.getfile(claimed)).resolve()}:{claimed.__name__}",
            "path": sys.path,
            "patterns": [f"{subject}/*" for subject in subjects],
        }
    )


def _cases(request: pytest.FixtureRequest) -> list[Any]:
    items: list[Any] = request.session.items
    return [item for item in items if "conformance_case" in getattr(getattr(item, "callspec", None), "params", {})]


def _end(result: Result) -> None:
    """Report the outcome of the test to pytest."""
    if result.outcome in (Outcome.PASS, Outcome.SLOW, Outcome.FALLBACK):
        return
    if result.outcome in (Outcome.UNSUPPORTED, Outcome.SKIPPED):
        pytest.skip(f"{result.outcome.value}: {result.reason}")
    if result.outcome is Outcome.XFAIL:
        pytest.xfail(result.reason)
    words = in_words(result)
    if script := result.details.get("reproducer"):
        words += f"\n\n---- reproducer: save this script and run it with Python ----\n{script}"
    pytest.fail(words, pytrace=False)
