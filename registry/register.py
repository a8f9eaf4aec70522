"""Adds backends to this process and removes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, overload

from torchmux.wording import kind, require, shown

from .catalog import CATALOG
from .discovery import Candidate
from .errors import InvalidSpec
from .spec import BackendSpec, Tombstone
from .validate import as_spec, describe, is_implementation

_T = TypeVar("_T")
_SOURCE = "register_backend() in this process"


@overload
def register_backend(backend: _T, /, *, name: str | None = None, **fields: Any) -> _T: ...
@overload
def register_backend(backend: None = None, /, *, name: str | None = None, **fields: Any) -> Callable[[_T], _T]: ...
def register_backend(backend: Any = None, /, *, name: str | None = None, **fields: Any) -> Any:
    """Register a backend for this process.  Returns its argument, so it also works as a decorator.

    Forms::

        register_backend(spec)                             # a BackendSpec or a Tombstone
        register_backend(function, name="mine")            # (gm, example_inputs, **options) -> callable

        @register_backend                                  # the function's own name
        @register_backend(name="mine", options=MyOptions)  # any field of BackendSpec

    A class with ``supports`` and ``compile`` is registered like a function.  It is instantiated once, without
    arguments, at the first compile.

    Raises:
        InvalidSpec: it cannot be a backend, or a field is wrong.
        BackendConflict: the name is taken.

    Examples:
        >>> @torchmux.register_backend(name="printing_graphs")
        ... def printing_graphs(gm, example_inputs):
        ...     print(len(gm.graph.nodes), "nodes")
        ...     return gm.forward
        >>> torchmux.compile(torch.relu, backend="printing_graphs")(torch.ones(2))
        3 nodes
        tensor([1., 1.])
        >>> torchmux.unregister_backend("printing_graphs")
    """
    require(name, (str, type(None)), "register_backend(): name")
    if backend is None:
        return lambda decorated: register_backend(decorated, name=name, **fields)
    if isinstance(backend, (BackendSpec, Tombstone)):
        if name is not None or fields:
            raise InvalidSpec(f"The description of {shown(backend.name)} is complete; pass it without other fields.")
        description = as_spec(backend, backend.name, _SOURCE)
    elif is_implementation(backend):
        spec = describe(backend, name, **fields)
        description = as_spec(spec, spec.name, _SOURCE)
    else:
        raise InvalidSpec(
            f"{kind(backend)} cannot be registered: a backend is a BackendSpec, a function "
            "(gm, example_inputs, **options), or a class or object with supports(node) and "
            "compile(gm, example_inputs, request)."
        )
    CATALOG.add(Candidate(description.name, _SOURCE, lambda: description))
    return backend


def unregister_backend(name: str, *, distribution: str | None = None) -> None:
    """Remove a backend from this process; with ``distribution``, only what that distribution provides under the name.

    Code that is already compiled keeps working.

    Raises:
        UnknownBackend: there is nothing to remove.

    Examples:
        >>> @torchmux.register_backend(name="for_a_moment")
        ... def for_a_moment(gm, example_inputs):
        ...     return gm.forward
        >>> torchmux.unregister_backend("for_a_moment")
        >>> "for_a_moment" in torchmux.list_backends()
        False
    """
    require(name, (str,), "unregister_backend(): name")
    require(distribution, (str, type(None)), "unregister_backend(): distribution")
    CATALOG.remove(name, distribution)
