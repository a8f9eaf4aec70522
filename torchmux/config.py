"""Settings that hold for the whole process.

``torchmux.config`` is the only :class:`Config` of the process.  Like torch's own settings, all threads share its
values: other threads see a ``patch`` in one thread while it lasts.  Each change is atomic.

The environment sets the initial values: ``TORCHMUX_RECOMPILE_LIMIT=2``, ``TORCHMUX_SUPPRESS_ERRORS=1``.  Importing
this module touches no disk: the cache folder is determined at its first use.
"""

from __future__ import annotations

import atexit
import contextlib
import difflib
import os
import stat
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from .scratch import scratch_folder
from .wording import kind, require, shown


def _default_cache_dir() -> Path:
    chosen = os.environ.get("TORCHMUX_CACHE_DIR")
    if chosen:
        return Path(chosen).expanduser()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    try:
        return Path(base).expanduser() / "torchmux"
    except RuntimeError:  # there is no home folder
        return _cache_without_home()


def _cache_without_home() -> Path:
    """A private folder among the temporary files; if its name is taken, one that is removed when the process ends."""
    own = os.geteuid()
    folder = Path(tempfile.gettempdir()) / f"torchmux-cache-{own}"
    with contextlib.suppress(OSError):
        folder.mkdir(mode=0o700, exist_ok=True)
        found = os.lstat(folder)
        if stat.S_ISDIR(found.st_mode) and found.st_uid == own and not stat.S_IMODE(found.st_mode) & 0o077:
            return folder
    with contextlib.ExitStack() as stack:
        short_lived = stack.enter_context(scratch_folder())
        atexit.register(stack.pop_all().close)
    warnings.warn(
        f"There is no home folder, and {folder} is not a private folder of yours. Compiled code is kept in "
        f"{short_lived} until the process ends. Set TORCHMUX_CACHE_DIR to keep it longer.",
        stacklevel=4,
    )
    return short_lived


@dataclass
class Config:
    """The settings.  Setting an unknown name raises an ``AttributeError`` that suggests the closest match.

    Examples:
        >>> with torchmux.config.patch(recompile_limit=4):
        ...     torchmux.config.recompile_limit
        4
    """

    recompile_limit: int = 8
    """How many times one code object is compiled under one ``compile()`` call before its frames run in eager."""

    accumulated_recompile_limit: int = 256
    """How many times one code object is compiled under all ``compile()`` calls before its frames run in eager."""

    fail_on_recompile_limit_hit: bool = False
    """Raise ``Unsupported`` when one of the two limits is reached, as ``fullgraph=True`` does."""

    assume_static_by_default: bool = True
    """With ``dynamic=None``, treat every size as a constant at first."""

    automatic_dynamic_shapes: bool = True
    """With ``dynamic=None``, make a size that changed symbolic in the next compilation."""

    capture_scalar_outputs: bool = False
    """Capture ``tensor.item()`` as a symbol instead of breaking the graph; always with ``fullgraph=True``."""

    capture_dynamic_output_shape_ops: bool = False
    """Capture operators whose output size depends on data, such as ``nonzero``, instead of breaking the graph; always
    with ``fullgraph=True``."""

    allow_unspec_int_on_nn_module: bool = False
    """Let numeric attributes of modules inside the compiled module become symbolic when they change."""

    leave_small_graphs: bool = True
    """Let ``native`` leave a training graph of a few small operators to torch, which runs and records them sooner than
    it calls compiled code; the report says so; never with ``strict``."""

    calls_in_cpp: bool = True
    """Let ``native`` call graphs on a CPU that are called often from C++, by an extension module that is compiled in
    the background once and kept in the cache; without it, from Python."""

    suppress_errors: bool = False
    """Run a graph in torch, with a warning, if a backend fails to compile it or is unavailable."""

    fail_on_compiler_errors: bool = False
    """Raise ``CompilationFailed`` when a compiler, or the frontend, raises an exception that it does not mean to,
    instead of running the graph in torch, or the function in eager, and reporting this; for tests."""

    verify_correctness: bool = False
    """Compare the first call of every compiled graph with eager, and raise ``NumericsError`` if they differ."""

    disable: bool = False
    """Turn compilation off: compiled functions and modules run in eager."""

    verbose: bool = False
    """Keep torchmux's own frames in the tracebacks of exceptions that leave compiled code."""

    debug: bool = False
    """Check what torchmux's own compiler builds after each of its passes, and raise at the first that is malformed."""

    split_at_ddp_buckets: bool = True
    """Compile a training graph inside ``DistributedDataParallel`` in pieces, one for each of its buckets, so that it
    communicates while the backward pass computes."""

    cache_enabled: bool = True
    """Keep compiled artifacts on disk."""

    cache_dir: Path = field(init=False)
    """Where compiled artifacts are kept: ``TORCHMUX_CACHE_DIR``, or ``torchmux`` in the user's cache folder; without a
    home folder, a private folder among the temporary files."""

    cache: str = ""
    """Where artifacts are shared with other machines, behind ``cache_dir``: a folder, or an address that fsspec knows
    (``s3://bucket/folder``).  They are signed with the key in ``TORCHMUX_CACHE_KEY``."""

    cache_size_limit: int = 4 * 1024**3
    """How many bytes the files in ``cache_dir`` may take together; the least recently used are removed first."""

    compilation_wait_s: int = 300
    """How many seconds a process waits for an artifact that another process is compiling, before it compiles the same;
    0 to wait for none."""

    default_backend: str = ""
    """The backend of ``compile`` calls that name none, such as ``"auto"``; empty for the best usable one."""

    decisions: str = ""
    """Where the decisions of ``auto`` are shared: a folder, or an address that fsspec knows (``s3://bucket/folder``)."""

    trace: str = ""
    """A folder for the trace of the process: each graph, graph break, recompilation and stage as JSON, and a drawing of
    them in Chrome's trace format."""

    otel: bool = False
    """Hand each graph, graph break, recompilation and stage to OpenTelemetry as a span; needs ``torchmux[otel]``."""

    compiler_timeout_s: int = 300
    """How many seconds the C++ compiler may take per megabyte of source, rounded up."""

    def __post_init__(self) -> None:
        for name in _NAMES:
            text = os.environ.get(f"{_PREFIX}{name.upper()}")
            if text and name in _SAMPLE:
                try:
                    setattr(self, name, _PARSERS[type(_SAMPLE[name])](text))
                except ValueError as error:
                    warnings.warn(f"{_PREFIX}{name.upper()} is ignored: {error}", stacklevel=3)
        for variable in os.environ:
            if variable.startswith(_PREFIX):
                _check_variable(variable.removeprefix(_PREFIX).lower())

    def __getattr__(self, name: str) -> Any:
        """Determine the cache folder at its first use; all other settings are set from the start."""
        if name == "cache_dir":
            with _LOCK:
                if name not in vars(self):
                    self.cache_dir = _default_cache_dir()
                return vars(self)[name]
        _check_name(name)
        raise AttributeError(name)

    def __setattr__(self, name: str, value: Any) -> None:
        _check_name(name)
        if name == "cache_dir":
            require(value, (str, Path), "config.cache_dir")
            value = Path(value).expanduser()
        if name in ("cache", "decisions", "trace") and isinstance(value, Path):
            value = str(value)
        expected = type(_SAMPLE[name]) if name in _SAMPLE else None
        if expected is not None and type(value) is not expected:
            raise TypeError(f"config.{name} is {expected.__name__}, not {kind(value)}.")
        if expected is int and value < 0:
            raise ValueError(f"config.{name} is at least 0, not {shown(value)}.")
        object.__setattr__(self, name, value)

    @contextlib.contextmanager
    def patch(
        self, changes: Mapping[str, Any] | str | None = None, value: Any = None, /, **more: Any
    ) -> Iterator[Config]:
        """Change settings for a block (``with config.patch(recompile_limit=1):``) or, as a decorator, during each call.

        Takes keywords, a mapping, or a name and a value.  Patches nest; each restores the values that it found.

        Raises:
            AttributeError: a name is not a setting; no setting changes.
            TypeError: a value has the wrong type; no setting stays changed.
        """
        require(changes, (str, Mapping, type(None)), "config.patch(): the first argument")
        wanted = {**({changes: value} if isinstance(changes, str) else changes or {}), **more}
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
        """All settings and their current values."""
        return {name: getattr(self, name) for name in _NAMES}


_LOCK = threading.RLock()
_NAMES = tuple(f.name for f in fields(Config))
# The defaults with a plain type determine the type of a new value.
_SAMPLE = {f.name: f.default for f in fields(Config) if isinstance(f.default, (int, str))}


_PREFIX = "TORCHMUX_"
_OTHER_VARIABLES = ("logs", "cache_key")


def _parse_bool(text: str) -> bool:
    known = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
    if text.strip().lower() not in known:
        raise ValueError(f"{shown(text)} is not one of {', '.join(known)}")
    return known[text.strip().lower()]


def _parse_int(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{shown(text)} is not a whole number") from None


_PARSERS: dict[type, Callable[[str], Any]] = {bool: _parse_bool, int: _parse_int, str: str}


def _check_variable(name: str) -> None:
    """Warn about a misspelled variable; other programs may use the prefix for their own variables."""
    known = (*_NAMES, *_OTHER_VARIABLES)
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.8)
    if near and name not in known:
        wanted, meant = f"{_PREFIX}{name.upper()}", f"{_PREFIX}{near[0].upper()}"
        warnings.warn(f"{wanted} is not a setting of torchmux. Did you mean {meant}?", stacklevel=4)


def _check_name(name: str) -> None:
    if name in _NAMES:
        return
    require(name, (str,), "The name of a setting")
    near = difflib.get_close_matches(name[:100], _NAMES, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise AttributeError(f"torchmux.config has no setting {shown(name)}.{hint} The settings are: {', '.join(_NAMES)}.")


config = Config()
