"""The bytes of a file: a zip that other tools can list, with the digest or the signature of all of it in its comment.

The comment is the last thing in a zip, so the digest covers every byte before it, and the comment has one form only:
a file with any byte changed, missing or added is refused before anything in it is read.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import io
import json
import mmap
import os
import re
import secrets
import struct
import time
import zipfile
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

from torchmux.registry.errors import LoadRefused
from torchmux.registry.names import class_with_article
from torchmux.wording import cut

FORMAT = 1
"""Raised when what is written changes, so that no version reads what it would misunderstand."""

WEIGHTS = "weights.safetensors"
MANIFEST = "manifest.json"

_COMMENT = re.compile(rb"torchmux (\d+) (sha256|hmac-sha256) ([0-9a-f]{64})")
_END = b"PK\x05\x06"
_AT_ONCE = 1 << 24  # bytes; a multiple of the size of large pages
_ALIGNED = 64  # bytes; what vectors and TVM's code want
_AGAIN = "Copy it anew from where it was saved, or save it again with torchmux.save()."


def key_bytes(key: bytes | str | None) -> bytes | None:
    """The key as bytes.

    Raises:
        TypeError, ValueError: it is neither bytes nor a string, or is empty.
    """
    if key is None:
        return None
    if not isinstance(key, (bytes, str)):
        raise TypeError(f"key is bytes or a string, not {class_with_article(key)}")
    if not key:
        raise ValueError("key is empty")
    return key.encode() if isinstance(key, str) else key


# --- zip --------------------------------------------------------------------------------------------------------------


def write(path: str | os.PathLike[str], members: Mapping[str, bytes], key: bytes | None) -> None:
    """Write a file with these members, signed if there is a key.  Readers see all of it or nothing."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", compression=zipfile.ZIP_STORED) as archive:
        for name, content in members.items():
            archive.writestr(zipfile.ZipInfo(name), content)  # without the time: equal contents make equal files
        kind = "sha256" if key is None else "hmac-sha256"
        archive.comment = f"torchmux {FORMAT} {kind} {'0' * 64}".encode()
    whole = target.getbuffer()
    whole[-64:] = _digest(whole[:-64], key).encode()
    final = Path(path)
    partial = final.with_name(f".{final.name}.{secrets.token_hex(4)}")
    try:
        with open(partial, "xb") as file:
            file.write(whole)
        os.replace(partial, final)
    finally:
        partial.unlink(missing_ok=True)


class Opened:
    """The members of a file, all of which were checked.

    Raises:
        LoadRefused: the file cannot be read, its bytes are not what was written, or it is not signed with the key.
    """

    def __init__(self, path: str | os.PathLike[str], key: bytes | None) -> None:
        self.name = os.fspath(path)
        try:
            file = open(path, "rb")  # noqa: SIM115  # closed below
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise LoadRefused(
                f"{cut(self.name, 200)!r} cannot be read: {reason}. Check the path and its permissions."
            ) from None
        with file:
            size = os.fstat(file.fileno()).st_size
            # Tensors of the file are views of this memory, which begins where vectors want it.
            self._memory = mmap.mmap(-1, size + 1, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            with ThreadPoolExecutor(1) as pool:
                digest = _Digest(self._memory, key, pool)
                self._bytes = memoryview(self._memory)[: _read(file, self._memory, digest.has)]
                self._check(key, digest)
        try:
            self._at = self._directory()
        except LoadRefused:
            raise
        except Exception as error:  # forged bytes can make zipfile raise anything
            raise self._refused(f"is no zip of torchmux ({error})") from error

    def _check(self, key: bytes | None, digest: _Digest) -> None:
        tail = bytes(self._bytes[-120:])
        start = tail.rfind(b"torchmux ")
        match = _COMMENT.fullmatch(tail, start) if start >= 22 else None
        if match is None:
            raise self._refused("is damaged, truncated, or was not written by torchmux.save()")
        form, kind, told = int(match[1]), match[2].decode(), match[3].decode()
        if form != FORMAT:
            raise LoadRefused(
                f"{self.name} has format {form}; this version of torchmux reads format {FORMAT}. Save it again with "
                "this version, or load it with the one that saved it."
            )
        if key is not None and kind != "hmac-sha256":
            raise LoadRefused(
                f"{self.name} is not signed, but load() was given a key. Save it again with save(..., key=key), or "
                "load it without a key if you trust where it comes from: a file holds code."
            )
        if key is None and kind == "hmac-sha256":
            raise LoadRefused(f"{self.name} is signed. Call load() with the key that save() was given: key=...")
        if not hmac.compare_digest(digest.of(len(self._bytes)), told):
            what = "is damaged or altered" if key is None else "is damaged or altered, or was signed with another key"
            raise self._refused(what)

    def _directory(self) -> dict[str, tuple[int, int]]:
        found: dict[str, tuple[int, int]] = {}
        with zipfile.ZipFile(_Reader(self._bytes)) as archive:
            for entry in archive.infolist():
                if entry.compress_type != zipfile.ZIP_STORED or entry.filename in found:
                    raise self._refused("has a member that torchmux does not write")
                name, extra = struct.unpack_from("<HH", self._bytes, entry.header_offset + 26)
                start = entry.header_offset + 30 + name + extra
                if start + entry.file_size > len(self._bytes):
                    raise self._refused("is truncated")
                found[entry.filename] = start, entry.file_size
        return found

    def _refused(self, what: str) -> LoadRefused:
        return LoadRefused(f"{self.name} {what}; nothing in it was run. {_AGAIN}")

    def __contains__(self, name: str) -> bool:
        return name in self._at

    def names(self) -> list[str]:
        return list(self._at)

    def read(self, name: str) -> bytes:
        """A member.

        Raises:
            LoadRefused: there is none of this name.
        """
        return bytes(self._view(name))

    def json(self, name: str) -> Any:
        """A member that is JSON; errors as :meth:`read`."""
        try:
            return json.loads(self.read(name))
        except ValueError as error:
            raise self._refused(f"has no JSON in {name}") from error

    def tensors(self, name: str) -> dict[str, torch.Tensor]:
        """The tensors of a member in safetensors' format, which share the memory of the file as it was read."""
        start, size = self._at[name]
        try:
            (length,) = struct.unpack_from("<Q", self._bytes, start)
            told = json.loads(bytes(self._bytes[start + 8 : start + 8 + length]))
            return {
                key: self._tensor(start + 8 + length, size - 8 - length, entry)
                for key, entry in told.items()
                if key != "__metadata__"
            }
        except (struct.error, ValueError, LookupError, AttributeError, TypeError, RuntimeError) as error:
            raise self._refused(f"has no tensors in {name} ({error})") from error

    def _tensor(self, start: int, room: int, entry: Mapping[str, Any]) -> torch.Tensor:
        dtype, (begin, end) = _DTYPES[entry["dtype"]], entry["data_offsets"]
        count = torch.Size(entry["shape"]).numel()
        if not 0 <= begin <= end <= room or end - begin != count * dtype.itemsize:
            raise ValueError("a tensor is out of bounds")
        if not count:
            return torch.empty(entry["shape"], dtype=dtype)
        flat = torch.frombuffer(self._memory, dtype=dtype, count=count, offset=start + begin)
        return flat.reshape(entry["shape"])

    def _view(self, name: str) -> memoryview:
        if name not in self._at:
            raise self._refused(f"has no member {name}")
        start, size = self._at[name]
        return self._bytes[start : start + size]


class _Digest:
    """Of all but the last 64 bytes of a file, which a thread computes while the next bytes are read."""

    def __init__(self, memory: mmap.mmap, key: bytes | None, pool: ThreadPoolExecutor) -> None:
        self._digest = _new_digest(key)
        self._view, self._pool, self._end = memoryview(memory), pool, 0

    def has(self, count: int) -> None:
        """So many bytes are there."""
        if count - 64 > self._end:
            self._pool.submit(self._digest.update, self._view[self._end : count - 64])
            self._end = count - 64

    def of(self, count: int) -> str:
        """The digest of a file of so many bytes, all of which are there."""
        self.has(count)
        return self._pool.submit(self._digest.hexdigest).result()


def _read(file: io.BufferedReader, memory: mmap.mmap, has: Callable[[int], object]) -> int:
    """Fill ``memory`` from a file, and tell ``has`` after each piece how many bytes there are; returns how many there
    were.

    Linux fills large pages in a third of the time of small ones, unless its memory is in pieces: to make room for a
    large page then takes several times as long.  So the first pages are small, and large ones go on while they are
    quicker.
    """
    view, count = memoryview(memory), 0
    small, large = 0.0, False
    while True:
        before = time.thread_time()
        if not (taken := file.readinto(view[count : count + _AT_ONCE])):
            return count
        spent = time.thread_time() - before
        count += taken
        has(count)
        if taken == _AT_ONCE and count < len(memory):
            if not small:
                small, large = spent, _advise(memory, "MADV_HUGEPAGE", count)
            elif large and spent > small:
                large = not _advise(memory, "MADV_NOHUGEPAGE", count)


def _advise(memory: mmap.mmap, advice: str, start: int) -> bool:
    """Tell the system about the pages from ``start`` on; whether it takes advice."""
    with contextlib.suppress(OSError, AttributeError):
        memory.madvise(getattr(mmap, advice), start)
        return True
    return False


class _Reader(io.RawIOBase):
    """A file over memory, without a copy of it."""

    def __init__(self, content: memoryview) -> None:
        self._content, self._at = content, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = offset + {0: 0, 1: self._at, 2: len(self._content)}[whence]
        if self._at < 0:
            raise OSError("before the beginning")
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any) -> int:
        part = self._content[self._at : self._at + len(buffer)]
        buffer[: len(part)] = part
        self._at += len(part)
        return len(part)


def _digest(content: memoryview, key: bytes | None) -> str:
    digest = _new_digest(key)
    digest.update(content)
    return digest.hexdigest()


def _new_digest(key: bytes | None) -> Any:
    return hashlib.sha256() if key is None else hmac.new(key, digestmod=hashlib.sha256)


# --- safetensors ------------------------------------------------------------------------------------------------------

_NAMES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
    torch.complex64: "C64",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
}
_DTYPES = {name: dtype for dtype, name in _NAMES.items()}


def is_storable(tensor: torch.Tensor) -> bool:
    """Whether safetensors has its dtype, and it is a plain one."""
    return tensor.dtype in _NAMES and tensor.layout is torch.strided


def safetensors(tensors: Mapping[str, torch.Tensor], offset: int) -> bytes:
    """Tensors in safetensors' format; ``offset`` is where this begins in the file, for the alignment of the data."""
    told: dict[str, Any] = {}
    parts: list[bytes] = []
    at = 0
    for name, tensor in tensors.items():
        data = tensor.detach().cpu().contiguous().reshape(-1)
        content = data.view(torch.uint8).numpy().tobytes() if data.numel() else b""
        told[name] = {
            "dtype": _NAMES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [at, at + len(content)],
        }
        parts += [content, bytes(-len(content) % _ALIGNED)]
        at += len(content) + -len(content) % _ALIGNED
    # safetensors wants the data without gaps: what aligns it belongs to a tensor of its own.
    return _with_gaps_named(told, parts, offset)


def _with_gaps_named(told: dict[str, Any], parts: list[bytes], offset: int) -> bytes:
    at = 0
    for number, gap in enumerate(parts[1::2]):
        at += len(parts[2 * number])
        if gap:
            told[f"__gap_{number}"] = {"dtype": "U8", "shape": [len(gap)], "data_offsets": [at, at + len(gap)]}
        at += len(gap)
    head = json.dumps(told).encode()
    head += b" " * (-(offset + 8 + len(head)) % _ALIGNED)
    return struct.pack("<Q", len(head)) + head + b"".join(parts)
