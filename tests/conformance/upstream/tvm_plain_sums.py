"""TVM: a sum adds up thousands of numbers one after another; a cascade, as NumPy's, errs less.

Exits with 1 while its errors on numbers that cancel are more than twice those of NumPy.
"""

import sys

import numpy as np
import tvm
from tvm import relax

SHAPE = [32, 128 * 128]
builder = relax.BlockBuilder()
kind = getattr(relax, "TensorType", None) or relax.TensorStructInfo
data = relax.Var("x", kind(SHAPE, "float32"))
with builder.function("main", [data]):
    with builder.dataflow():
        mean = builder.emit_output(builder.emit(relax.op.mean(data, axis=[1])))
    builder.emit_func_output(mean)
machine = relax.VirtualMachine(tvm.compile(builder.get(), target="llvm"), tvm.cpu())

x = np.random.default_rng(0).standard_normal(SHAPE).astype(np.float32)
exact = x.astype(np.float64).mean(1)
found, wanted = (np.abs(y - exact).max() for y in (machine["main"](tvm.runtime.tensor(x)).numpy(), x.mean(1)))
print("tvm", tvm.__version__, "mean errs by", found, "where NumPy errs by", wanted)
sys.exit(int(found > 2 * wanted))
