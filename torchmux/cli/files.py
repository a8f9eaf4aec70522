"""Checks of output files before the work whose results they are for."""

from __future__ import annotations

import os
from pathlib import Path


def check_writable(*files: str | None) -> None:
    """Check that files can be written, without changing them; ``-`` is standard output.

    Raises:
        OSError: one of them cannot be written.
    """
    for file in files:
        if not file or file == "-":
            continue
        path = Path(file)
        if path.is_dir():
            raise IsADirectoryError(f"{file} is a folder")
        if not path.parent.is_dir():
            raise FileNotFoundError(f"there is no folder {path.parent}")
        if not os.access(path if path.exists() else path.parent, os.W_OK):
            raise PermissionError(f"{file} cannot be written")
