"""The folder in which Inductor keeps compiled code: a private one beside the artifacts.

By default, torch uses a folder in the shared temporary folder and runs the code in it.  Its name is predictable, so
another user can create it first.  torch creates it when its tracer is imported, which any capture may cause.
"""

from __future__ import annotations

import logging
import os
import stat

from .config import config

log = logging.getLogger("torchmux.cache")

_VARIABLE = "TORCHINDUCTOR_CACHE_DIR"
NAME = "inductor"


def choose_inductor_folder() -> None:
    """Set ``TORCHINDUCTOR_CACHE_DIR``, unless the user has set it, or torch, whose tracer then is imported already."""
    if _VARIABLE in os.environ:
        return
    folder = config.cache_dir / NAME
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.lstat()
    except OSError:
        return  # the artifact cache warns of that
    if stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077:
        os.environ[_VARIABLE] = str(folder)
    else:
        log.warning("%s is not a private folder of yours, so Inductor does not use it; remove it", folder)
