"""Turns the user's ``backend=`` argument into something that compiles graphs."""

from __future__ import annotations

import dataclasses
import functools
import logging
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torchmux.garbage import full_collections_wait
from torchmux.wording import kind, require, shown

from . import standing
from .availability import availability
from .catalog import CATALOG
from .contract import pins_of
from .discovery import REPAIR
from .errors import (
    BackendUnavailable,
    CompilationFailed,
    FloatsNeeded,
    GraphRefused,
    InvalidOption,
    InvalidSpec,
    TorchmuxError,
)
from .identity import frozen
from .info import retirement, rows
from .loading import import_attribute, import_path, load_implementation
from .names import did_you_mean, listed, members_of
from .options import TORCH_MODES, FreeOptions, TorchOptions, build_options, fresh_copy
from .plain import compile_plain, left_to_torch
from .report import Strict, check_strict_value
from .spec import Backend, BackendSpec, CompiledGraph, CompileRequest, Tombstone
from .validate import check_spec, describe, is_implementation, keyword_names

# Strings, so that the registry imports neither the backends nor the multiplexer.
_PIPELINE = "torchmux.backends.common.pipeline.pipeline:compile_graph"
_CHAIN = "torchmux.multiplexer.chain:resolve_chain"
_CHAIN_SPEC = "torchmux.multiplexer.chain:chain_spec"
_WITH_PINS = "torchmux.multiplexer.chain:with_pins"

log = logging.getLogger("torchmux.options")


@dataclass(frozen=True, eq=False)
class ResolvedBackend:
    """A backend that can run here, with checked options.

    ``options`` is an instance of ``spec.options`` (or a dict for functions without a schema).  Treat it as read-only;
    every compilation gets its own copy.  ``why`` says why it was chosen, if the user named none.
    """

    name: str
    spec: BackendSpec
    options: Any = None
    mode: str | None = None
    dynamic: bool | None = None
    strict: Strict = False
    why: str = ""

    @functools.cached_property
    def key(self) -> Hashable:
        """Equal for equal backend, options, mode and strictness, which share the code compiled under one key.

        A function given as a backend is equal only to itself.
        """
        return (frozen(self.spec), frozen(self.options), self.mode, self.strict)

    def request(self, **changes: Any) -> CompileRequest:
        """What the backend receives besides the graph, with its own copy of the options; ``changes`` are fields."""
        told = CompileRequest(
            backend=self.name,
            options=fresh_copy(self.options),
            mode=self.mode,
            dynamic=self.dynamic,
            strict=self.strict,
            fingerprint=self.spec.fingerprint(),
        )
        return dataclasses.replace(told, **changes)

    def compile(
        self,
        gm: Any,
        example_inputs: Sequence[Any],
        *,
        training: bool,
        static_inputs: tuple[int, ...] = (),
    ) -> CompiledGraph:
        """Compile one captured graph; the implementation is imported at the first call.

        ``static_inputs`` are the positions of parameters and buffers among ``example_inputs``.

        Raises:
            BackendUnavailable: importing the implementation raised an exception.
            FallbackRefused: under ``strict``, the backend would not run all of the graph.
            CompilationFailed: the backend raised another exception, which is chained.
        """
        try:
            with full_collections_wait():
                return self._compile(gm, example_inputs, training, tuple(static_inputs))
        except TorchmuxError:
            raise
        except Exception as error:
            from torchmux import torch_internals  # not before there is a graph: it imports torch

            if (symbols := torch_internals.floats_needed(error)) is not None:
                raise FloatsNeeded(self.name, symbols) from None
            operations = sum(node.op.startswith("call_") for node in gm.graph.nodes)
            raise CompilationFailed(
                f"{self.name} raised {type(error).__name__} while compiling a graph of {operations} operations: "
                f"{error}. The cause is chained below; backend='eager' runs the same graph without a compiler."
            ) from error

    def _compile(
        self, gm: Any, example_inputs: Sequence[Any], training: bool, static_inputs: tuple[int, ...]
    ) -> CompiledGraph:
        implementation = load_implementation(self.spec)
        if pins_of(gm) - {self.name}:
            chain: ResolvedBackend = import_path(_WITH_PINS)(self)
            return chain.compile(gm, example_inputs, training=training, static_inputs=static_inputs)
        note = _unused_mode(self.spec, self.mode, implementation)
        request = self.request(
            mode=None if note else self.mode,
            phase="forward" if training else "inference",
            static_inputs=static_inputs,
        )
        if self.spec.graph == "torch" and not isinstance(implementation, Backend):
            compile_graph = compile_plain
        else:
            compile_graph = import_attribute(_PIPELINE, self.spec)
        try:
            compiled = compile_graph(implementation, self.spec, gm, example_inputs, request, training=training)
        except GraphRefused as refused:  # from another member than compile, which the pipeline asks
            compiled = left_to_torch(self.spec, gm, request, refused, training=training)
        if note:
            compiled.report.notes.append(note)
        return compiled


def resolve(
    backend: str | BackendSpec | Callable[..., Any] | Sequence[Any] | None,
    *,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
    dynamic: bool | None = None,
    strict: Strict = False,
    device: str = "cpu",
) -> ResolvedBackend:
    """Find a backend and check everything that can be checked without a graph.

    ``backend`` is a name, a :class:`BackendSpec`, an implementation, or ``None`` for the best usable backend that takes
    ``device``: the first in the order of :func:`.standing.preference`.  A list or tuple of backends is a chain, whose
    ``options`` are by member; ``"onnxrt+native"`` is the chain of these two.

    Raises:
        UnknownBackend: no such name.
        BackendConflict: two distributions provide it.
        BackendUnavailable: it is retired, broken, or lacks something; the message says how to fix it.
        InvalidSpec: its description is malformed, or for another version of the contract.
        InvalidOption: it does not accept this mode or these options, or ``strict`` is nothing that it may be.
        TypeError: ``dynamic`` has another type.
    """
    require(dynamic, (bool, type(None)), "dynamic")
    strict = check_strict_value(strict)
    why = ""
    if (members := members_of(backend)) is not None:
        chain: ResolvedBackend = import_path(_CHAIN)(
            members, mode=mode, options=options, dynamic=dynamic, strict=strict
        )
        return chain
    if backend is None:
        spec, why = _best(device)
    else:
        spec = usable_spec(backend)
    checked = build_options(spec, mode, options)
    _check_keywords(spec, mode, checked)
    if note := _unused_mode(spec, mode, spec.load):
        log.debug("%s", note)
    return ResolvedBackend(spec.name, spec, checked, mode, dynamic, strict, why)


def usable_spec(backend: Any) -> BackendSpec:
    """The description of a backend that can run here; of a chain, all members must.  Errors as in :func:`resolve`."""
    if backend is None:
        return _best("cpu")[0]
    for member in members_of(backend) or ():
        usable_spec(member)
    spec = known_spec(backend)
    answer = availability(spec)
    if not answer.ok:
        hint = f" Install it with: {spec.install}" if spec.install else ""
        raise BackendUnavailable(f"{answer.reason.rstrip('.')}.{hint}")
    return spec


def known_spec(backend: Any) -> BackendSpec:
    """The description of a backend or a chain, whether or not it can run here; errors as in :func:`resolve`."""
    if (members := members_of(backend)) is not None:
        chain: BackendSpec = import_path(_CHAIN_SPEC)(members)
        return chain
    if isinstance(backend, str):
        description = CATALOG.find(backend).describe()
        if isinstance(description, Tombstone):
            raise BackendUnavailable(retirement(description))
        return description
    if isinstance(backend, BackendSpec):
        check_spec(backend, "backend=")
        return backend
    if is_implementation(backend):
        return describe(backend)
    raise InvalidSpec(
        "backend must be a name, a BackendSpec, a function (gm, example_inputs, **options), a list of these or None, "
        f"not {kind(backend)}."
    )


def _best(device: str) -> tuple[BackendSpec, str]:
    """The backend to use where the user names none, and why it is this one."""
    usable = [row for row in rows(CATALOG) if row.available and standing.takes(row, device)]
    if not usable:
        raise BackendUnavailable(
            "No backend can run on this machine, not even eager, which comes with torchmux. The installation is "
            f"damaged. Repair it with: {REPAIR}"
        )
    best = min(usable, key=lambda row: standing.preference(row, device))
    return known_spec(best.name), f"{best.name} is the default here: {standing.reason(best, device)}"


def _unused_mode(spec: BackendSpec, mode: str | None, implementation: Any) -> str:
    """What a report notes of a mode that changes nothing; empty for one that the backend knows, or may know.

    ``implementation`` may also be the path that names it.
    """
    if mode is None or mode == "default":
        return ""
    if spec.options is TorchOptions:
        known = None if isinstance(implementation, str) else keyword_names(implementation)
        used = known is None or "mode" in known or mode not in TORCH_MODES
    else:
        used = mode in spec.modes
    return "" if used else f"mode={mode!r} changes nothing: {spec.name} has no use for it"


def _check_keywords(spec: BackendSpec, mode: str | None, options: Any) -> None:
    """Refuse early what a function without a schema would refuse less clearly when it is called."""
    if isinstance(spec.load, str) or not isinstance(options, (FreeOptions, TorchOptions)):
        return
    known = keyword_names(spec.load)
    if known is None:
        return
    if isinstance(options, TorchOptions):
        if mode is not None and mode not in TORCH_MODES and "mode" not in known:
            raise InvalidOption(
                f"{spec.name} has no modes: its function takes no keyword 'mode'. Remove {shown(mode)}."
            )
        return
    for name in options:
        if name not in known:
            takes = f"It takes {listed(sorted(known))}." if known else "It takes none."
            raise InvalidOption(f"{spec.name} has no option {shown(name)}.{did_you_mean(name, known)} {takes}")
