"""The results of a run, for people and for machines."""

from __future__ import annotations

import contextlib
import datetime
import platform
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import torch

import torchmux
from torchmux.registry.report import KINDS, Kind

from . import SUITE_VERSION, pairs
from .outcome import Outcome, Result


def group_of(case: str) -> str:
    """The group of a case in reports: ``semantics/mutation``, ``operators/linalg``, ``models/training``."""
    subject, _, rest = case.partition("/")
    first, _, last = rest.partition("/")
    if subject == "models":
        return f"{subject}/{last}"
    if subject == "operators":
        return f"{subject}/{next((space for space in _SPACES if first.startswith(f'{space}.')), 'torch')}"
    return f"{subject}/{first}"


_SPACES = ("nn.functional", "linalg", "fft", "special", "masked", "sparse", "signal")


def summary(results: Iterable[Result]) -> dict[str, dict[str, int]]:
    """The number of cases with each outcome in each group, with groups in the order of their first cases."""
    groups: dict[str, Counter[str]] = {}
    for result in results:
        groups.setdefault(group_of(result.case), Counter())[result.outcome.value] += 1
    return {group: {o.value: counts[o.value] for o in Outcome if counts[o.value]} for group, counts in groups.items()}


def totals(results: Iterable[Result]) -> dict[str, int]:
    """The number of cases with each outcome, in the order of :class:`Outcome`."""
    counts = Counter(result.outcome.value for result in results)
    return {outcome.value: counts[outcome.value] for outcome in Outcome if counts[outcome.value]}


def kinds(results: Iterable[Result]) -> dict[Kind, float]:
    """How many operators of each kind the calls of all cases ran, in the order of the report's kinds."""
    counts: Counter[str] = Counter()
    for result in results:
        counts.update(result.kinds)
    return {kind: counts[kind] for kind in KINDS if counts[kind]}


def environment() -> dict[str, str]:
    """Everything the results depend on besides the backend."""
    return {
        "torchmux": torchmux.__version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "vectors": torch.backends.cpu.get_cpu_capability(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else "",
    }


def _processor() -> str:
    """The processor's model name, if the system reports it."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()


def key(
    backend: str,
    level: str,
    fingerprint: str,
    frontend: str = "torchmux",
    options: Mapping[str, Any] | None = None,
    device: str = "cpu",
) -> dict[str, Any]:
    """Everything the results of a run depend on: the backend, its options, the versions, the machine, and the suite."""
    return {
        "backend": backend,
        "options": dict(options or {}),
        "fingerprint": fingerprint,
        "level": level,
        "frontend": frontend,
        "device": device,
        "suite": SUITE_VERSION,
        "seed": pairs.SEED,
        "environment": environment(),
    }


def to_json(
    backend: str,
    level: str,
    fingerprint: str,
    results: Sequence[Result],
    cases: int | None = None,
    frontend: str = "torchmux",
    options: Mapping[str, Any] | None = None,
    device: str = "cpu",
) -> dict[str, Any]:
    """A run as data; ``Result.from_json`` reads each of ``results``.

    ``cases`` is the total number of cases in the level; None for a run of selected cases.
    """
    return {
        **key(backend, level, fingerprint, frontend, options, device),
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
        "cases": cases,
        "totals": totals(results),
        "kinds": kinds(results),
        "results": [result.to_json() for result in results],
    }


def to_junit(backend: str, results: Sequence[Result]) -> str:
    """A run as JUnit XML: failures are failures, deaths and timeouts are errors, refusals are skipped.

    Each test has its outcome, and the share that the backend ran, as properties.
    """
    suite = ElementTree.Element("testsuite", name=f"torchmux conformance of {backend}", tests=str(len(results)))
    counts = Counter()  # type: ignore[var-annotated]
    for result in results:
        group, _, name = result.case.rpartition("/")
        case = ElementTree.SubElement(suite, "testcase", classname=group.replace("/", "."), name=name)
        case.set("time", f"{result.seconds:.3f}")
        properties = ElementTree.SubElement(case, "properties")
        for name, value in (("outcome", result.outcome.value), ("share", f"{result.share:.3f}")):
            ElementTree.SubElement(properties, "property", name=name, value=value)
        if result.outcome in (Outcome.MISMATCH, Outcome.XPASS):
            kind = "failure"
        elif result.outcome.is_failure:
            kind = "error"
        elif result.outcome in (Outcome.UNSUPPORTED, Outcome.SKIPPED, Outcome.XFAIL):
            kind = "skipped"
        else:
            continue
        counts[kind] += 1
        element = ElementTree.SubElement(case, kind, message=f"{result.outcome.value}: {result.reason}")
        element.text = "\n".join(map(str, result.details.get("differences", ()))) or result.details.get("traceback", "")
        if script := result.details.get("reproducer"):
            element.text += f"\n\n# ---- reproducer ----\n{script}"
    for kind, plural in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
        suite.set(plural, str(counts[kind]))
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True)
