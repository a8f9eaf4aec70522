"""``torchmux.export``: one graph with its guards, that is called like the function, or the reason why not."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import nn

import torchmux


def fn(x, *, scale=2, extra=None):
    y = x * scale
    return {"y": y, "sum": (y.sum(), extra)}


def test_graph_inputs_and_specs():
    x = torch.ones(3, 2)
    exported = torchmux.export(fn)(x, scale=3)
    assert isinstance(exported.graph_module, torch.fx.GraphModule)
    assert [(each.name, each.source, each.is_parameter) for each in exported.inputs] == [("l_x", "x", False)]
    flat = exported.graph_module(x)
    assert torch.equal(flat[0], x * 3)
    assert torch.equal(flat[1], (x * 3).sum())
    assert exported.in_spec == torch.utils._pytree.tree_flatten(((x,), {"scale": 3}))[1]
    assert exported.out_spec == torch.utils._pytree.tree_flatten(fn(x))[1]
    result = exported(x + 1, scale=3)
    assert torch.equal(result["y"], (x + 1) * 3)
    assert result["sum"][1] is None


def test_guards_in_words_and_code_and_when_they_fail():
    exported = torchmux.export(fn)(torch.ones(3, 2), scale=3)
    assert "x is a float32 tensor of 3x2 on cpu" in exported.guards
    assert "scale == 3" in exported.guards
    assert exported.guard_code.startswith("def guard(L):")
    assert "run_graph(" in exported.code
    with pytest.raises(torchmux.Unsupported, match=r"exported graph of fn .* does not apply to this call: scale == 3"):
        exported(torch.ones(3, 2), scale=4)
    with pytest.raises(torchmux.Unsupported, match="size mismatch"):
        exported(torch.ones(4, 2), scale=3)
    with pytest.raises(TypeError, match="unexpected keyword argument 'scales'"):
        exported(torch.ones(3, 2), scales=3)
    assert torch.equal(exported(torch.ones(3, 2), scale=3)["y"], torch.full((3, 2), 3.0))
    assert "guards:\n" in str(exported)


def test_dynamic_sizes():
    x = torch.ones(3, 2)
    torchmux.mark_dynamic(x, 0)
    exported = torchmux.export(fn)(x)
    for n in (3, 5, 17):
        assert torch.equal(exported(torch.ones(n, 2))["y"], torch.full((n, 2), 2.0))
    with pytest.raises(torchmux.Unsupported):
        exported(torch.ones(3, 4))


@dataclasses.dataclass
class Output:
    logits: torch.Tensor
    size: int


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        return Output(self.layer(x).relu(), x.shape[0])


def test_a_module_with_parameters_and_side_effects():
    net, x = Net(), torch.randn(2, 4)
    exported = torchmux.export(net)(x)
    parameters = {each.name.rsplit("_", 1)[1] for each in exported.inputs if each.is_parameter}
    assert {"weight", "bias"} <= parameters
    calls = int(net.calls)
    result = exported(x)
    assert isinstance(result, Output)
    assert torch.equal(result.logits, net(x).logits)
    assert int(net.calls) == calls + 2
    with torch.no_grad():
        net.layer.weight.zero_()
        net.layer.bias.zero_()
    with torch.enable_grad():
        assert torch.equal(exported(x).logits, torch.zeros(2, 3))


def test_a_compiled_function_and_a_method():
    class Scaler:
        factor = 3

        def run(self, x):
            return x * self.factor

    x = torch.ones(2)
    assert torch.equal(torchmux.export(Scaler().run)(x)(x), x * 3)
    compiled = torchmux.compile(lambda x: x + 1, backend="eager")
    assert torch.equal(torchmux.export(compiled)(x)(x), x + 1)
    assert torchmux.report(compiled).graph_count == 0


def test_exporting_is_known_to_the_program():
    def program(x):
        return x + 1 if torch.compiler.is_exporting() and torchmux.is_exporting() else x - 1

    x = torch.ones(2)
    assert torch.equal(torchmux.export(program)(x)(x), x + 1)
    assert torch.equal(torchmux.compile(program, backend="eager")(x), x - 1)


def test_the_reason_why_not():
    def breaks(x):
        if x.sum() > 0:
            return x * 2
        return x

    with pytest.raises(
        torchmux.Unsupported, match=r"export\(\) requires one graph, but the graph breaks. TM001"
    ) as caught:
        torchmux.export(breaks)(torch.ones(2))
    assert "test_export.py:" in str(caught.value)
    with pytest.raises(torchmux.Unsupported, match="requires one graph of .* but it has none"):
        torchmux.export(lambda n: n + 1)(2)
    with pytest.raises(TypeError, match="not an int"):
        torchmux.export(3)


def test_what_the_function_raises():
    def raises(x):
        raise KeyError(x.shape[0])

    with pytest.raises(KeyError, match="2"):
        torchmux.export(raises)(torch.ones(2))


def test_an_exported_graph_is_its_own():
    """Neither other callers' code nor a reset changes what was exported."""
    x = torch.ones(2)
    exported = torchmux.export(fn)(x)
    compiled = torchmux.compile(fn, backend="eager")
    compiled(torch.ones(5))
    torchmux.reset()
    assert torch.equal(exported(x)["y"], x * 2)
    with pytest.raises(torchmux.Unsupported, match="size mismatch"):
        exported(torch.ones(5))


class Normalized(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 4)
        self.norm = nn.BatchNorm1d(4)
        self.scale = 3

    def forward(self, x, *rest, y=None, data):
        return {"a": self.norm(self.inner(x)) * self.scale + rest[0], "b": (x, y), "c": data["k"][0].sum()}


def test_a_program_for_torch_export(tmp_path):
    model, args, kwargs = Normalized().eval(), (torch.randn(3, 4), torch.ones(4)), {"data": {"k": [torch.ones(2)]}}
    exported, expected = torchmux.export(model)(*args, **kwargs), model(*args, **kwargs)
    exported.save(tmp_path / "program.pt2")
    program = exported.to_exported_program()
    assert program.state_dict.keys() >= {"inner.weight", "inner.bias", "norm.running_mean"}
    for run in (exported.run, program.module(), torch.export.load(tmp_path / "program.pt2").module()):
        found = run(*args, **kwargs)
        assert torch.equal(found["a"], expected["a"])
        assert torch.equal(found["b"][0], args[0])
        assert found["b"][1] is None
    training = torchmux.export(model.train())(*args, **kwargs).to_exported_program().run_decompositions()
    assert set(training.graph_signature.buffers_to_mutate.values()) >= {"norm.running_mean", "norm.running_var"}


def test_a_program_has_the_dynamic_sizes_of_the_graph():
    x, weight = torch.randn(3, 4), torch.ones(4)
    torchmux.mark_dynamic(x, 0)
    program = torchmux.export(lambda x: (x * weight).sum(0) / x.shape[0])(x).to_exported_program()
    for n in (2, 9):
        assert torch.equal(program.module()(torch.full((n, 4), 2.0)), torch.full((4,), 2.0))
    with pytest.raises(torchmux.Unsupported, match="returns the number 3, which may depend on the dynamic sizes"):
        torchmux.export(lambda x: (x * 2, x.shape[0]))(x).to_exported_program()


def test_no_program_of_what_changes_other_objects():
    seen = []
    exported = torchmux.export(lambda x: (seen.append(1), x * 2)[1])(torch.ones(2))
    with pytest.raises(torchmux.Unsupported, match="changes objects besides tensors"):
        exported.to_exported_program()
