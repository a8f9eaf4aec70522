"""Files of programs that ``auto`` has decided on: the decisions, and what was chosen for each range of sizes."""

from __future__ import annotations

import json
import threading
from unittest import mock

import pytest
import sympy
import torch

import torchmux
from torchmux.deploy.buckets import buckets_again, buckets_told
from torchmux.frontend.capture import capture
from torchmux.multiplexer import auto
from torchmux.multiplexer.decisions import Decision, Row
from torchmux.multiplexer.running.buckets import Conditions, Sizes
from torchmux.multiplexer.running.chosen import ByBucket, Pending
from torchmux.multiplexer.running.code import Code
from torchmux.registry.report import GraphReport


@pytest.fixture
def decided(monkeypatch):
    """``auto`` chooses by the words for the sizes of a call, without measuring."""

    def choose(by_words):
        def decider(gm, request, options):
            def decide(inputs, words, anew):
                def make(lead, check):
                    name = by_words(words)
                    return Decision(name, {}, "the test says so", [Row(name, name, {}, "chosen", milliseconds=1.0)])

                return Pending(make)

            return decide

        monkeypatch.setattr(auto, "decider", decider)

    torchmux.reset()
    yield choose
    torchmux.reset()


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(8, 16)

    def forward(self, x):
        return torch.relu(self.inner(x)).mean(0) * x.shape[0]


def test_a_file_has_a_choice_for_each_range_of_sizes(decided, tmp_path):
    """It runs sizes of all ranges, decided or not, and neither traces nor measures."""
    chosen = {"[0] in 3 to 4,": "native", "[0] in 33 to 64,": "aot_eager"}
    decided(lambda words: next((name for text, name in chosen.items() if text in words), "eager"))
    net = Net().eval()
    compiled = torchmux.compile(net, backend="auto", dynamic=True, options={"wait": True})
    with torch.no_grad():
        for size in (4, 50, 300):
            compiled(torch.ones(size, 8))
        assert torchmux.save(compiled, tmp_path / "net.tmx") == []
    loaded = torchmux.load(tmp_path / "net.tmx")
    (entry,) = loaded.entries
    assert set(entry.backend.split("+")) == {"native", "aot_eager", "eager"}
    assert [each["backend"] for each in entry.decisions.values()] == ["native", "aot_eager", "eager"]
    assert next(iter(entry.decisions)).startswith("l_x.shape[0] in 3 to 4")
    kinds = {(artifact.backend, artifact.kind) for artifact in torchmux.artifacts(compiled)}
    assert {("native", "c++"), ("aot_eager", "fx"), ("eager", "fx")} <= kinds
    with mock.patch.object(capture, "capture", side_effect=AssertionError("it traces")), torch.no_grad():
        for size in (2, 3, 5, 12, 64, 100, 1000):
            x = torch.randn(size, 8)
            torch.testing.assert_close(loaded(x), net(x))


def test_conditions_on_sizes_go_along(caplog):
    """A backend that was compiled after the capture may exclude sizes: torch runs them, or nobody under strict."""
    sizes = Sizes({(symbol := sympy.Symbol("s0", integer=True)): (0, 0)}, None)
    conditions = Conditions([sympy.Eq(sympy.Mod(symbol, 2), 0), symbol < 100], sizes)
    code = Code(Row("own", "own", {}, "chosen"), None, GraphReport("own"), conditions)

    def runs(*, is_strict):
        built = ByBucket(None, sizes, {(2,): code, (3,): None}, is_strict=is_strict)
        told = buckets_told(built, lambda compiled: {"own": True, "backend": "own"}, lambda: "captured")
        run = buckets_again(
            json.loads(json.dumps(told)),
            lambda graph: lambda x: "own" if "own" in graph else graph["torch"],
            lambda steps: lambda x: steps,
        )
        return lambda size: run(torch.ones(size))

    run = runs(is_strict=False)
    assert [run(size) for size in (2, 4, 3, 5, 8, 90, 200)] == ["own", "own", "captured", *["captured"] * 4]
    assert caplog.text.count("a saved file has no code of a backend for the sizes [[3]]") == 1
    assert [run(size) for size in (3, 5)] == ["captured"] * 2
    assert runs(is_strict=True)(4) == "own"
    with pytest.raises(torchmux.Unsupported, match=r"no code for these sizes \(\[\[3\]\]\)"):
        runs(is_strict=True)(3)


def test_a_graph_that_is_not_decided_yet_is_not_saved(decided, tmp_path):
    go_on = threading.Event()
    decided(lambda words: go_on.wait(60) and "eager")
    compiled = torchmux.compile(Net().eval(), backend="auto", dynamic=True)
    with torch.no_grad():
        compiled(torch.ones(4, 8))
        try:
            with pytest.raises(torchmux.SaveRefused, match="auto has not decided yet: wait for it"):
                torchmux.save(compiled, tmp_path / "net.tmx")
        finally:
            go_on.set()
