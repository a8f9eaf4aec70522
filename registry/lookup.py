"""Functions for users and tools: list the backends and their options, and look one up by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torchmux.wording import require

from .catalog import CATALOG
from .errors import FloatsNeeded
from .info import BackendInfo, rows
from .options import OptionInfo, mode_options, mode_table, option_table
from .resolve import known_spec, resolve, usable_spec
from .spec import CompiledGraph


def backends() -> list[BackendInfo]:
    """All known backends with their details: usable ones first, best first.

    This compiles nothing and imports no compiler.  A broken plugin is listed with its error.
    """
    return rows(CATALOG)


def list_backends(*, foreign: bool = False) -> list[str]:
    """The names of the backends that can run here, best first.

    With ``foreign``, backends that are registered only with torch follow; whether they can run is not known.

    Examples:
        >>> "aot_eager" in torchmux.list_backends()
        True
    """
    require(foreign, (bool,), "list_backends(): foreign")
    listing = rows(CATALOG)
    usable = [row.name for row in listing if row.available]
    return usable + [row.name for row in listing if row.foreign] if foreign else usable


def list_options(backend: Any = None) -> dict[str, OptionInfo]:
    """The options of a backend, by name; ``None`` is the best usable backend.

    Raises:
        UnknownBackend: no such name.
        TorchmuxError: the name answers with another error, as in :func:`torchmux.compile`.

    Examples:
        >>> option = torchmux.list_options("native")["freeze"]
        >>> option.type, option.default
        ('a bool', False)
    """
    return option_table(_spec(backend))


def list_mode_options(mode: str | None = None, backend: Any = None) -> dict[str, Any]:
    """The options that ``mode`` sets in a backend, or those of every mode if it is ``None``.

    Raises:
        InvalidOption: the backend has no such mode.
        UnknownBackend: no such name.
        TorchmuxError: the name answers with another error, as in :func:`torchmux.compile`.

    Examples:
        >>> sorted(torchmux.list_mode_options(backend="native"))
        ['default', 'max-autotune', 'max-autotune-no-cudagraphs', 'reduce-overhead']
    """
    spec = _spec(backend)
    return mode_table(spec) if mode is None else mode_options(spec, mode)


def lookup_backend(name: str) -> Callable[..., CompiledGraph]:
    """A backend as a function ``(gm, example_inputs, *, mode=None, options=None) -> callable``.

    The function compiles one captured graph, for training if gradients are enabled and an input requires one.

    Raises:
        TorchmuxError: the name cannot be used here, as in :func:`torchmux.compile`.

    Examples:
        >>> graph = torch.fx.symbolic_trace(torch.nn.ReLU())
        >>> function = torchmux.lookup_backend("eager")(graph, [torch.ones(2)])
        >>> function(-torch.ones(2))
        tensor([0., 0.])
    """
    require(name, (str,), "lookup_backend(): name")
    usable_spec(name)
    return compiler_function(name)


def compiler_function(name: str) -> Callable[..., CompiledGraph]:
    """Like :func:`lookup_backend`, but nothing is looked up, and errors are raised, until the function is called."""

    def compile_graph(
        gm: Any, example_inputs: Sequence[Any], *, mode: str | None = None, options: Mapping[str, Any] | None = None
    ) -> CompiledGraph:
        import torch

        training = torch.is_grad_enabled() and any(
            isinstance(value, torch.Tensor) and value.requires_grad for value in example_inputs
        )
        try:
            return resolve(name, mode=mode, options=options).compile(gm, example_inputs, training=training)
        except FloatsNeeded as needed:
            from torchmux import torch_internals  # not before there is a graph: it imports torch

            torch_internals.ask_torch_for_constants(needed.symbols)
            raise

    compile_graph.__name__ = compile_graph.__qualname__ = f"torchmux_{name}"
    compile_graph.__doc__ = f"Compile a captured graph with torchmux's backend {name!r}."
    return compile_graph


def refresh() -> None:
    """Scan installed distributions again, for example after ``pip install`` in a running notebook."""
    CATALOG.refresh()


def _spec(backend: Any) -> Any:
    return usable_spec(None) if backend is None else known_spec(backend)
