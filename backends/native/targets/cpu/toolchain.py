"""The C++ compiler of this machine.  It is looked for whenever backends are listed, so this imports nothing large."""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil

from torchmux.registry.spec import Availability

from ....common.cache.versions import processor

COMPILERS = ("g++", "clang++")


def compiler_command() -> list[str] | None:
    """The C++ compiler: ``CXX`` if that is set, or the first that is found; None if there is none."""
    chosen = os.environ.get("CXX")
    for candidate in [chosen] if chosen and chosen.strip() else COMPILERS:
        words = shlex.split(candidate)
        if shutil.which(words[0]):
            return words
    return None


def probe() -> Availability:
    """Whether there is one."""
    if compiler_command() is not None:
        return Availability(True)
    chosen = os.environ.get("CXX")
    if chosen and chosen.strip():
        return Availability(False, f"it needs a C++ compiler, and CXX={chosen!r} is not on PATH")
    return Availability(False, f"it needs a C++ compiler, and {' or '.join(COMPILERS)} is not on PATH; or set CXX")


def fingerprint() -> str:
    """The compiler, every program that its command names (``ccache g++``) included, and the processor."""
    digest = hashlib.sha256()
    command = compiler_command() or []
    digest.update(" ".join(command).encode())
    for word in command:
        if (program := shutil.which(word)) is not None:
            found = os.stat(os.path.realpath(program))
            digest.update(f"{found.st_size} {found.st_mtime_ns}".encode())
    digest.update(processor().encode())
    return digest.hexdigest()
