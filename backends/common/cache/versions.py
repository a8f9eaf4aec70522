"""The versions, sources and processor that a backend compiles with and for, read without importing any of it."""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import platform
from pathlib import Path


def installed(*distributions: str) -> str:
    """Names and versions of those of ``distributions`` that are installed, for a fingerprint."""
    found = []
    for name in distributions:
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    return ", ".join(found)


def processor() -> str:
    """The name of this machine's processor and the instructions that it has: code for another may not run here."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return " ".join(line for line in dict.fromkeys(lines) if line.startswith(("flags", "Features", "model name")))


@functools.cache
def sources_digest(folder: Path) -> str:
    """A hash over the Python and C++ sources in a folder and below."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.suffix in (".py", ".h"):
            digest.update(path.read_bytes())
    return digest.hexdigest()
