"""ONNX Runtime loses the sign of a zero in truncation, as ONNX's operators express it, and in a selection."""

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
c = helper.make_tensor_value_info("c", TensorProto.BOOL, [2])
chosen = helper.make_graph([helper.make_node("Where", ["c", "x", "x"], ["y"])], "g", [c, x], [y])
model = helper.make_model(chosen, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
(where,) = session.run(None, {"x": np.array([-0.0, 0.0], np.float32), "c": np.array([True, False])})
print("-0.0 where it is chosen:", where[0])
sys.exit(0 if np.signbit(found[0]) and np.signbit(where[0]) else 1)
