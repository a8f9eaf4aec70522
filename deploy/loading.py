"""``torchmux.load``: a file as a callable, without either tracing or compiling."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import torch

from torchmux.backends.common.cache.cache import CarriedCache
from torchmux.registry.errors import LoadRefused, TorchmuxError

from . import machine
from .container import MANIFEST, WEIGHTS, Opened, key_bytes
from .entries import Entry
from .loaded import Loaded
from .state import check_structure, tensors_again
from .values import again


def load(
    path: str | os.PathLike[str],
    model: torch.nn.Module | None = None,
    *,
    weights: Mapping[str, torch.Tensor] | None = None,
    key: bytes | str | None = None,
    recompile: bool = False,
) -> Any:
    """The program in a file of :func:`save`, ready to be called; nothing is traced or compiled.

    A file holds code: load only files that you would run.  ``key`` makes sure that the file is what was saved with it.

    Args:
        path: of the file.
        model: the model that was saved, whose parameters and buffers the program shares.  That it is the same, besides
            the numbers, is checked now and not in later calls.  Where graphs break, a module needs it: between them
            its own Python runs.
        weights: parameters and buffers by name, such as ``model.state_dict()``, instead of those in the file.
        key: of a signed file.
        recompile: if this machine, or a version on it, is another than the file was saved for, return ``model``
            compiled anew with the same backend and options.

    Returns:
        A :class:`Loaded`; for a program whose graphs break, a
        :class:`~torchmux.deploy.broken.program.LoadedProgram`; or what :func:`torchmux.compile` returns, where it had
        to compile.

    Raises:
        LoadRefused: the file cannot be read, is damaged, altered or not signed with the key, or this machine cannot
            run it.
        BackendUnavailable: a runtime that it needs is missing.
        ValueError: the key is empty.

    Examples:
        >>> import tempfile, pathlib
        >>> compiled = torchmux.compile(torch.nn.Linear(4, 2), backend="aot_eager")
        >>> with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        ...     wanted = compiled(torch.ones(3, 4))
        ...     left_out = torchmux.save(compiled, pathlib.Path(folder, "linear.tmx"))
        ...     loaded = torchmux.load(pathlib.Path(folder, "linear.tmx"))
        ...     torch.equal(loaded(torch.ones(3, 4)), wanted)
        True
    """
    opened = Opened(path, key_bytes(key))
    manifest = opened.json(MANIFEST)
    try:
        try:
            machine.check(manifest["needs"])
        except LoadRefused as refused:
            if recompile:
                return _compiled_anew(model, manifest, refused)
            raise
        if model is not None:
            check_structure(manifest["structure"], model, attributes=manifest["broken"] is None)
            named = (*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False))
            weights = {**dict(named), **(weights or {})}
        stored: Mapping[str, torch.Tensor] = opened.tensors(WEIGHTS) if WEIGHTS in opened else {}
        if weights is not None:
            constants = {n: t for n, t in stored.items() if n not in weights}
            stored = {**constants, **weights}
        tensors = tensors_again(manifest["state"], stored)
        carried = CarriedCache(
            {name.partition("/")[2]: opened.read(name) for name in opened.names() if name.startswith("artifacts/")}
        )
        told = [opened.json(f"entries/{number}.json") for number in range(manifest["entries"])]
        entries = [Entry(each, tensors, carried) for each in told]
        if manifest["broken"] is not None:
            from .broken.program import LoadedProgram  # not before it is needed: it brings the frame hook

            return LoadedProgram(manifest, list(zip(entries, told, strict=True)), tensors, model)
        return Loaded(manifest["name"], manifest["parameters"], entries, tensors, manifest)
    except (TorchmuxError, MemoryError):
        raise
    except Exception as error:  # forged descriptions can make anything fail
        raise LoadRefused(
            f"{opened.name} has what this version of torchmux does not write ({type(error).__name__}: {error}). "
            "Save it again with torchmux.save()."
        ) from error


def _compiled_anew(model: torch.nn.Module | None, manifest: Mapping[str, Any], refused: LoadRefused) -> Any:
    """``model``, compiled as what is in the file was.

    Raises:
        LoadRefused: there is no model, or it is not known how it was compiled.
    """
    if model is None:
        raise LoadRefused(f"{refused} There is no model to compile: pass it as load(..., model=model).") from refused
    settings = manifest["compile"]
    if isinstance(settings, str):
        raise LoadRefused(
            f"{refused} It cannot be compiled as it was: {settings}. Call torchmux.compile()."
        ) from refused
    from torchmux.frontend.api import compile  # not before it is needed: it brings the tracer

    options = again(settings["options"]) or None
    return compile(
        model, backend=settings["backend"], mode=settings["mode"], options=options, dynamic=settings["dynamic"]
    )
