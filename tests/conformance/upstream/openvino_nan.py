"""OpenVINO on a CPU: relu, clamp, maxima and comparisons take nan for a number.  Exits with 1 while they do."""

import sys

import numpy as np
import openvino
from openvino import opset13 as op

data = np.array([np.nan, 1.0, -2.0, 0.0], np.float32)
x = op.parameter([4], np.float32)
one = op.constant(np.float32(1))
results = [op.relu(x), op.clamp(x, -1.0, 1.0), op.maximum(x, one), op.greater_equal(x, one), op.reduce_max(x, [0])]
compiled = openvino.Core().compile_model(openvino.Model(results, [x]), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
relu, clamp, maximum, greater, largest = compiled(data).to_tuple()
print("openvino", openvino.__version__, "relu", relu, "clamp", clamp, "maximum", maximum, ">=", greater, "max", largest)
right = np.isnan([relu[0], clamp[0], maximum[0], largest]).all() and not greater[0]
sys.exit(int(not right))
