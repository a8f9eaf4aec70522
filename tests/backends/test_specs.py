"""The descriptions: light to import, true to the installed torch, precise where a compiler is missing."""

from __future__ import annotations

import pytest
import torch

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
