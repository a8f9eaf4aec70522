"""TVM: a maximum over a dimension leaves out nan.  Exits with 1 while it does."""

import sys

import numpy as np
import tvm
from tvm import relax

builder = relax.BlockBuilder()
x = relax.Var("x", relax.TensorType([4], "float32"))
with builder.function("main", [x]):
    with builder.dataflow():
        result = builder.emit_output(builder.emit(relax.op.max(x, axis=[0], keepdims=True)))
    builder.emit_func_output(result)
machine = relax.VirtualMachine(tvm.compile(builder.get(), target="llvm"), tvm.cpu())
found = machine["main"](tvm.runtime.tensor(np.array([1.0, np.nan, -2.0, 0.0], np.float32))).numpy()
print("tvm", tvm.__version__, "max", found, "numpy", np.nan)
sys.exit(int(not np.isnan(found).all()))
