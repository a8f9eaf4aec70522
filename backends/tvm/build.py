"""From a Relax module to an executable, and from executables to bytes and back."""

from __future__ import annotations

import functools
import json
import tempfile
from pathlib import Path
from typing import Any

import tvm
from tvm import relax
from tvm.target import codegen

from . import library, mathlib, schedule
from .options import TvmOptions


def target_of(options: TvmOptions) -> tvm.target.Target:
    """The target that the options name, or this processor.

    Sums may be reordered (``reassoc``) and a product and a sum may become one instruction (``contract``), as in
    torch's own vectorized kernels; nan, infinities and signed zeros mean what they mean.
    """
    if options.target is not None:
        return tvm.target.Target(json.loads(options.target))
    return tvm.target.Target(
        {
            "kind": "llvm",
            "mtriple": codegen.llvm_get_system_triple(),
            "mcpu": _this_processor(),
            "fast-math-contract": True,
            "fast-math-reassoc": True,
        }
    )


@functools.cache
def _this_processor() -> str:
    return str(codegen.llvm_get_system_cpu())


def compile_module(module: tvm.IRModule, options: TvmOptions) -> Any:
    """The executable of a module with the Relax function ``main``."""
    target = target_of(options)
    with tvm.transform.PassContext(opt_level=options.opt_level), target:
        return relax.build(module, target=target, relax_pipeline=_pipeline())


def _pipeline() -> Any:
    transform = relax.transform

    @tvm.transform.module_pass(opt_level=0)
    def pipeline(module: tvm.IRModule, _context: Any) -> tvm.IRModule:
        module = tvm.transform.Sequential(
            [
                transform.DeadCodeElimination(),
                relax.backend.DispatchSortScan(),
                transform.LegalizeOps(),
                transform.AnnotateTIROpPattern(),
            ]
        )(module)
        module = tvm.transform.Sequential(
            [
                transform.FuseOps(),
                transform.FuseTIR(),
                transform.DeadCodeElimination(),
                transform.RewriteDataflowReshape(),
            ]
        )(schedule.mark(module))
        module = mathlib.apply(schedule.apply(module))
        return tvm.transform.Sequential(
            [
                transform.ToNonDataflow(),
                transform.RemovePurityChecking(),
                transform.CallTIRRewrite(),
                transform.StaticPlanBlockMemory(),
                transform.LowerAllocTensor(),
                transform.KillAfterLastUse(),
                transform.LowerRuntimeBuiltin(),
                transform.ComputePrimValue(),
                transform.VMShapeLower(),
                transform.AttachGlobalSymbol(),
            ]
        )(module)

    return pipeline


def to_bytes(executable: Any) -> bytes:
    """The executable as a shared library."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "part.so"
        executable.export_library(str(path))
        return path.read_bytes()


def from_bytes(content: bytes) -> Any:
    """The executable of what :func:`to_bytes` made; the file can go once it is loaded."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "part.so"
        path.write_bytes(content)
        return tvm.runtime.load_module(str(path))


def machine(executable: Any) -> Any:
    """The function ``main`` of an executable, on a virtual machine of its own: for one call at a time."""
    library.register()
    return relax.VirtualMachine(executable, tvm.cpu())["main"]
