"""Where torchmux runs and what it was tested with: an error on other systems, a warning for other versions of torch."""

from __future__ import annotations

import functools
import importlib.metadata
import platform
import warnings

from packaging.requirements import Requirement


@functools.cache
def check() -> None:
    """Look at the system and at torch, once in a process.

    Warns:
        UserWarning: torch is of a version that torchmux was not tested with.

    Raises:
        RuntimeError: the system is not Linux.
    """
    if platform.system() != "Linux":
        raise RuntimeError(
            f"torchmux compiles on Linux only; this is {platform.system() or 'unknown'}. Use WSL, a container or a "
            "virtual machine with Linux."
        )
    try:
        torch = importlib.metadata.version("torch")
        needed = importlib.metadata.requires("torchmux") or []
    except importlib.metadata.PackageNotFoundError:  # torch, or this, is on the path without being installed
        return
    for requirement in map(Requirement, needed):
        if requirement.name == "torch" and not requirement.specifier.contains(torch, prereleases=True):
            wanted = f"torch{requirement.specifier}"
            warnings.warn(
                f"torch {torch} is installed, but torchmux was tested with {wanted}. It uses private parts of torch, "
                f"so other versions may fail: python -m pip install '{wanted}'",
                stacklevel=2,
            )
