"""Printing the host side of a graph as a Python function.

What differs between targets is how the code of a piece is launched, and where memory that torch never sees comes from:
a target's printer derives from :class:`HostPrinter` and adds both.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import torch

from torchmux import torch_internals as internals

from ..ir import index
from ..ir.expressions import Buffer
from ..ir.index import Index
from ..ir.program import Extent, Solved, TensorRef
from ..schedule.host import (
    Allocate,
    CallOperator,
    ComputeSize,
    FitInput,
    GiveBack,
    Host,
    HostStep,
    Launch,
    MakeArena,
    Overwrite,
    ReadSize,
    Release,
    Require,
    Return,
    Share,
    TakeOver,
)

_TOLD = {"size": ".shape[{}]", "stride": ".stride({})"}


def _read(parameter: str, extent: Extent | Solved | None) -> str:
    if isinstance(extent, Solved):
        return f"({parameter} - ({extent.offset})) // {extent.factor}"
    return parameter + (_TOLD[extent[0]].format(extent[1]) if extent else "")


class HostPrinter(ABC):
    """Prints ``run``, a function of the graph's flat inputs, whose other names are those of ``runtime``."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.written = {b for step in host.steps if isinstance(step, Overwrite) for b in step.buffers}
        self.parameters = [b.name if isinstance(b, Buffer) else b for b in host.parameters]
        self.returned = _returned_whole(host)

    def run(self) -> str:
        lines = [f"def run({', '.join(self.parameters)}):"]
        for step in self.host.steps:
            lines += [f"    {line}" for line in self.lines(step)]
        return "\n".join(lines) + "\n"

    def lines(self, step: HostStep) -> list[str]:
        match step:
            case ReadSize(name, at, extent, factor):
                found = _read(self.parameters[at], extent)
                return [f"{name} = {found}{f' // {factor}' if factor > 1 else ''}"]
            case ComputeSize(name, value):
                return [f"{name} = {text_of(value)}"]
            case Require(need):
                return [f"if {text_of(need.size)} == 0:", f"    raise {need.error}({need.words!r})"]
            case FitInput():
                return self.fit(step)
            case Share(buffer):
                placed = self.host.placed(buffer)
                if buffer.shows is None:
                    return [f"{buffer.name} = {placed.name}"]
                whole = view_of(TensorRef(placed, (placed.numel,), (1,), 0))
                return [f"{buffer.name} = {whole}.view({buffer.dtype})"]
            case Overwrite(buffers):
                return [f"overwritten(({', '.join(f'given_{b.name}' for b in buffers)},))"]
            case GiveBack(buffer):
                name = buffer.name
                return [f"if {name} is not given_{name}:", f"    given_{name}.copy_({name})"]
            case MakeArena(size):
                return self.arena(size)
            case Allocate(buffer):
                return [self.allocation(buffer, self.returned.get(buffer))]
            case TakeOver(buffer, source):
                return [f"{buffer.name} = {view_of(TensorRef(source, buffer.sizes, buffer.strides, 0))}"]
            case Launch():
                return self.launch(step)
            case CallOperator():
                return self._call(step)
            case Release(buffers):
                return [f"del {', '.join(b.name for b in buffers)}"]
            case Return(results):
                shown = [self._result(ref) for ref in results]
                return [f"return ({', '.join(shown)}{',' if len(shown) == 1 else ''})"]

    def _result(self, ref: TensorRef | Index) -> str:
        if not isinstance(ref, TensorRef):
            return text_of(ref)
        shown = ref.buffer.name if self.returned.get(ref.buffer) is ref else view_of(ref)
        return f"{shown}.conj()" if ref.conjugated else shown

    def allocation(self, buffer: Buffer, ref: TensorRef | None) -> str:
        """A tensor for ``buffer``, in the sizes of ``ref`` if that is given."""
        return allocation(buffer, ref)

    @abstractmethod
    def arena(self, size: Index) -> list[str]:
        """Memory of so many bytes for what torch never sees."""

    @abstractmethod
    def launch(self, launch: Launch) -> list[str]:
        """Calls of the target's code."""

    def fit(self, step: FitInput) -> list[str]:
        """What takes an input in the layout that the code was made for."""
        buffer = step.buffer
        strides = tuple_of(buffer.strides)
        kept = [f"given_{buffer.name} = {buffer.name}"] if buffer in self.written else []
        if buffer.pairs:
            kept += [f"if {buffer.name}.is_conj():", f"    {buffer.name} = {buffer.name}.resolve_conj()"]
        if buffer.strides == index.contiguous_strides(buffer.sizes):
            test = f"not {buffer.name}.is_contiguous()"
        else:
            test = f"{buffer.name}.stride() != {strides}"
        return [*kept, f"if {test}:", f"    {buffer.name} = fit({buffer.name}, {strides})"]

    def _call(self, step: CallOperator) -> list[str]:
        call = step.call
        op = call.op
        arguments = [argument(a) for a in call.args] + [f"{k}={argument(v)}" for k, v in call.kwargs.items()]
        text = f"{_function_of(op)}({', '.join(arguments)})"
        if len(call.results) == 1 and op._schema.returns[0].type.kind() != "ListType":
            lines = [f"result = ({text},)"]
        else:
            lines = [f"result = {text}"]
        for n, buffer in enumerate(step.kept):
            if buffer is not None:
                lines += self._taken(buffer, f"result[{n}]", op.name())
        return [*lines, "del result"]

    def _taken(self, buffer: Buffer, result: str, operator: str) -> list[str]:
        """``result`` of an operator as ``buffer``: what torch has traced is no more than a promise of its kernel."""
        name, sizes = buffer.name, tuple_of(buffer.sizes)
        return [
            f"{name} = {result}",
            f"if {name}.dtype is not {buffer.tensor_dtype} or {name}.shape != {sizes}:",
            f"    {name} = brought({name}, {buffer.tensor_dtype}, {sizes}, {operator!r})",
            *self.fit_result(buffer),
        ]

    def fit_result(self, buffer: Buffer) -> list[str]:
        """What brings the result of an operator into the layout that the code was made for."""
        fitted = f"{buffer.name} = fit({buffer.name}, {tuple_of(buffer.strides)})"
        has_elements = all(type(s) is int and s > 0 for s in buffer.sizes)  # else all strides count as contiguous
        if not has_elements or buffer.strides != index.contiguous_strides(buffer.sizes):
            return [fitted]
        return [f"if not {buffer.name}.is_contiguous():", f"    {fitted}"]


def _returned_whole(host: Host) -> dict[Buffer, TensorRef]:
    """The buffers that are made for one result, and are that result as they are, in other sizes.

    As views of a tensor, results of a forward pass could not be changed in place: autograd refuses that.
    """
    made = {step.buffer for step in host.steps if isinstance(step, Allocate)}
    taken = {b for call in host.calls for b in call.reads | call.writes}
    alone: dict[Buffer, list[TensorRef]] = {}
    for step in host.steps:
        for ref in step.results if isinstance(step, Return) else ():
            if isinstance(ref, TensorRef) and ref.buffer in made - taken:
                alone.setdefault(ref.buffer, []).append(ref)
    return {b: refs[0] for b, refs in alone.items() if len(refs) == 1 and _fills(refs[0], b)}


def _fills(ref: TensorRef, buffer: Buffer) -> bool:
    """Whether ``ref`` shows all of the memory that ``buffer`` needs, and no more."""
    if type(ref.offset) is not int or ref.offset != 0 or not _same_numel(ref, buffer):
        return False
    if ref.strides == index.contiguous_strides(ref.sizes):
        return True
    pairs = [(s, n) for n, s in zip(ref.sizes, ref.strides, strict=True) if type(n) is int and type(s) is int]
    if len(pairs) < len(ref.sizes) or 0 in ref.sizes:
        return False
    expected = 1
    for stride, size in sorted(pair for pair in pairs if pair[1] > 1):
        if stride != expected:
            return False
        expected *= size
    return True


_DIRECT = {
    f"aten::{name}": f"{where}.{function}"
    for where, (module, names) in {
        "torch": (torch, (
            "mm", "bmm", "addmm", "baddbmm", "_int_mm", "convolution", "_fft_r2c", "_fft_c2r", "_fft_c2c", "cumsum",
            "cumprod", "logcumsumexp", "grid_sampler_2d", "grid_sampler_3d", "histc", "kthvalue", "masked_scatter",
            "median", "median.dim", "nanmedian", "nanmedian.dim", "sort", "topk", "mode", "cummax", "cummin",
            "searchsorted.Tensor", "_embedding_bag", "_embedding_bag_forward_only", "native_dropout",
            "_scaled_dot_product_flash_attention_for_cpu", "_adaptive_avg_pool2d", "_adaptive_avg_pool3d", "erfinv",
            "lgamma", "digamma", "igamma", "igammac", "_linalg_svd", "_linalg_det", "_linalg_eigh", "_linalg_solve_ex",
        )),
        "nn": (internals.functions_in_c["nn"], (
            "adaptive_max_pool2d", "max_pool2d_with_indices", "upsample_bilinear2d", "upsample_bicubic2d",
            "_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa", "im2col", "col2im",
        )),
        "linalg": (internals.functions_in_c["linalg"], ("linalg_inv_ex", "linalg_cholesky_ex", "linalg_qr")),
    }.items()
    for name in names
    if hasattr(module, function := name.partition(".")[0])
} | {
    f"torchmux::{name}{way}": f"{module}.run_{name}{way}"
    for module, name in (("recurrent", "cudnn_rnn"), ("onednn_lstm", "onednn_lstm"))
    for way in ("", "_backward")
}  # fmt: skip
"""Functions that do what an operator does in half the time that ``torch.ops`` takes, or less."""


def _function_of(op: Any) -> str:
    """What calls an operator."""
    if op.name() in _DIRECT:
        return _DIRECT[op.name()]
    namespace, _, name = op.name().partition("::")
    packet, _, _ = name.partition(".")
    return f"ops.{namespace}.{packet}.{op._overloadname}"


def allocation(buffer: Buffer, ref: TensorRef | None = None) -> str:
    """A tensor for ``buffer``, in the sizes of ``ref`` if that is given."""
    shape = buffer if ref is None else ref
    layout = f"{tuple_of(shape.sizes)}, {_strides(shape)}"
    if buffer.device.type == "cpu":
        return f"{buffer.name} = empty({layout}, {buffer.tensor_dtype})"
    return (
        f"{buffer.name} = torch.empty_strided({layout}, dtype={buffer.tensor_dtype}, device={argument(buffer.device)})"
    )


def _strides(shape: Buffer | TensorRef) -> str:
    """The strides of a new tensor: torch counts sizes of 0 as 1 in those of a tensor without gaps."""
    if shape.strides != index.contiguous_strides(shape.sizes):
        return tuple_of(shape.strides)
    counted = [text_of(s) if type(s) is int or index.less(0, s) else f"max({text_of(s)}, 1)" for s in shape.sizes]
    texts = [
        text_of(stride) if type(stride) is int else "*".join(counted[n + 1 :]) for n, stride in enumerate(shape.strides)
    ]
    return f"({''.join(f'{text}, ' for text in texts)})"


def text_of(value: Any) -> str:
    """An index of sizes in Python."""
    if not isinstance(value, index.Ix):
        return repr(value)
    return f"({value!r})"


def tuple_of(values: Sequence[Index]) -> str:
    return "(" + "".join(f"{text_of(v)}, " for v in values) + ")"


def view_of(ref: TensorRef) -> str:
    """The tensor that an operator is passed, or the caller gets."""
    buffer = ref.buffer
    whole = ref.sizes == buffer.sizes and ref.strides == buffer.strides and type(ref.offset) is int and ref.offset == 0
    if whole:
        return buffer.name
    if type(ref.offset) is int and ref.offset == 0 and len(ref.sizes) == 2:
        if ref.sizes == buffer.sizes[::-1] and ref.strides == buffer.strides[::-1]:
            return f"{buffer.name}.t()"
    usual = index.contiguous_strides
    dense = buffer.strides == usual(buffer.sizes) and ref.strides == usual(ref.sizes)
    if dense and type(ref.offset) is int and ref.offset == 0 and _same_numel(ref, buffer):
        return f"{buffer.name}.view({tuple_of(ref.sizes)})"
    return f"shown({buffer.name}, {tuple_of(ref.sizes)}, {tuple_of(ref.strides)}, {text_of(ref.offset)})"


def _same_numel(ref: TensorRef, buffer: Buffer) -> bool:
    left, right = index.product(ref.sizes), index.product(buffer.sizes)
    return left is right or (type(left) is int and left == right)


def argument(value: Any) -> str:
    """An argument of an operator."""
    if isinstance(value, TensorRef):
        return view_of(value)
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(argument(v) for v in value) + "]"
    if isinstance(value, index.Ix):
        return text_of(value)
    if isinstance(value, float):
        return f"float({str(value)!r})"
    if isinstance(value, complex):
        return f"complex({argument(value.real)}, {argument(value.imag)})"
    if isinstance(value, torch.device):
        return f"torch.device({str(value)!r})"
    return repr(value)
