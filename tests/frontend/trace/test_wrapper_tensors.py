"""Tensors that consist of others, and define by ``__torch_dispatch__`` what operators do with them."""

from __future__ import annotations

import copy

import pytest
import torch
from torch.utils._python_dispatch import return_and_correct_aliasing

import torchmux

aten = torch.ops.aten
FACTOR = 1


def scaled(q):
    return q.data_int.to(q.dtype) * q.scale * FACTOR


class Quantized(torch.Tensor):
    """Integers with a scale; most operators see the numbers that they stand for."""

    @staticmethod
    def __new__(cls, data_int, scale, dtype=torch.float32, note="n"):
        return torch.Tensor._make_wrapper_subclass(cls, data_int.shape, dtype=dtype, device=data_int.device)

    def __init__(self, data_int, scale, dtype=torch.float32, note="n"):
        self.data_int, self.scale, self.note = data_int, scale, note

    def __tensor_flatten__(self):
        return ["data_int", "scale"], {"dtype": self.dtype, "note": self.note}

    @classmethod
    def __tensor_unflatten__(cls, parts, context, size, stride):
        return cls(parts["data_int"], parts["scale"], **context)

    def dequantize(self):
        return scaled(self)

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func, types, args, kwargs):
        kwargs = kwargs or {}
        if func in (aten.detach.default, aten.t.default, aten.clone.default):
            q = args[0]
            made = cls(func(q.data_int), q.scale, q.dtype, q.note)
            return return_and_correct_aliasing(func, args, kwargs, made)
        if func is aten.mul.Tensor and not isinstance(args[1], torch.Tensor):
            return cls(args[0].data_int, args[0].scale * args[1], args[0].dtype, args[0].note)
        if func is aten.mul_.Tensor:
            args[0].scale.mul_(args[1])
            return args[0]
        plain = torch.utils._pytree.tree_map_only(Quantized, lambda q: q.dequantize(), (args, kwargs))
        return func(*plain[0], **plain[1])


class Shifted(Quantized):
    def dequantize(self):
        return super().dequantize() + 1


class Converting(Quantized):
    """The same by ``__torch_function__``, as quantized linear layers often have it."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func is torch.nn.functional.linear:
            return torch.nn.functional.linear(args[0], args[1].dequantize() * 2, *args[2:])
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))


def quantized(*shape, cls=Quantized):
    generator = torch.Generator().manual_seed(0)
    return cls(torch.randint(-8, 8, shape, dtype=torch.int8, generator=generator), torch.tensor(0.5))


class Layer(torch.nn.Module):
    def __init__(self, cls=Quantized):
        super().__init__()
        self.lin = torch.nn.Linear(4, 3).requires_grad_(False)
        self.lin.weight = torch.nn.Parameter(quantized(3, 4, cls=cls), requires_grad=False)

    def forward(self, x):
        return self.lin(x).relu()


def checkpointed(x, w):
    return torch.utils.checkpoint.checkpoint(lambda a: a @ w.t(), x, use_reentrant=False)


def asks(x, w):
    known = isinstance(w, Quantized) and type(w) is Quantized and hasattr(w, "scale") and not hasattr(w, "none")
    return x * 2 if known and not isinstance(w, torch.nn.Parameter) else x


ONE_GRAPH = {
    "linear": lambda x, w: torch.nn.functional.linear(x, w.t().t()),
    "operators": lambda x, w: (x + w, w * 2, w.shape[0], len(w), w.stride()),
    "method": lambda x, w: (w.dequantize() * x, w.note, w.dtype, w.scale),
    "returned": lambda x, w: (w.t(), w, w.detach()),
    "list": lambda x, w: torch.cat([w, x]),
    "iteration": lambda x, w: sum(row * 2 for row in w) + x,
    "in place": lambda x, w: (w.mul_(3) is w, x + w),
    "checkpoint": checkpointed,
    "vmap": lambda x, w: torch.vmap(torch.sin)(x) + w,
    "questions": asks,
}
BREAKS = {
    "made": lambda x, w: Quantized(w.data_int, w.scale * 2) + x,
    "attribute": lambda x, w: (setattr(w, "extra", 3), w.extra * x)[1],
    "autocast": lambda x, w: _autocast(x, w),
    "value": lambda x, w: x * w.sum().item() + w,
}


def _autocast(x, w):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return torch.nn.functional.linear(x, w)


def plain(result):
    if isinstance(result, (tuple, list)):
        return list(map(plain, result))
    if isinstance(result, Quantized):
        return type(result), plain(result.data_int), plain(result.scale), result.note
    return result.tolist() if isinstance(result, torch.Tensor) else result


_RUNS = [(name, "eager") for name in (*ONE_GRAPH, *BREAKS)] + [("returned", "native"), ("in place", "native")]
_MORE = [(name, "native") for name in (*ONE_GRAPH, *BREAKS) if (name, "native") not in _RUNS]


@pytest.mark.parametrize(
    ("name", "backend"), [*_RUNS, *(pytest.param(*each, marks=pytest.mark.slow) for each in _MORE)]
)
def test_operators(name, backend):
    program = {**ONE_GRAPH, **BREAKS}[name]
    x = torch.arange(16.0).reshape(4, 4)
    if name in ONE_GRAPH:
        found = torchmux.explain(program)(x, quantized(4, 4))
        assert (found.graph_count, found.break_reasons) == (1, [])
    compiled = torchmux.compile(program, backend=backend)
    ours, theirs = quantized(4, 4), quantized(4, 4)
    for _ in range(3):
        assert plain(compiled(x, ours)) == plain(program(x, theirs))
        assert plain(ours) == plain(theirs)


@pytest.mark.parametrize("cls", [Quantized, Shifted, Converting])
def test_a_layer_with_a_weight_of_that_kind(cls):
    net, x = Layer(cls), torch.randn(2, 4)
    assert torchmux.explain(net)(x).graph_count == 1
    compiled = torchmux.compile(net, backend="native")
    for rows in (2, 3, 5):
        x = torch.randn(rows, 4)
        torch.testing.assert_close(compiled(x), net(x))
    assert not torchmux.report(compiled).breaks


def test_layers_that_ask_for_an_override_choose_as_in_eager():
    """The fused operator of an encoder's layer takes plain weights."""
    torch.manual_seed(0)
    net = torch.nn.TransformerEncoderLayer(4, 2, 8, batch_first=True).eval().requires_grad_(False)
    net.linear1.weight = torch.nn.Parameter(quantized(8, 4, cls=Converting), requires_grad=False)
    x = torch.randn(2, 3, 4)
    with torch.no_grad():
        compiled = torchmux.compile(net, backend="eager")
        torch.testing.assert_close(compiled(x), net(x))
    assert "aten._transformer_encoder_layer_fwd" not in str(torchmux.report(compiled).placements)


def test_gradients_end_the_graph():
    def program(x, w):
        return (torch.nn.functional.linear(x, w) * x).sum()

    x, w = torch.randn(4, 4, requires_grad=True), quantized(4, 4)
    torchmux.compile(program, backend="native")(x, w).backward()
    compiled, x.grad = x.grad, None
    program(x, w).backward()
    torch.testing.assert_close(compiled, x.grad)
    with torch.no_grad():
        assert torchmux.explain(program)(x, w).graph_count == 1


def _replace(**new):
    return lambda w, patch: [patch.setattr(Quantized, name, value) for name, value in new.items()]


CHANGES = {
    "context": lambda w, patch: setattr(w, "note", "other"),
    "part": lambda w, patch: setattr(w, "scale", torch.tensor(3.0)),
    "part's dtype": lambda w, patch: setattr(w, "data_int", w.data_int.to(torch.int16)),
    "part in place": lambda w, patch: w.scale.mul_(5),
    "another attribute": lambda w, patch: setattr(w, "extra", 7),
    "class": lambda w, patch: setattr(w, "__class__", Shifted),
    "method": _replace(dequantize=lambda self: scaled(self) - 9),
    "method that another calls": lambda w, patch: (
        setattr(w, "__class__", Shifted), patch.setattr(Quantized, "dequantize", lambda self: scaled(self) - 9)
    ),
    "dispatch": _replace(__torch_dispatch__=classmethod(lambda cls, func, types, args, kwargs: args[0] * 0 + 4)),
    "function that it calls": lambda w, patch: patch.setitem(globals(), "scaled", lambda q: q.scale * 100),
    "global that is read on the way": lambda w, patch: patch.setitem(globals(), "FACTOR", 6),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_changes_between_calls_are_noticed(name, monkeypatch):
    def program(x, w):
        return x + w, w.note, getattr(w, "extra", 0)

    x, w = torch.randn(4, 4), quantized(4, 4)
    compiled = torchmux.compile(program, backend="eager")
    for _ in range(2):
        assert plain(compiled(x, w)) == plain(program(x, w))
    CHANGES[name](w, monkeypatch)
    for _ in range(2):
        assert plain(compiled(x, w)) == plain(program(x, w))


def test_objects_and_memory_are_eagers():
    w, x = quantized(4, 4), torch.ones(4, 4)
    compiled = torchmux.compile(lambda x, w: (w, w.t(), x + w), backend="native")
    for value in (3, 4):
        same, turned, _ = compiled(x, w)
        assert same is w and type(turned) is Quantized and turned.scale is w.scale
        w.data_int.fill_(value)
        assert turned.data_int.eq(value).all()

    def program(x, a, b):
        return a.mul_(2) + b if a is not b else x

    compiled = torchmux.compile(program, backend="native")
    for same in (False, True, False):
        a, b = quantized(4, 4), quantized(4, 4)
        other, others = copy.copy(quantized(4, 4)), quantized(4, 4)
        found = compiled(x, a, a if same else b)
        assert plain(found) == plain(program(x, other, other if same else others))
    shared = torch.tensor(2.0)
    a, b = (Quantized(torch.ones(4, 4, dtype=torch.int8), shared) for _ in range(2))
    assert compiled(x, a, b).eq(8).all() and shared == 4
