"""The ONNX model of a part as a file, and as text."""

from __future__ import annotations

import functools
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from torchmux.registry.spec import ToolFile

_LARGEST_WHOLE = 1 << 30
"""Bytes of weights that stand in the file itself; a protobuf message has at most 2 GiB."""


def onnx_file(model: bytes, constants: Mapping[int, torch.Tensor]) -> ToolFile:
    """``constants`` are the initializers without data in the model, by the position in their name."""
    write = functools.partial(_write, model, constants)
    return ToolFile("onnx", ".onnx", write, functools.partial(text, model), holds_weights=True)


def profile_prefix() -> str:
    """Where onnxruntime writes profiles that nobody named."""
    return str(Path(tempfile.gettempdir()) / f"torchmux_{os.getpid()}")


class Profile:
    """What onnxruntime has timed in a session until somebody asks for it; it times nothing after that."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self._text = ""

    def file(self) -> ToolFile:
        return ToolFile("onnxrt-profile", ".json", self._write, self.text)

    def text(self) -> str:
        """The events as onnxruntime writes them, JSON that chrome://tracing shows."""
        if not self._text:
            written = Path(self._session.end_profiling())
            self._text = written.read_text(encoding="utf-8")
            if str(written).startswith(profile_prefix()):
                written.unlink()
        return self._text

    def _write(self, path: Path, names: Sequence[str], weights: Mapping[int, torch.Tensor]) -> list[Path]:
        path.write_text(self.text(), encoding="utf-8")
        return [path]


def text(model: bytes) -> str:
    """The model as onnx prints it."""
    import onnx

    return str(onnx.printer.to_text(onnx.load_model_from_string(model)))


def _write(
    model: bytes,
    constants: Mapping[int, torch.Tensor],
    path: Path,
    names: Sequence[str],
    weights: Mapping[int, torch.Tensor],
) -> list[Path]:
    """Large weights go to ``<path>.data``, beside the model."""
    import onnx
    from onnxscript import ir

    written = ir.serde.deserialize_model(onnx.load_model_from_string(model))
    graph = written.graph
    for position, value in _by_position(graph.inputs):
        value.name = names[position]
        if position in weights:
            value.const_value = _tensor(weights[position], names[position])
            graph.initializers[names[position]] = value
    kept = [value for value in graph.inputs if value.name not in graph.initializers]
    graph.inputs.clear()
    graph.inputs.extend(kept)
    for position, value in _by_position(list(graph.initializers.values())):
        if position in constants:  # those of the graph come after its inputs, and have no name
            named = names[position] if position < len(names) else f"constant_{position}"
            del graph.initializers[value.name]
            value.name = named
            value.const_value = _tensor(constants[position], named)
            graph.initializers[named] = value
    size = sum(t.numel() * t.element_size() for t in (*weights.values(), *constants.values()))
    beside = [path.with_name(f"{path.name}.data")] if size > _LARGEST_WHOLE else []
    ir.save(written, path, external_data=beside[0].name if beside else None)
    return [path, *beside]


def _by_position(values: Sequence[Any]) -> list[tuple[int, Any]]:
    """The values that :func:`.translate.to_onnx` has named, with the positions in their names."""
    named = [(str(getattr(value, "name", "")).partition("input_"), value) for value in values]
    return [(int(at), value) for (before, mark, at), value in named if mark and not before and at.isdigit()]


def _tensor(tensor: torch.Tensor, name: str) -> object:
    from onnx_ir import tensor_adapters

    return tensor_adapters.TorchTensor(tensor.detach().cpu().contiguous(), name=name)
