"""The artifact cache: compiled artifacts of every backend in one folder, by content.

An entry's name is a hash of everything that determines it: the graph with every argument, constants, what is known
about the inputs, options, the backend's fingerprint, and the versions of torch, Python and torchmux.  An entry is
written to a temporary file and renamed, so another process sees all of it or nothing.  It starts with a checksum of its
name and content, so a damaged or misplaced entry is detected, dropped and rebuilt.  A cached shared object is code: the
folder must belong only to the user (mode 0700), and any other folder is refused.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import stat
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.fx import GraphModule, Node

from torchmux import torch_internals as internals
from torchmux.config import config
from torchmux.registry.errors import TorchmuxError
from torchmux.version import __version__

log = logging.getLogger("torchmux.cache")

DEFAULT_LIMIT = 4 * 1024**3
"""Bytes that all entries may take together; the least recently used go first."""

_MAGIC = b"tmx2"
_DIGEST = hashlib.sha256
_SIZE = _DIGEST().digest_size
_PARTIAL = ".partial-"


_used: dict[Path, set[str]] = {}  # folder -> the entries that this process has read or written
_allowance: dict[Path, int] = {}  # folder -> bytes that this process may still write before it measures the folder


class UnsafeCache(TorchmuxError):
    """The cache folder could be written by someone else."""


class ArtifactCache:
    """A folder of artifacts.

    ``limit`` is the size in bytes that it is kept under, give or take what processes write before they measure it
    again.  Failing to write (a full disk, a read-only folder) is logged and otherwise ignored: the artifact is used,
    and made again next time.
    """

    def __init__(self, folder: Path, limit: int = DEFAULT_LIMIT) -> None:
        self.folder = folder
        self.limit = limit

    def load(self, key: str) -> bytes | None:
        """The artifact, or None if there is none or it is damaged.

        Raises:
            UnsafeCache: the folder belongs to someone else, or others may write to it.
        """
        if not self.folder.exists():
            return None
        self._check_private()
        path = self._path(key)
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            log.warning("cannot read the cached artifact %s: %s", path, error)
            return None
        head = len(_MAGIC) + _SIZE
        payload = content[head:]
        if content[: len(_MAGIC)] != _MAGIC or content[len(_MAGIC) : head] != _checksum(key, payload):
            log.warning("the cached artifact %s is damaged and will be rebuilt", path)
            path.unlink(missing_ok=True)
            return None
        with contextlib.suppress(OSError):
            os.utime(path)  # recently used
        _used.setdefault(self.folder, set()).add(key)
        return payload

    def store(self, key: str, payload: bytes) -> None:
        """Keep an artifact; an entry of that name is replaced.

        Raises:
            UnsafeCache: as :meth:`load`.
        """
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._check_private()
            path = self._path(key)
            path.parent.mkdir(mode=0o700, exist_ok=True)
            handle, partial = tempfile.mkstemp(prefix=_PARTIAL, dir=path.parent)
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(_MAGIC + _checksum(key, payload))
                    file.write(payload)
                os.replace(partial, path)
                _used.setdefault(self.folder, set()).add(key)
            except BaseException:
                Path(partial).unlink(missing_ok=True)
                raise
            self._trim_when_due(len(payload))
        except OSError as error:
            log.warning("cannot store an artifact in %s: %s", self.folder, error)

    def _path(self, key: str) -> Path:
        return self.folder / key[:2] / key[2:]

    def _check_private(self) -> None:
        found = os.stat(self.folder)
        if found.st_uid != os.getuid():
            raise UnsafeCache(
                f"The cache folder {self.folder} belongs to user {found.st_uid}, not to you ({os.getuid()}); its "
                f"contents run as code, so it is not used. Set TORCHMUX_CACHE_DIR to a folder of your own."
            )
        if stat.S_IMODE(found.st_mode) & 0o077:
            raise UnsafeCache(
                f"The cache folder {self.folder} is open to other users (mode {stat.S_IMODE(found.st_mode):04o}); its "
                f"contents run as code, so it is not used. Run: chmod 700 {self.folder}"
            )

    def _trim_when_due(self, written: int) -> None:
        """Trim at a process's first entry, and when it has written what was left.

        Measuring the folder looks at each of its files, thousands after some time, so not every entry can.  Half of
        what is left is for other processes, which write without being seen.
        """
        left = _allowance.get(self.folder, 0) - written
        if left < 0:
            left = max((self.limit - self._trim()) // 2, self.limit // 64)
        _allowance[self.folder] = left

    def _trim(self) -> int:
        """Remove the least recently used entries, and what crashed writers left more than an hour ago.

        Returns the bytes that stay.
        """
        entries = []
        for path, found in self._files():
            if path.name.startswith(_PARTIAL):
                if time.time() - found.st_mtime > 3600:
                    path.unlink(missing_ok=True)
            else:
                entries.append((found.st_mtime, found.st_size, path))
        total = sum(size for _, size, _ in entries)
        for _, size, path in sorted(entries, key=lambda e: e[0]):
            if total <= self.limit:
                break
            path.unlink(missing_ok=True)
            total -= size
        return total

    def _files(self) -> Iterator[tuple[Path, os.stat_result]]:
        for folder, _, names in os.walk(self.folder):
            for name in names:
                path = Path(folder) / name
                with contextlib.suppress(FileNotFoundError):  # another process trims too
                    yield path, path.stat()


def _checksum(key: str, payload: bytes) -> bytes:
    digest = _DIGEST(key.encode())
    digest.update(payload)
    return digest.digest()


def default_cache() -> ArtifactCache | None:
    """The cache that ``torchmux.config`` selects, or None if caching is off."""
    if not config.cache_enabled:
        return None
    return ArtifactCache(Path(config.cache_dir) / "artifacts")


def used_keys(cache: ArtifactCache) -> list[str]:
    """The names of the entries that this process has read from or written to the folder of ``cache``."""
    return sorted(_used.get(cache.folder, ()))


def graph_key(gm: GraphModule, fingerprint: str, *more: object) -> str:
    """The name of what is compiled from ``gm``: a hexadecimal hash.

    ``more`` is anything else that determines the artifact, by its ``repr``.  Values of inputs do not count, what is
    known of them (``meta["val"]``) does, and so does the range of each symbol, since code for a number that is never
    negative is not code for one that may be; tensors that the graph holds count by content.
    """
    digest = _DIGEST()
    versions = (__version__, torch.__version__, sys.version_info[:2], fingerprint)
    for text in _graph_text(gm, (versions, *more)):
        digest.update(text.encode())
        digest.update(b"\n")
    for name in sorted({str(n.target) for n in gm.graph.nodes if n.op == "get_attr"}):
        digest.update(_content(getattr(gm, name)))
    return digest.hexdigest()


def text_key(*values: object) -> str:
    """The name of an artifact that is determined by the ``repr`` of some values and the versions of the software."""
    digest = _DIGEST(repr((__version__, torch.__version__, sys.version_info[:2], *values)).encode())
    return digest.hexdigest()


def _graph_text(gm: GraphModule, head: Sequence[object]) -> Iterable[str]:
    yield repr(head)
    yield repr(_ranges(gm))
    number: dict[Node, int] = {}
    for node in gm.graph.nodes:
        number[node] = len(number)
        # Names of nodes are left out, so that equal graphs are equal however they were named.
        args, kwargs = torch.fx.map_arg((node.args, dict(node.kwargs)), lambda n: _Reference(number[n]))
        target = node.target if node.op in ("call_function", "call_method", "get_attr") else ""
        yield f"{node.op} {target} {args!r} {kwargs!r} {describe(node.meta.get('val'))}"


def _ranges(gm: GraphModule) -> list[tuple[str, str]]:
    """What each symbol may be, as far as the shape environment knows."""
    found: dict[str, str] = {}
    for node in gm.graph.nodes:
        value = node.meta.get("val")
        for part in value if isinstance(value, (tuple, list)) else (value,):
            for size in (*part.shape, *part.stride()) if isinstance(part, torch.Tensor) else (part,):
                if isinstance(size, torch.SymInt):
                    found.update(internals.ranges_of(size))
    return sorted(found.items())


class _Reference:
    """Stands for a node among arguments."""

    def __init__(self, position: int) -> None:
        self.position = position

    def __repr__(self) -> str:
        return f"%{self.position}"


def describe(value: Any) -> str:
    """What is known of a fake or real tensor (dtype, sizes, strides, device), a number, or a tuple of these."""
    if isinstance(value, torch.Tensor):
        # Through str, a symbolic size shows its expression and decides nothing.
        shape, stride = (",".join(map(str, v)) for v in (value.shape, value.stride()))
        return f"{value.dtype}[{shape}]({stride})+{value.storage_offset()}@{value.device}"
    if isinstance(value, (tuple, list)):
        return "(" + ";".join(map(describe, value)) + ")"
    return f"{type(value).__name__} {value}"


def _content(tensor: torch.Tensor) -> bytes:
    data = tensor.detach().cpu().contiguous()
    digest = _DIGEST(describe(data).encode())
    digest.update(data.reshape(-1).view(torch.uint8).numpy().tobytes() if data.numel() else b"")
    return digest.digest()
