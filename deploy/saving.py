"""``torchmux.save``: what was compiled, in one file."""

from __future__ import annotations

import dataclasses
import inspect
import json
import os
import types
from collections.abc import Mapping
from typing import Any, Literal

import torch

from torchmux.frontend.callee import with_frame
from torchmux.frontend.capture.captured import Captured
from torchmux.frontend.compiled import CompiledFunction, CompiledModule
from torchmux.frontend.default_backend import DefaultBackend
from torchmux.frontend.hook.calls import Frame, frame_of
from torchmux.frontend.hook.session import Record, Session
from torchmux.registry.errors import SaveRefused
from torchmux.registry.names import class_with_article
from torchmux.registry.options import as_keywords
from torchmux.version import __version__
from torchmux.wording import shown

from . import container, machine
from .container import MANIFEST, WEIGHTS, key_bytes
from .entries import Outdated, World, entry_told
from .state import State, structure
from .values import NotTold, told


@dataclasses.dataclass(frozen=True)
class Compiled:
    """A compiled callable, taken apart."""

    original: Any
    called: Any
    record: Record
    session: Session
    settings: Mapping[str, Any]

    @classmethod
    def of(cls, compiled: Any) -> Compiled:
        """Raises:
        TypeError: ``torchmux.compile`` did not make it.
        """
        if isinstance(compiled, CompiledModule):
            kind: Any = type(compiled)
            return cls(
                kind._torchmux_original, kind._torchmux_called, kind._torchmux_record, kind._torchmux_session, {}
            )
        if isinstance(compiled, CompiledFunction):
            known = vars(compiled)
            original = known["_torchmux_original"]
            return cls(
                original,
                with_frame(original),
                known["_torchmux_record"],
                known["_torchmux_session"],
                known["_torchmux_arguments"],
            )
        raise TypeError(f"save() takes what torchmux.compile() returned, not {class_with_article(compiled)}")

    @property
    def function(self) -> types.FunctionType:
        """The function whose frame is captured.

        Raises:
            SaveRefused: there is none that a file could call.
        """
        found = self.called.forward if isinstance(self.called, torch.nn.Module) else self.called
        found = found.__func__ if isinstance(found, types.MethodType) else found
        if not isinstance(found, types.FunctionType):
            raise SaveRefused(
                f"save() takes compiled functions, methods and modules, not {class_with_article(self.original)}. "
                "Compile a function that calls it."
            )
        return found

    @property
    def owner(self) -> Any:
        """The object that is the first argument, for a module or a method."""
        found = self.called.forward if isinstance(self.called, torch.nn.Module) else self.called
        return found.__self__ if isinstance(found, types.MethodType) else None

    @property
    def name(self) -> str:
        return getattr(self.original, "__qualname__", type(self.original).__qualname__)


def save(
    compiled: Any,
    path: str | os.PathLike[str],
    *,
    format: Literal["torchmux", "so"] = "torchmux",
    weights: bool = True,
    key: bytes | str | None = None,
) -> list[str]:
    """Write what ``compiled``, of :func:`torchmux.compile`, has compiled so far to one file for :func:`load`.

    With ``format="so"``, write what ``native`` has compiled as a shared object with a C header beside it, which needs
    neither Python nor torch.

    Args:
        compiled: it has been called with inputs of each kind that the file is to take, under ``torch.no_grad()``.
        path: of the file; an existing one is replaced at once.
        format: ``"torchmux"``, or ``"so"`` for a path such as ``libencoder.so``.
        weights: whether parameters and buffers go along; without, ``load`` takes them from a model.  A shared object
            has them beside it then, in a file that ends in ``.safetensors``.
        key: signs the file (HMAC-SHA256); ``load`` then takes it with this key only.

    Returns:
        What is not in the file, in words: entries that no longer fit the program, and, where graphs break, functions
        between them that run in eager.

    Raises:
        SaveRefused: what was compiled cannot be written so that it would do the same.  The message says
            what, and where.
        ValueError: the key is empty, or the path gives the functions of a shared object no name.
        BackendUnavailable, CompilationFailed: a shared object cannot be compiled.
        OSError: the file cannot be written.  What was there before stays.

    Examples:
        >>> import tempfile, pathlib
        >>> compiled = torchmux.compile(torch.nn.Linear(4, 2), backend="aot_eager")
        >>> with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        ...     result = compiled(torch.ones(3, 4))
        ...     torchmux.save(compiled, pathlib.Path(folder, "linear.tmx"), weights=False)
        []
    """
    if format not in ("torchmux", "so"):
        raise ValueError(f"format is 'torchmux' or 'so', not {shown(format)}")
    if format == "so" and key is not None:
        raise ValueError("a shared object cannot be signed: remove key, and sign the file as you sign other libraries")
    taken = Compiled.of(compiled)
    is_broken = format == "torchmux" and _is_broken(taken)
    world, parameters = (None, []) if is_broken else world_of(taken)
    _check_hooks(taken)
    if format == "so":
        assert world is not None
        from .shared_object import save_shared_object  # not before it is needed: it brings the compiler

        order = [name for name, *_ in parameters]
        return save_shared_object(taken, world, order, _captures(taken), path, weights=weights)
    state = State(taken.owner if isinstance(taken.owner, torch.nn.Module) else None)
    artifacts: dict[str, bytes] = {}
    broken = None
    if world is None:
        broken, entries, left_out = _with_breaks(taken, state, artifacts)
    else:
        entries, left_out = _whole_calls(taken, world, state, artifacts)
    manifest = {
        "format": container.FORMAT,
        "torchmux": __version__,
        "name": taken.name,
        "needs": machine.needs(e["graph"]["backend"] for e in entries if e["graph"] is not None),
        "parameters": parameters,
        "state": state.told(),
        "weights": weights,
        "compile": _settings(taken.session),
        "structure": structure(taken.owner, attributes=broken is None)
        if isinstance(taken.owner, torch.nn.Module)
        else [],
        "entries": len(entries),
        "broken": broken,
    }
    members: dict[str, bytes] = {}
    if weights:
        # The first member, whose place in the file is known: tensors are to begin at multiples of 64 bytes.
        members[WEIGHTS] = container.safetensors(state.tensors, 30 + len(WEIGHTS))
    members[MANIFEST] = json.dumps(manifest, indent=1).encode()
    for number, entry in enumerate(entries):
        members[f"entries/{number}.json"] = json.dumps(entry).encode()
    for name, content in sorted(artifacts.items()):
        members[f"artifacts/{name}"] = content
    container.write(path, members, key_bytes(key))
    return left_out


def _whole_calls(
    taken: Compiled, world: World, state: State, artifacts: dict[str, bytes]
) -> tuple[list[dict[str, Any]], list[str]]:
    """The entries of a program each call of which is one graph, and those that are left out, in words."""
    entries, left_out = [], []
    for captured in _captures(taken):
        try:
            entries.append(entry_told(captured, world, state, artifacts))
        except Outdated as why:
            left_out.append(f"{captured.qualname}: {why}")
        except NotTold as why:
            raise _has(taken, captured, why) from why
    if not entries:
        raise SaveRefused(
            f"{taken.name} cannot be saved: none of what was compiled fits the program as it is now. {left_out[0]}. "
            "Call it once more, then save it."
        )
    return entries, left_out + _without_operators(taken)


def _without_operators(taken: Compiled) -> list[str]:
    """The calls that had nothing to compile, in words: a file does not have what they return."""
    state = taken.session.states.get(taken.function.__code__)
    found = []
    for entry in () if state is None else state.vain:
        if entry.guards is not None:
            conditions = (f"{guard.source.words()} {guard.words()}" for guard in entry.guards.conditions)
            place = f"{entry.qualname}: calls without operators, which run in eager"
            found.append(f"{place}, while {'; '.join(conditions) or 'the inputs are like those'}")
    return found


def _is_broken(taken: Compiled) -> bool:
    """Whether calls run more than one graph, or Python beside it."""
    frame = frame_of(taken.function.__code__)
    return any(captured.broke is not None or captured.frame != frame for captured in taken.record)


def _with_breaks(
    taken: Compiled, state: State, artifacts: dict[str, bytes]
) -> tuple[dict[str, Any], list[dict[str, Any]], list[str]]:
    """What the manifest says of a program whose graphs break, its entries, and what runs in eager, in words."""
    from .broken.told import NotSaved, in_eager, program_told  # not before it is needed

    breaks = [f"Its graph breaks. {captured.broke.message()}" for captured in taken.record if captured.broke]
    why = "\n  ".join(
        [*breaks[:1], "Under fullgraph=True, torchmux.compile() refuses such a program at the same line."]
    )
    if taken.owner is not None and not isinstance(taken.owner, torch.nn.Module):
        raise SaveRefused(
            f"{taken.name} cannot be saved: between its graphs it needs its object, which is no module. {why}"
        )
    if taken.owner is None and taken.function.__closure__:
        raise SaveRefused(
            f"{taken.name} cannot be saved: between its graphs it needs variables of the function that made it. {why}"
        )
    try:
        code = taken.function.__code__
        told, entries = program_told(taken.session, code, state, artifacts, is_method=taken.owner is not None)
    except NotSaved as refused:
        if refused.captured is not None:
            raise _has(taken, refused.captured, refused, why) from refused
        raise SaveRefused(f"{taken.name} cannot be saved: it has {refused}. {why}") from refused
    return told, entries, in_eager(taken.record)


def _has(taken: Compiled, captured: Captured, why: Exception, more: str = "") -> SaveRefused:
    place = f"{captured.qualname} ({captured.frame.place})"
    return SaveRefused(f"{taken.name} cannot be saved: {place} has {why}. {more}".rstrip())


def _settings(session: Session) -> Any:
    """The arguments of ``compile`` for JSON, for ``load(..., recompile=True)``; or why they are not there."""
    given = getattr(session.compile_graph, "backend", None)
    members = getattr(given, "members", ())
    try:
        if given is None or isinstance(given, DefaultBackend):
            return "it was compiled with the default backend, or with a function"
        if members:
            options: Any = {member.name: _by_name(member.options) for member in members}
        else:
            options = _by_name(given.options)
        return {"backend": given.name, "mode": given.mode, "options": told(options), "dynamic": session.dynamic}
    except NotTold as why:
        return f"its options cannot be written: {why}"


def _by_name(options: Any) -> dict[str, Any]:
    """Checked options by the names that a user gives them."""
    if not dataclasses.is_dataclass(options):
        return as_keywords(options)
    return {f.metadata.get("name", f.name): getattr(options, f.name) for f in dataclasses.fields(options)}


def _captures(taken: Compiled) -> list[Captured]:
    """The captures of the function itself, if they are all that its calls run.

    Raises:
        SaveRefused: there are none, or calls run more than them.
    """
    frame = frame_of(taken.function.__code__)
    found: list[Captured] = list(taken.record)
    if not found:
        why = _reasons(taken.record)
        if not why and taken.record.calls[0]:
            raise SaveRefused(f"{taken.name} cannot be saved: its calls have no operators, so nothing is compiled.")
        raise SaveRefused(
            f"{taken.name} cannot be saved: nothing is compiled ({why or 'it has not been called yet'}). Call it with "
            "inputs like those that it will get."
        )
    for captured in found:
        if captured.broke is not None:
            raise SaveRefused(
                f"{taken.name} cannot be saved: its graph breaks. {captured.broke.message()}\n  A file holds "
                "whole calls. Under fullgraph=True, torchmux.compile() refuses such a program at the same line."
            )
    for captured in found:
        if captured.frame != frame:
            why = _reasons(taken.record, frame) or f"{frame.function} itself runs in eager"
            raise SaveRefused(
                f"{taken.name} cannot be saved: {captured.qualname} ({captured.frame.place}) was compiled apart from "
                f"what calls it ({why}). A file holds whole calls: compile and save {captured.qualname} itself."
            )
        if captured.in_eager or captured.parts is None:
            raise SaveRefused(
                f"{taken.name} cannot be saved: {captured.in_eager or 'a part of it runs in eager'} "
                f"({captured.frame.place})."
            )
    return found


def _reasons(record: Record, frame: Frame | None = None) -> str:
    reasons = [f"{where.function} ({where.place}): {why}" for where, why in record.eager if frame in (None, where)]
    breaks = [broke.message() for broke in record.breaks]
    return "; ".join([*reasons, *breaks, *record.left_to_eager][:3])


def _check_hooks(taken: Compiled) -> None:
    """Raises:
    SaveRefused: a call of the module runs hooks besides its forward.
    """
    module = taken.original
    if isinstance(module, torch.nn.Module) and (module._forward_hooks or module._forward_pre_hooks):
        hook = next(iter((*module._forward_pre_hooks.values(), *module._forward_hooks.values())))
        raise SaveRefused(
            f"{taken.name} cannot be saved: calls of it run the hook {getattr(hook, '__qualname__', hook)}, which is "
            "not in the file. Remove the hook, or compile a function that calls the module."
        )


def world_of(taken: Compiled) -> tuple[World, list[Any]]:
    """What the program reads besides arguments, and its parameters for JSON."""
    function = taken.function
    signature = list(inspect.signature(function, follow_wrapped=False).parameters.values())
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    found: dict[str, Any] = {}
    for name, cell in cells:
        try:
            found[name] = cell.cell_contents
        except ValueError:
            continue  # it is empty
    parameters = [[p.name, int(p.kind), _default(p.default)] for p in signature]
    bundle = None
    if taken.owner is not None and signature[0].kind is inspect.Parameter.VAR_POSITIONAL:
        bundle = signature[0].name
        found[bundle] = (taken.owner,)
        parameters[0][2] = ["owner", ""]
    elif taken.owner is not None:
        found[signature.pop(0).name] = taken.owner
        del parameters[0]
    own_cells = frozenset(function.__code__.co_cellvars)
    return World(frozenset(p.name for p in signature), found, bundle, own_cells), parameters


def _default(value: Any) -> Any:
    """A default for JSON: nothing, a value, or why there is none."""
    if value is inspect.Parameter.empty:
        return None
    try:
        return ["value", told(value)]
    except NotTold as why:
        return ["untold", str(why)]
