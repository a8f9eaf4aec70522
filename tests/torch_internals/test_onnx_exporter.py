"""The ONNX exporter that comes with torch."""

from __future__ import annotations

import pytest
import torch

from torchmux import torch_internals as ti

from .walk import checks


@checks(
    "onnx_translate",
    "onnx_operators",
    "onnx_type_promotion",
    "onnx_versions",
    "onnx_add_opset_imports",
)
def test_onnx() -> None:
    pytest.importorskip("onnxscript")
    import onnx_ir

    assert "aten::sin" in ti.onnx_operators()
    ir_version, opset = ti.onnx_versions()
    gm = torch.export.export(_Sin(), (torch.ones(2),)).graph_module
    ti.onnx_type_promotion(gm)
    model = onnx_ir.Model(onnx_ir.Graph([], [], nodes=[], opset_imports={"": opset}, name="g"), ir_version=ir_version)
    values = ti.onnx_translate(gm.graph, model)
    ti.onnx_add_opset_imports(model)
    assert "sin" in values


class _Sin(torch.nn.Module):
    def forward(self, x):
        return x.sin()
