"""One module per CPython version: everything that differs between them is data in one of these tables.

``CURRENT`` is the table of the running interpreter.  Supporting a new CPython means adding a module here, which defines
what ``py311`` defines; ``CONTRIBUTING.md`` has the steps.  Nothing else that reads or writes bytecode asks for the
version.
"""

import importlib
import sys

SUPPORTED = ((3, 11), (3, 12), (3, 13))


def _load():
    version = sys.version_info[:2]
    if version not in SUPPORTED:
        names = ", ".join(f"{major}.{minor}" for major, minor in SUPPORTED)
        raise ImportError(f"no bytecode table for CPython {version[0]}.{version[1]} (there are tables for {names})")
    return importlib.import_module(f".py{version[0]}{version[1]}", __name__)


CURRENT = _load()
