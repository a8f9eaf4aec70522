"""The versions of what a backend compiles with, read without importing any of it."""

from __future__ import annotations

import importlib.metadata


def installed(*distributions: str) -> str:
    """Names and versions of those of ``distributions`` that are installed, for a fingerprint."""
    found = []
    for name in distributions:
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    return ", ".join(found)
