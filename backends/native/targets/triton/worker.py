"""A process that compiles kernels for a GPU: :mod:`.compiling` starts some and sends each one kernel after another.

It reads lines of JSON from its input and answers each with one.  It imports Triton, and of this package only what
kernels call, without the packages around: those would import torch, which takes longer than most kernels do.  It ends
with its input, or when nobody has sent anything for a while.
"""

from __future__ import annotations

import base64
import contextlib
import importlib
import json
import os
import re
import select
import sys
import traceback
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_IDLE_SECONDS = 120
_PACKAGE = "torchmux.backends.native.targets.triton"


def _without_parents() -> None:
    """Let kernels import modules of this package alone."""
    words = _PACKAGE.split(".")
    for count in range(1, len(words) + 1):
        package = types.ModuleType(".".join(words[:count]))
        package.__path__ = [str(Path(__file__).parent)] if count == len(words) else []
        sys.modules[package.__name__] = package


def compiled(job: dict[str, Any]) -> dict[str, Any]:
    """The code of a kernel, and what launching it takes."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    _show_text(job["file"], job["source"])
    namespace: dict[str, Any] = {"__name__": "torchmux_native_kernels"}
    exec(compile(job["source"], job["file"], "exec"), namespace)
    function = namespace[job["name"]]
    signature = {name: job["signature"].get(name, "constexpr") for name in function.arg_names}
    attributes = {
        (at,): [["tt.divisibility", 16]] for at, name in enumerate(signature) if signature[name].startswith("*")
    }
    source = ASTSource(function, signature, constexprs=job["constants"], attrs=attributes)
    target = GPUTarget("cuda", job["capability"], 32)
    made = triton.compile(source, target=target, options=job["options"])
    if in_halves(made.asm["ptx"]) != made.asm["ptx"]:
        with _assembled_in_halves():  # the option says nothing new, and makes another entry of Triton's cache
            made = triton.compile(source, target=target, options={**job["options"], "ptx_options": "-O3"})
    told = made.metadata
    for scratch in ("global_scratch_size", "profile_scratch_size"):
        if getattr(told, scratch, 0):
            raise NotImplementedError(f"a kernel that needs memory of its own ({scratch})")
    return {
        "symbol": told.name,
        "shared": told.shared,
        "threads": told.num_warps * 32,
        "cubin": base64.b64encode(made.asm["cubin"]).decode(),
    }


_PAIRS = re.compile(r"(\w+)\.([su])16x2\s+(%r\d+), (%r\d+), (%r\d+);")
_HALVES = """{{
.reg .b16 lower, upper, other, another;
mov.b32 {{lower, upper}}, {left};
mov.b32 {{other, another}}, {right};
{op}.{sign}16 lower, lower, other;
{op}.{sign}16 upper, upper, another;
mov.b32 {to}, {{lower, upper}};
}}"""


def in_halves(ptx: str) -> str:
    """The text of a kernel without operations on pairs of integers of 16 bits.

    NVIDIA's assembler (ptxas 12.8 and 12.9) is wrong about sums of pairs with constants: where it uses one half alone,
    or computes a sum twice, it adds the constant of the other half, or none (``VIADD.16x2 R2, R2, 0x0``).  LLVM writes
    such sums for numbers that it finds to be small, as a row of an image of 7 rows.
    """

    def apart(found: re.Match[str]) -> str:
        op, sign, to, left, right = found.groups()
        return _HALVES.format(op=op, sign=sign, to=to, left=left, right=right)

    return _PAIRS.sub(apart, ptx)


@contextlib.contextmanager
def _assembled_in_halves() -> Iterator[None]:
    from triton.backends.nvidia.compiler import CUDABackend

    plain = CUDABackend.make_cubin
    CUDABackend.make_cubin = lambda self, ptx, *rest: plain(self, in_halves(ptx), *rest)
    try:
        yield
    finally:
        CUDABackend.make_cubin = plain


def _show_text(file: str, text: str) -> None:
    """Triton reads the text of a kernel again, through ``linecache``."""
    import linecache

    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what anything else prints is no answer
    _without_parents()
    with contextlib.suppress(ImportError):  # which the first kernel will meet again
        importlib.import_module("triton")  # while the graph is still traced
    while select.select([sys.stdin], [], [], _IDLE_SECONDS)[0] and (line := sys.stdin.readline()):
        try:
            answer = compiled(json.loads(line))
        except Exception:
            answer = {"error": traceback.format_exc()}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
