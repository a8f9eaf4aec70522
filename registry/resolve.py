"""Turns the user's ``backend=`` argument into something that compiles graphs."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .availability import availability
from .catalog import CATALOG
from .errors import BackendUnavailable, CompilationFailed, FloatsNeeded, InvalidOption, InvalidSpec, TorchmuxError
from .identity import frozen
from .info import retirement, rows
from .loading import import_attribute, load_implementation
from .names import did_you_mean, listed
from .options import FreeOptions, TorchOptions, build_options, fresh_copy
from .plain import compile_plain
from .spec import Backend, BackendSpec, CompiledGraph, CompileRequest, Tombstone
from .validate import check_spec, describe, is_implementation, keyword_names

# A string, so that the registry does not import the backends.
_PIPELINE = "torchmux.backends.common.pipeline.pipeline:compile_graph"


@dataclass(frozen=True, eq=False)
class ResolvedBackend:
    """A backend that can run here, with checked options.

    ``options`` is an instance of ``spec.options`` (or a dict for functions without a schema).  Treat it as read-only;
    every compilation gets its own copy.
    """

    name: str
    spec: BackendSpec
    options: Any = None
    mode: str | None = None
    dynamic: bool | None = None
    strict: bool = False

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
        implementation = load_implementation(self.spec)
        try:
            request = self.request(phase="forward" if training else "inference", static_inputs=tuple(static_inputs))
            if self.spec.graph == "torch" and not isinstance(implementation, Backend):
                return compile_plain(implementation, self.spec, gm, example_inputs, request, training=training)
            compile_graph = import_attribute(_PIPELINE, self.spec)
            return compile_graph(implementation, self.spec, gm, example_inputs, request, training=training)
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


def resolve(
    backend: str | BackendSpec | Callable[..., Any] | None,
    *,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
    dynamic: bool | None = None,
    strict: bool = False,
) -> ResolvedBackend:
    """Find a backend and check everything that can be checked without a graph.

    ``backend`` is a name, a :class:`BackendSpec`, an implementation, or ``None`` for the best usable backend.

    Raises:
        UnknownBackend: no such name.
        BackendConflict: two distributions provide it.
        BackendUnavailable: it is retired, broken, or lacks something; the message says how to fix it.
        InvalidSpec: its description is malformed, or for another version of the contract.
        InvalidOption: it does not accept this mode or these options.
    """
    spec = usable_spec(backend)
    checked = build_options(spec, mode, options)
    _check_keywords(spec, mode, checked)
    return ResolvedBackend(spec.name, spec, checked, mode, dynamic, strict)


def usable_spec(backend: Any) -> BackendSpec:
    """The description of a backend that can run here; errors as in :func:`resolve`."""
    if backend is None:
        return _best()
    spec = known_spec(backend)
    answer = availability(spec)
    if not answer.ok:
        hint = f" Install it with: {spec.install}" if spec.install else ""
        raise BackendUnavailable(f"{answer.reason.rstrip('.')}.{hint}")
    return spec


def known_spec(backend: Any) -> BackendSpec:
    """The description of a backend, whether or not it can run here; errors as in :func:`resolve`."""
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
        f"backend must be a name, a BackendSpec, a function (gm, example_inputs, **options) or None, not {backend!r} "
        f"({type(backend).__name__})."
    )


def _best() -> BackendSpec:
    usable = [row.name for row in rows(CATALOG) if row.available]
    if not usable:
        raise BackendUnavailable(
            "No backend can run on this machine, not even eager, which comes with torchmux. The installation is "
            "damaged. Repair it with: python -m pip install --force-reinstall --no-deps torchmux"
        )
    return known_spec(usable[0])


def _check_keywords(spec: BackendSpec, mode: str | None, options: Any) -> None:
    """Refuse early what a function without a schema would refuse less clearly when it is called."""
    if isinstance(spec.load, str) or not isinstance(options, (FreeOptions, TorchOptions)):
        return
    known = keyword_names(spec.load)
    if known is None:
        return
    if isinstance(options, TorchOptions):
        if mode not in (None, "default") and "mode" not in known:
            raise InvalidOption(f"{spec.name} has no modes: its function takes no keyword 'mode'. Remove {mode!r}.")
        return
    for name in options:
        if name not in known:
            takes = f"It takes {listed(sorted(known))}." if known else "It takes none."
            raise InvalidOption(f"{spec.name} has no option {name!r}.{did_you_mean(name, known)} {takes}")
