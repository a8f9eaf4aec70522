"""What is kept of a compiled part: code or reasons, by key; what is damaged is made again."""

from __future__ import annotations

import pytest
import torch

from torchmux.backends.common.cache import code_or_refusal
from torchmux.backends.common.cache.cache import default_cache
from torchmux.backends.common.cache.code_or_refusal import Code, code_in, of_code, of_refusal, refusal_in
from torchmux.config import config
from torchmux.registry import NodesRefused

KEY = "a" * 64


@pytest.fixture(autouse=True)
def own_cache(tmp_path):
    with config.patch(cache_dir=tmp_path):
        yield


def graph(first: str) -> torch.fx.GraphModule:
    made = torch.fx.Graph()
    x = made.placeholder(first)
    made.output((made.create_node("call_function", torch.relu, (x,), name=f"{first}_relu"),))
    return torch.fx.GraphModule({}, made)


@pytest.mark.parametrize("head", [None, {"inputs": [1, 2]}, "with\na line"])
@pytest.mark.parametrize("code", [b"", b"\n\nR", bytes(range(256))])
def test_what_is_framed_is_found_again(head, code: bytes) -> None:
    payload = of_code(head, code)
    assert code_in(payload) == Code(head, code)
    assert refusal_in(payload) is None


def test_a_refusal_is_no_code() -> None:
    payload = of_refusal({3: "no", 10: "never"})
    assert refusal_in(payload) == {3: "no", 10: "never"}
    assert code_in(payload) is None


def test_code_is_kept() -> None:
    gm = graph("x")
    assert code_or_refusal.load(KEY, gm) is code_or_refusal.load_code(KEY) is None
    assert code_or_refusal.keep_code(KEY, {"one": 1}, b"code")
    assert code_or_refusal.load(KEY, gm) == code_or_refusal.load_code(KEY) == Code({"one": 1}, b"code")


def test_a_refusal_is_kept_by_position() -> None:
    """Names are no part of a key: the same graph may come with others."""
    first, second = graph("x"), graph("y")
    error = code_or_refusal.keep_refusal(KEY, list(first.graph.nodes), {1: "no relu"})
    assert error.reasons == {"x_relu": "no relu"}
    with pytest.raises(NodesRefused) as again:
        code_or_refusal.load(KEY, second)
    assert again.value.reasons == {"y_relu": "no relu"}
    assert code_or_refusal.load_code(KEY) is None


@pytest.mark.parametrize(
    "payload", [b"", b"X", b"C", b"Cnot json\ncode", b"C" + bytes(9), b"R{", b'R{"99": "no"}', b"R3"]
)
def test_what_is_damaged_is_made_again(payload: bytes, caplog) -> None:
    default_cache().store(KEY, payload)
    assert code_or_refusal.load(KEY, graph("x")) is None
    assert "will be rebuilt" in caplog.text
    assert code_or_refusal.load_code(KEY) is None


def test_without_a_cache_nothing_is_kept() -> None:
    with config.patch(cache_enabled=False):
        assert not code_or_refusal.keep_code(KEY, None, b"code")
        error = code_or_refusal.keep_refusal(KEY, list(graph("x").graph.nodes), {1: "no"})
        assert error.reasons == {"x_relu": "no"}
        assert code_or_refusal.load(KEY, graph("x")) is code_or_refusal.load_code(KEY) is None
