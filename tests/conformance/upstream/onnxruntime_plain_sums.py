"""onnxruntime: ReduceMean adds up thousands of numbers in few lanes; a cascade, as NumPy's, errs less.

Exits with 1 while its errors on numbers that cancel are more than twice those of NumPy.
"""

import sys

import numpy as np
import onnxruntime
from onnx import TensorProto, helper

SHAPE = [32, 128 * 128]
data = helper.make_tensor_value_info("x", TensorProto.FLOAT, SHAPE)
result = helper.make_tensor_value_info("y", TensorProto.FLOAT, SHAPE[:1])
axes = helper.make_tensor("axes", TensorProto.INT64, [1], [1])
node = helper.make_node("ReduceMean", ["x", "axes"], ["y"], keepdims=0)
graph = helper.make_graph([node], "graph", [data], [result], [axes])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])

x = np.random.default_rng(0).standard_normal(SHAPE).astype(np.float32)
exact = x.astype(np.float64).mean(1)
found, wanted = (np.abs(y - exact).max() for y in (session.run(None, {"x": x})[0], x.mean(1)))
print("onnxruntime", onnxruntime.__version__, "ReduceMean errs by", found, "where NumPy errs by", wanted)
sys.exit(int(found > 2 * wanted))
