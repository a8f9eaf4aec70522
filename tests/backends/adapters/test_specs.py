"""The descriptions: light to import, true to the installed torch, precise where a compiler is missing."""

from __future__ import annotations

import pytest
import torch
from packaging.version import Version

import torchmux
from torchmux.backends import inductor, tombstones
from torchmux.registry import BackendUnavailable, InvalidOption, resolve

HEAVY = ("torch._dynamo", "torch._inductor", "onnxruntime", "onnxscript", "openvino", "torch.onnx._internal", "triton")


def test_descriptions_import_no_compiler(run_python) -> None:
    out = run_python(
        f"""
import sys
from torchmux.backends import aot_eager, cudagraphs, eager, inductor, onnxrt, openvino, tensorrt, tombstones, tvm
for module in (aot_eager, cudagraphs, eager, inductor, onnxrt, openvino, tensorrt, tvm):
    module.SPEC.probe(), module.SPEC.fingerprint()
print([m for m in {HEAVY!r} if m in sys.modules])
"""
    )
    assert out.strip() == "[]"


def test_inductors_modes_are_torchs() -> None:
    import torch._inductor

    theirs = torch._inductor.list_mode_options()
    assert {name: theirs[name] for name in inductor.MODES} == inductor.MODES


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"max_autotun": True}, "'max_autotune'"),
        ({"max_autotune": "yes"}, "takes bool"),
        ({"nothing-like": 1}, "no"),
    ],
)
def test_inductor_checks_its_options(capture, options, words: str) -> None:
    with pytest.raises(InvalidOption, match=words):
        capture(lambda x: x.sin(), torch.randn(2)).compile("inductor", options=options)


@pytest.mark.slow
def test_inductor_compiles_and_trains(capture) -> None:
    x = torch.randn(4, 3, requires_grad=True)
    net = torch.nn.Linear(3, 2)
    captured = capture(net, x)
    compiled = captured.compile("inductor", training=True)
    out = captured.run(compiled, x)
    torch.testing.assert_close(out, net(x))
    torch.testing.assert_close(
        torch.autograd.grad(out.sum(), net.weight), torch.autograd.grad(net(x).sum(), net.weight)
    )


@pytest.mark.slow
def test_inductor_finds_the_sizes_that_a_backward_pass_needs() -> None:
    """A gradient's size is a sum there, of which one part is no size of what the forward pass keeps."""
    compiled = torchmux.compile(torch.constant_pad_nd, backend="inductor", fullgraph=True)
    for rows, left in ((3, 1), (4, 2), (6, 3)):
        x = torch.randn(rows, rows + 1, requires_grad=True)
        compiled(x, (left, rows), 1.0).sum().backward()
        assert torch.equal(x.grad, torch.ones_like(x))


@pytest.mark.xfail(
    Version(torch.__version__) < Version("2.13"),
    raises=AssertionError,
    reason="Inductor of torch 2.11 takes the graph, for one size, and its code raises at any other",
    strict=False,
)
def test_what_inductor_would_have_to_know_data_for_runs_in_torch() -> None:
    """torch itself breaks the graph there; nothing else could take it either."""

    def filled(x, rows, value):
        return torch.index_fill(x, 0, rows, value)

    x, rows, value = torch.randn(3, 3), torch.tensor([0, 2]), torch.tensor(1.0, requires_grad=True)
    compiled = torchmux.compile(filled, backend="inductor", fullgraph=True)
    result = compiled(x, rows, value)
    result.sum().backward()
    assert torch.equal(result, filled(x, rows, value)) and value.grad == 6
    (left,) = torchmux.report(compiled).fallbacks
    assert "inductor needs to know data for" in left.reason


def test_inductor_without_a_compiler(monkeypatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    answer = inductor.probe()
    assert not answer.ok
    assert "C++ compiler" in answer.reason


def test_retired_names() -> None:
    assert tombstones.IPEX.name == "ipex"
    with pytest.raises(BackendUnavailable, match="archived upstream"):
        resolve("ipex")
