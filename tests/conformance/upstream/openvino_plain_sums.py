"""openvino: ReduceMean adds up thousands of numbers in few lanes; a cascade, as NumPy's, errs less.

Exits with 1 while its errors on numbers that cancel are more than twice those of NumPy.
"""

import sys

import numpy as np
import openvino
from openvino import opset13 as ops

SHAPE = [32, 128 * 128]
parameter = ops.parameter(SHAPE, np.float32)
model = openvino.Model([ops.reduce_mean(parameter, np.array([1]), False)], [parameter])
compiled = openvino.Core().compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})

x = np.random.default_rng(0).standard_normal(SHAPE).astype(np.float32)
exact = x.astype(np.float64).mean(1)
found, wanted = (np.abs(y - exact).max() for y in (compiled([x])[0], x.mean(1)))
print("openvino", openvino.__version__, "ReduceMean errs by", found, "where NumPy errs by", wanted)
sys.exit(int(found > 2 * wanted))
