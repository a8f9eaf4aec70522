"""The ONNX exporter that comes with torch: its table of operators, its translation of ATen graphs, its passes."""

from __future__ import annotations

import logging
from typing import Any

_table: Any = None


def _registry() -> Any:
    """The exporter's operators by name; one object for the process, since filling it takes half a second."""
    global _table
    if _table is None:
        from torch.onnx._internal.exporter import _registration

        # It warns about every torchvision operator when torchvision is absent, which concerns nobody here.
        log = logging.getLogger(_registration.__name__)
        level = log.level
        log.setLevel(logging.ERROR)
        try:
            _table = _registration.ONNXRegistry.from_torchlib()
        finally:
            log.setLevel(level)
    return _table


def onnx_operators() -> dict[str, list[bool]]:
    """The exporter's operators, by ``OpOverload.name()``: for each way to write one, whether it is for complex."""
    return {name: [way.is_complex for way in ways] for name, ways in _registry().functions.items() if type(name) is str}


def onnx_translate(graph: Any, model: Any) -> dict[str, Any]:
    """Write an ATen graph into the ``onnx_ir`` model ``model``; returns its values by the names of the nodes."""
    from torch.onnx._internal.exporter import _core

    return _core._translate_fx_graph(
        graph, model, graph_like=model.graph, owned_graphs={}, lower="at_conversion", registry=_registry()
    )


def onnx_type_promotion(gm: Any) -> None:
    """Insert the casts that ATen's type promotion implies, in place."""
    from torch.onnx._internal.exporter import _fx_passes

    _fx_passes.insert_type_promotion_nodes(gm)


def onnx_versions() -> tuple[int, int]:
    """The IR version and the operator set that the exporter writes."""
    from torch.onnx._internal.exporter import _constants

    return _constants.ONNX_IR_VERSION, _constants.TORCHLIB_OPSET


def onnx_add_opset_imports(model: Any) -> None:
    """Declare the operator sets that ``model`` uses."""
    from torch.onnx._internal.exporter import _ir_passes

    _ir_passes.add_opset_imports(model)
