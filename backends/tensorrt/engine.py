"""Builds and loads engines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule

from ..common.cache.code_or_refusal import code_in, of_code


@dataclass(frozen=True)
class Engine:
    """A built engine and what its runtime needs besides."""

    serialized: bytes
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]
    requires_output_allocator: bool

    def to_bytes(self) -> bytes:
        names = {"inputs": self.input_names, "outputs": self.output_names}
        return of_code({**names, "requires_output_allocator": self.requires_output_allocator}, self.serialized)

    @classmethod
    def from_bytes(cls, content: bytes) -> Engine:
        """The inverse of :meth:`to_bytes`.

        Raises:
            ValueError: ``content`` is not an engine.
        """
        code = code_in(content)
        try:
            assert code is not None
            told = code.head
            names = tuple(map(str, told["inputs"])), tuple(map(str, told["outputs"]))
            return cls(code.code, *names, bool(told["requires_output_allocator"]))
        except (AssertionError, LookupError, TypeError) as error:
            raise ValueError(f"an artifact of TensorRT lacks a part: {error}") from error


def build(gm: GraphModule, inputs: Sequence[Any], settings: Any) -> Engine:
    """Convert ``gm`` and build its engine.

    Raises:
        RuntimeError: a converter or TensorRT's builder refuses.
    """
    from torch_tensorrt.dynamo.conversion import interpret_module_to_result

    result = interpret_module_to_result(gm, inputs, settings)
    return Engine(
        bytes(result.serialized_engine),
        tuple(result.input_names),
        tuple(result.output_names),
        result.requires_output_allocator,
    )


def load(engine: Engine, gm: GraphModule, name: str, settings: Any) -> Any:
    """A module that runs ``engine``: takes the inputs, returns one tensor or several."""
    from torch_tensorrt._features import ENABLED_FEATURES
    from torch_tensorrt.dynamo.conversion._symbolic_shape_capture import extract_symbolic_shape_expressions
    from torch_tensorrt.dynamo.runtime import PythonTorchTensorRTModule, TorchTensorRTModule

    runtime = TorchTensorRTModule if ENABLED_FEATURES.torch_tensorrt_runtime else PythonTorchTensorRTModule
    module = runtime(
        serialized_engine=engine.serialized,
        input_binding_names=list(engine.input_names),
        output_binding_names=list(engine.output_names),
        name=name,
        settings=settings,
        requires_output_allocator=engine.requires_output_allocator,
        symbolic_shape_expressions=extract_symbolic_shape_expressions(gm),
    )
    # Otherwise the next call would write over the tensors that this one returned.
    module.set_output_tensors_as_unowned(True)
    return module


def gpu() -> str:
    """The GPU that an engine is built for."""
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    return f"{properties.name} sm_{properties.major}{properties.minor}"
