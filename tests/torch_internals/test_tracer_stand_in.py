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


@pytest.mark.parametrize("more", [LATER, MEANWHILE], ids=["later", "meanwhile"])
def test_the_tracer_is_there_when_it_is_wanted(run_python, more) -> None:
    run_python(BEGIN + more)
