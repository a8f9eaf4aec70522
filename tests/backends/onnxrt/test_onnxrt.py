"""onnxrt on small graphs: what is so of ONNX Runtime alone; test_contract.py has what holds of every adapter."""

from __future__ import annotations

import json

import pytest
import torch
import torch.nn.functional as F
from as_eager import Held, Mlp
from torch import nn

import torchmux
from torchmux.config import config

pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")


@pytest.fixture
def check(capture) -> Held:
    return Held(capture, "onnxrt")


def test_composite_operators_stay_whole(check) -> None:
    report = check(Mlp(), torch.randn(3, 8))
    assert [p.op for p in report.placements] == [
        "aten.linear.default", "aten.layer_norm.default", "aten.gelu.default", "aten.linear.default"
    ]  # fmt: skip


def test_a_transposed_matrix_times_a_vector(capture) -> None:
    """onnxruntime would fuse the two and forget the transposition."""
    matrix, vector = torch.randn(3, 3), torch.randn(3)
    captured = capture(lambda m, v: m.t() @ (v * 2), matrix, vector)
    compiled = captured.compile("onnxrt")
    torch.testing.assert_close(captured.run(compiled, matrix, vector), matrix.t() @ (vector * 2))
    assert any("transposition" in (p.reason or "") for p in compiled.report.placements)


def test_arguments_that_the_exporter_ignores(capture) -> None:
    """Also where they make no difference to the numbers of the check: the classes of one row are equal there."""

    def f(x, images):
        rows = F.cross_entropy(x.amax(1, keepdim=True).expand(2, 3), torch.tensor([0, 2]), label_smoothing=0.5)
        pools = F.avg_pool2d(images, 2, divisor_override=3) * 0
        return rows, pools, torch.ops.aten._upsample_bilinear2d_aa(images, [6, 6], False, 1.6, 1.6) * 0

    args = torch.randn(2, 3), torch.randn(1, 1, 4, 4)
    captured = capture(f, *args)
    compiled = captured.compile("onnxrt")
    torch.testing.assert_close(captured.run(compiled, *args), f(*args))
    reasons = {p.reason for p in compiled.report.placements}
    assert {f"the exporter ignores {name}" for name in ("label_smoothing", "divisor_override", "scales_h")} <= reasons


def test_attention_with_a_mask_for_each_head(check) -> None:
    """Without its kernel, attention has results in another order, of which what follows is no view."""

    def f(x, mask):
        heads = x.view(2, 5, 3, 4).transpose(1, 2)
        return F.scaled_dot_product_attention(heads, heads, heads, mask).transpose(1, 2).reshape(2, 5, 12) * 2

    check(f, torch.randn(2, 5, 12), torch.randn(2, 3, 5, 5))


def test_what_the_runtime_refuses_is_found_and_split_off(capture, tmp_path) -> None:
    def f(x, n):
        return x.relu(), torch.cumsum(n, 0) * 2

    x, n = torch.randn(4), torch.arange(4, dtype=torch.int16)
    captured = capture(f, x, n)
    with config.patch(cache_dir=tmp_path):
        for _ in range(2):  # the refusal is in the cache the second time
            compiled = captured.compile("onnxrt")
            got, wanted = captured.run(compiled, x, n), f(x, n)
            assert all(torch.equal(a, b) for a, b in zip(got, wanted, strict=True))
            placed = {p.op: p for p in compiled.report.placements}
            assert placed["aten.relu.default"].placed_on == "onnxrt"
            assert all("int16" in p.reason for p in compiled.report.fallbacks)


def test_frozen_batch_norms_are_folded_into_convolutions(check, monkeypatch, tmp_path) -> None:
    import onnx
    import onnxruntime

    kept, made = tmp_path / "optimized.onnx", onnxruntime.InferenceSession

    def keeping(model, settings, **rest):
        settings.optimized_model_filepath = str(kept)
        return made(model, settings, **rest)

    monkeypatch.setattr(onnxruntime, "InferenceSession", keeping)

    class Normalized(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.convolution, self.norm = nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8)
            for tensor in (*self.norm.parameters(), self.norm.running_mean, self.norm.running_var):
                tensor.data.uniform_(0.5, 1.5)

        def forward(self, x):
            norm = self.norm
            x = F.batch_norm(self.convolution(x), norm.running_mean, norm.running_var, norm.weight, norm.bias)
            return x.relu()

    net = Normalized()
    with config.patch(cache_enabled=False):
        check(net, torch.randn(2, 3, 9, 9), options={"freeze": True, "check": False})
    operators = {node.op_type for node in onnx.load(str(kept), load_external_data=False).graph.node}
    assert "Conv" in operators or "FusedConv" in operators
    assert not operators & {"BatchNormalization", "Relu", "Expand"}


class Statistics(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(3))
        self.register_buffer("variance", torch.ones(3))

    def forward(self, x):
        return torch.batch_norm(x, None, None, self.mean, self.variance, True, 0.1, 1e-5, False)


def test_batch_statistics_are_kept(capture) -> None:
    x = torch.randn(4, 3, 5, 5, requires_grad=True)
    net, twin = Statistics(), Statistics()
    captured = capture(net, x)
    compiled = captured.compile("onnxrt", training=True, strict=True)
    net.load_state_dict(twin.state_dict())
    for _ in range(2):
        torch.testing.assert_close(captured.run(compiled, x), twin(x), rtol=1e-5, atol=1e-5)
    for name in ("mean", "variance"):
        torch.testing.assert_close(getattr(net, name), getattr(twin, name))


def test_options_reach_the_session(check) -> None:
    options = {"intra_op_num_threads": 1, "inter_op_num_threads": 2, "graph_optimization_level": "disabled"}
    check(Mlp(), torch.randn(3, 8), options=options)


def test_options_of_onnxruntime_go_through(tmp_path) -> None:
    options = {
        "providers": [("CPUExecutionProvider", {"use_arena": "0"})],
        "session_options": {"enable_cpu_mem_arena": False, "profile_file_prefix": str(tmp_path / "profile")},
        "session_config_entries": {"session.intra_op.allow_spinning": "0"},
        "graph_optimization_level": "basic",
        "enable_profiling": True,
    }
    compiled = torchmux.compile(nn.Linear(8, 4).eval(), backend="onnxrt", options=options)
    with torch.no_grad():
        compiled(torch.ones(3, 8))
    found = {artifact.kind: artifact for artifact in torchmux.artifacts(compiled)}
    session = found["onnxrt-profile"]._file.write.__self__._session
    told = session.get_session_options()
    assert not told.enable_cpu_mem_arena
    assert told.get_session_config_entry("session.intra_op.allow_spinning") == "0"
    assert told.graph_optimization_level.name == "ORT_ENABLE_BASIC"
    events = json.loads(found["onnxrt-profile"].save(tmp_path / "copy")[0].read_text())
    assert any(event["cat"] == "Node" for event in events)
    assert list(tmp_path.glob("profile*.json"))  # where the program asked for it, it stays


def test_a_second_process_needs_no_exporter(run_python) -> None:
    code = """
import sys, torch
from torch.fx import symbolic_trace
from torchmux.registry import resolve
x = torch.ones(3, 5)
gm = symbolic_trace(lambda x: (torch.softmax(x, 1).relu() * 3,))
compiled = resolve("onnxrt", strict=True).compile(gm, [x], training=False)
torch.testing.assert_close(compiled(x)[0], torch.softmax(x, 1) * 3)
print(compiled.report.cache_hits, "onnxscript" in sys.modules)
"""
    assert run_python(code).split() == ["0", "True"]
    assert run_python(code).split() == ["1", "False"]
