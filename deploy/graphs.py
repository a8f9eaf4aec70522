"""Compiled graphs as JSON: the parts of backends by artifact, what torch runs by the names of operators."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from torchmux import torch_internals as internals
from torchmux.backends.common.cache import listing, recipes
from torchmux.backends.common.cache.cache import CarriedCache, carrying, default_cache
from torchmux.backends.common.pipeline.assemble import Built, assemble
from torchmux.backends.common.pipeline.implementation import Told, as_backend
from torchmux.backends.common.pipeline.overlap import Sharing
from torchmux.backends.common.pipeline.runtime import WithoutAutocast
from torchmux.registry.errors import LoadRefused, TorchmuxError
from torchmux.registry.loading import load_implementation
from torchmux.registry.names import JOINT
from torchmux.registry.report import GraphReport
from torchmux.registry.resolve import known_spec

from . import operators
from .state import State
from .values import NotTold, again, told

_LISTED = "listed "  # begins the artifact of a part that is a graph of operators
Run = Callable[..., Sequence[Any]]


# --- written ----------------------------------------------------------------------------------------------------------


def graph_told(compiled: Any, state: State, artifacts: dict[str, bytes]) -> dict[str, Any]:
    """What is written of a compiled graph; its constants go to ``state``, its code to ``artifacts``.

    Raises:
        NotTold: some of it cannot be written, or not be made again.
    """
    built: Any = getattr(compiled, "built", None)
    if isinstance(built, GraphModule):
        return {"torch": captured_told(built, state), "backend": compiled.report.backend}
    if hasattr(built, "codes"):  # of auto, by sizes
        from .buckets import buckets_told  # not before it is needed: it brings the multiplexer

        return buckets_told(
            built, lambda each: graph_told(each, state, artifacts), lambda: captured_told(built.gm, state)
        )
    if not isinstance(built, Built):
        raise NotTold(f"a graph of {compiled.report.backend}, of which {built or 'nothing is known'}")
    backend = compiled.report.backend
    _check_branches(built.gm)
    try:
        with internals.without_modes():
            kept = recipes.encode(built.gm, built.split, built.compiled, GraphReport(backend), state.add, _artifact_of)
    except listing.Unknown as why:
        raise NotTold(f"a graph of {backend}, of which {_in_words(str(why))}") from why
    recorder = CarriedCache({}, behind=default_cache())
    with carrying(recorder):
        try:
            made = _put_together(backend, kept, state.tensors)
        except LoadRefused as why:
            raise NotTold(f"a graph of {backend}, whose code is no longer in the artifact cache ({why})") from why
    assert made is not None
    artifacts.update(recorder.read)
    return {"parts": kept, "backend": backend, "shares": built.shares}


def _check_branches(gm: GraphModule) -> None:
    """Raises:
    NotTold: an operator runs graphs of its own.
    """
    for node in gm.graph.find_nodes(op="get_attr"):
        if isinstance(getattr(gm, str(node.target), None), GraphModule):
            users = ", ".join(str(user.target) for user in node.users)
            raise NotTold(
                f"a graph in which {users} runs graphs of its own, such as the branches of torch.cond. Save it without "
                "that call, such as with torch.where in its place"
            )


def _artifact_of(run: Any) -> str | None:
    """That of the backend; a graph that runs as it is is its own."""
    graph = getattr(run, "__self__", None)
    if Told(run).artifact is None and isinstance(graph, GraphModule) and run == graph.forward:
        return _LISTED + json.dumps(listing.to_json(graph))
    return Told(run).artifact


def _in_words(why: str) -> str:
    if why == "a part has no artifact":
        return (
            "a part has no artifact: the cache is off (config.cache_enabled), an option such as freeze puts weights "
            "into the code, or the backend compiles the part anew for each size or number. For the last, call the "
            "program with one size under dynamic=False, or save it with another backend"
        )
    if why.startswith("the graph calls "):
        return f"{why}, which is no operator that a file can name: torch's own are. Save it without that call"
    return why


def captured_told(gm: GraphModule, state: State) -> list[Any]:
    """A graph of torch-level calls, node by node; errors as :func:`graph_told`."""
    _check_branches(gm)
    number: dict[Node, int] = {}
    steps: list[Any] = []
    for node in gm.graph.nodes:
        number[node] = len(number)
        if node.op == "placeholder":
            steps.append(["input"])
        elif node.op == "get_attr":
            held = getattr(gm, str(node.target), None)
            if not isinstance(held, torch.Tensor):
                raise NotTold(f"a graph that holds a {type(held).__name__} ({node.target})")
            steps.append(["held", state.add(held)])
        elif node.op == "call_function" and node.target is getattr and operators.is_property(node.args[1]):
            steps.append(["property", node.args[1], _packed(node.args[0], number)])
        elif node.op == "call_function":
            function = operators.function_told(node.target)
            steps.append(["function", function, _packed(node.args, number), _packed(node.kwargs, number)])
        elif node.op == "call_method":
            method = operators.method_told(str(node.target))
            steps.append(["method", method, _packed(node.args, number), _packed(node.kwargs, number)])
        elif node.op == "output":
            steps.append(["output", _packed(node.args[0], number)])
        else:
            raise NotTold(f"a node of the kind {node.op}")
    return steps


def _packed(value: Any, number: Mapping[Node, int]) -> Any:
    if isinstance(value, Node):
        return ["node", number[value]]
    if isinstance(value, (tuple, list)) and not isinstance(value, torch.Size):
        return ["items", "tuple" if isinstance(value, tuple) else "list", [_packed(v, number) for v in value]]
    if isinstance(value, dict):
        return ["items", "dict", [[str(k), _packed(v, number)] for k, v in value.items()]]
    if isinstance(value, slice):
        return ["items", "slice", [_packed(v, number) for v in (value.start, value.stop, value.step)]]
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        raise NotTold("a graph with a symbolic number that none of its nodes computes")
    return ["value", told(value)]


# --- and made again ---------------------------------------------------------------------------------------------------


def graph_again(description: Mapping[str, Any], tensors: Mapping[str, torch.Tensor], carried: CarriedCache) -> Run:
    """The code of a graph; nothing is traced, nothing compiled.

    Raises:
        LoadRefused: its backend does not take its artifacts here, or it names what a file may not.
        BackendUnavailable: its backend cannot be imported.
    """
    if "torch" in description:
        run: Run = captured_again(description["torch"], tensors).forward
        return run
    if "choices" in description:
        from .buckets import buckets_again  # not before it is needed

        return buckets_again(
            description,
            lambda each: graph_again(each, tensors, carried),
            lambda steps: captured_again(steps, tensors).forward,
        )
    with carrying(carried):
        return _around(_put_together(description["backend"], description["parts"], tensors), description["shares"])


def _put_together(backend: str, kept: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]) -> Run:
    _check_names(step for step in kept["steps"] if type(step[2]) is not int)
    try:
        found = recipes.put_together(kept, _restore_of(backend), tensors.__getitem__)
    except TorchmuxError:
        raise
    except Exception as error:
        raise LoadRefused(
            f"{backend} does not load its code from a saved file here ({type(error).__name__}: {error}). Save the file "
            "on a machine like this one, or call load(..., model=model, recompile=True)."
        ) from error
    if found is None:
        raise LoadRefused(
            f"{backend} does not take its code from a saved file: it was made for another processor or version. Save "
            "the file on a machine like this one, or call load(..., model=model, recompile=True)."
        )
    return WithoutAutocast(assemble(*found))


def _check_names(steps: Iterable[Any]) -> None:
    for step in steps:
        if step != "input" and step[0] != "held" and not _may_be_called(step[0]):
            raise LoadRefused(f"A saved file names {step[0]}, which is no operator of tensors in this torch.")


def _may_be_called(name: str) -> bool:
    return name == "getitem" or name.startswith(("operator.", "sym.")) or operators.is_aten(name)


def _restore_of(backend: str) -> Callable[[str, Mapping[str, torch.Tensor]], Any]:
    if JOINT in backend:
        return _restore_of_member
    spec = known_spec(backend)
    restore = as_backend(load_implementation(spec), spec).restore

    def restored(artifact: str, constants: Mapping[str, torch.Tensor]) -> Any:
        if artifact.startswith(_LISTED):
            return _listed(json.loads(artifact.removeprefix(_LISTED)), constants)
        return None if restore is None else restore(artifact, constants)

    return restored


def _listed(told: Mapping[str, Any], constants: Mapping[str, torch.Tensor]) -> Run:
    _check_names(told["steps"])
    run: Run = listing.from_json(told, constants).forward
    return run


def _restore_of_member(artifact: str, constants: Mapping[str, torch.Tensor]) -> Run | None:
    """The code of a part of a chain, which its member has compiled."""
    member, recipe = json.loads(artifact)
    found = recipes.put_together(recipe, _restore_of(member), recipes.constant_again)
    return None if found is None else assemble(*found)


def _around(run: Run, shares: Sequence[Any] | None) -> Run:
    """``run``, unless it writes to inputs that share memory otherwise than when it was compiled."""
    if shares is None:
        return run
    expected = Sharing(*shares)

    def call(*args: Any) -> Sequence[Any]:
        if not expected.holds(args):
            raise LoadRefused(
                "Tensors that this graph changes share memory otherwise than when it was saved. Pass copies, or "
                "compile and save it with inputs that share memory in the same way."
            )
        return run(*args)

    return call


def captured_again(steps: Sequence[Any], tensors: Mapping[str, torch.Tensor]) -> GraphModule:
    """The graph of :func:`captured_told`; errors as :func:`graph_again`."""
    graph = Graph()
    values: list[Node] = []
    held: dict[str, torch.Tensor] = {}
    for kind, *rest in steps:
        if kind == "input":
            values.append(graph.placeholder(f"input_{len(values)}"))
        elif kind == "held":
            name = f"held_{len(held)}"
            held[name] = tensors[rest[0]]
            values.append(graph.create_node("get_attr", name))
        elif kind == "function":
            function = operators.function_again(rest[0])
            values.append(graph.call_function(function, _unpacked(rest[1], values), _unpacked(rest[2], values)))
        elif kind == "property" and operators.is_property(rest[0]):
            values.append(graph.call_function(getattr, (_unpacked(rest[1], values), rest[0])))
        elif kind == "method" and operators.is_method(rest[0]):
            values.append(graph.call_method(rest[0], _unpacked(rest[1], values), _unpacked(rest[2], values)))
        elif kind == "output":
            graph.output(_unpacked(rest[0], values))
        else:
            raise LoadRefused(f"A saved file has a step {kind} {rest[:1]}, which this version does not take.")
    return GraphModule(held, graph)


def _unpacked(value: Any, values: Sequence[Node]) -> Any:
    kind, content, *rest = value
    if kind == "node":
        return values[content]
    if kind == "value":
        return again(content)
    if content == "dict":
        return {k: _unpacked(v, values) for k, v in rest[0]}
    items = [_unpacked(v, values) for v in rest[0]]
    return slice(*items) if content == "slice" else tuple(items) if content == "tuple" else items
