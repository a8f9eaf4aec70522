"""torch's own tracer is not imported by captures, and whole whenever somebody wants it."""

from __future__ import annotations

import pytest

BEGIN = """
import sys, torch, torchmux
from torchmux.torch_internals.tracer_stand_in import tracer_stand_in

def f(x):
    return torch.nn.functional.layer_norm(x.sin(), (4,)) + 1

x = torch.randn(3, 4)
compiled = torchmux.compile(f, backend="eager")
with torch.no_grad():
    assert torch.equal(compiled(x), f(x))

def of_the_tracer():
    return [m for m in sys.modules if m.split(".")[:2] == ["torch", "_dynamo"]]

assert of_the_tracer() == ["torch._dynamo.config"], of_the_tracer()
assert "_dynamo" not in vars(torch)
"""

LATER = """
import torch._dynamo.utils
assert len(of_the_tracer()) > 10
assert torch._dynamo.config is sys.modules["torch._dynamo.config"]
assert torch.equal(torch.compile(f, backend="eager")(x), f(x))
compiled = torchmux.compile(lambda x: f(x) * 2, backend="eager")
assert torch.equal(compiled(x), f(x) * 2)
"""

MEANWHILE = """
with tracer_stand_in():
    stand_in = sys.modules["torch._dynamo"]
    assert torch._dynamo is stand_in
    with tracer_stand_in():
        pass
    assert torch._dynamo is stand_in
    import torch._dynamo.eval_frame
    from torch._dynamo import utils
    assert sys.modules["torch._dynamo"] is not stand_in
    assert stand_in.reset is torch._dynamo.reset
    assert torch._dynamo.eval_frame is sys.modules["torch._dynamo.eval_frame"]
    assert torch._dynamo.eval_frame.__spec__.loader.__class__.__module__ != "torchmux.torch_internals.tracer_stand_in"
    assert utils is sys.modules["torch._dynamo.utils"]
assert sys.modules["torch._dynamo"].utils is utils
assert not [f for f in sys.meta_path if type(f).__module__ == "torchmux.torch_internals.tracer_stand_in"]
assert torch.equal(torch.compile(f, backend="eager")(x), f(x))
"""


# The first symbolic size imports a module of the tracer, which its package has imported by then: each exists once.
SYMBOLIC = """
assert torch.equal(torchmux.compile(lambda x: x + 1, backend="eager", dynamic=True)(x), x + 1)
assert sys.modules["torch._dynamo"].symbolic_convert.exc is sys.modules["torch._dynamo.exc"]
assert sys.modules["torch._dynamo.exc"].__spec__.loader.__class__.__name__ == "SourceFileLoader"
by_row = torch.compile(torch.vmap(torch.sin), backend="eager", fullgraph=True)
assert torch.equal(by_row(x), x.sin())
"""

# What a program's import hooks do is not captured: they may be asked for the tracer that a capture would need.
HOOKED = """
class Finder:
    def find_spec(self, name, path=None, target=None):
        assert len(torch.ones(3).relu()) == 3

sys.meta_path.insert(0, Finder())

def imports(x):
    y = x + 1
    torchmux.graph_break()
    import torch._dynamo.eval_frame
    return y * 2

with torchmux.config.patch(fail_on_compiler_errors=True):
    compiled = torchmux.compile(imports, backend="eager")
    assert torch.equal(compiled(x), (x + 1) * 2)
assert "find_spec" not in str(torchmux.report(compiled))
"""


@pytest.mark.sampled(4)
@pytest.mark.parametrize("more", [LATER, MEANWHILE, SYMBOLIC, HOOKED], ids=["later", "meanwhile", "symbolic", "hooked"])
def test_the_tracer_is_there_when_it_is_wanted(run_python, more) -> None:
    run_python(BEGIN + more)


TRACED = """
import os, sys, tempfile, torch, torchmux
from torchmux.torch_internals import inductor_stand_in
from torchmux.torch_internals.tracer_stand_in import tracer_stand_in

BISECTOR, CONFIG = "torch._inductor.compiler_bisector", "torch._inductor.config"
with torch.no_grad():
    torchmux.compile(lambda x: x.softmax(-1), backend="aot_eager")(torch.ones(3))
    torchmux.compile(torch.nn.LayerNorm(3), backend="aot_eager")(torch.ones(2, 3))
    torchmux.compile(torch.nn.GroupNorm(1, 3), backend="aot_eager")(torch.ones(2, 3))
assert not [m for m in sys.modules if m.startswith("torch._inductor")]
assert "torch.distributed.tensor" not in sys.modules
"""

ASKED = """
with tracer_stand_in():
    from torch._inductor.compiler_bisector import CompilerBisector
    from torch._inductor import config
    assert CompilerBisector.bisection_enabled is False
    assert CompilerBisector.disable_subsystem("inductor", "lowerings", lambda: "") is False
    stand_in = sys.modules[BISECTOR]
    import torch._inductor.utils
    assert sys.modules[BISECTOR] is stand_in
    assert torch._inductor.config is sys.modules[CONFIG] is not config
    assert config.max_autotune is torch._inductor.config.max_autotune
    assert CompilerBisector.get_backend() is None
    assert sys.modules[BISECTOR] is torch._inductor.compiler_bisector is not stand_in
assert sys.modules[BISECTOR].CompilerBisector is torch._inductor.compiler_bisector.CompilerBisector
CompilerBisector.bisection_enabled = True
assert torch._inductor.compiler_bisector.CompilerBisector.bisection_enabled is True
assert CompilerBisector.bisection_enabled is True
"""

WRITTEN = """
with tracer_stand_in():
    import torch._inductor.config as config
    assert config.fallback_random is False and config.trace.provenance_tracking_level == 0
    config.fallback_random = True
    assert torch._inductor.config.fallback_random is True
assert sys.modules[CONFIG].fallback_random is True
import torch._inductor.compiler_bisector
assert isinstance(torch._inductor.compiler_bisector.CompilerBisector, type)
"""

ENVIRONMENT = """
os.environ["TORCH_BISECT_BACKEND"] = "aot_eager_decomp_partition"
with tracer_stand_in():
    from torch._inductor.compiler_bisector import CompilerBisector
assert CompilerBisector.bisection_enabled is True
"""

STARTED = """
os.environ["TORCHINDUCTOR_CACHE_DIR"] = tempfile.mkdtemp()
os.makedirs(os.path.join(os.environ["TORCHINDUCTOR_CACHE_DIR"], "bisect"))
with open(os.path.join(os.environ["TORCHINDUCTOR_CACHE_DIR"], "bisect", "bisect_status.txt"), "w") as file:
    file.write("backend=aot_eager\\n")
with tracer_stand_in():
    from torch._inductor.compiler_bisector import CompilerBisector
assert CompilerBisector.bisection_enabled is True
"""

ALIKE = """
from torch.fx.experimental.proxy_tensor import make_fx
import torchmux.backends.common.pipeline.aot as aot

graphs = []
trace_inference = aot.trace_inference
def noticed(*given):
    graphs.append(trace_inference(*given))
    return graphs[-1]
aot.trace_inference = noticed

def programs():
    yield lambda x: torch.nn.functional.layer_norm(x, (4,)).softmax(-1)
    yield lambda x: torch.nn.functional.gelu(x).std(0)
    yield lambda x: torch.nn.functional.dropout(x, 0.5, training=False).cumsum(0).topk(2)[0]
    yield lambda x: torch.nn.functional.scaled_dot_product_attention(x[None], x[None], x[None])
    yield lambda x: torch.nn.functional.conv1d(x[None], x[:, :, None]).amax(1)
    yield lambda x: x.add_(1).sin().diagonal().cos()

def run():
    torchmux.reset()
    graphs.clear()
    for program in programs():
        with torch.no_grad():
            torchmux.compile(program, backend="aot_eager", dynamic=False)(torch.ones(4, 4))
    return [str(each.gm.graph) for each in graphs]

without = run()
assert "torch._dynamo" not in sys.modules, [m for m in sys.modules if m.startswith("torch._dynamo")]
assert len(without) == 6, len(without)
import torch._dynamo, torch._inductor.config
assert run() == without
"""


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "more", [ASKED, WRITTEN, ENVIRONMENT, STARTED, ALIKE], ids=["asked", "written", "environment", "started", "alike"]
)
def test_inductor_is_there_when_it_is_wanted(run_python, more) -> None:
    """And a trace is the same graph without it."""
    run_python(TRACED + more)
