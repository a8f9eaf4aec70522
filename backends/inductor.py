"""torch's own Inductor on torchmux's captured graphs, for comparison and for what no other backend compiles.

It has its own AOT split, decompositions, cache and compiler pool, and imports ``torch._dynamo``; no other module here
uses either.
"""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torchmux import program_calls
from torchmux.registry.contract import STATIC
from torchmux.registry.errors import GraphRefused, InvalidOption
from torchmux.registry.names import did_you_mean
from torchmux.registry.options import FreeOptions
from torchmux.registry.spec import Availability, BackendSpec

if TYPE_CHECKING:
    from torch.fx import GraphModule

# The options that the documented modes of torch.compile set; a test compares them with the installed torch.
MODES: Mapping[str, Mapping[str, Any]] = {
    "reduce-overhead": {"triton.cudagraphs": True},
    "max-autotune-no-cudagraphs": {"max_autotune": True, "coordinate_descent_tuning": True},
    "max-autotune": {"max_autotune": True, "coordinate_descent_tuning": True, "triton.cudagraphs": True},
}


_NONE: Mapping[int, Any] = {}

_NO_CACHE: Mapping[str, Any] = {"fx_graph_cache": False, "fx_graph_remote_cache": False}
"""Inductor makes constants of floats that a call gives, and its cache checks the integers among them only.

torch's own frontend gives it none.
"""


def compile(gm: GraphModule, example_inputs: Sequence[Any], **options: Any) -> Callable[..., Sequence[Any]]:
    """Compile with ``torch._inductor``; ``options`` are names of its settings, as in ``torch.compile(options=...)``.

    Raises:
        InvalidOption: Inductor has no such setting, or the setting has another type.  This is checked here, at the
            first compilation, because listing the settings requires importing Inductor.
        GraphRefused: the decomposition or derivative of an operator depends on data, or a result that consists of
            other tensors is a view.
    """
    from torchmux import torch_internals as internals

    config = internals.inductor_config()
    checked = _checked(options, config)
    if not _asked("freezing", checked, config) or _takes_gradients():
        run = _compiled(gm, example_inputs, checked)[0]
    else:
        run = _frozen(gm, example_inputs, checked)
    return _in_steps(run) if _asked("triton.cudagraphs", checked, config) else run


def _asked(name: str, checked: Mapping[str, Any], config: Any) -> bool:
    """Whether a setting is on, for this compilation or for the process."""
    return bool(checked.get(name, config.get_config_copy()[name]))


def _takes_gradients() -> bool:
    import torch

    return torch.is_grad_enabled()


def _compiled(
    gm: GraphModule, example_inputs: Sequence[Any], checked: Mapping[str, Any], frozen: Mapping[int, Any] = _NONE
) -> tuple[Callable[..., Sequence[Any]], bool]:
    """The code for ``gm``, and whether it writes to inputs.

    It takes the inputs without those at the positions of ``frozen``, which are constants.
    """
    import torch

    from torchmux import torch_internals as internals
    from torchmux.registry.plain import strict

    from .common.pipeline.aot import VIEW_OF_SUBCLASS, fake_inputs, returns_views_of_subclasses
    from .common.pipeline.derivatives import refuse
    from .common.pipeline.overlap import BEHIND_AUTOGRAD, returns_parts_of_written_inputs, writes_behind_autograd
    from .common.pipeline.runtime import eager_when_overlap_differs
    from .common.recurrent import recurrent_as_in_eager

    if returns_views_of_subclasses(gm):
        raise GraphRefused(VIEW_OF_SUBCLASS)
    if writes_behind_autograd(gm):
        raise GraphRefused(BEHIND_AUTOGRAD)
    if (reason := returns_parts_of_written_inputs(gm)) is not None:
        raise GraphRefused(reason)
    if any(isinstance(given, torch.Tensor) and given.is_neg() for given in example_inputs):
        raise GraphRefused("an input is negative by a flag, and Inductor reads what is in its memory")
    mode, fakes = fake_inputs(gm, example_inputs)
    given = [position for position in range(len(fakes)) if position not in frozen]
    sizes = [(given.index(position), dim) for position, dim in _sizes(fakes) if position not in frozen]
    inputs = [fakes[position] for position in given]
    known = internals.fake_tensor_errors()
    try:
        # backward runs after a region of autocast: eager computes it in the dtypes it finds
        with (
            internals.tracing_with(mode),
            internals.functorch_config().patch(backward_pass_autocast="off"),
            # Inductor compiles single steps: it was tried with nothing else.
            recurrent_as_in_eager(gm, differentiated=_takes_gradients(), by_onednn=False),
        ):
            compiled = internals.inductor_compile_fx().compile_fx(
                _as_torchs_own(gm, example_inputs, fakes, len(sizes), frozen),
                [*(inputs[position].shape[dim] for position, dim in sizes), *inputs],
                config_patches={**checked, **(_NO_CACHE if _has_floats(gm) else {})} or None,
            )
            writes = internals.inputs_are_mutated()
            compiled = refuse(compiled, "inductor")
    except (known["data_dependent"], known["dynamic_output"]) as error:
        raise GraphRefused(f"inductor needs to know data for {getattr(error, 'func', error)}") from error
    run: Callable[..., Sequence[Any]] = compiled
    if sizes:

        def run(*inputs: Any) -> Sequence[Any]:
            return compiled(*(inputs[position].shape[dim] for position, dim in sizes), *inputs)

    if writes and not frozen:  # torch.compile's guards do not tell where inputs share memory, and its graphs are wrong
        run = eager_when_overlap_differs(run, gm, example_inputs, strict=strict.get())
    return run, writes


def _frozen(gm: GraphModule, example_inputs: Sequence[Any], checked: Mapping[str, Any]) -> Callable[..., Sequence[Any]]:
    """The code for ``gm`` with its parameters and buffers as constants, made anew when one has changed.

    A graph that writes to its inputs is compiled without constants: the writes could be to them.
    """
    from .common.adapter.constants import Watched
    from .common.adapter.graphs import copy_graph
    from .common.pipeline.aot import fake_inputs

    constants = {p: example_inputs[p] for p, node in enumerate(_placeholders(gm)) if STATIC in node.meta}
    if not constants or _leaves_checks(fake_inputs(gm, example_inputs)[1]):
        return _compiled(gm, example_inputs, checked)[0]
    run, writes = _compiled(copy_graph(gm), example_inputs, checked, constants)
    if writes:
        return _compiled(gm, example_inputs, checked)[0]
    given = [position for position in range(len(example_inputs)) if position not in constants]
    first = [run]

    def make(now: Mapping[int, Any]) -> Callable[..., Sequence[Any]]:
        run = first.pop() if first else _compiled(copy_graph(gm), example_inputs, checked, now)[0]
        return lambda *inputs: run(*(inputs[position] for position in given))

    return Watched(make, constants)


_call_seen = [0]  # the program's call in which a graph with CUDA graphs has run last


def _in_steps(run: Callable[..., Sequence[Any]]) -> Callable[..., Sequence[Any]]:
    """``run``, whose CUDA graphs may use their memory again once the program has called compiled code anew."""
    from torchmux import torch_internals as internals

    begin, seen, made = internals.begin_cudagraph_step, _call_seen, program_calls.made

    def call(*inputs: Any) -> Sequence[Any]:
        if seen[0] != made[0]:
            seen[0] = made[0]
            begin()
        return run(*inputs)

    return call


def _has_floats(gm: GraphModule) -> bool:
    import torch

    return any(isinstance(node.meta.get("example_value"), torch.SymFloat) for node in gm.graph.nodes)


def _sizes(fakes: Sequence[Any]) -> list[tuple[int, int]]:
    """Where each symbolic size that is not itself an input can be read: the position of a tensor, and its dimension."""
    import torch

    seen = {value.node.expr for value in fakes if isinstance(value, torch.SymInt)}
    found = []
    for position, value in enumerate(fakes):
        for dim, size in enumerate(value.shape if isinstance(value, torch.Tensor) else ()):
            if isinstance(size, torch.SymInt) and (expr := size.node.expr).is_symbol and expr not in seen:
                seen.add(expr)
                found.append((position, dim))
    return found


def _as_torchs_own(
    gm: GraphModule, example_inputs: Sequence[Any], fakes: Sequence[Any], sizes: int, frozen: Mapping[int, Any]
) -> GraphModule:
    """A copy of ``gm`` that says what torch's own frontend says of its graphs, with ``sizes`` unused inputs before its
    own, and the tensors of ``frozen`` as attributes.

    It says less where AOTAutograd would leave checks to that frontend.
    """
    from torchmux import torch_internals as internals

    static = {
        sizes + position
        for position, (node, example) in enumerate(zip(_placeholders(gm), example_inputs, strict=True))
        if STATIC in node.meta or internals.is_marked_static(example)
    }
    made = _taking_sizes(gm, sizes)
    if not _leaves_checks(fakes):
        internals.tell_static_inputs(made, static)
    if frozen:
        internals.make_attributes(made, {sizes + position: tensor for position, tensor in frozen.items()})
    return made


def _placeholders(gm: GraphModule) -> list[Any]:
    return [node for node in gm.graph.nodes if node.op == "placeholder"]


def _leaves_checks(fakes: Sequence[Any]) -> bool:
    """Whether AOTAutograd would leave checks of each call to torch's own frontend: sizes that decide an overlap."""
    import torch
    from torch.multiprocessing.reductions import StorageWeakRef

    from torchmux import torch_internals as internals

    parts = [part for fake in fakes for part in internals.parts_of(fake)]
    tensors = [part for part in parts if isinstance(part, torch.Tensor)]
    if all(fake.fake_mode.shape_env is None for fake in tensors):
        return False
    return len({StorageWeakRef(fake.untyped_storage()) for fake in tensors}) < len(tensors)


def _taking_sizes(gm: GraphModule, count: int) -> GraphModule:
    """A copy of ``gm`` with ``count`` unused inputs before its own; eager may still have to run ``gm``.

    Inductor expects graphs of torch's own frontend, where each size is an input.  In a backward graph, a size may be
    only part of another (``s0 + s1``); Inductor finds the parts in the sizes that were saved as inputs of the forward
    graph.
    """
    import torch

    graph = torch.fx.Graph()
    for number in range(count):
        graph.placeholder(f"size_{number}")
    graph.output(graph.graph_copy(gm.graph, {}))
    return torch.fx.GraphModule(gm, graph)


def _checked(options: Mapping[str, Any], config: Any) -> dict[str, Any]:
    known = config.get_config_copy()
    checked = {}
    for given, value in options.items():
        name = given.replace("-", "_")
        if name not in known:
            raise InvalidOption(
                f"inductor has no option {given!r}.{did_you_mean(name, known)} Its options are the settings in "
                f"torch._inductor.config, dots included ('triton.cudagraphs')."
            )
        current = known[name]
        if type(current) in (bool, int, float, str) and not isinstance(value, type(current)):
            raise InvalidOption(
                f"The option {given!r} of inductor takes {type(current).__name__}, "
                f"not {value!r} ({type(value).__name__})."
            )
        checked[name] = value
    return checked


def probe() -> Availability:
    """Whether there is a C++ compiler: Inductor builds C++ on every machine."""
    chosen = os.environ.get("CXX")
    candidates = [shlex.split(chosen)[0]] if chosen and chosen.strip() else ["g++", "clang++"]
    if any(shutil.which(c) for c in candidates):
        return Availability(True)
    wanted = " or ".join(candidates)
    return Availability(False, f"inductor needs a C++ compiler, and {wanted} is not on PATH; install g++ or set CXX")


def fingerprint() -> str:
    import torch

    return f"torch {torch.__version__}"


SPEC = BackendSpec(
    name="inductor",
    summary="torch's own compiler: C++ on CPU, Triton on GPU",
    load="torchmux.backends.inductor:compile",
    requires=("torch>=2.11",),
    probe=probe,
    graph="torch",
    training=True,
    dynamic_shapes=True,
    devices=("cpu", "cuda", "xpu"),
    dtypes=("float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool"),
    options=FreeOptions,
    modes=MODES,
    fingerprint=fingerprint,
    priority=50,
)
