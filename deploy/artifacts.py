"""``torchmux.artifacts``: what was compiled, in files that the compilers' own tools read."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.fx import GraphModule

from torchmux.backends.common.pipeline.assemble import Built, inputs_of
from torchmux.backends.common.pipeline.implementation import Told
from torchmux.frontend.capture.captured import Captured
from torchmux.frontend.guards.sources import Local, Source
from torchmux.registry.errors import SaveRefused
from torchmux.registry.spec import ToolFile

from .entries import World
from .saving import Compiled, world_of


@dataclass(frozen=True)
class Port:
    """An input of an artifact: a tensor or a number.

    ``dtype`` is torch's name of it, and None for a number; ``shape`` has a string where a size is symbolic.  Both are
    None where they are not known.  ``is_weight`` says whether the program has the tensor, rather than its caller.
    """

    name: str
    dtype: str | None = None
    shape: tuple[int | str, ...] | None = None
    is_weight: bool = False


@dataclass(frozen=True)
class Artifact:
    """One file of one part of a compiled graph.

    ``graph`` is the captured function with the number of its compilation, ``part`` counts the parts of the graph that
    backends compiled.  ``inputs`` are in the order in which the part takes them.  ``needs`` says what a program needs
    to run the file besides the tool, and ``reason`` why there is no file, with the kind ``"none"``.

    Examples:
        >>> compiled = torchmux.compile(torch.nn.Linear(4, 2), backend="eager")
        >>> with torch.no_grad():
        ...     result = compiled(torch.ones(3, 4))
        >>> (part,) = torchmux.artifacts(compiled)
        >>> part.backend, part.kind, part.suffix
        ('eager', 'fx', '.py')
    """

    backend: str
    graph: str
    part: int
    kind: str
    suffix: str = ""
    inputs: tuple[Port, ...] = ()
    needs: str = ""
    reason: str = ""
    _file: ToolFile | None = field(default=None, repr=False)
    _weights: Mapping[int, torch.Tensor] = field(default_factory=dict, repr=False)

    @property
    def text(self) -> str | None:
        """The file as a person reads it; None if it is code for machines only."""
        return None if self._file is None or self._file.text is None else self._file.text()

    @property
    def weights(self) -> dict[str, torch.Tensor]:
        """The tensors of the program that are inputs, by their names there."""
        return {self.inputs[at].name: tensor for at, tensor in self._weights.items()}

    def save(self, path: str | os.PathLike[str], *, weights: bool = True) -> list[Path]:
        """Write the file, and those that belong to it beside it.

        Args:
            path: of the file; ``suffix`` is added if it has none.
            weights: whether the weights go into an ONNX model or OpenVINO's IR, large ones into a file beside it.
                Without this they remain inputs, which they are in all other formats: pass :attr:`weights`.

        Returns:
            The files that were written, ``path`` first.

        Raises:
            SaveRefused: there is no such file; the message says why.
            OSError: it cannot be written.
        """
        if self._file is None:
            raise SaveRefused(f"{self.backend} has no file for part {self.part} of {self.graph}: {self.reason}.")
        target = Path(path)
        if not target.suffix:
            target = target.with_suffix(self.suffix)
        names = [port.name for port in self.inputs]
        return list(self._file.write(target, names, self._weights if weights and self._file.holds_weights else {}))


def artifacts(compiled: Any) -> list[Artifact]:
    """The files that ``compiled``, of :func:`torchmux.compile`, consists of so far, part by part.

    Their kinds are ``"onnx"``, ``"openvino-ir"``, ``"tvm-library"``, ``"relax"``, ``"tensorrt-engine"``, ``"c++"``,
    ``"assembly"``, ``"library"``, ``"host"`` and ``"triton"`` (native's), ``"fx"``, and ``"none"`` for what has no
    file.  Operators that torch runs between the parts are in none of them: the report names these.

    Raises:
        TypeError: ``torchmux.compile`` did not make it.
        SaveRefused: nothing was compiled yet.

    Examples:
        >>> compiled = torchmux.compile(torch.sin, backend="aot_eager")
        >>> result = compiled(torch.ones(3))
        >>> [(each.kind, "aten.sin" in each.text) for each in torchmux.artifacts(compiled)]
        [('fx', True)]
    """
    taken = Compiled.of(compiled)
    world, _ = world_of(taken)
    found = [artifact for captured in taken.record for artifact in _of_graph(captured, taken, world)]
    if not found:
        raise SaveRefused(f"{taken.name} has no artifacts: nothing is compiled. Call it with inputs first.")
    return found


def _of_graph(captured: Captured, taken: Compiled, world: World) -> Iterator[Artifact]:
    graph = f"{captured.qualname} {captured.number}"
    for backend, built in () if captured.compiled is None else _built(captured.compiled):
        yield from _of_built(built, backend, graph, captured, taken, world)


def _built(compiled: Any) -> Iterator[tuple[str, Any]]:
    """What backends have made of a graph: under ``auto``, each of those that it chose for some range of sizes."""
    built: Any = getattr(compiled, "built", None)
    if not hasattr(built, "codes"):
        yield compiled.report.backend, built
        return
    for code in dict.fromkeys(built.codes.values()):
        yield ("eager", built.gm) if code is None else (code.report.backend, getattr(code.compiled, "built", None))


def _of_built(
    built: Any, backend: str, graph: str, captured: Captured, taken: Compiled, world: World
) -> Iterator[Artifact]:
    if isinstance(built, GraphModule):
        file = _fx_file(built)  # torch runs the graph as it was captured
        yield Artifact(backend, graph, 0, file.kind, file.suffix, _file=file)
    elif not isinstance(built, Built):
        yield Artifact(backend, graph, 0, "none", reason=str(built or "it does not tell what it has compiled"))
    else:
        known = _ports(captured, taken, world)
        placeholders = built.gm.graph.find_nodes(op="placeholder")
        if len(placeholders) != len(known):  # what the backend rewrote takes other inputs
            known = [(Port(str(node.name)), None) for node in placeholders]
        for number, (name, run, given) in enumerate(_parts(built, backend, known)):
            yield from _of_part(name, graph, number, run, given)


_Known = tuple[Port, torch.Tensor | None]


def _parts(built: Built, backend: str, known: Sequence[_Known]) -> Iterator[tuple[str, Any, list[_Known]]]:
    """Each part with its backend and what is known of its inputs; a part of a chain has parts of its own."""
    of = dict(zip(built.gm.graph.find_nodes(op="placeholder"), known, strict=True))
    for part in built.split.parts:
        given = [of.get(node, (Port(str(node.name)), None)) for node in inputs_of(part)]
        run = built.compiled[id(part)]
        inner = getattr(run, "built", None)
        if isinstance(inner, Built):
            yield from _parts(inner, run.backend, given)  # type: ignore[attr-defined]
        else:
            yield backend, run, given


def _of_part(backend: str, graph: str, number: int, run: Any, given: Sequence[_Known]) -> Iterator[Artifact]:
    ports = tuple(port for port, _ in given)
    weights = {at: tensor for at, (_, tensor) in enumerate(given) if tensor is not None}
    files = list(Told(run).files())
    owner = getattr(run, "__self__", None)
    if not files and isinstance(owner, GraphModule):
        files = [_fx_file(owner)]
    for file in files:
        yield Artifact(backend, graph, number, file.kind, file.suffix, ports, file.needs, _file=file, _weights=weights)
    if not files:
        reason = "it tells of no files, or the artifact cache no longer has them (config.cache_enabled)"
        yield Artifact(backend, graph, number, "none", inputs=ports, reason=reason)


def _fx_file(gm: GraphModule) -> ToolFile:
    def write(path: Path, names: Sequence[str], weights: Mapping[int, torch.Tensor]) -> list[Path]:
        path.write_text(gm.code, encoding="utf-8")
        return [path]

    return ToolFile("fx", ".py", write, lambda: gm.code)


def _ports(captured: Captured, taken: Compiled, world: World) -> list[_Known]:
    """What is known of the inputs of a captured graph, and the tensors that are the program's own."""
    owner = taken.owner
    names: dict[int, str] = {}
    if isinstance(owner, torch.nn.Module):
        named = (*owner.named_parameters(remove_duplicate=False), *owner.named_buffers(remove_duplicate=False))
        names = {id(tensor): name for name, tensor in reversed(named)}
    values = {node.name: node.meta.get("example_value") for node in captured.graph.graph.find_nodes(op="placeholder")}
    used: set[str] = set()
    found: list[_Known] = []
    for placeholder, source, _ in captured.inputs:
        held = _held(source, world)
        wanted = names.get(id(held)) or (source.name if isinstance(source, Local) else source.short_words())
        name = base = re.sub(r"[^\w.]+", "_", wanted).strip("_") or placeholder
        while name in used:
            name = f"{base}_{len(used)}"
        used.add(name)
        found.append((_port(name, values.get(placeholder), held is not None), held))
    return found


def _held(source: Source, world: World) -> torch.Tensor | None:
    """The tensor of the program that a source leads to; None for arguments, and where it leads nowhere any more."""
    if world.is_given(source):
        return None
    try:
        found = world.read(source)
    except Exception:  # a path through objects of the program, which may have changed
        return None
    return found if isinstance(found, torch.Tensor) else None


def _port(name: str, value: Any, is_weight: bool) -> Port:
    if not isinstance(value, torch.Tensor):
        return Port(name, None, () if value is not None else None, is_weight)
    shape = tuple(size if type(size) is int else str(size) for size in value.shape)
    return Port(name, str(value.dtype).removeprefix("torch."), shape, is_weight)
