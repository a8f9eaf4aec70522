"""Settings that hold for the whole process.

``torchmux.config`` is the one :class:`Config` of the process.  Like torch's own settings its values are shared by all
threads: a ``patch`` in one thread is seen by the others while it lasts.  Each change is atomic.
"""

from __future__ import annotations

import contextlib
import difflib
import os
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any


def _default_cache_dir() -> Path:
    chosen = os.environ.get("TORCHMUX_CACHE_DIR")
    if chosen:
        return Path(chosen).expanduser()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "torchmux"


@dataclass
class Config:
    """The settings; setting a name that is not among them raises ``AttributeError`` with the nearest one."""

    recompile_limit: int = 8
    """How often one code object is compiled anew before its frames run in eager mode."""

    assume_static_by_default: bool = True
    """With ``dynamic=None``, take every size for a constant at first."""

    automatic_dynamic_shapes: bool = True
    """With ``dynamic=None``, compile a size that changed as a symbol the second time."""

    capture_scalar_outputs: bool = False
    """Capture ``tensor.item()`` as an unbacked symbol instead of breaking the graph."""

    capture_dynamic_output_shape_ops: bool = False
    """Capture operators whose output size depends on data, such as ``nonzero``, instead of breaking the graph."""

    suppress_errors: bool = False
    """Run a frame in eager mode, with a warning, when compiling it fails."""

    verify_correctness: bool = False
    """Compare the first call of every compiled graph with eager, and raise ``NumericsError`` if they differ."""

    cache_enabled: bool = True
    """Keep compiled artifacts on disk."""

    cache_dir: Path = field(default_factory=_default_cache_dir)
    """Where they are kept: ``TORCHMUX_CACHE_DIR``, or ``torchmux`` in the user's cache folder."""

    def __setattr__(self, name: str, value: Any) -> None:
        _check_name(name)
        if name == "cache_dir":
            value = Path(value).expanduser()
        expected = type(_SAMPLE[name]) if name in _SAMPLE else None
        if expected in (bool, int) and type(value) is not expected:
            raise TypeError(f"config.{name} is {expected.__name__}, not {value!r} ({type(value).__name__}).")
        object.__setattr__(self, name, value)

    @contextlib.contextmanager
    def patch(self, changes: Mapping[str, Any] | None = None, /, **more: Any) -> Iterator[Config]:
        """Change settings for a block (``with config.patch(recompile_limit=1):``) or, as a decorator, for each call.

        Takes keywords, a mapping, or both.  Patches nest; each restores what it found.

        Raises:
            AttributeError: a name that is not a setting; nothing is changed then.
            TypeError: a value of the wrong type; nothing stays changed then.
        """
        wanted = {**(changes or {}), **more}
        for name in wanted:
            _check_name(name)
        with _LOCK:
            found = {name: getattr(self, name) for name in wanted}
        try:
            with _LOCK:
                for name, value in wanted.items():
                    setattr(self, name, value)
            yield self
        finally:
            with _LOCK:
                for name, value in found.items():
                    setattr(self, name, value)

    def to_dict(self) -> dict[str, Any]:
        """All settings and their present values."""
        return {name: getattr(self, name) for name in _NAMES}


_LOCK = threading.RLock()
_NAMES = tuple(f.name for f in fields(Config))
# The defaults whose type is a plain one tell what type a new value must have.
_SAMPLE = {f.name: f.default for f in fields(Config) if isinstance(f.default, int)}


def _check_name(name: str) -> None:
    if name in _NAMES:
        return
    near = difflib.get_close_matches(name, _NAMES, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise AttributeError(f"torchmux.config has no setting {name!r}.{hint} The settings are: {', '.join(_NAMES)}.")


config = Config()
