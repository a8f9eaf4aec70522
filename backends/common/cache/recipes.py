"""Recipes: the compiled form of a captured graph, stored so that the next process does not have to trace it.

A *recipe* says which artifacts of the backend, which torch operators and which constants form the code of one captured
graph, and what the report says about it.  Its key has everything that tracing depends on: the captured graph with all
arguments, what is known about the inputs, torch's global settings, the backend, its options, the versions and the
sources of this package.  A graph that this cannot describe exactly is not stored, and is traced each time: symbolic
sizes (tracing them adds guards), graphs that write to their inputs, functions and operators that do not come from
torch, tensor subclasses, autocast, modes of the program.  Graphs that record gradients have recipes of two passes, of
which ``training`` is.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import hashlib
import json
import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node
from torch.fx.immutable_collections import immutable_list

from torchmux import logs, torch_internals as internals
from torchmux.registry.report import Crossing, GraphReport, Placement
from torchmux.registry.spec import CompiledPart, CompileRequest

from ..pipeline import aliasing, lines
from ..pipeline.implementation import Told
from ..pipeline.partition import Part, Partition
from ..pipeline.promises import promise_of
from .cache import ArtifactCache
from .keys import describe, text_key
from .listing import ATOMS, Unknown, called, operator_named, operator_of_torch, packed, unpacked
from .versions import sources_digest

log = logging.getLogger("torchmux.cache")

MOST_CONSTANT_BYTES = 1 << 20
"""Graphs whose traced form holds more in constants are not kept."""

_OWN = ("torch", "_operator", "builtins", "math")


# --- the name of a recipe ---------------------------------------------------------------------------------------------


def recipe_key(
    gm: GraphModule, example_inputs: Sequence[Any], request: CompileRequest, *, training: bool = False
) -> str | None:
    """The name under which the recipe of this compilation is filed; None if none may be kept."""
    try:
        split = (internals.functorch_config().get_hash(),) if training else ()  # decides what backward computes again
        return _key(gm, example_inputs, request, *split)
    except Unknown as why:
        log.debug("a graph for %s is traced each time: %s", request.backend, why)
        return None


def _key(gm: GraphModule, example_inputs: Sequence[Any], request: CompileRequest, *more: Any) -> str:
    sources = sources_digest(Path(internals.__file__).parent)
    text: list[str] = [sources, settings(), repr(sorted(logs.enabled()))]
    asked = (request.backend, request.fingerprint, request.options, request.mode, request.strict, request.static_inputs)
    text.append(repr(asked))
    return text_key("recipe", more, *text, *described_graph(gm, example_inputs))


def described_graph(gm: GraphModule, example_inputs: Sequence[Any], *, symbolic: bool = False) -> list[str]:
    """A captured graph with all arguments and what is known of its inputs, as texts that differ for different ones.

    With ``symbolic``, a size that is a symbol is described by its expression; without, such a graph is not described.

    Raises:
        Unknown: it cannot be described exactly.
    """
    text: list[str] = []
    number: dict[Node, int] = {}
    fakes = []
    for node in gm.graph.nodes:
        number[node] = len(number)
        if node.op == "placeholder":
            fakes.append(node.meta.get("example_value"))
            text.append(_input(fakes[-1], example_inputs[len(fakes) - 1], symbolic))
        elif node.op == "get_attr":
            text.append(f"get_attr {node.target} {_constant(getattr(gm, str(node.target), None))}")
        elif node.op in ("call_function", "call_method", "output"):
            target = _NAMERS[node.op](node.target)
            text.append(f"{node.op} {target} {_told(node.args, number)} {_told(node.kwargs, number)}")
        else:
            raise Unknown(f"a node of kind {node.op}")
    text.append(repr(aliasing.sharing(fakes)))
    return text


def settings() -> str:
    """The global settings of torch that decide what an operator consists of."""
    return repr(sorted(named_settings().items()))


def named_settings() -> dict[str, str]:
    """The settings of :func:`settings` by name, each in words.

    Raises:
        Unknown: something is active that they do not describe.
    """
    if internals.is_any_autocast_enabled():
        raise Unknown("autocast is active")
    if internals.count_function_modes() or internals.count_dispatch_modes():
        raise Unknown("a mode of the program is active")
    if internals.is_functorch_active():
        raise Unknown("a functorch transform is active")
    backends = torch.backends
    einsum = backends.opt_einsum.is_available() and (backends.opt_einsum.enabled, backends.opt_einsum.strategy)
    told = {getter.__name__.strip("_"): getter() for getter in internals.switches().values()}
    told |= {
        "mkldnn": backends.mkldnn.enabled,
        "mkldnn_deterministic": backends.mkldnn.deterministic,
        "opt_einsum": einsum,
        "capability": backends.cpu.get_cpu_capability(),
        "default_dtype": torch.get_default_dtype(),
        "matmul_precision": torch.get_float32_matmul_precision(),
        "threads": torch.get_num_threads(),  # code that was chosen by measuring depends on it
        "grad": torch.is_grad_enabled(),
        "inference_mode": torch.is_inference_mode_enabled(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "fill_uninitialized_memory": torch.utils.deterministic.fill_uninitialized_memory,
        # Kernels that Python code has registered for torch's own operators.  Those of other namespaces, and those for
        # fake tensors, come with modules that torch loads late.
        "python_kernels": sorted(
            name for name in internals.python_registrations() if name.startswith("aten/") and not name.endswith("/Meta")
        ),
    }
    return {name: str(value) for name, value in told.items()}


def _input(fake: Any, example: Any, symbolic: bool) -> str:
    is_symbol = isinstance(fake, (torch.SymInt, torch.SymFloat, torch.SymBool))
    if not symbolic and (is_symbol or getattr(getattr(fake, "fake_mode", None), "shape_env", None)):
        raise Unknown("sizes are symbolic")
    if is_symbol:
        return f"input {describe(fake)}"
    if isinstance(example, torch.Tensor):
        if type(example) not in (torch.Tensor, torch.nn.Parameter) or not internals.is_fake(fake):
            raise Unknown(f"an input is a {type(example).__name__}")
        return f"input {_tensor(fake)} {type(example).__name__}"
    return f"input {_told(fake, {})}"


def _tensor(tensor: torch.Tensor) -> str:
    if tensor.layout is not torch.strided or tensor.is_quantized:
        raise Unknown("a tensor is not dense")
    marks = tensor.requires_grad, tensor.is_conj(), tensor.is_neg(), tensor.is_inference()
    return f"{describe(tensor)} {marks} {tensor.untyped_storage().nbytes()}"


def _constant(value: Any) -> str:
    if type(value) not in (torch.Tensor, torch.nn.Parameter) or value.device.type != "cpu":
        raise Unknown(f"an attribute is a {type(value).__name__}")
    return f"{_tensor(value)} {hashlib.sha256(_bytes(value)).hexdigest()}"


def _bytes(tensor: torch.Tensor) -> bytes:
    data = tensor.detach().contiguous().reshape(-1)
    return data.view(torch.uint8).numpy().tobytes() if data.numel() else b""


def name_of_function(target: Any) -> str:
    """The name of a function or operator of torch's own, by which it is found again."""
    if isinstance(target, internals.OpOverload):
        return operator_of_torch(target)
    module = getattr(target, "__module__", None) or ""
    name = getattr(target, "__name__", "")
    if module.partition(".")[0] not in _OWN or getattr(sys.modules.get(module), name, None) is not target:
        raise Unknown(f"the graph calls {target}")
    return f"{module}.{name}"


def name_of_method(name: str) -> str:
    method = getattr(torch.Tensor, name, None)
    if (getattr(method, "__module__", None) or "torch").partition(".")[0] not in _OWN:
        raise Unknown(f"Tensor.{name} was replaced")
    return name


_NAMERS: dict[str, Callable[[Any], str]] = {
    "call_function": name_of_function,
    "call_method": name_of_method,
    "output": str,
}


def _told(value: Any, number: dict[Node, int]) -> str:
    """An argument in a text that differs for different arguments."""
    if isinstance(value, Node):
        return f"%{number[value]}"
    if type(value) in (tuple, list, torch.Size, immutable_list):
        kind = "(" if isinstance(value, tuple) else "["
        return kind + ",".join(_told(v, number) for v in value) + ")"
    if isinstance(value, dict):
        return "{" + ",".join(f"{_told(k, number)}:{_told(v, number)}" for k, v in value.items()) + "}"
    if isinstance(value, slice):
        return f"slice({','.join(_told(v, number) for v in (value.start, value.stop, value.step))})"
    plain = value is None or value is Ellipsis or type(value) in (bool, int, float, complex, str)
    if plain or isinstance(value, ATOMS):
        return repr(value)
    raise Unknown(f"an argument is a {type(value).__name__}")


# --- what is kept -----------------------------------------------------------------------------------------------------


def keep(
    cache: ArtifactCache,
    key: str,
    gm: GraphModule,
    split: Partition,
    compiled: Mapping[int, Callable[..., Any]],
    report: GraphReport,
) -> None:
    """File how ``gm``, a traced graph, is put together."""
    try:
        content = encode(gm, split, compiled, report)
    except Unknown as why:
        log.debug("a graph for %s is traced each time: %s", report.backend, why)
        return
    cache.store(key, json.dumps(content).encode())


def encode(
    gm: GraphModule,
    split: Partition,
    compiled: Mapping[int, Callable[..., Any]],
    report: GraphReport,
    constant: Callable[[torch.Tensor], Any] | None = None,
    artifact_of: Callable[[CompiledPart], str | None] = lambda run: Told(run).artifact,
) -> dict[str, Any]:
    """What :func:`keep` files, for JSON.

    ``constant`` gives what stands there for a tensor, ``artifact_of`` what stands there for a part.

    Raises:
        Unknown: it cannot be described exactly.
    """
    number: dict[Node, int] = {}
    inputs = 0
    constants: list[Any] = []
    for node in gm.graph.nodes:
        if node.op == "placeholder":
            inputs += 1
            number[node] = len(number)
    for node in gm.graph.nodes:
        if node.op == "get_attr":
            held = getattr(gm, str(node.target))
            constants.append([str(node.target), _kept_constant(held) if constant is None else constant(held)])
            number[node] = len(number)
    steps: list[Any] = []
    for step in split.steps:
        if isinstance(step, Part):
            artifact = artifact_of(compiled[id(step)])
            if artifact is None:
                raise Unknown("a part has no artifact")
            steps.append([artifact, [number[v] for v in step.inputs], len(step.outputs)])
            for node in step.outputs:
                number[node] = len(number)
        else:
            told = [called(step.target), packed(step.args, number), packed(step.kwargs, number)]
            steps.append([*told, promise_of(step.meta.get("val"))])
            number[step] = len(number)
    if constant is None and sum(len(kept["data"]) for _, kept in constants) > MOST_CONSTANT_BYTES:
        raise Unknown("there are large constants")
    output = next(n for n in reversed(gm.graph.nodes) if n.op == "output")
    placements = [
        [p.node, p.op, p.placed_on, p.reason, p.kind, p.library, p.pin, p.origin, p.kernel] for p in report.placements
    ]
    return {
        "inputs": inputs,
        "constants": constants,
        "steps": steps,
        "outputs": packed(output.args[0], number),
        "placements": placements,
        "partitions": report.partitions,
        "crossings": [dataclasses.astuple(crossing) for crossing in report.crossings],
    }


def _kept_constant(tensor: Any) -> dict[str, Any]:
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.device.type != "cpu":
        raise Unknown(f"a constant is a {type(tensor).__name__}")
    if not tensor.is_contiguous() or tensor.layout is not torch.strided:
        raise Unknown("a constant has strides of its own")
    data = base64.b64encode(_bytes(tensor)).decode()
    return {"dtype": str(tensor.dtype), "shape": list(tensor.shape), "data": data}


# --- and followed -----------------------------------------------------------------------------------------------------


def follow(
    content: bytes,
    captured: GraphModule,
    restore: Callable[[str, Mapping[str, torch.Tensor]], CompiledPart | None],
    report: GraphReport,
) -> tuple[GraphModule, Partition, dict[int, Callable[..., Any]]] | None:
    """What :func:`assemble.assemble` takes, as it was when the recipe was kept; None if an artifact is gone.

    The report is filled in as well.
    """
    kept = json.loads(content)
    found = put_together(kept, restore, constant_again)
    if found is None:
        return None
    places = [lines.line_of(node) for node in captured.graph.nodes]
    report.placements += [
        Placement(
            node,
            op,
            on,
            reason,
            None if origin is None else places[origin],
            kind,
            library,
            pin=pin,
            origin=origin,
            kernel=kernel,
        )
        for node, op, on, reason, kind, library, pin, origin, kernel in kept["placements"]
    ]
    report.partitions += kept["partitions"]
    report.crossings += [Crossing(*crossing) for crossing in kept["crossings"]]
    return found


def put_together(
    kept: Mapping[str, Any],
    restore: Callable[[str, Mapping[str, torch.Tensor]], CompiledPart | None],
    constant_of: Callable[[Any], torch.Tensor],
) -> tuple[GraphModule, Partition, dict[int, Callable[..., Any]]] | None:
    """What :func:`assemble.assemble` takes, of what :func:`encode` gave; None if an artifact is gone."""
    graph = Graph()
    values = [graph.placeholder(f"input_{n}") for n in range(kept["inputs"])]
    constants: dict[str, torch.Tensor] = {}
    for name, constant in kept["constants"]:
        constants[name] = constant_of(constant)
        values.append(graph.get_attr(name))
    steps: list[Node | Part] = []
    compiled: dict[int, Callable[..., Any]] = {}
    for step in kept["steps"]:
        if type(step[2]) is int:
            artifact, taken, count = step
            run = restore(artifact, constants)
            if run is None:
                return None
            if Told(run).artifact is None:
                with contextlib.suppress(AttributeError):  # it takes no attributes, and cannot be saved
                    run.artifact = artifact  # type: ignore[attr-defined]
            inputs = [values[n] for n in taken]
            outputs = [graph.call_function(_stand_in, ()) for _ in range(count)]
            steps.append(Part(len(steps), [], inputs, outputs))
            compiled[id(steps[-1])] = run
            values += outputs
        else:
            name, args, kwargs, promise = step
            node = graph.call_function(operator_named(name), unpacked(args, values), unpacked(kwargs, values))
            node.meta["promise"] = promise
            steps.append(node)
            values.append(node)
    graph.output(unpacked(kept["outputs"], values))
    holder = torch.nn.Module()
    for name, tensor in constants.items():
        setattr(holder, name, tensor)
    parts = [s for s in steps if isinstance(s, Part)]
    return GraphModule(holder, graph), Partition(steps, parts, 0), compiled


def _stand_in() -> Any:
    raise AssertionError("stands for what a part returns")


def constant_again(constant: Mapping[str, Any]) -> torch.Tensor:
    """A tensor that stands in a recipe."""
    dtype = getattr(torch, constant["dtype"].removeprefix("torch."))
    data = bytearray(base64.b64decode(constant["data"]))
    flat = torch.frombuffer(data, dtype=torch.uint8).clone().view(dtype) if data else torch.empty(0, dtype=dtype)
    return flat.reshape(constant["shape"])
