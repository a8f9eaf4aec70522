"""Shared objects of this process: equal ones are loaded once, and unloaded with the last reference to them."""

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
from torchmux.scratch import scratch_folder

from .build import torch_library

_loaded: weakref.WeakValueDictionary[bytes, Library] = weakref.WeakValueDictionary()
_lock = threading.Lock()
_noexec: set[str] = set()  # temporary folders on file systems mounted noexec


class Library(ctypes.CDLL):
    """A loaded shared object; each of its functions holds a reference to it."""

    def __init__(self, path: Path) -> None:
        super().__init__(str(path))
        # Linux allows a process about 65,000 mappings, and each object takes five.
        weakref.finalize(self, _ctypes.dlclose, self._handle).atexit = False


def load(content: bytes) -> Library:
    """The library in the bytes that :func:`.build.compile_source` returned; its file is deleted after loading.

    Raises:
        CompilationFailed: the system cannot load it, or the temporary folder is full.
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
    """A file in memory, through a link in ``folder``: for temporary folders that are mounted noexec.

    The loader identifies libraries by path, and numbers of descriptors are reused, so the link gives the path a unique
    name.
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
