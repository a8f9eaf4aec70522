"""The requirements for a backend: where it runs, with which options, and which failures are known.

This module has only policy; the cases and their judgement are elsewhere.
"""

from __future__ import annotations

import fnmatch
import importlib
import importlib.metadata
import importlib.util
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from packaging.requirements import Requirement

from torchmux.registry.names import JOINT, members_of
from torchmux.registry.resolve import known_spec
from torchmux.registry.spec import ANY, BackendSpec

from .case import OWN_KERNELS, Case
from .judging import frontends
from .outcome import Result

# These call torch's operators where they have no code, and say so.
_ON_TOP_OF_TORCH = frozenset(("auto", "eager", "aot_eager", "inductor", "native", "tvm", "cudagraphs", "tensorrt"))


@dataclass(frozen=True)
class Expected:
    r"""Cases that are known to fail.

    ``cases`` is a pattern of ids (``operators/aten.sort/*``).  ``why`` gives the cause and ``link`` a reference.
    ``versions``, if given, is a requirement (``"openvino>=2026.1,<2026.5"``); outside of it no failure is expected.
    Nor is one on another ``device`` ("cpu", "cuda"), if one is given.  ``only`` is a regular expression that the words
    of each difference must begin with, such as ``r"\[2\]: "``: a case that fails in another way too is a failure.

    A case that passes anyway fails the run, unless it is only expected ``sometimes``: another member of a chain may run
    what one gets wrong.
    """

    cases: str
    why: str
    link: str = ""
    versions: str = ""
    sometimes: bool = False
    only: str = ""
    device: str = ""

    def applies(self, case: Case, device: str = "cpu") -> bool:
        """Whether a failure of the case is expected on a device such as "cuda:0"."""
        here = not self.device or self.device == device.partition(":")[0]
        return here and fnmatch.fnmatchcase(case.id, self.cases) and self._is_installed()

    def explains(self, result: Result) -> bool:
        """Whether a failure is the expected one."""
        return all(re.match(self.only, words) for words in result.details.get("differences") or [result.reason])

    def _is_installed(self) -> bool:
        if not self.versions:
            return True
        wanted = Requirement(self.versions)
        try:
            return wanted.specifier.contains(importlib.metadata.version(wanted.name), prereleases=True)
        except importlib.metadata.PackageNotFoundError:
            return False


WITH_CUDA = (
    Expected(
        "life/process/training_in_a_copy",
        "Where torch is built for CUDA and sees no GPU, its fake tensors end training in copies of the process.",
        "tests/conformance/upstream/torch_training_in_a_copy.py",
        "torch>=2.11,<2.16",
        only=r"\[1\]\[0\]: str, eager has Tensor",
        device="cpu",
    ),
)
"""Failures that are known of each backend, if torch is built for CUDA: cases on a CPU see no GPU."""


class Requirements:
    """The claims of a backend; a third party derives a class from it and overrides what differs.

    By default all claims are those of the backend's ``BackendSpec``.
    """

    backend: str | Sequence[str]
    """The name to compile with; for a chain, the names of its members, or ``onnxrt+native``, which objects have."""

    options: Mapping[str, Any] | None = None
    """Options to compile with, those of a chain by member; None: the defaults."""

    frontend: frontends.Name = "torchmux"
    """What captures programs: ``torchmux.compile``, or ``torch.compile`` with the backend as torchmux publishes it."""

    device: str = "cpu"
    """Where the cases create their tensors."""

    expected: Sequence[Expected] = ()
    """Known failures."""

    seconds: float = 120.0
    """The time limit of one case, including its compilations."""

    sets: Sequence[str] = ()
    """Environment variables, and parts of the state of the process, that the backend sets when it is loaded."""

    processes: Sequence[str] = ()
    """Parts of the command lines of processes that the backend keeps for its next compilations."""

    says: Sequence[str] = ()
    """Parts of the lines that the backend's libraries write to standard errors."""

    files: Sequence[str] = ()
    """Names of what the backend's libraries keep in the home folder, and how those of temporary files begin; common
    folders of caches need no mention."""

    least_share: float = 0.0
    """The share of operators, from 0 to 1, below which a correct case counts as unsupported.

    With 0, a backend may leave any operator to torch as long as the report says so.
    """

    def __init__(self, backend: str | None = None) -> None:
        if backend is not None:
            self.backend = backend
        if not isinstance(self.backend, str):
            self.backend = JOINT.join(self.backend)

    @property
    def name(self) -> str:
        """The name to compile with; that of a chain is ``onnxrt+native``."""
        assert isinstance(self.backend, str)
        return self.backend

    @property
    def spec(self) -> BackendSpec:
        """The description of the backend or the chain.

        Raises:
            UnknownBackend: no backend has this name.
        """
        return known_spec(self.backend)

    @property
    def fingerprint(self) -> str:
        """The versions of everything that compiles."""
        return self.spec.fingerprint()

    @property
    def training(self) -> bool:
        """Whether the backend supports training."""
        return self.spec.training

    @property
    def dynamic_shapes(self) -> bool:
        """Whether one compilation serves several sizes."""
        return self.spec.dynamic_shapes

    @property
    def own_kernels(self) -> bool:
        """Whether compiled code computes by itself; False if it calls torch's operators by design.

        If true, the suite checks that torch does not run what the report attributes to the backend.
        """
        return _ON_TOP_OF_TORCH.isdisjoint(members_of(self.backend) or [self.backend])

    def dtype(self, name: str) -> bool:
        """Whether the backend computes in this dtype."""
        return ANY in self.spec.dtypes or name in self.spec.dtypes

    def claims(self, need: str) -> bool:
        """Whether a need of a case is claimed: ``training``, ``dynamic_shapes``, ``own_kernels``, a dtype by name."""
        if need in ("training", "dynamic_shapes", OWN_KERNELS):
            return bool(getattr(self, need))
        return self.dtype(need)

    def expectation(self, case: Case) -> Expected | None:
        """Why ``case`` is expected to fail, if it is."""
        known = (*self.expected, *(WITH_CUDA if torch.backends.cuda.is_built() else ()))
        return next((e for e in known if e.applies(case, self.device)), None)


def requirements_from(named: str, backend: str | None = None, options: Mapping[str, Any] | None = None) -> Requirements:
    """The requirements that ``named`` identifies as ``module:Class`` or ``path/to/file.py:Class``.  If it is empty,
    they are those of torchmux's own backend, or else the claims of the backend's description; a chain has those of its
    members.

    ``options`` are added to those of the requirements, one by one; those of a chain are by member.

    Raises:
        ImportError, AttributeError: there is no such name.
    """
    if named:
        module, _, name = named.rpartition(":")
        home = _from_file(Path(module)) if module.endswith(".py") else importlib.import_module(module)
        found: Requirements = getattr(home, name)()
    else:
        from .known import known

        found = known(backend or "")
    if options:
        found.options = joined(found.options or {}, options)
    return found


def joined(options: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Options, by member or not, with others in place of those of the same name."""
    found = dict(options)
    for name, value in more.items():
        old = found.get(name)
        found[name] = joined(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return found


def _from_file(path: Path) -> Any:
    """The module in a file, which does not have to be on the path.

    Raises:
        ImportError: there is no such file.
    """
    name = f"torchmux_requirements_{path.stem}"
    if name in sys.modules:
        return sys.modules[name]
    if not path.is_file():
        raise ImportError(f"no file {path}")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
