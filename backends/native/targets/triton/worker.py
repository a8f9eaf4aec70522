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
    if is_misread(made.asm["ptx"]):
        made = triton.compile(source, target=target, options={**job["options"], "ptx_options": "-O0"})
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


_PAIRS = re.compile(r"\.[su]16x2\s+(%r\d+),")
_HALVES = re.compile(r"mov\.b32\s+\{(_|%rs\d+), (%rs\d+)\}, (%r\d+);")


def is_misread(ptx: str) -> bool:
    """Whether NVIDIA's assembler may be wrong about this text.

    Of a sum of pairs of 16 bits with constants, of which only the upper half is used, ptxas 12.8 and 12.9 add the lower
    constant when they optimize (``VIADD.16x2 R2, R2, 0x0``).  LLVM writes such sums for numbers that it finds to be
    small, as a row of an image of 7 rows.
    """
    pairs = set(_PAIRS.findall(ptx))
    return any(
        whole in pairs and (lower == "_" or len(re.findall(rf"{lower}\b", ptx)) == 1)
        for lower, _, whole in _HALVES.findall(ptx)
    )


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
