"""The model of a part before OpenVINO compiles it: in the artifact cache, and as OpenVINO's IR in files."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from torchmux.registry.spec import ToolFile
from torchmux.scratch import scratch_folder

from ..common.cache import code_or_refusal
from ..common.cache.keys import text_key


@dataclass(frozen=True)
class Source:
    """A model in OpenVINO's IR: its graph, and its constants."""

    xml: bytes
    bin: bytes

    @classmethod
    def of(cls, model: Any) -> Source:
        import openvino

        with scratch_folder() as folder:
            path = folder / "model.xml"
            openvino.serialize(model, str(path), str(path.with_suffix(".bin")))
            return cls(path.read_bytes(), path.with_suffix(".bin").read_bytes())


def keep(key: str, model: Any) -> None:
    """Keep the source of the compiled model that is kept under ``key``."""
    source = Source.of(model)
    code_or_refusal.keep_code(_beside(key), {"xml": len(source.xml)}, source.xml + source.bin)


def kept(key: str) -> Source | None:
    """What :func:`keep` has kept; None if it is gone."""
    found = code_or_refusal.load_code(_beside(key))
    if found is None:
        return None
    length = found.head["xml"]
    return Source(found.code[:length], found.code[length:])


def _beside(key: str) -> str:
    return text_key("ir", key)


def ir_files(source: Source | None, positions: Sequence[int]) -> list[ToolFile]:
    """``positions`` are those of the model's inputs among the part's."""
    if source is None:
        return []
    write = functools.partial(_write, source, positions)
    return [ToolFile("openvino-ir", ".xml", write, source.xml.decode, holds_weights=True)]


def _write(
    source: Source, positions: Sequence[int], path: Path, names: Sequence[str], weights: Mapping[int, torch.Tensor]
) -> list[Path]:
    """The constants go to a file of the same name that ends in ``.bin``."""
    import openvino

    constants = openvino.Tensor(openvino.Type.u8, [len(source.bin)])
    constants.data[:] = memoryview(source.bin)
    model = openvino.Core().read_model(source.xml, constants)
    for position, parameter in zip(positions, list(model.get_parameters()), strict=True):
        if position in weights:
            value = weights[position].detach().cpu().contiguous().numpy()
            constant = openvino.opset13.constant(value)
            constant.set_friendly_name(names[position])
            parameter.output(0).replace(constant.output(0))
            model.remove_parameter(parameter)
        else:
            parameter.set_friendly_name(names[position])
            parameter.output(0).get_tensor().set_names({names[position]})
    for number, result in enumerate(model.get_results()):
        result.get_output_tensor(0).set_names({f"output_{number}"})
    model.validate_nodes_and_infer_types()
    openvino.serialize(model, str(path), str(path.with_suffix(".bin")))
    return [path, path.with_suffix(".bin")]
