"""The front door's functions."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Never, TypeVar, overload

import torch

from torchmux.config import config
from torchmux.registry import resolve
from torchmux.registry.errors import InvalidOption
from torchmux.registry.names import class_with_article, listed
from torchmux.registry.report import Strict
from torchmux.registry.resolve import ResolvedBackend
from torchmux.registry.spec import ANY
from torchmux.wording import kind, require, shown

from .callee import with_frame
from .capture.backend_call import compile_graph_with
from .compiled import call, compiled_function, compiled_module
from .default_backend import DefaultBackend, told
from .explain import Explainer, Explanation, Report, explanation_of, report_of
from .hook.frames import open_session
from .hook.session import Record, Session, reset as forget_everything, session_for
from .marks import function_marks  # noqa: F401 - the markers' handlers enter the tables
from .marks.placement import Placement
from .marks.shapes_spec import shapes_of
from .unwrap import original_of, without_torch_compile

_Callable = TypeVar("_Callable", bound=Callable[..., Any])


@overload
def compile(
    model: _Callable,
    *,
    backend: Any = None,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
    name: str | None = None,
    disable: bool = False,
    recompile_limit: int | None = None,
    isolate_recompiles: bool = False,
    shapes_spec: Any = None,
    strict: Strict = False,
    placement: Mapping[str, str] | None = None,
) -> _Callable: ...


@overload
def compile(
    model: None = None,
    *,
    backend: Any = None,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
    name: str | None = None,
    disable: bool = False,
    recompile_limit: int | None = None,
    isolate_recompiles: bool = False,
    shapes_spec: Any = None,
    strict: Strict = False,
    placement: Mapping[str, str] | None = None,
) -> Callable[[_Callable], _Callable]: ...


def compile(
    model: Any = None,
    *,
    backend: Any = None,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
    name: str | None = None,
    disable: bool = False,
    recompile_limit: int | None = None,
    isolate_recompiles: bool = False,
    shapes_spec: Any = None,
    strict: Strict = False,
    placement: Mapping[str, str] | None = None,
    **others: Never,
) -> Any:
    """Compile a function, method or ``nn.Module``; also a decorator, with or without arguments.

    ``backend`` is a name from :func:`torchmux.list_backends`, a :class:`torchmux.BackendSpec`, a callable
    ``(gm, example_inputs, **options)``, a list of these, or None for the default: what ``set_default_backend`` or
    ``config.default_backend`` names (``"auto"`` measures), or else the best one here for the device of the model's
    parameters or, where there are none, of the call's tensors (:func:`torchmux.get_default_backend`).  The logger
    ``torchmux`` says which one it is, and why.  A list is a chain: each part of a graph goes to the first member that
    takes it.  Capture and compilation happen at the first call, and again when a guard fails.

    * ``fullgraph``: a graph break raises an :class:`~torchmux.Unsupported` error that points at the user's line.
    * ``dynamic``: None makes a size or a number symbolic after it changes, True immediately, and False never.  Numbers
      that are no arguments have to change first in any case.
    * ``mode`` and ``options``: the backend's own; pass only one of the two.  The option ``guard_filter_fn`` does not
      belong to the backend: it is a function that selects the guards to keep, such as
      ``torch.compiler.skip_guard_on_globals_unsafe``.
    * ``strict``: True raises a :class:`~torchmux.FallbackRefused` error for an operator that would be left to torch,
      and for a call that would run in eager since a recompile limit is reached; ``"own"`` also for an operator that a
      library kernel would compute (or might, where the backend does not tell).
    * ``placement``: paths of submodules (patterns such as ``"encoder.*"``; the first that matches counts) and the
      backends that they are pinned to, as ``torchmux.use_backend`` does for a block.
    * ``name``: what the report calls the result.
    * ``recompile_limit``: how often a function is compiled before new calls run in eager, instead of
      ``config.recompile_limit``; with ``fullgraph=True``, an error then.
    * ``isolate_recompiles``: share no compiled code, and no count of compilations, with equal calls.
    * ``shapes_spec``: a ``torch.fx.experimental.dynamic_spec.ShapesSpec``, which says for each argument which sizes
      nothing may depend on (``ShapeVar``); all others are constants.
    * ``disable``: return ``model`` unchanged.

    The options of a chain are by member: ``options={"openvino": {...}}``.

    Raises UnknownBackend, BackendUnavailable and InvalidOption at once; at the first call, Unsupported,
    FallbackRefused and CompilationFailed.  Raises TypeError for any other keyword argument.

    Examples:
        >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU())
        >>> compiled = torchmux.compile(model, backend="aot_eager")
        >>> torch.equal(compiled(torch.ones(3, 4)), model(torch.ones(3, 4)))
        True
        >>> torchmux.report(compiled).graph_count
        1
        >>> @torchmux.compile(backend="eager", dynamic=True)
        ... def doubled(x):
        ...     return x * 2
        >>> doubled(torch.ones(2)), doubled(torch.ones(3))
        (tensor([2., 2.]), tensor([2., 2., 2.]))
    """
    for argument, value in (
        ("fullgraph", fullgraph),
        ("disable", disable),
        ("isolate_recompiles", isolate_recompiles),
    ):
        require(value, (bool,), f"compile(): {argument}")
    require(name, (str, type(None)), "compile(): name")
    require(recompile_limit, (int, type(None)), "compile(): recompile_limit")
    if recompile_limit is not None and recompile_limit < 1:
        raise InvalidOption(f"compile(): recompile_limit must be at least 1, not {recompile_limit}.")
    if others:
        raise TypeError(
            f"compile() has no argument {listed(others)}. A backend's options go into options={shown(others)}."
        )
    if model is None:
        # an unknown name raises an error here
        resolve(_chosen(backend), mode=mode, options=_guard_filter(options)[0], dynamic=dynamic, strict=strict)

        def decorate(fn: Any) -> Any:
            return compile(
                fn, backend=backend, fullgraph=fullgraph, dynamic=dynamic, mode=mode, options=options, name=name,
                disable=disable, recompile_limit=recompile_limit, isolate_recompiles=isolate_recompiles,
                shapes_spec=shapes_spec, strict=strict, placement=placement,
            )  # fmt: skip

        return decorate
    if not callable(model):
        raise InvalidOption(f"compile() takes a function, a method or an nn.Module, not {class_with_article(model)}.")
    if disable:
        return model
    model = without_torch_compile(model)
    own, guard_filter = _guard_filter(options)
    settings: dict[str, Any] = {"mode": mode, "options": own, "dynamic": dynamic, "strict": strict}
    resolved = DefaultBackend(settings, model) if _chosen(backend) is None else _resolved(backend, settings)
    placed = Placement(placement or {}, original_of(model))
    shapes = shapes_of(shapes_spec, original_of(model))
    settings_key = (
        resolved.key,
        fullgraph,
        dynamic,
        guard_filter,
        placed.key,
        id(getattr(original_of(model), "__globals__", None)),
        recompile_limit,
        shapes and shapes.key,
        object() if isolate_recompiles else None,
    )
    session = session_for(
        _owner(model),
        settings_key,
        lambda: open_session(
            compile_graph_with(resolved),
            fullgraph=fullgraph,
            dynamic=dynamic,
            guard_filter=guard_filter,
            strict=strict,
            placement=placed,
            recompile_limit=recompile_limit,
            shapes=shapes,
            alike=settings_key if _suits_copies(resolved, backend, mode, own) and not placed.key else None,
        ),
    )
    arguments = {
        "backend": _chosen(backend), "fullgraph": fullgraph, "dynamic": dynamic, "mode": mode, "options": options,
        "name": name, "recompile_limit": recompile_limit, "isolate_recompiles": isolate_recompiles,
        "shapes_spec": shapes_spec, "strict": strict, "placement": placement,
    }  # fmt: skip
    return _wrap(model, session, arguments)


def _suits_copies(
    resolved: ResolvedBackend | DefaultBackend, backend: Any, mode: str | None, options: Mapping[str, Any] | None
) -> bool:
    """Whether code that was made for a module is as good for its copies.

    It is not where it depends on the weights or their addresses: frozen, recorded, or chosen by measurements.
    """
    if mode not in (None, "default") or options or isinstance(backend, (list, tuple)):
        return False
    return "cpu" in resolved.spec.devices or (ANY in resolved.spec.devices and not resolved.spec.modes)


def _guard_filter(options: Mapping[str, Any] | None) -> tuple[Mapping[str, Any] | None, Callable | None]:
    """The backend's options, and the option that does not belong to the backend."""
    if not isinstance(options, Mapping) or "guard_filter_fn" not in options:
        return options, None
    chosen = options["guard_filter_fn"]
    if chosen is not None and not callable(chosen):
        raise InvalidOption(f"guard_filter_fn must be a function of the list of guards, not {kind(chosen)}.")
    return {name: value for name, value in options.items() if name != "guard_filter_fn"} or None, chosen


_default_backend: Any = None


def _chosen(backend: Any) -> Any:
    """The backend of a call that gives ``backend``; None for the best usable one."""
    if backend is not None:
        return backend
    return (config.default_backend or None) if _default_backend is None else _default_backend


def _resolved(backend: Any, settings: Mapping[str, Any]) -> ResolvedBackend:
    """The backend that a call names, or that is the default by a setting, which is logged."""
    resolved = resolve(_chosen(backend), **settings)
    if backend is not None:
        return resolved
    where = "torchmux.config.default_backend" if _default_backend is None else "torchmux.set_default_backend()"
    return told(dataclasses.replace(resolved, why=f"{resolved.name} is the default here: {where} names it"))


def set_default_backend(backend: Any) -> None:
    """Set the backend of ``compile`` calls that name none; None leaves it to ``config.default_backend``.

    Raises UnknownBackend, BackendUnavailable and InvalidSpec as ``compile`` does.

    Examples:
        >>> torchmux.set_default_backend("aot_eager")
        >>> torchmux.get_default_backend()
        'aot_eager'
        >>> torchmux.set_default_backend(None)
    """
    global _default_backend
    if backend is not None:
        resolve(backend)
    _default_backend = backend


def get_default_backend() -> Any:
    """The backend that ``set_default_backend`` set, or else the name in ``config.default_backend``, or else that of the
    best usable one for torch's default device: the first of :func:`torchmux.list_backends` that takes the device.

    Examples:
        >>> torchmux.get_default_backend() in torchmux.list_backends()
        True
    """
    chosen = _chosen(None)
    return resolve(None, device=torch.get_default_device().type).name if chosen is None else chosen


def _owner(model: Any) -> Any:
    """What ``compile()`` calls must have in common, besides equal settings, to share compiled code.

    A function is identified by its code, so a lambda that a loop creates repeatedly is compiled once; its closure is
    guarded.  Its globals, which no check sees, are part of the settings.
    """
    original = original_of(model)
    return getattr(original, "__code__", original)


def _wrap(model: Any, session: Session, arguments: Mapping[str, Any]) -> Any:
    if isinstance(model, torch.nn.Module):
        return compiled_module(original_of(model), session, arguments["name"])
    return compiled_function(original_of(model), session, arguments)


def _record(compiled: Any) -> Record:
    owner = type(compiled) if isinstance(compiled, torch.nn.Module) else compiled
    record = getattr(owner, "_torchmux_record", None)
    if record is None:
        raise TypeError(
            f"report() takes the result of torchmux.compile, not a plain {type(compiled).__name__} "
            "(with disable=True, compile returns what it was given)"
        )
    return record


def report(compiled: Any) -> Report:
    """What a compiled function or module did so far: graphs, placements, fallbacks, breaks, recompilations.

    Raises TypeError for anything that ``compile`` did not return.

    Examples:
        >>> compiled = torchmux.compile(lambda x: torch.relu(x) + 1, backend="aot_eager")
        >>> result = compiled(torch.ones(3))
        >>> found = torchmux.report(compiled)
        >>> found.runs, found.graph_count, found.break_count, found.share
        (1, 1, 0, 1.0)
    """
    return report_of(_record(compiled))


def explain(fn: Any, *inputs: Never, backend: Any = "eager", dynamic: bool | None = None) -> Explainer:
    """Capture ``fn`` and describe the result: ``explain(fn)(*args, **kwargs)`` runs it once and returns an
    :class:`~torchmux.frontend.explain.Explanation`.  It does not use code compiled for other callers.

    Raises TypeError if the inputs are given together with ``fn``.

    Examples:
        >>> def branches(x):
        ...     return x + 1 if x.sum() > 0 else x
        >>> found = torchmux.explain(branches)(torch.ones(2))
        >>> found.graph_count, found.graph_break_count, found.break_reasons[0].kind
        (2, 1, 'TM001')
    """
    if not callable(fn):
        raise TypeError(f"explain() takes a function, a method or an nn.Module, not {kind(fn)}.")
    if inputs:
        raise TypeError("explain() takes only the function. Its result takes the inputs: explain(f)(x).")
    resolved = resolve(backend, dynamic=dynamic)
    original = with_frame(original_of(fn))

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
    """Discard all compiled code of this process; the next calls capture again.

    Examples:
        >>> compiled = torchmux.compile(lambda x: x + 1, backend="eager")
        >>> for _ in range(2):
        ...     result = compiled(torch.ones(2))
        ...     torchmux.reset()
        >>> compiled(torch.ones(2))
        tensor([2., 2.])
    """
    forget_everything()
