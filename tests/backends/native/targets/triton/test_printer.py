"""The Triton printer: kernels run under Triton's interpreter, and compile for a real GPU's architecture."""

from __future__ import annotations

from pathlib import Path

import pytest

import torchmux

pytest.importorskip("triton")

WHERE = (Path(torchmux.__file__).parents[1],)  # as installed for the tests, if not in the usual place

PROGRAM = '''
import linecache, sys
import torch, torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torchmux.backends.common.pipeline.decompose import core_aten
from torchmux.backends.native import graph, schedule, stages, triton_printer
from torchmux.backends.native.schedule.kernel import Kernel

def kernels(function, *args):
    """The program of a function, and its kernels in Triton."""
    with FakeTensorMode() as mode:
        fakes = [mode.from_tensor(a) for a in args]
        from torchmux.backends.native.lowering import table
        decompositions = {op: f for op, f in core_aten().items() if op not in table}
        gm = make_fx(function, decomposition_table=decompositions)(*fakes)
    program = graph.lower(gm)
    plan = schedule.schedule(program)
    outputs = {ref.buffer for ref in program.outputs}
    printed = []
    for at, step in enumerate(plan.steps):
        assert isinstance(step, Kernel)
        needed = {b for b in step.writes if b in outputs or any(b in s.reads for s in plan.steps if s is not step)}
        printed.append(triton_printer.print_kernel(stages.plan(step, needed), f"kernel{at}"))
    return program, printed

def function_of(kernel):
    name = f"<{kernel.name} {id(kernel)}>"
    linecache.cache[name] = (len(kernel.source), None, kernel.source.splitlines(True), name)
    namespace = {}
    exec(compile(kernel.source, name, "exec"), namespace)
    return namespace[kernel.name]

def check(function, *args, tolerance=1e-5):
    program, printed = kernels(function, *args)
    memory = dict(zip(program.inputs, args))
    for kernel in printed:
        for buffer in kernel.buffers:
            if buffer not in memory:
                memory[buffer] = torch.empty_strided(buffer.sizes, buffer.strides, dtype=buffer.dtype)
        function_of(kernel)[(kernel.programs,)](*[memory[b] for b in kernel.buffers], BLOCK=kernel.block)
    got = [memory[r.buffer].as_strided(r.sizes, r.strides, r.offset) for r in program.outputs]
    for a, b in zip(got, function(*args), strict=True):
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)
'''


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (
            "lambda x, y: (F.gelu(x * 2 + y) * torch.sigmoid(y), (x > y), x.t().contiguous() + 1)",
            "R(30, 70), R(30, 70)",
        ),
        ("lambda x: (x.softmax(-1), x.sum(-1), x.amax(-1), x.argmax(-1), x.mean(-1))", "R(9, 100)"),
        ("lambda x, w, b: (F.layer_norm(x.tanh(), (64,), w, b),)", "R(5, 7, 64), R(64), R(64)"),
        ("lambda x: (torch.cat([x, x * 2], 1), F.pad(x, (1, 2), value=3.0), x.flip(1))", "R(6, 20)"),
        ("lambda x: (x.float().softmax(-1).to(torch.bfloat16), (x + 1).relu())", "R(6, 33).bfloat16()"),
        ("lambda x: (x * 3 - 1, x > 50, (x + 1).sum(-1), x.argmin(-1))", "torch.randint(0, 99, (4, 31))"),
    ],
)
def test_results(run_python, monkeypatch, function: str, arguments: str) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    tolerance = 1e-2 if "bfloat16" in arguments else 1e-5
    run_python(
        f"{PROGRAM}\nR = torch.randn\ntorch.manual_seed(0)\ncheck({function}, {arguments}, tolerance={tolerance})",
        path=WHERE,
    )


def test_it_compiles_for_a_gpu(run_python) -> None:
    out = run_python(
        PROGRAM
        + """
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

_, printed = kernels(lambda x, w: (F.layer_norm(x.tanh(), (64,), w).softmax(-1), F.gelu(x)), R(5, 7, 64), R(64))
for kernel in printed:
    signature = {f"p{n}": "*fp32" for n in range(len(kernel.buffers))} | {"BLOCK": "constexpr"}
    source = ASTSource(function_of(kernel), signature, constexprs={"BLOCK": kernel.block})
    made = triton.compile(source, target=GPUTarget("cuda", 90, 32))
    print("sm_90" in made.asm["ptx"], len(made.asm["cubin"]) > 0)
""".replace("R(", "torch.randn("),
        path=WHERE,
    )
    assert set(out.split()) == {"True"}
