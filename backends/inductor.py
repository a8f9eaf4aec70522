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


def compile(gm: GraphModule, example_inputs: Sequence[Any], **options: Any) -> Callable[..., Sequence[Any]]:
    """Compile with ``torch._inductor``; ``options`` are names of its settings, as in ``torch.compile(options=...)``.

    Raises:
        InvalidOption: Inductor has no such setting, or the setting has another type.  This is checked here, at the
            first
            compilation, because listing the settings requires importing Inductor.
        GraphRefused: the decomposition or derivative of an operator depends on data.
    """
    from torchmux import torch_internals as internals

    from .common.pipeline.aot import fake_inputs
    from .common.pipeline.derivatives import refuse

    checked = _checked(options, internals.inductor_config())
    mode, fakes = fake_inputs(gm, example_inputs)
    sizes = _sizes(fakes)
    known = internals.fake_tensor_errors()
    try:
        with internals.tracing_with(mode):
            compiled = internals.inductor_compile_fx().compile_fx(
                _taking_sizes(gm, len(sizes)),
                [*(fakes[position].shape[dim] for position, dim in sizes), *fakes],
                config_patches=checked or None,
            )
            compiled = refuse(compiled, "inductor")
    except (known["data_dependent"], known["dynamic_output"]) as error:
        raise GraphRefused(f"inductor needs to know data for {getattr(error, 'func', error)}") from error
    if not sizes:
        return compiled
    return lambda *inputs: compiled(*(inputs[position].shape[dim] for position, dim in sizes), *inputs)


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
