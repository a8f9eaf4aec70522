"""From a Relax module to an executable, and to the bytes in the cache."""

from __future__ import annotations

import functools
import json
from typing import Any

import torch
import tvm
from tvm import relax, tirx
from tvm.target import codegen

from torchmux.registry.errors import GraphRefused
from torchmux.scratch import scratch_folder

from .. import machine
from ..options import TvmOptions
from ..relax import mathlib
from . import fences, indices, schedule, tuning

_FOR_GPUS = (
    "s_tir.HoistIfThenElse",
    "s_tir.InjectPermutedLayout",
    "s_tir.InjectVirtualThread",
    "s_tir.RenormalizeSplitPattern",
)
"""Passes that change nothing in a processor's kernels, and take two thirds of the time of all passes."""

_FOLDING = ("s_tir.StmtSimplify", "tirx.StmtSimplify", "tirx.RemoveNoOp")
"""Passes for which floats are numbers without limits: they make 0 of ``x - x``, infinite or not, and ``x`` of
``(x + c) - c``, which rounds.  LLVM finds the rest of what they do."""


def target_of(options: TvmOptions, device: torch.device) -> tvm.target.Target:
    """The target that the options name, or the processor or GPU that ``device`` is.

    Sums may be reordered (``reassoc``) and a product and a sum may become one instruction (``contract``), as in
    torch's own vectorized kernels; nan, infinities and signed zeros mean what they mean.
    """
    if options.target is not None:
        found = tvm.target.Target(json.loads(options.target))
        if (found.kind.name == "cuda") != (device.type == "cuda"):
            raise GraphRefused(f"the tensors are on {device}, but the option 'target' is {options.target}")
        return tvm.target.Target(found, host=_host()) if device.type == "cuda" else found
    if device.type == "cuda":
        found = tvm.target.Target.from_device(machine.device_of(device))
        return tvm.target.Target(found, host=_host())
    return _host()


def _host() -> tvm.target.Target:
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


def compile_module(module: tvm.IRModule, options: TvmOptions, device: torch.device, notes: list[str]) -> Any:
    """The executable of a module with the Relax function ``main``; what a report says of it is added to ``notes``."""
    target = target_of(options, device)
    disabled = _FOLDING if target.kind.name == "cuda" else _FOR_GPUS + _FOLDING
    search = None
    if options.tuning_trials and target.kind.name != "cuda":
        search = tuning.Tuning(target, options.tuning_trials, options.tuning_seconds, disabled, notes)
    elif options.tuning_trials:
        notes.append("kernels for a GPU are not tuned")
    with tvm.transform.PassContext(opt_level=options.opt_level, disabled_pass=list(disabled)), target:
        return relax.build(module, target=target, relax_pipeline=_pipeline(target, search))


def _scheduled(module: tvm.IRModule, target: tvm.target.Target, search: tuning.Tuning | None) -> tvm.IRModule:
    """Kernels with loops for the target: vectors and threads of a processor, blocks and threads of a GPU."""
    if target.kind.name == "cuda":
        from tvm.s_tir import dlight

        rules = (dlight.gpu.Matmul(), dlight.gpu.Reduction(), dlight.gpu.GeneralReduction(), dlight.gpu.Fallback())
        return indices.rising(dlight.ApplyDefaultSchedule(*rules)(module))
    plain = {name: function for name, function in module.functions_items() if isinstance(function, tirx.PrimFunc)}
    own = {name: mathlib.rewrite(fences.fenced(schedule.scheduled(function))) for name, function in plain.items()}
    if search is not None:
        own = search.tuned(plain, own)
    for name, function in own.items():
        module[name] = function
    return indices.rising(module)


def _pipeline(target: tvm.target.Target, search: tuning.Tuning | None) -> Any:
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
        )(schedule.mark_zeros(module) if target.kind.name == "cuda" else schedule.mark(module))
        module = _scheduled(module, target, search)
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
    with scratch_folder() as folder:
        path = folder / "part.so"
        executable.export_library(str(path), workspace_dir=str(folder))
        return path.read_bytes()
