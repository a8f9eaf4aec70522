"""Kernels of each kind compile for a GPU's architecture, which takes no GPU; what they compute is tested elsewhere, for
both targets."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch._subclasses import FakeTensorMode
from torch.fx import Graph
from torch.fx.experimental.proxy_tensor import make_fx

from torchmux.backends.native import targets
from torchmux.backends.native.generate import decompositions
from torchmux.backends.native.ir import expressions, operations as ops
from torchmux.backends.native.ir.expressions import Node, make
from torchmux.backends.native.ir.operation_table import BY_PRINTER, KINDS, OPERATIONS
from torchmux.backends.native.ir.program import Program, TensorRef
from torchmux.backends.native.ir.values import Value
from torchmux.backends.native.lowering import graph
from torchmux.backends.native.options import NativeOptions
from torchmux.backends.native.schedule import host
from torchmux.backends.native.schedule.schedule import schedule
from torchmux.backends.native.targets.triton import loading, module
from torchmux.backends.native.targets.triton.gpu_host import EXACT, POINTERS
from torchmux.backends.native.targets.triton.scopes import HEAD, NARROW_HEAD, TYPES, TritonKernel

triton = pytest.importorskip("triton")

INEXACT = ("div.full.f32", "div.approx.f32", "sqrt.approx.f32")
"""Instructions that are off by several units."""


def printed(program: Program) -> list[TritonKernel]:
    """The Triton kernels of a program."""
    chosen = targets.named("triton")
    chosen.select(program, NativeOptions())
    plan = host.plan(program, schedule(program), chosen.plan_loops)
    return [module.printed(step) for launch in plan.launches for step in launch.steps]


def kernels(function: Callable[..., Any], args: Sequence[torch.Tensor], *, dynamic: bool) -> list[TritonKernel]:
    """The Triton kernels of a function; with sizes as symbols if ``dynamic``."""
    mode = "symbolic" if dynamic else "fake"
    gm = make_fx(function, decomposition_table=dict(decompositions()), tracing_mode=mode)(*args)
    gm.graph.eliminate_dead_code()
    with expressions.lock:
        return printed(graph.lower(gm, targets.named("triton")))


def compiled_aligned(kernel: TritonKernel) -> Any:
    """As :func:`compiled`, for tensors that start at multiples of 16 bytes, as torch's own do."""
    return compiled(kernel, aligned=True)


def compiled(kernel: TritonKernel, *, aligned: bool = False, narrow: bool = False) -> Any:
    """What Triton makes of a kernel for the architecture sm_90."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    function = loading.defined((NARROW_HEAD if narrow else HEAD) + kernel.source)["kernel"]
    signature = {f"p{n}": POINTERS[b.dtype] for n, b in enumerate(kernel.buffers)}
    signature |= dict.fromkeys(kernel.sizes, "i32" if narrow else "i64") | ({"bad": "*i32"} if kernel.verifies else {})
    shape = kernel.shapes[0]
    constants = dict(shape.blocks)
    source = ASTSource(
        function,
        {**signature, **dict.fromkeys(constants, "constexpr")},
        constexprs=constants,
        attrs={(n,): [["tt.divisibility", 16]] for n in range(len(kernel.buffers)) if aligned},
    )
    options = {**EXACT, "num_warps": shape.warps, "num_stages": shape.stages}
    return triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)


def check(found: list[TritonKernel], words: Sequence[str] = ()) -> None:
    assert found
    for kernel in found:
        made = compiled(kernel)
        assert "sm_90" in made.asm["ptx"]
        assert len(made.asm["cubin"])
        # libdevice uses the others where it corrects the result.
        inexact: Sequence[str] = INEXACT[:1] if re.search(r"\bm\.", kernel.source) else INEXACT
        inexact = () if kernel.is_rough else inexact
        assert not [instruction for instruction in inexact if instruction in made.asm["ptx"]]
    text = "".join(kernel.source for kernel in found)
    assert not [word for word in words if word not in text]


@dataclasses.dataclass
class Kind:
    """A function whose kernels are of one kind, and words that are in their text."""

    function: Callable[..., Any]
    args: tuple[torch.Tensor, ...]
    words: tuple[str, ...] = ()
    dynamic: bool = False


@pytest.mark.parametrize(
    "name", ["floor", "ceil", "trunc", "round", "exp", "log", "log1p", "expm1", "sin", "tanh", "erf", "sqrt", "rsqrt"]
)
def test_subnormal_numbers_are_numbers(name: str) -> None:
    """libdevice takes them for zero in powers of two and reciprocals, where none can occur."""
    for kernel in kernels(lambda x: (getattr(torch, name)(x),), (torch.randn(8, 16),), dynamic=False):
        found = re.findall(r"^\s+(?:@\S+\s+)?(\S*\.ftz\S*)", compiled(kernel).asm["ptx"], re.MULTILINE)
        assert set(found) <= {"ex2.approx.ftz.f32", "rcp.approx.ftz.f32"}


ON_A_GPU = {
    "division by a number": (lambda x: x / 3.0, "", "fn.div"),
    "hardtanh": (lambda x: torch.ops.aten.hardtanh_backward(x, x * 2, -1.0, 1.0), "<= -1.0", "> -1.0"),
    "elu": (lambda x: torch.ops.aten.elu_backward(x, 1.0, 1.0, 1.0, False, x * 2), "<= 0.0", "> 0.0"),
    "hardswish": (lambda x: torch.ops.aten.hardswish_backward(x, x * 2), "< 3.0", ">= 3.0"),
    "a sixth": (torch.nn.functional.hardswish, "0.1666666716337204", "fn.div"),
}


@pytest.mark.parametrize(
    ("columns", "dtype", "block"),
    [(8192, torch.bfloat16, 8192), (16384, torch.bfloat16, 16384), (32000, torch.bfloat16, 32768),
     (65536, torch.bfloat16, 16384), (16384, torch.float32, 16384), (32768, torch.float32, 32768)],
)  # fmt: skip
def test_long_rows_of_softmax(columns: int, dtype: torch.dtype, block: int) -> None:
    """They stay in registers, or are read twice, in as few turns as can be."""
    with FakeTensorMode():
        x = torch.empty(4096, columns, dtype=dtype, device="cuda")
        (kernel,) = kernels(lambda x: (x.softmax(-1),), (x,), dynamic=False)
    assert (" in range(" in kernel.source) is (columns > 16384)
    assert ("ahead = tl.load(" in kernel.source) is (columns == 32000)
    assert dict(kernel.shapes[0].blocks)["RBLOCK"] == block


def test_rows_whose_weights_would_be_held_as_well_are_read_twice() -> None:
    """Reading ahead takes the registers that these need."""
    with FakeTensorMode():
        x, weight = (torch.empty(*s, 32000, dtype=torch.bfloat16, device="cuda") for s in ((4096,), ()))
        (kernel,) = kernels(lambda x, w: (F.layer_norm(x, (32000,), w),), (x, weight), dynamic=False)
    assert "ahead" not in kernel.source


@pytest.mark.parametrize("name", ON_A_GPU)
def test_what_eager_computes_otherwise_on_a_gpu(name: str) -> None:
    """It multiplies by reciprocals, and what is not a number takes the other branch."""
    function, there, absent = ON_A_GPU[name]
    with FakeTensorMode():
        (kernel,) = kernels(lambda x: (function(x),), (torch.empty(8, 16, device="cuda"),), dynamic=False)
    assert there in kernel.source and absent not in kernel.source
    (kernel,) = kernels(lambda x: (function(x),), (torch.empty(8, 16),), dynamic=False)
    assert absent in kernel.source


def test_what_batch_norm_returns_out_of_training_on_a_gpu() -> None:
    """What it computed with; on a CPU, tensors without elements."""

    def root(x: torch.Tensor, m: torch.Tensor) -> tuple[torch.Tensor]:
        return (torch.ops.aten._native_batch_norm_legit_functional(x, m, m, m, m, False, 0.1, 1e-5)[2],)

    with FakeTensorMode():
        (kernel,) = kernels(root, (torch.empty(4, 8, 3, device="cuda"), torch.empty(8, device="cuda")), dynamic=False)
    assert "fn.sqrt" in kernel.source
    (kernel,) = kernels(root, (torch.empty(4, 8, 3), torch.empty(8)), dynamic=False)
    assert "fn.sqrt" not in kernel.source


R = torch.randn
ROWS = torch.randint(0, 7, (7, 5))
KINDS_OF_KERNELS = {
    "product that is finished": Kind(
        lambda x, y, b: (F.gelu(x @ y + b),), (R(4096, 64).half(), R(64, 256).half(), R(256)), ("fn.add_product(",)
    ),
    "pointwise": Kind(
        lambda x, y: (F.gelu(x * 2 + y) * torch.sigmoid(y), x > y, x.t().contiguous()), (R(30, 70), R(30, 70))
    ),
    "signs of zeros": Kind(
        lambda x: (-x, torch.copysign(x, -0.0), x + -0.0, -x.double(), -x.half()), (R(30, 70),), ("fn.neg",)
    ),
    "of one element": Kind(lambda x: (x + 1, x.sum()), (torch.tensor(2.0),)),
    "half precision": Kind(
        lambda x, y: ((x + y.float()).to(torch.bfloat16), x.softmax(-1), F.layer_norm(y, (33,))),
        (R(6, 33).bfloat16(), R(6, 33).half()),
        ("fn.bf16", ".to(tl.float16)"),
    ),
    "double precision": Kind(
        lambda x: (x.exp().softmax(-1), x / 3, x.sqrt(), x.tanh(), x.round(), x.sum()), (R(6, 33).double(),)
    ),
    "what is not a number becomes an integer": Kind(
        lambda x: (x.log().int(), x.double().int()), (R(6, 33).double(),), ("fn.f64_to_i32",)
    ),
    "floats become small integers": Kind(
        lambda x: (x.to(torch.int8), x.double().to(torch.int16), x.to(torch.uint8)),
        (R(6, 33) * 200,),
        (".to(tl.int32).to(tl.int8)", ".to(tl.int32).to(tl.int16)", ".to(tl.int64).to(tl.uint8)"),
    ),
    "integers and bools": Kind(
        lambda x, y: (x // 7, x % 5, x > 3, x.amax(0), x.sum(-1), y & (x > 1), (~y).any(-1), y.all(0)),
        (torch.randint(0, 99, (4, 31)), R(4, 31) > 0),
        ("fn.any_of", "fn.all_of", "fn.floor_div"),
    ),
    "reductions along rows": Kind(
        lambda x: (x.sum(-1), x.amax(-1), x.argmin(-1), x.prod(-1), *x.max(-1)),
        (R(9, 100),),
        ("fn.total", "fn.extremum", "fn.best", "fn.times"),
    ),
    "reductions along columns": Kind(lambda x: (x.sum(0), x.argmax(0), x.softmax(0)), (R(90, 100),)),
    "stages": Kind(lambda x, w, b: (F.layer_norm(x.tanh(), (64,), w, b).softmax(-1) * x,), (R(5, 7, 64), R(64), R(64))),
    "rows in blocks": Kind(
        lambda x: (x.softmax(-1), x.argmax(-1), (x > 0).any(-1), x.amin(-1), x.prod(-1)),
        (torch.empty(300, 40000),),
        ("for start", "fn.better", "fn.smaller", "_sum = "),
    ),
    "indices from memory": Kind(
        lambda t, r, x: (F.embedding(r, t) * 2, x.gather(1, r), x[r[0] - 1], F.pad(F.embedding(r, t), (0, 0, 3, 2))),
        (R(9, 33), ROWS, R(9, 12)),
        ("fn.check", ", True, bad", ", False, bad"),
    ),
    "masks": Kind(
        lambda x: (F.pad(x * 2, (1, 2), value=3.0), torch.cat([x, x * 2], 1), x.tril(), x.roll(3, 1)),
        (R(6, 20),),
        ("mask=x_in &",),
    ),
    "indices that are divided": Kind(
        lambda x: (x.view(3, 40)[:, 1:].reshape(-1) * 2, x.repeat(2, 3).sum(0)), (R(6, 20),), (" // ", " % ")
    ),
    "sums of all before": Kind(lambda x: (x.cumsum(1), x.cumprod(0)), (R(6, 20),), ("'sum'", "'prod'")),
    "extremes so far": Kind(lambda x: x.cummin(0), (R(6, 20),), ("'min'", "'max'")),
    "writing where data says": Kind(
        lambda x, r, s: (x.index_put((r,), s, accumulate=True), x.index_add(0, r, s)),
        (R(9, 5), torch.tensor([1, 4, 4, 0, 8, 1]), R(6, 5)),
        ("tl.atomic_add",),
    ),
    "writing in a row of a type that is not added at once": Kind(
        lambda x, y, i: (x.index_add(0, i, x), y.scatter_add(0, i, y)),
        (R(4).half(), R(4).to(torch.int8), torch.tensor([0, 2, 0, 2])),
        ("tl.debug_barrier()",),
    ),
    "sizes of a call": Kind(
        lambda x: (x.softmax(0), x.sum(), x.mean(1), F.gelu(x)), (R(5, 30),), ("do_not_specialize",), dynamic=True
    ),
}


def test_indices_have_32_bits_where_sizes_allow_it() -> None:
    """Of a kernel with sizes, the form for small ones has no index of 64 bits; the other one has."""

    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.roll(1, 1) * 2, x.flip(0).sum(0), x.t() + 1, x.softmax(-1)

    found = kernels(function, (torch.empty(5, 30),), dynamic=True)
    assert found
    for kernel in found:
        assert kernel.narrow
        wide, narrow = (compiled(kernel, narrow=narrow).asm["ttir"] for narrow in (False, True))
        products = re.compile(r"arith\.muli .*i64")
        assert products.search(wide) and not products.search(narrow)


@pytest.mark.parametrize("kind", KINDS_OF_KERNELS)
def test_it_compiles_for_a_gpu(kind: str) -> None:
    chosen = KINDS_OF_KERNELS[kind]
    check(kernels(chosen.function, chosen.args, dynamic=chosen.dynamic), chosen.words)


SPELLED = [op.name for op in OPERATIONS.values() if op.triton != BY_PRINTER]


@pytest.mark.parametrize("name", SPELLED)
def test_an_operation_compiles_for_a_gpu(name: str) -> None:
    """With all types that it takes."""
    operation = OPERATIONS[name]
    with expressions.lock:
        program = Program(targets.named("triton"), torch.device("cpu"))
        program.current = Graph().placeholder("test")
        for dtype in TYPES:
            if dtype not in KINDS[operation.operands[-1]] or (dtype is torch.bool and name in ops.COMPARE):
                continue  # bools are compared as numbers
            letters = [torch.bool if letter == "B" else dtype for letter in operation.operands]
            given = [program.stored(program.buffer(d, (40,), None, "input")) for d in letters]
            program.inputs += [v.place.buffer for v in given if v.place is not None]
            (only, *others) = KINDS[operation.result]
            result = dtype if others else only

            def element(at: Any, given: list[Value] = given, result: torch.dtype = result) -> Node:
                nodes = [v.at(at) for v in given]
                if name.startswith("floor_"):
                    nodes[1] = ops.const(7, nodes[0].dtype)
                return make(name, tuple(nodes), result)

            value = program.realize(Value((40,), result, element))
            assert value.place is not None
            value.place.buffer.kind = "output"
            program.outputs.append(TensorRef.of(value))
        found = printed(program)
    check(found)


def test_what_it_lacks_goes_to_torch(capture, monkeypatch, tmp_path) -> None:
    """An operation without a spelling is refused with the table's reason, and nothing else is."""
    from torchmux.config import config

    monkeypatch.setattr(targets.named("triton").__class__, "lacks", lambda self: {"lgamma": "lgamma, of which none"})
    x = torch.rand(5, 7)
    with targets.forced("triton"), config.patch(cache_dir=tmp_path):
        captured = capture(lambda x: (x * 2 + 1, torch.lgamma(x)), x)
        report = captured.compile("native").report
    (placement,) = report.fallbacks
    assert placement.op == "aten.lgamma.default"
    assert "lgamma, of which none" in placement.reason
    assert report.share > 0
