"""The programs of ``micro.py``: small ones that people run, a line each, by what they are about.

``case`` says what a program is.  ``operators`` are classes of operators by types and layouts, ``models`` pieces of
models, ``media`` images, sound and points, ``training`` losses, optimizers and steps, and ``fields`` what other fields
compute.
"""

from __future__ import annotations

import importlib
import pkgutil


def import_all() -> None:
    """Import every module of programs, which fills ``case.PROGRAMS``."""
    for found in sorted(pkgutil.walk_packages(__path__, f"{__name__}."), key=lambda each: each.name):
        importlib.import_module(found.name)
