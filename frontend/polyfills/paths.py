"""``os.fspath``, which most functions of ``os.path`` ask first."""

import os

from .tables import polyfill


@polyfill(os.fspath)
def fspath(path):
    if isinstance(path, (str, bytes)):
        return path
    cls = type(path)
    if not hasattr(cls, "__fspath__"):
        raise TypeError("expected str, bytes or os.PathLike object, not " + cls.__name__)
    found = cls.__fspath__(path)
    if isinstance(found, (str, bytes)):
        return found
    raise TypeError(f"expected {cls.__name__}.__fspath__() to return str or bytes, not {type(found).__name__}")
