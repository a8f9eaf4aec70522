"""The artifacts of this process as bytes, for another process or machine.

Artifacts run as code: load them only from sources whose code you would run.  The digest in them reveals damage, not
forgery.
"""

from __future__ import annotations

import hashlib
import io
import re
import zipfile
from collections.abc import Iterable

from torchmux.config import config
from torchmux.registry.errors import TorchmuxError

from .cache import ArtifactCache, default_cache, used_keys

_MAGIC = b"torchmux-artifacts-2\n"
_DIGEST = hashlib.sha256
_HEAD = len(_MAGIC) + _DIGEST().digest_size
_NAME = re.compile(r"[0-9a-f]{64}")


class InvalidArtifacts(TorchmuxError):
    """These bytes were not written by ``save_cache_artifacts``, or they are damaged."""


def save_cache_artifacts() -> tuple[bytes, list[str]] | None:
    """The artifacts that this process has used, as bytes, and their names.

    None if there are none, or if caching is off.

    Examples:
        >>> saved = torchmux.save_cache_artifacts()
        >>> if saved is not None:
        ...     data, names = saved
        ...     found = torchmux.load_cache_artifacts(data)
    """
    cache = default_cache()
    return None if cache is None else packed(cache, used_keys(cache))


def packed(cache: ArtifactCache, keys: Iterable[str]) -> tuple[bytes, list[str]] | None:
    """The entries ``keys`` of a cache as bytes, and the names of those that exist; None if none exists."""
    found = {key: payload for key in keys if (payload := cache.load(key)) is not None}
    if not found:
        return None
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", compression=zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for key, payload in sorted(found.items()):
            archive.writestr(key, payload)
    content = target.getvalue()
    return _MAGIC + _DIGEST(content).digest() + content, sorted(found)


def load_cache_artifacts(serialized: bytes) -> list[str] | None:
    """Store saved artifacts in this machine's cache; returns their names, or None if caching is off.

    An artifact is used where graph, options, versions and hardware are those that it was compiled for.

    Raises:
        InvalidArtifacts: the bytes are damaged, were not written by :func:`save_cache_artifacts`, or take more than
            ``config.cache_size_limit`` unpacked.  Nothing is stored then.

    Examples:
        >>> torchmux.load_cache_artifacts(b"not artifacts")
        Traceback (most recent call last):
        torchmux.backends.common.cache.artifacts.InvalidArtifacts: ...
    """
    cache = default_cache()
    if cache is None:
        return None
    found = _unpacked(serialized)
    for key, payload in found.items():
        cache.store(key, payload)
    return sorted(found)


def _unpacked(serialized: bytes) -> dict[str, bytes]:
    if not isinstance(serialized, (bytes, bytearray, memoryview)):
        raise InvalidArtifacts(f"Artifacts are bytes, not {type(serialized).__name__}.")
    whole = bytes(serialized)
    content = whole[_HEAD:]
    if whole[: len(_MAGIC)] != _MAGIC:
        raise InvalidArtifacts("These bytes were not written by save_cache_artifacts of this version.")
    if whole[len(_MAGIC) : _HEAD] != _DIGEST(content).digest():
        raise InvalidArtifacts("These artifacts are damaged: their digest differs.")
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            entries = archive.infolist()
            _check(entries)
            return {entry.filename: archive.read(entry) for entry in entries}
    except TorchmuxError:
        raise
    except Exception as error:  # forged bytes can make zipfile raise anything
        raise InvalidArtifacts(f"These bytes were not written by save_cache_artifacts: {error}.") from error


def _check(entries: list[zipfile.ZipInfo]) -> None:
    """Check the directory of an archive; ``zipfile`` unpacks no more than the directory says."""
    if not all(_NAME.fullmatch(entry.filename) for entry in entries):
        raise InvalidArtifacts("An artifact has a name that save_cache_artifacts does not use.")
    if len({entry.filename for entry in entries}) < len(entries):
        raise InvalidArtifacts("Two artifacts have the same name.")
    size = sum(entry.file_size for entry in entries)
    if size > config.cache_size_limit:
        raise InvalidArtifacts(
            f"These artifacts take {size} bytes, more than config.cache_size_limit={config.cache_size_limit}."
        )
