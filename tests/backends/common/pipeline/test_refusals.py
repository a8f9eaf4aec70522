"""``GraphRefused`` from each member of a class of implementations leaves the graph to eager."""

from __future__ import annotations

import pytest
import torch

import torchmux
from torchmux.registry import BackendSpec

MEMBERS = {
    "supports": ("node",), "compile": ("gm", "example_inputs", "request"), "rewrite": ("gm", "request"),
    "decompositions": (), "keep_whole": (),
}  # fmt: skip


def refusing(member: str) -> type:
    scope: dict = {"GraphRefused": torchmux.GraphRefused}
    arguments = ", ".join(("self", *MEMBERS[member]))
    exec(f"def {member}({arguments}):\n    raise GraphRefused('too big')", scope)
    base = {"supports": lambda self, node: True, "compile": lambda self, gm, example_inputs, request: gm}
    return type("Refusing", (), {**base, member: scope[member]})


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("member", MEMBERS)
def test_eager_runs_the_graph(member, training):
    spec = BackendSpec("refusing", "", refusing(member), graph="aten", training=True, dynamic_shapes=True)
    model, x = torch.nn.Linear(2, 2), torch.ones(1, 2)
    with torch.set_grad_enabled(training):
        compiled = torchmux.compile(model, backend=spec)
        assert torch.equal(compiled(x), model(x))
        if member == "keep_whole" and training:
            return  # only inference graphs keep operators whole
        assert torchmux.report(compiled).share == 0.0
        assert all("too big" in placement.reason for placement in torchmux.report(compiled).fallbacks)
        strict = torchmux.compile(model, backend=spec, strict=True)
        with pytest.raises(torchmux.TorchmuxError, match="too big"):
            strict(x)
