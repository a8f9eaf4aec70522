"""ONNX Runtime loses the sign of a zero in truncation, as ONNX's operators express it."""

from __future__ import annotations

import sys

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper

x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])
y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])
nodes = [  # trunc(x) = sign(x) * floor(abs(x))
    helper.make_node("Abs", ["x"], ["a"]), helper.make_node("Floor", ["a"], ["b"]),
    helper.make_node("Sign", ["x"], ["s"]), helper.make_node("Mul", ["s", "b"], ["y"]),
]  # fmt: skip
model = helper.make_model(helper.make_graph(nodes, "g", [x], [y]), opset_imports=[helper.make_opsetid("", 18)])
model.ir_version = 9
onnx.checker.check_model(model)
session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
(found,) = session.run(None, {"x": np.array([-0.0, 0.0], np.float32)})
print("trunc of -0.0:", found[0], "; IEEE 754 has -0.0")
sys.exit(0 if np.signbit(found[0]) else 1)
