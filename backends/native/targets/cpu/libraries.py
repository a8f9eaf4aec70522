"""Shared objects in this process: equal ones are loaded once, and unloaded when nothing refers to them any more."""

from __future__ import annotations

import _ctypes
import contextlib
import ctypes
import hashlib
import os
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path

from torchmux.registry.errors import CompilationFailed

from ....common.cache.scratch import scratch_folder
from .build import torch_library

_loaded: weakref.WeakValueDictionary[bytes, Library] = weakref.WeakValueDictionary()
_lock = threading.Lock()
_noexec: set[str] = set()  # temporary folders from which nothing may be loaded


class Library(ctypes.CDLL):
    """A loaded shared object; its functions keep it."""

    def __init__(self, path: Path) -> None:
        super().__init__(str(path))
        # A process may have some 65,000 mappings, and each object takes five.
        weakref.finalize(self, _ctypes.dlclose, self._handle).atexit = False


def load(content: bytes) -> Library:
    """The library of what :func:`.build.compile_source` returned; its file is gone once it is loaded.

    Raises:
        CompilationFailed: the system does not load it, or there is no room for it.
    """
    key = hashlib.sha256(content).digest()
    with _lock:
        found = _loaded.get(key)
        if found is None:
            torch_library()
            found = _loaded[key] = _load(content)
        return found


def _load(content: bytes) -> Library:
    try:
        with scratch_folder() as folder:
            if str(folder.parent) not in _noexec:
                path = folder / "graph.so"
                path.write_bytes(content)
                with contextlib.suppress(OSError):
                    return Library(path)
            with _in_memory(content, folder) as path:
                library = Library(path)
            _noexec.add(str(folder.parent))
            return library
    except OSError as error:
        raise CompilationFailed(
            f"native cannot load its code: {error}. Set TMPDIR to a folder with room, on a file system that is not "
            f"mounted noexec."
        ) from error


@contextlib.contextmanager
def _in_memory(content: bytes, folder: Path) -> Iterator[Path]:
    """A file that is in no file system, under a name in ``folder``: for temporary folders that are mounted noexec.

    A library that is loaded under the name of another is taken for that one, and descriptors are used again, so the
    name is one that no other has.
    """
    handle = os.memfd_create("torchmux", os.MFD_CLOEXEC)
    try:
        with open(handle, "wb", closefd=False) as file:
            file.write(content)
        path = folder / "memory.so"
        path.symlink_to(f"/proc/{os.getpid()}/fd/{handle}")
        yield path
    finally:
        os.close(handle)
