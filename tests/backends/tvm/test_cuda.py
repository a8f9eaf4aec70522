"""tvm's kernels for a GPU, as far as they can be seen without one; test_adapters_gpu.py runs them."""

from __future__ import annotations

import json
import re

import pytest
import torch

tvm = pytest.importorskip("tvm")

from tvm import relax  # noqa: E402
from tvm.script import relax as R  # noqa: E402

from torchmux.backends.tvm.codegen import build  # noqa: E402
from torchmux.backends.tvm.options import TvmOptions  # noqa: E402


@pytest.mark.parametrize(
    ("program", "wanted"),
    [
        (lambda x, c: relax.op.subtract(relax.op.add(x, c), c), r"\+ 0x1p\+0f.*- 0x1p\+0f"),
        (lambda x, c: relax.op.subtract(relax.op.add(x, c), relax.op.add(x, c)), r"\+ 0x1p\+0f.*\) - \(.*\+ 0x1p\+0f"),
        (lambda x, c: relax.op.multiply(x, relax.op.zeros_like(x)), r"\[.*\] \* .*\["),
        (lambda x, c: relax.op.divide(c, relax.op.zeros_like(x)), r" / .*\["),
    ],
)
def test_kernels_for_a_gpu_take_floats_for_floats(program, wanted: str) -> None:
    """Seen in their source, which takes no GPU: TVM's passes would fold all of these."""
    if tvm.get_global_func("target.build.cuda", allow_missing=True) is None:
        pytest.skip("this TVM has no code generator for CUDA")
    builder = relax.BlockBuilder()
    x = relax.Var("x", R.Tensor((64, 32), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(builder.emit(program(x, relax.const(1.0, "float32"))))
        builder.emit_func_output(result)
    target = {"kind": "cuda", "arch": "sm_90", "max_num_threads": 1024, "max_threads_per_block": 1024}
    options = TvmOptions(target=json.dumps({**target, "thread_warp_size": 32}))
    executable = build.compile_module(builder.get(), options, torch.device("cuda"), [])

    def modules(outer):
        yield outer
        for inner in outer.imports:
            yield from modules(inner)

    (source,) = (m.inspect_source() for m in modules(executable.mod) if m.kind == "cuda")
    assert re.search(wanted, source), source
