"""Parcels: what a graph computes after it went through a file, and that it is the same graph for the caches."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import torchmux
from torchmux.backends.common.cache.recipes import described_graph
from torchmux.multiplexer import surroundings
from torchmux.multiplexer.parcel import Parcel, Unknown, pack
from torchmux.registry.contract import PIN


@pytest.fixture
def packed(tmp_path: Path) -> Callable[..., Any]:
    """``packed(function, *args)``: the captured graph, its inputs, and the parcel of them from a file."""

    def work(function: Any, *args: Any, **options: Any) -> tuple[torch.fx.GraphModule, list[Any], Parcel]:
        seen: list[Any] = []

        def backend(gm: torch.fx.GraphModule, inputs: Any) -> Any:
            training = any(isinstance(v, torch.Tensor) and v.requires_grad for v in inputs)
            parcel = pack(gm, inputs, training=training, static_inputs=(), strict=False)
            parcel.save(tmp_path / "parcel")
            seen.append((gm, list(inputs), described(gm, inputs)))
            return gm.forward

        torchmux.compile(function, backend=backend, fullgraph=True, **options)(*args)
        ((gm, inputs, text),) = seen
        parcel = Parcel.load(tmp_path / "parcel")
        if text is not None:
            real = parcel.real_inputs()
            with parcel.compiling(again := parcel.graph(real)):
                assert described(again, real) == text
        return gm, inputs, parcel

    return work


def described(gm: torch.fx.GraphModule, inputs: Any) -> list[str] | None:
    """What the caches know of a graph; None if it is not for them."""
    try:
        return described_graph(gm, inputs)
    except Exception:
        return None


def check(gm: torch.fx.GraphModule, inputs: list[Any], parcel: Parcel) -> torch.fx.GraphModule:
    """The graph of the parcel computes what the captured one does, and its nodes know what they make."""
    real = parcel.real_inputs()
    again = parcel.graph(real)
    torch.testing.assert_close(again(*real), gm(*inputs), rtol=0, atol=0)
    before, after = ([n.meta.get("example_value") for n in g.graph.nodes] for g in (gm, again))
    for ours, theirs in zip(after, before, strict=True):
        if isinstance(theirs, torch.Tensor):
            assert (ours.dtype, ours.dim(), ours.requires_grad) == (theirs.dtype, theirs.dim(), theirs.requires_grad)
            assert [str(n) for n in ours.shape] == [str(n) for n in theirs.shape]
    return again


def test_a_parameter_stays_one(packed) -> None:
    layer = torch.nn.Linear(4, 3)
    gm, inputs, parcel = packed(layer, torch.randn(2, 4))
    check(gm, inputs, parcel)
    assert [type(v) for v in parcel.real_inputs()] == [type(v) for v in inputs]
    assert torch.nn.Parameter in map(type, inputs)


def test_symbolic_sizes_are_symbolic_again_and_take_the_sizes_of_another_call(packed, tmp_path) -> None:
    def f(x, n):
        return x.reshape(x.shape[0] * 2, -1) * n + x.shape[1]

    gm, inputs, parcel = packed(f, torch.randn(6, 10), 3, dynamic=True)
    again = check(gm, inputs, parcel)
    sizes = [n.meta["example_value"] for n in again.graph.nodes if n.op == "placeholder"]
    assert any(isinstance(value, torch.SymInt) for value in sizes)
    other = [{6: 8, 10: 14, 3: 5}[v] if isinstance(v, int) else torch.randn(8, 14) for v in inputs]
    pack(gm, other, training=False, static_inputs=(), strict=False).save(tmp_path / "other")
    moved = Parcel.load(tmp_path / "other")
    with_hints = moved.graph(moved.real_inputs())
    torch.testing.assert_close(with_hints(*other), gm(*other))
    hints = [v.node.hint for n in with_hints.graph.nodes if isinstance(v := n.meta.get("example_value"), torch.SymInt)]
    assert {8, 14, 5} <= set(hints)


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin() * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.saved_tensors[0].cos() * 2


def _cond(x):
    return torch.cond(x.sum() > 0, lambda x: (x.sin(),), lambda x: (x.cos(),), (x,))


def _loop(x):
    return torch.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * 2), (torch.tensor(0), x))


def _checkpointed(x):
    return checkpoint(lambda y: y.sin().cos(), x, use_reentrant=False)


def _vmapped(x):
    return torch.vmap(torch.func.grad(lambda y: y.sin().sum()))(x)


@pytest.mark.parametrize("function", [_cond, _loop, _checkpointed, Doubled.apply, _vmapped], ids=lambda f: f.__name__)
def test_graphs_inside_go_along(packed, function) -> None:
    x = torch.randn(4, 4, requires_grad=function in (_checkpointed, Doubled.apply))
    gm, inputs, parcel = packed(lambda x: function(x), x)
    assert any(isinstance(getattr(gm, n.target), torch.fx.GraphModule) for n in gm.graph.find_nodes(op="get_attr"))
    check(gm, inputs, parcel)
    if x.requires_grad:
        real = parcel.real_inputs()
        got, expected = (
            torch.autograd.grad(g(*v)[0].sum(), [t for t in v if isinstance(t, torch.Tensor)])
            for g, v in ((parcel.graph(real), real), (gm, inputs))
        )
        torch.testing.assert_close(got, expected, rtol=0, atol=0)


def test_autocast_around_is_a_setting_of_the_parcel(packed) -> None:
    before = surroundings.told()
    with torch.autocast("cpu", dtype=torch.float16):
        gm, inputs, parcel = packed(lambda x: x @ x, torch.randn(4, 4))
        expected = gm(*inputs)
    try:
        surroundings.restore(parcel.state)
        assert torch.is_autocast_enabled("cpu")
        real = parcel.real_inputs()
        got = parcel.graph(real)(*real)
    finally:
        surroundings.restore(before)
    assert got[0].dtype is torch.float16
    torch.testing.assert_close(got, expected)
    assert not torch.is_autocast_enabled("cpu")


def test_inference_mode_goes_along(packed) -> None:
    with torch.inference_mode():
        _, inputs, parcel = packed(lambda x: x + 1, torch.randn(3))
    assert inputs[0].is_inference() and parcel.real_inputs()[0].is_inference()


def test_pins_and_lines_go_along(packed, tmp_path) -> None:
    gm, inputs, _ = packed(lambda x: x.sin(), torch.randn(3))
    (node,) = gm.graph.find_nodes(op="call_method", target="sin")
    assert node.meta["source_line"]
    node.meta[PIN] = "native"
    pack(gm, inputs, training=False, static_inputs=(), strict=False).save(tmp_path / "pinned")
    parcel = Parcel.load(tmp_path / "pinned")
    (again,) = parcel.graph(parcel.real_inputs()).graph.find_nodes(op="call_method", target="sin")
    assert (again.meta[PIN], again.meta["source_line"]) == ("native", node.meta["source_line"])


@pytest.mark.parametrize(
    ("read", "write", "value"),
    [
        (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision, "medium"),
        (torch.get_default_dtype, torch.set_default_dtype, torch.float64),
        (torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms, True),
        (torch.backends.cuda.math_sdp_enabled, torch.backends.cuda.enable_math_sdp, False),
    ],
)
def test_settings_go_along_and_back(read, write, value) -> None:
    before, was = surroundings.told(), read()
    try:
        write(value)
        state = surroundings.told()
        surroundings.restore(before)
        assert read() == was
        surroundings.restore(state)
        assert read() == value
    finally:
        surroundings.restore(before)
    assert surroundings.told() == before


def test_what_cannot_be_sent_is_said() -> None:
    class Own(torch.Tensor):
        pass

    with pytest.raises(Unknown, match="an input is a Own"):
        gm = torch.fx.symbolic_trace(lambda x: x.sin())
        pack(gm, [torch.randn(3).as_subclass(Own)], training=False, static_inputs=(), strict=False)

    def local(x):
        return x

    graph = torch.fx.Graph()
    graph.output((graph.call_function(local, (graph.placeholder("x"),)),))
    with pytest.raises(Unknown, match="the graph calls .*local"):
        pack(torch.fx.GraphModule({}, graph), [torch.randn(3)], training=False, static_inputs=(), strict=False)


@pytest.mark.parametrize(
    ("name", "dynamic"),
    [("Bert", True), *(pytest.param(*case, marks=pytest.mark.slow) for case in (("Bert", False), ("GPT2", True)))],
)
def test_models_of_transformers(packed, name: str, dynamic: bool) -> None:
    transformers = pytest.importorskip("transformers")
    small = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 50}
    extra = {"intermediate_size": 32} if name == "Bert" else {"use_cache": False}
    config = getattr(transformers, f"{name}Config")(**small, **extra, max_position_embeddings=32)
    model = getattr(transformers, f"{name}Model")(config).eval()
    with torch.no_grad():
        gm, inputs, parcel = packed(lambda ids: model(ids)[0], torch.randint(0, 50, (2, 7)), dynamic=dynamic)
        check(gm, inputs, parcel)


def test_a_file_holds_every_kind_of_argument(tmp_path: Path) -> None:
    held = [torch.channels_last, torch.preserve_format, torch.bfloat16, torch.strided, torch.device("cpu"), ..., 2j]
    graph = torch.fx.Graph()
    value = graph.placeholder("x")
    for argument in held:
        value = graph.call_method("to", (value, argument))
    graph.output((value,))
    parcel = pack(torch.fx.GraphModule({}, graph), [torch.ones(2)], training=False, static_inputs=(), strict=False)
    parcel.save(tmp_path / "parcel")
    nodes = Parcel.load(tmp_path / "parcel").code.nodes
    assert [arguments[1] for kind, _, _, arguments, *_ in nodes if kind == "call_method"] == held


def test_members_of_a_chain_tell_their_own_libraries_what_to_do(monkeypatch):
    before = surroundings.observed()
    monkeypatch.setenv("TVM_NUM_SOMETHING", "1")
    assert surroundings.changes(before, "tvm+native") == []
    assert surroundings.changes(before, "onnxrt+native") == ["the environment (TVM_NUM_SOMETHING)"]
