"""What the kernels are written in, on each instruction set that a compiler at hand knows."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

from torchmux.backends.native.targets.cpu import build

FLAGS = [f for f in build.FLAGS if f not in ("-march=native", "-fopenmp")] + ["-O2", f"-I{build.HEADER.parent}"]
CHECK = Path(__file__).with_name("kernels_check.cpp")
NEON = (["clang++", "--target=aarch64-linux-gnu"], ["aarch64-linux-gnu-g++"])


def _needs(*commands: str) -> None:
    for command in commands:
        if shutil.which(command) is None:
            pytest.skip(f"needs {command}")


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("compiler", ["g++", "clang++"])
@pytest.mark.parametrize("chosen", [(), ("-mavx2", "-mfma", "-mf16c"), ("-march=native",)], ids=["SSE", "AVX2", "own"])
def test_the_header(compiler: str, chosen: tuple[str, ...], tmp_path: Path) -> None:
    _needs(compiler)
    if chosen and not torch.backends.cpu.get_cpu_capability().startswith("AVX"):
        pytest.skip("this processor has no AVX2")
    program = str(tmp_path / "check")
    _run(compiler, *FLAGS, *chosen, str(CHECK), "-o", program)
    _run(program)


def test_the_header_with_neon_in_an_emulator(tmp_path: Path) -> None:
    _needs("aarch64-linux-gnu-g++", "qemu-aarch64")
    program = str(tmp_path / "check")
    _run("aarch64-linux-gnu-g++", *FLAGS, "-static", str(CHECK), "-o", program)
    _run("qemu-aarch64", program)


@pytest.mark.parametrize("compiler", NEON, ids=["clang++", "g++"])
def test_generated_code_compiles_for_neon(capture, compiler: list[str], tmp_path: Path) -> None:
    _needs(compiler[0])

    def f(x, half, index):
        sums = x.softmax(-1).cumsum(0), x.var(0), x.argmax(1), x.double().tanh().sum()
        return (
            torch.nn.functional.gelu(x),
            *sums,
            (half * 2).sqrt(),
            half.bfloat16() + 1,
            x[index],
            index // 3,
            torch.where(x > 0, x, -x),
        )

    report = capture(f, torch.randn(37, 19), torch.rand(33).half(), torch.arange(11)).compile("native").report
    (source, *_) = (text for text in report.output_code if "kernels.h" in text)
    (tmp_path / "graph.cpp").write_text(source)
    _run(*compiler, *FLAGS, "-S", str(tmp_path / "graph.cpp"), "-o", str(tmp_path / "graph.s"))
    assembly = (tmp_path / "graph.s").read_text()
    assert re.search(r"fmla\s+v\d+\.4s", assembly)
    assert re.search(r"fadd\s+v\d+\.2d", assembly)
