"""What runs a graph on a GPU, as far as a machine without one can tell: the code is made for sm_90 from tensors that
hold nothing, and launches reach a function that stands for the driver's."""

from __future__ import annotations

import base64
import ctypes
import dataclasses
import math
import re
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch._dynamo.source import ConstantSource
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from torchmux import torch_internals as internals
from torchmux.backends.common.cache import code_or_refusal
from torchmux.backends.native import targets
from torchmux.backends.native.generate import decompositions, generate
from torchmux.backends.native.options import NativeOptions
from torchmux.backends.native.targets.triton import compiling, driver, target as triton_target, worker
from torchmux.backends.native.targets.triton.axes import LIMIT
from torchmux.registry.errors import CompilationFailed

from ...conftest import leaves

pytest.importorskip("triton")


@pytest.fixture
def made(monkeypatch):
    """``made(function, *sizes)``: the artifact of a function of bfloat16 tensors on a GPU.

    With ``dynamic``, all sizes are symbols, or that of one tensor and dimension.
    """
    monkeypatch.setattr(triton_target, "capability_of", lambda device: 90)

    def make(function: Any, *sizes: tuple[int, ...], dynamic: bool | tuple[int, int] = False, **options: Any) -> Any:
        known = ShapeEnv()

        def symbol(name: str, hint: int) -> Any:
            return known.create_symintnode(known.create_symbol(hint, source=ConstantSource(name)), hint=hint)

        with FakeTensorMode(shape_env=known) if dynamic else internals.new_fake_mode():
            if dynamic:
                sizes = tuple(
                    tuple(symbol(f"s{i}{j}", n) if dynamic in (True, (i, j)) else n for j, n in enumerate(s))
                    for i, s in enumerate(sizes)
                )
            args = [torch.empty(s, dtype=torch.bfloat16, device="cuda") for s in sizes]
            table = dict(decompositions())
            gm = make_fx(lambda *a: leaves(function(*a)), decomposition_table=table, tracing_mode="real")(*args)
        return code_or_refusal.code_in(generate(gm, targets.named("triton"), NativeOptions(**options), timed=False))

    return make


def normed(x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(F.gelu(F.linear(x, w, bias)), (64,))


def test_kernels_are_machine_code(made) -> None:
    code = made(normed, (32, 64), (64, 64), (64,))
    capability, cubins = compiling.unpacked(code.code)
    assert capability == 90
    assert set(cubins) == {step[0] for piece in code.head["own"]["launches"] for step in piece["steps"]}
    assert all(c.code.startswith(b"\x7fELF") for c in cubins.values())
    host = code.head["python"]
    assert "launch0(stream, " in host
    assert "item()" not in host


def test_a_call_chooses_the_type_of_indices(made) -> None:
    """By its sizes: kernels for 32 bits are compiled with the graph, those for 64 when a call needs them."""
    code = made(lambda x: (x.roll(1, 1) * 2, x.sum(0)), (5, 30), dynamic=True)
    own, host = code.head["own"], code.head["python"]
    assert host.count("small0 = ") == 1 and f" < {LIMIT}" in host
    assert "(launch0 if small0 else wide0)(stream, " in host
    assert set(own["wide"]) == {step[0] for piece in own["launches"] for step in piece["steps"]}
    jobs = [compiling.Job(**job) for job in own["wide"].values()]
    assert all("i64" in job.signature.values() and "i32" not in job.signature.values() for job in jobs)
    _, narrow = compiling.unpacked(code.code)
    wide = compiling.compile_all(jobs, 90)
    assert not {cubin.code for cubin in wide} & {cubin.code for cubin in narrow.values()}


def test_kernels_read_copies_of_what_lies_on_the_cpu(made) -> None:
    """Of a constant, one that was made before; of an input, one of this call.  Its name stays that of the original."""

    def function(x: torch.Tensor) -> torch.Tensor:
        return x / torch.tensor([1.0, 2, 3, 4]).to(x.device)

    code = made(function, (3, 4))
    assert code.head["own"]["constants"] == {"here_in1": "_tensor_constant0"}
    assert "at_in1 = here_in1.data_ptr()" in code.head["python"]
    assert "in1 = in1" not in code.head["python"]


def test_a_bias_is_added_by_the_library(made) -> None:
    """Where nothing else is computed along with it; the result is viewed as what is read."""

    def heads(x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        q = F.linear(x, w, bias).view(2, 16, 4, 16).transpose(1, 2)
        return torch.ops.aten._scaled_dot_product_flash_attention(q, q, q)[0]

    host = made(heads, (2, 16, 64), (64, 64), (64,)).head["python"]
    assert "torch.addmm(in2, in0.view((32, 64, )), in1.t())" in host
    assert "launch0" not in host


GELUS = {
    "torch's": lambda y: F.gelu(y, approximate="tanh"),
    "GPT-2's": lambda y: 0.5 * y * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (y + 0.044715 * torch.pow(y, 3.0)))),
    "BLOOM's": lambda y: y * 0.5 * (1.0 + torch.tanh(0.79788456 * y * (1 + 0.044715 * y * y))),
}


@pytest.mark.parametrize("written", GELUS)
def test_gelu_is_applied_by_the_library(made, written) -> None:
    gelu = GELUS[written]
    host = made(lambda x, w, b: gelu(F.linear(x, w, b)), (2, 16, 64), (96, 64), (96,)).head["python"]
    assert "_addmm_activation" in host and "launch0" not in host


def test_rows_of_a_mask_lie_where_attention_wants_them(made) -> None:
    def attend(q: torch.Tensor, k: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        mask = F.pad(mask * 2, (0, 1)).narrow(-1, 0, 7).expand(2, 4, 5, 7)
        attention = torch.ops.aten._scaled_dot_product_efficient_attention
        return attention(q, k, k, mask, False)[0]

    host = made(attend, (2, 4, 5, 8), (2, 4, 7, 8), (5, 7)).head["python"]
    assert "(0, 0, 8, 1, )" in host
    assert "(0, 0, 7, 1, )" not in host


def test_what_is_cheap_is_computed_again(made) -> None:
    """The normalized rows of a layer norm's backward pass, of which two kernels need each element."""

    def backward(grad: torch.Tensor, x: torch.Tensor, weight: torch.Tensor) -> Any:
        mean, factor = x.narrow(-1, 0, 1).float(), weight.narrow(0, 0, 1).float()
        return torch.ops.aten.native_layer_norm_backward(
            grad, x, [256], mean, factor, weight, weight, [True, True, False]
        )[:2]

    code = made(backward, (512, 256), (512, 256), (256,))
    assert "torch.float32" not in code.head["python"].replace("(256, ), torch.float32", "")
    assert code.head["code"].count("tl.store(p") == 3


def test_what_decides_is_computed_once(made) -> None:
    """Two kernels may differ in the last bit, and a comparison would see it."""

    def largest(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        moved = x.float() - y.narrow(-1, 0, 1).float()
        return (moved == moved.amax(-1, keepdim=True)).sum(0), moved.sum(0)

    stores = made(largest, (512, 256), (512, 256)).head["code"].count("tl.store(p")
    assert stores > 3, "and kept in memory"


def _and_gelu(y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return y, F.gelu(y, approximate="tanh")


OTHERS = {
    "its form with erf": lambda x, w, b: F.gelu(F.linear(x, w, b)),
    "another function of tanh": lambda x, w, b: F.linear(x, w, b).tanh() * 0.5,
    "a sum that is returned too": lambda x, w, b: _and_gelu(F.linear(x, w, b)),
    "GELU of less": lambda x, w, b: F.gelu(F.linear(x, w, b).narrow(1, 0, 5), approximate="tanh"),
    "GELU of rows elsewhere": lambda x, w, b: F.gelu(F.linear(x, w, b).flip(1), approximate="tanh"),
    "what was converted first": lambda x, w, b: F.gelu(F.linear(x, w, b).half(), approximate="tanh"),
    "relu, which keeps nan": lambda x, w, b: F.linear(x, w, b).relu(),
}


@pytest.mark.parametrize("what", OTHERS)
def test_nothing_else_is_taken_for_gelu(made, what) -> None:
    host = made(OTHERS[what], (2, 16, 64), (96, 64), (96,)).head["python"]
    assert "_addmm_activation" not in host and "launch0" in host


def test_a_recording_is_described(made) -> None:
    head = made(normed, (32, 64), (64, 64), (64,), cudagraphs=True).head
    assert head["replay"] == {"device": "cuda:0", "symbolic": False, "writes": []}
    assert made(normed, (32, 64), (64, 64), (64,)).head["replay"] is None


def test_a_refused_kernel_shows_its_text() -> None:
    job = compiling.Job(
        "kernel", "import triton\n@triton.jit\ndef kernel(p0):\n    nonsense(p0)\n", {"p0": "*fp32"}, {}, {}
    )
    with pytest.raises(CompilationFailed, match="nonsense"):
        compiling.compile_all([job], 90)


def test_a_process_ends_those_that_compile_for_it(run_python) -> None:
    """At once, not when they have imported Triton."""
    started = run_python(
        "from torchmux.backends.native.targets.triton import compiling\n"
        "compiling.warm_up()\n"
        "compiling._pool().shutdown(wait=True)\n"
        "print(*(worker.pid for _, worker in compiling._workers))\n"
    )
    pids = [int(pid) for pid in started.split()]
    assert pids
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]


def test_launches_follow_each_other_without_python() -> None:
    seen = []
    kind = ctypes.CFUNCTYPE(
        ctypes.c_int, ctypes.c_void_p, *[ctypes.c_uint] * 7, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p
    )

    def fake(function, x, y, z, threads, _b, _c, shared, stream, given, _extra):
        values = ctypes.cast(given, ctypes.POINTER(ctypes.POINTER(ctypes.c_uint64)))
        seen.append((function, x, y, z, threads, shared, stream, [values[n][0] for n in range(2)]))
        return 0 if function != 13 else 7

    stand_in = kind(fake)
    cubin = compiling.Cubin("k", 1024, 128, b"")
    launcher = driver.launcher()

    def run(handles: list[int], *slots: int) -> int:
        table = driver.table_of([(handle, cubin, (0, 1, 1), (2, 3)) for handle in handles])
        address = ctypes.cast(stand_in, ctypes.c_void_p).value
        return launcher(address, table, len(handles), driver.slots_type(4)(*slots), 99)

    assert run([11, 12], 5, 1, 1000, -1) == 0
    assert [s[:7] for s in seen] == [(handle, 5, 1, 1, 128, 1024, 99) for handle in (11, 12)]
    assert seen[0][7] == [1000, 2**64 - 1]
    seen.clear()
    assert run([11], 0, 1, 1, 1) == 0 and not seen  # no programs, no launch
    assert run([13, 11], 1, 1, 1, 1) == 7 and len(seen) == 1  # the driver's error, at once


def test_kernels_of_equal_text_have_code_of_their_own(made) -> None:
    """Their blocks have other sizes, which machine code has built in."""

    def doubled(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x * 2, y * 2

    code = made(doubled, (128, 128), (4096, 1024))
    names = [step[0] for piece in code.head["own"]["launches"] for step in piece["steps"]]
    _, cubins = compiling.unpacked(code.code)
    assert len({cubins[name].code for name in names}) == len(names) == 2


def test_an_odd_matrix_is_copied_once(made) -> None:
    """Into rows that start where libraries read, for two products that read it as it is and transposed."""
    host = made(lambda a, b, c: (a @ b, a.t() @ c), (264, 257), (257, 512), (264, 512)).head["python"]
    assert host.count("(264, 257, ), (264, 1, )") == 1
    assert host.count("mm_in_rows") > 1
    assert "mm_in_rows" not in made(lambda a, b: a @ b, (264, 256), (256, 512)).head["python"]
    assert "mm_in_rows" not in made(lambda a, b: a @ b, (263, 256), (256, 512)).head["python"]  # rows as they come


@pytest.mark.parametrize(("rows", "is_odd"), [(264, True), (8, False)])
def test_a_matrix_of_any_number_of_rows_has_odd_columns(made, rows, is_odd) -> None:
    """The number of rows is that of the first call where it decides what is worth its time."""
    host = made(lambda a, b: torch.relu(a @ b.t()), (rows, 256), (513, 256), dynamic=(0, 0)).head["python"]
    assert ("mm_in_rows" in host) == is_odd


def test_gradients_of_a_matrix_of_any_number_of_rows_have_odd_columns(made) -> None:
    """One of them sums over the rows, however many there are."""

    def gradients(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
        grown = torch.relu(x @ w.t())
        return grown @ w, grown.t() @ x

    host = made(gradients, (264, 256), (513, 256), dynamic=(0, 0)).head["python"]
    assert host.count("ops.torchmux.mm_in_rows.default(") == 3


@pytest.mark.parametrize(("capability", "expected"), [(75, 0), (80, 0), (90, 1), (100, 1)])
def test_products_are_finished_where_the_model_fits(made, monkeypatch, capability, expected) -> None:
    """Other GPUs than Hopper's and later ones leave them to the library, unless it is measured."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(triton_target, "capability_of", lambda device: capability)
    monkeypatch.setattr(triton_target.compiling, "compile_all", lambda jobs, capability: [None for _ in jobs])
    monkeypatch.setattr(triton_target.compiling, "packed", lambda cubins, capability: b"")
    code = made(lambda x, w: torch.relu(x @ w), (8192, 64), (64, 256))
    assert code.head["code"].count("fn.add_product(") == expected


@pytest.mark.parametrize(("rows", "expected"), [(50256, 1), (50257, 0)])
def test_products_of_odd_operands_are_the_librarys(made, rows, expected) -> None:
    """The gradient of a matrix is read along its rows: a block that ends at any of them is read element by element."""

    def gradient(g: torch.Tensor, x: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        return torch.ops.aten.slice.Tensor(g, 1, 0, rows).t() @ x + z

    code = made(gradient, (512, 50264), (512, 768), (rows, 768))
    assert code.head["code"].count("fn.add_product(") == expected


@pytest.mark.parametrize(
    ("finish", "weights", "expected"),
    [(F.relu, (512, 128, 1, 1), 1), (F.silu, (512, 128, 1, 1), 0), (F.silu, (64, 3, 3, 3), 1)],
)
def test_divisions_after_a_convolution_are_a_pass_of_their_own(made, finish, weights, expected) -> None:
    """Unless the library would pad the channels."""

    def finished(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        images = x.permute(0, 3, 1, 2)
        return finish(torch.ops.aten.convolution(images, weight, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1))

    code = made(finished, (16, 56, 56, weights[1]), weights)
    assert code.head["code"].count("fn.add_product(") == expected


def test_parts_of_images_are_rows_of_pixels(made) -> None:
    """With all channels, which lie next to each other: parts of the channels would be read in small pieces."""

    def normed(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        images = x.permute(0, 3, 1, 2)
        pooled = F.avg_pool2d(images, 3, 1, 1, count_include_pad=False)
        return F.group_norm(images + scale.view(-1, 1, 1) * pooled, 1)

    text = made(normed, (16, 14, 14, 320), (320,)).head["code"]
    first = text.partition("def kernel0(")[2].partition("def kernel1(")[0]
    assert "% 320" in first and "r < 4480" in first  # one row of 14 pixels


def test_pairs_of_small_integers_are_computed_apart() -> None:
    """The assembler is wrong about them; pairs of floats are read well."""
    text = "mov.b32 %r1, {%rs1, %rs2};\nadd.s16x2 \t%r3, %r1, %r2;\nmin.u16x2 \t%r4, %r3, %r1;\n"
    apart = worker.in_halves(text)
    assert "16x2" not in apart
    assert "add.s16 upper, upper, another;\nmov.b32 %r3, {lower, upper};" in apart
    assert apart.count("min.u16 ") == 2
    assert worker.in_halves(text.replace("s16x2", "f16x2").replace("u16x2", "bf16x2")).count("16x2") == 2


PAIRS = """\
import triton
import triton.language as tl

@triton.jit
def kernel(p0, p1):
    at = tl.arange(0, 128)
    pair = tl.inline_asm_elementwise("add.s16x2 $0, $1, $1;", "=r,r", [tl.load(p0 + at)], tl.int32, True, 1)
    tl.store(p1 + at, pair)
"""


def test_a_kernel_with_pairs_is_assembled_again(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))  # else Triton may have a copy
    assembled = []
    monkeypatch.setattr(
        worker, "in_halves", lambda ptx, plain=worker.in_halves: assembled.append(plain(ptx)) or assembled[-1]
    )
    job = compiling.Job("kernel", PAIRS, {"p0": "*i32", "p1": "*i32"}, {}, {"num_warps": 4})
    made = worker.compiled({**dataclasses.asdict(job), "file": "<kernel of pairs>", "capability": 90})
    assert base64.b64decode(made["cubin"])
    assert len(assembled) == 2  # once to see, and once where it is assembled
    assert all("add.s16 upper" in text and "16x2" not in text for text in assembled)


def test_a_large_tensor_is_made_where_the_last_one_ends(made) -> None:
    """Its kernel reads each element where it writes it; what is read otherwise, or once more, stays as it is."""
    sizes = (4096, 512), (512, 4096), (4096, 512)
    library = {"matmul": "library"}

    def changed(x: torch.Tensor, w: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x @ w) @ v

    def turned(x: torch.Tensor, w: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x @ w).flip(0) @ v

    def read_again(x: torch.Tensor, w: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        h = x @ w
        return torch.tanh(h) @ v + h @ v

    def taken_over(function: Any) -> int:
        host = made(function, *sizes, **library).head["python"]
        made_here = {line.split(" = ")[0].strip() for line in host.splitlines() if "result[" in line or "new_" in line}
        return sum(line.strip().partition(" = ")[2] in made_here for line in host.splitlines())

    assert [taken_over(f) for f in (changed, turned, read_again)] == [1, 0, 0]


def test_a_product_is_made_where_its_copy_would_be(made) -> None:
    """Rows that follow each other without gaps are made so, unless something else reads the product or changes it."""

    def host_of(function: Any) -> str:
        return made(function, (264, 256), (515, 256), matmul="library").head["python"]

    copied = host_of(lambda a, b: (a @ b.t()).view(11, 24, 515))
    assert ", 515, 8)" in copied and "launch0" not in copied
    others = lambda a, b: (a @ b.t()) * 2, lambda a, b: (a @ b.t()).flip(0), lambda a, b: ((c := a @ b.t()), c.sum())
    for function in others:
        assert "launch0" in host_of(function)


def test_a_large_tensor_is_made_when_it_is_needed(made) -> None:
    """What is computed of a small one waits for the calls before, though it could come first."""

    def late(x: torch.Tensor, w: torch.Tensor, row: torch.Tensor) -> torch.Tensor:
        wide = (row + row.unsqueeze(1)).sin()
        return torch.tanh(torch.tanh(x @ w) @ w) @ wide

    host = made(late, (2048, 2048), (2048, 2048), (2048,), matmul="library").head["python"]
    launch = re.search(r"launch\d+\(.*at_in2", host)
    assert launch is not None and host.count("torch.mm(", 0, launch.start()) == 2


@pytest.mark.parametrize("kernel", ["cudnn", "flash", "efficient"])
def test_attention_reads_a_cache_that_was_written_in_place(made, kernel) -> None:
    """It raises nothing, so what it needs may be written before; else the cache is copied, and back."""
    aten = torch.ops.aten

    def step(cache: torch.Tensor, new: torch.Tensor, query: torch.Tensor) -> torch.Tensor:
        written = aten.slice_scatter(cache, new, 2, 5, 6)
        if kernel == "flash":
            result = aten._scaled_dot_product_flash_attention(query, written, written)[0]
        elif kernel == "cudnn":
            result = aten._scaled_dot_product_cudnn_attention(query, written, written, None, False)[0]
        else:
            result = aten._scaled_dot_product_efficient_attention(query, written, written, None, False)[0]
        aten.copy_.default(cache, written)
        return result

    host = made(step, (2, 4, 64, 32), (2, 4, 1, 32), (2, 4, 1, 32)).head["python"]
    assert host.count("launch") == 1 and "arena" not in host


def test_integers_are_divided_by_what_is_never_zero(made) -> None:
    """torch raises nothing for 0 on a GPU, and gives whatever it gives."""

    def halved(x: torch.Tensor, least: int) -> torch.Tensor:
        numbers = x.long()
        return numbers // numbers.clamp(min=least) % (numbers.clamp(0, 9) + 1)

    assert "floor_divide" not in made(lambda x: halved(x, 1), (4, 30)).head["python"]
    assert made(lambda x: halved(x, 0), (4, 30)) is None  # but the reason
