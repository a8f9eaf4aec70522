"""The front door's functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from torchmux.registry import resolve
from torchmux.registry.errors import InvalidOption

from .capture.backend_call import compile_graph_with
from .compiled import call, compiled_function, compiled_module
from .explain import Explainer, Explanation, Report, explanation_of, report_of
from .hook.frames import open_session
from .hook.library import ask_for
from .hook.session import Record, Session, reset as forget_everything, session_for
from .marks import function_marks  # noqa: F401 - the markers' handlers enter the tables
from .unwrap import original_of, without_torch_compile


def compile(
    model: Any = None,
    *,
    backend: Any = None,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
    disable: bool = False,
    strict: bool = False,
) -> Any:
    """Compile a function, method or ``nn.Module``; also a decorator, with or without arguments.

    ``backend`` is a name from :func:`torchmux.list_backends`, a :class:`torchmux.BackendSpec`, a callable
    ``(gm, example_inputs, **options)``, or None for the best available one.  Capture and compilation happen at the
    first call, and again when a guard fails.

    * ``fullgraph``: a graph break raises an :class:`~torchmux.Unsupported` error that points at the user's line.
    * ``dynamic``: None makes a size symbolic after it changes, True immediately, and False never.
    * ``mode`` and ``options``: the backend's own; pass only one of the two.  The option ``guard_filter_fn`` does not
      belong to the backend: it is a function that selects the guards to keep, such as
      ``torch.compiler.skip_guard_on_globals_unsafe``.
    * ``strict``: an operator that would not run in the backend raises a :class:`~torchmux.FallbackRefused` error.
    * ``disable``: return ``model`` unchanged.

    Raises UnknownBackend, BackendUnavailable and InvalidOption at once; at the first call, Unsupported,
    FallbackRefused and CompilationFailed.
    """
    if model is None:
        # an unknown name raises an error here
        resolve(_chosen(backend), mode=mode, options=_guard_filter(options)[0], dynamic=dynamic, strict=strict)

        def decorate(fn: Any) -> Any:
            return compile(
                fn, backend=backend, fullgraph=fullgraph, dynamic=dynamic, mode=mode, options=options, disable=disable,
                strict=strict,
            )  # fmt: skip

        return decorate
    if not callable(model):
        raise InvalidOption(f"compile() takes a function, a method or an nn.Module, not a {type(model).__name__}.")
    if disable:
        return model
    model = without_torch_compile(model)
    own, guard_filter = _guard_filter(options)
    resolved = resolve(_chosen(backend), mode=mode, options=own, dynamic=dynamic, strict=strict)
    session = session_for(
        _owner(model),
        (resolved.key, fullgraph, dynamic, guard_filter),
        lambda: open_session(
            compile_graph_with(resolved), fullgraph=fullgraph, dynamic=dynamic, guard_filter=guard_filter
        ),
    )
    ask_for(model)
    return _wrap(model, session)


def _guard_filter(options: Mapping[str, Any] | None) -> tuple[Mapping[str, Any] | None, Callable | None]:
    """The backend's options, and the option that does not belong to the backend."""
    if not options or "guard_filter_fn" not in options:
        return options, None
    chosen = options["guard_filter_fn"]
    if chosen is not None and not callable(chosen):
        raise InvalidOption(f"guard_filter_fn must be a function of the list of guards, not {chosen!r}.")
    return {name: value for name, value in options.items() if name != "guard_filter_fn"} or None, chosen


_default_backend: Any = None


def _chosen(backend: Any) -> Any:
    return _default_backend if backend is None else backend


def set_default_backend(backend: Any) -> None:
    """Set the backend of ``compile`` calls that name none; None selects the best usable backend.

    Raises UnknownBackend, BackendUnavailable and InvalidSpec as ``compile`` does.
    """
    global _default_backend
    if backend is not None:
        resolve(backend)
    _default_backend = backend


def get_default_backend() -> Any:
    """The backend that ``set_default_backend`` set, or else the name of the best usable backend."""
    return resolve(None).name if _default_backend is None else _default_backend


def _owner(model: Any) -> Any:
    """What ``compile()`` calls must have in common, besides equal settings, to share compiled code.

    A function is identified by its code, so a lambda that a loop creates repeatedly is compiled once; its closure is
    guarded.
    """
    original = original_of(model)
    return getattr(original, "__code__", original)


def _wrap(model: Any, session: Session) -> Any:
    if isinstance(model, torch.nn.Module):
        return compiled_module(original_of(model), session)
    return compiled_function(original_of(model), session)


def _record(compiled: Any) -> Record:
    owner = type(compiled) if isinstance(compiled, torch.nn.Module) else compiled
    record = getattr(owner, "_torchmux_record", None)
    if record is None:
        raise TypeError(f"report() takes the result of torchmux.compile, not a plain {type(compiled).__name__}")
    return record


def report(compiled: Any) -> Report:
    """What a compiled function or module did so far: graphs, placements, fallbacks, breaks, recompilations.

    Raises TypeError for anything that ``compile`` did not return.
    """
    return report_of(_record(compiled))


def explain(fn: Any, *, backend: Any = "eager", dynamic: bool | None = None) -> Explainer:
    """Capture ``fn`` and describe the result: ``explain(fn)(*args, **kwargs)`` runs it once and returns an
    :class:`~torchmux.frontend.explain.Explanation`.  It does not use code compiled for other callers.
    """
    resolved = resolve(backend, dynamic=dynamic)
    original = original_of(fn)

    def run(*args: Any, **kwargs: Any) -> Explanation:
        session = open_session(
            compile_graph_with(resolved),
            fullgraph=False,
            dynamic=dynamic,
        )
        record = Record()
        call(session, record, original, args, kwargs)
        return explanation_of(record)

    return run


def reset() -> None:
    """Discard all compiled code of this process; the next calls capture again."""
    forget_everything()
