"""The artifacts of this process as bytes, for another process or machine.

Artifacts run as code: load them only from sources whose code you would run.
"""

from __future__ import annotations

import io
import re
import zipfile

from torchmux.registry.errors import TorchmuxError

from .cache import default_cache, used_keys

_FORMAT = "torchmux-artifacts-1"


class InvalidArtifacts(TorchmuxError):
    """Bytes that ``save_cache_artifacts`` has not made, or that were damaged since."""


def save_cache_artifacts() -> tuple[bytes, list[str]] | None:
    """What compiled in this process used of the artifact cache: the bytes and the names of the artifacts.

    None if there is nothing, or caching is off.
    """
    cache = default_cache()
    if cache is None:
        return None
    found = {key: payload for key in used_keys(cache) if (payload := cache.load(key)) is not None}
    if not found:
        return None
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", compression=zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.comment = _FORMAT.encode()
        for key, payload in sorted(found.items()):
            archive.writestr(key, payload)
    return target.getvalue(), sorted(found)


def load_cache_artifacts(serialized: bytes) -> list[str] | None:
    """Put saved artifacts into the cache of this machine; their names, or None if caching is off.

    An artifact is used where graph, options, versions and hardware are the same as where it was made.

    Raises:
        InvalidArtifacts: they are damaged or something else; nothing is kept then.
    """
    cache = default_cache()
    if cache is None:
        return None
    try:
        with zipfile.ZipFile(io.BytesIO(serialized)) as archive:
            if archive.comment != _FORMAT.encode():
                raise InvalidArtifacts("These bytes are an archive that save_cache_artifacts did not write.")
            found = {name: archive.read(name) for name in archive.namelist()}
    except zipfile.BadZipFile as error:
        raise InvalidArtifacts(f"These bytes were not written by save_cache_artifacts: {error}.") from error
    if not all(re.fullmatch(r"[0-9a-f]{64}", name) for name in found):
        raise InvalidArtifacts("An artifact has a name that save_cache_artifacts does not use.")
    for key, payload in found.items():
        cache.store(key, payload)
    return sorted(found)
