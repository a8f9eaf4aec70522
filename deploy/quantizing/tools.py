"""The tools that quantize: onnxruntime's, OpenVINO's NNCF, and torchao's PT2E and weights."""

from __future__ import annotations

import contextlib
import copy
import importlib.metadata
import logging
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from torchmux import torch_internals as ti
from torchmux.frontend.api import compile
from torchmux.registry.errors import QuantizationFailed, Unsupported

from . import products

Call = tuple[tuple[Any, ...], dict[str, Any]]


@dataclass(frozen=True)
class Made:
    """A quantized model: ``run`` takes the arguments of a call, ``save`` writes the file of the tool, if it has one."""

    run: Callable[[tuple[Any, ...], dict[str, Any]], Any]
    what: str
    save: Callable[[str], None] | None = None
    compiled: Any = None
    left: tuple[str, ...] = ()  # layers whose products stay in float32, and why


@dataclass(frozen=True)
class Tool:
    """``packages`` are what it needs; ``make`` quantizes a copy of the model with the calls of the calibration."""

    packages: tuple[str, ...]
    install: str
    make: Callable[[torch.nn.Module, Sequence[Call], str], Made]

    def missing(self) -> list[str]:
        return [package for package in self.packages if _version(package) is None]

    def name(self) -> str:
        return f"{self.packages[0]} {_version(self.packages[0])}"


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


# --- one graph with flat inputs ---------------------------------------------------------------------------------------


class _Flat:
    """A model as one graph on flat tensors, by ``torch.export``, and calls of it taken apart."""

    def __init__(self, model: torch.nn.Module, calls: Sequence[Call]) -> None:
        leaves = [_tensors(ti.pytree.tree_flatten(call)[0]) for call in calls]
        varies = [
            [len({each[at].shape[d] for each in leaves}) > 1 for d in range(tensor.dim())]
            for at, tensor in enumerate(leaves[0])
        ]
        example = _example(leaves, varies)
        args, kwargs = calls[example]
        shapes = torch.export.ShapesCollection()
        for tensor, dims in zip(leaves[example], varies, strict=True):
            if any(dims):
                shapes[tensor] = {d: torch.export.Dim.AUTO for d, any_size in enumerate(dims) if any_size}
        dynamic = shapes.dynamic_shapes(model, args, kwargs) if any(map(any, varies)) else None
        self.program = torch.export.export(model, args, kwargs, dynamic_shapes=dynamic, strict=False)
        self.result = model(*args, **kwargs)
        flat, self.spec = ti.pytree.tree_flatten(calls[example])
        self.constants = [None if isinstance(leaf, torch.Tensor) else leaf for leaf in flat]
        self.inputs = _tensors(flat)
        self.sizes = [
            [None if any_size else size for size, any_size in zip(tensor.shape, dims, strict=True)]
            for tensor, dims in zip(self.inputs, varies, strict=True)
        ]

    def taken(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[torch.Tensor]:
        """The tensors of a call.

        Raises:
            Unsupported: it is not like the call that was exported.
        """
        flat, spec = ti.pytree.tree_flatten((args, dict(kwargs)))
        if spec != self.spec:
            raise Unsupported(
                "The arguments have another structure than in the calibration data. Calibrate the model with "
                "such calls too."
            )
        for leaf, constant in zip(flat, self.constants, strict=True):
            if not isinstance(leaf, torch.Tensor) and leaf != constant:
                raise Unsupported(
                    f"An argument is {leaf!r:.80}; the model was quantized for {constant!r:.80}. Quantize it again "
                    "with this argument in the calibration data."
                )
        tensors = _tensors(flat)
        for at, (tensor, example, sizes) in enumerate(zip(tensors, self.inputs, self.sizes, strict=True)):
            fits = len(sizes) == tensor.dim() and all(
                wanted in (None, found) for wanted, found in zip(sizes, tensor.shape, strict=True)
            )
            if tensor.dtype is not example.dtype or not fits:
                raise Unsupported(
                    f"Tensor {at} of the arguments is {list(tensor.shape)} of {tensor.dtype}; the model was quantized "
                    f"for {['any' if s is None else s for s in sizes]} of {example.dtype}. Calibrate it with such "
                    "inputs too."
                )
        return [tensor.detach().contiguous() for tensor in tensors]

    def returned(self, tensors: Sequence[torch.Tensor]) -> Any:
        """The result of the model with these tensors in it."""
        leaves, spec = ti.pytree.tree_flatten(self.result)
        fresh = iter(tensors)
        return ti.pytree.tree_unflatten([next(fresh) if isinstance(v, torch.Tensor) else v for v in leaves], spec)


def _example(calls: Sequence[list[torch.Tensor]], varies: Sequence[list[bool]]) -> int:
    """The call to export: ``torch.export`` takes a size of 0 or 1 for a constant."""
    for number, tensors in enumerate(calls):
        each = zip(tensors, varies, strict=True)
        if all(size > 1 for t, dims in each for size, any_size in zip(t.shape, dims, strict=True) if any_size):
            return number
    return 0


def _tensors(leaves: Sequence[Any]) -> list[torch.Tensor]:
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]


# --- onnxruntime ------------------------------------------------------------------------------------------------------


def _by_onnxruntime(model: torch.nn.Module, calls: Sequence[Call], backend: str) -> Made:
    import onnx
    import onnxruntime
    from onnxruntime import quantization

    flat = _Flat(model, calls)
    program = torch.onnx.export(flat.program, dynamo=True, verbose=False)
    assert program is not None
    with tempfile.TemporaryDirectory() as folder:
        before, ready, after = (str(Path(folder) / name) for name in ("float.onnx", "ready.onnx", "int8.onnx"))
        program.save(before)
        quantization.quant_pre_process(before, ready, skip_symbolic_shape=True)
        names = [value.name for value in onnx.load(ready, load_external_data=False).graph.input]
        samples = [dict(zip(names, (t.numpy() for t in flat.taken(*call)), strict=True)) for call in calls]

        class Reader(quantization.CalibrationDataReader):
            def __init__(self) -> None:
                self.left: Iterator[Any] = iter(samples)

            def get_next(self) -> Any:
                return next(self.left, None)

        quantization.quantize_static(
            ready, after, Reader(), quant_format=quantization.QuantFormat.QDQ, per_channel=True, reduce_range=_reduces()
        )
        content = Path(after).read_bytes()
    count = sum(node.op_type == "QuantizeLinear" for node in onnx.load_from_string(content).graph.node)
    _check_any(count)
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = torch.get_num_threads()
    session = onnxruntime.InferenceSession(content, settings, providers=["CPUExecutionProvider"])

    def run(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        given = dict(zip(names, (t.numpy() for t in flat.taken(args, kwargs)), strict=True))
        return flat.returned([torch.from_numpy(found) for found in session.run(None, given)])

    def save(path: str) -> None:
        Path(path).write_bytes(content)

    return Made(run, f"weights and {count} activations", save)


def _reduces() -> bool:
    """Whether weights get 7 bits: without VNNI, products of 8 bits saturate in 16."""
    return "vnni" not in Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else True


# --- OpenVINO ---------------------------------------------------------------------------------------------------------


def _by_nncf(model: torch.nn.Module, calls: Sequence[Call], backend: str) -> Made:
    import nncf
    import openvino

    logging.getLogger("nncf").setLevel(logging.WARNING)
    flat = _Flat(model, calls)
    converted = openvino.convert_model(flat.program)
    samples = [[t.numpy() for t in flat.taken(*call)] for call in calls]
    quantized = nncf.quantize(converted, nncf.Dataset(samples), subset_size=len(samples))
    count = sum(node.get_type_name() == "FakeQuantize" for node in quantized.get_ops())
    _check_any(count)
    config = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": torch.get_num_threads()}
    compiled = openvino.Core().compile_model(quantized, "CPU", config)

    def run(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        given = [t.numpy() for t in flat.taken(args, kwargs)]
        found = compiled.create_infer_request().infer(given)
        return flat.returned([torch.from_numpy(found[port].copy()) for port in compiled.outputs])

    def save(path: str) -> None:
        openvino.save_model(quantized, path, compress_to_fp16=False)

    return Made(run, f"weights and activations, {count} quantizers", save)


# --- torchao ----------------------------------------------------------------------------------------------------------


def _by_pt2e(model: torch.nn.Module, calls: Sequence[Call], backend: str) -> Made:
    with _quiet():
        from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
        from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86

    if not products.is_exact():
        raise QuantizationFailed(
            "torch's products of int8 are not exact on this processor, which adds pairs of them in 16 bits. Pass "
            "activations=False for weights in int8 alone, or use onnxrt or openvino."
        )
    if others := {str(t.dtype) for t in model.parameters() if t.is_floating_point() and t.dtype is not torch.float32}:
        raise QuantizationFailed(
            f"torchao {_version('torchao')} quantizes weights of float32, and this model has some of "
            f"{', '.join(sorted(others))}: call model.float() first"
        )
    model.requires_grad_(False)
    flat = _Flat(model, calls)
    quantizer = x86.X86InductorQuantizer().set_global(x86.get_default_x86_inductor_quantization_config())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        graph = flat.program.module()
        assert isinstance(graph, torch.fx.GraphModule)
        products.number_paddings(graph)
        prepared = prepare_pt2e(graph, quantizer)
        for args, kwargs in calls:
            prepared(*copy.deepcopy(args), **copy.deepcopy(kwargs))
        converted = convert_pt2e(prepared)
    counts, left = products.lower(converted)
    _check_any(counts.total())
    compiled = compile(converted, backend=backend)

    def run(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        flat.taken(args, kwargs)
        with torch.no_grad():
            return compiled(*args, **kwargs)

    layers = " and ".join(f"{count} {kind}" for kind, count in sorted(counts.items()))
    return Made(run, f"weights and activations of {layers}", compiled=compiled, left=tuple(left))


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without torchao's warnings when it is imported, about libraries for other machines and names of its own."""
    loggers = [logging.getLogger(name) for name in ("torchao", "torch.utils._pytree")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def _by_torchao(model: torch.nn.Module, calls: Sequence[Call], backend: str) -> Made:
    with _quiet():
        from torchao.quantization import Int8WeightOnlyConfig, quantize_

    model.requires_grad_(False)
    layers = [module for module in model.modules() if isinstance(module, torch.nn.Linear)]
    before = {id(layer): type(layer.weight) for layer in layers}
    quantize_(model, Int8WeightOnlyConfig())
    count = sum(type(layer.weight) is not before[id(layer)] for layer in layers)
    _check_any(count)
    compiled = compile(model, backend=backend)

    def run(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        with torch.no_grad():
            return compiled(*args, **kwargs)

    return Made(run, f"weights of {count} linear layers", compiled=compiled)


def _check_any(count: int) -> None:
    """Raises:
    QuantizationFailed: nothing was quantized.
    """
    if not count:
        raise QuantizationFailed("there is nothing in this model that the tool quantizes")


_PT2E = Tool(("torchao",), "torchmux[quantize]", _by_pt2e)
_TORCHAO = Tool(("torchao",), "torchmux[quantize]", _by_torchao)

BY_BACKEND: Mapping[str, Tool] = {
    "onnxrt": Tool(("onnxruntime", "onnx", "onnxscript"), "torchmux[onnxrt]", _by_onnxruntime),
    "openvino": Tool(("nncf", "openvino"), "torchmux[quantize,openvino]", _by_nncf),
    "native": _PT2E,
    "tvm": _PT2E,
}

WEIGHTS_ALONE: Mapping[str, Tool] = {"native": _TORCHAO, "tvm": _TORCHAO}
