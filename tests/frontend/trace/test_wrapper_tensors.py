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

    def __repr__(self):  # torch's logs print it without data
        return f"{type(self).__name__}({tuple(self.shape)})"

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
    "vmap": lambda x, w: torch.vmap(torch.square)(x) + w,  # no rounding that backends may do otherwise
    "questions": asks,
    "autocast": lambda x, w: _autocast(x, w),
}
BREAKS = {
    "made": lambda x, w: Quantized(w.data_int, w.scale * 2) + x,
    "attribute": lambda x, w: (setattr(w, "extra", 3), w.extra * x)[1],
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


class Pair(torch.Tensor):
    """Two tensors; operators act on both."""

    @staticmethod
    def __new__(cls, a, b, tag="t"):
        sizes = {"strides": a.stride(), "dtype": a.dtype, "requires_grad": a.requires_grad}
        return torch.Tensor._make_wrapper_subclass(cls, a.shape, **sizes)

    def __init__(self, a, b, tag="t"):
        self.a, self.b, self.tag = a, b, tag

    __repr__ = Quantized.__repr__

    def __tensor_flatten__(self):
        return ["a", "b"], self.tag

    @classmethod
    def __tensor_unflatten__(cls, parts, tag, size, stride):
        return cls(parts["a"], parts["b"], tag)

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func, types, args, kwargs):
        def of(name):
            only = torch.utils._pytree.tree_map_only(cls, lambda pair: getattr(pair, name), (args, kwargs or {}))
            return func(*only[0], **only[1])

        tag = next(v.tag for v in torch.utils._pytree.tree_leaves((args, kwargs)) if isinstance(v, cls))
        made = torch.utils._pytree.tree_map(lambda a, b: cls(a, b, tag), of("a"), of("b"))
        return return_and_correct_aliasing(func, args, kwargs or {}, made)


class Tolerant(Pair):
    """Its tag makes no difference."""

    @classmethod
    def __metadata_guard__(cls, mine, other):
        return True


def pair(seed, *sizes, cls=Pair, tag="t"):
    torch.manual_seed(seed)
    return cls(torch.randn(sizes), torch.randn(sizes), tag).requires_grad_()


def leaf(*sizes):
    torch.manual_seed(0)
    return torch.randn(sizes, requires_grad=True)


TRAINED = {
    "frozen weight": (lambda x, w: torch.nn.functional.linear(x, w).relu(), lambda: [leaf(3, 4), quantized(5, 4)]),
    "override": (
        lambda x, w: torch.nn.functional.linear(x, w).relu(), lambda: [leaf(3, 4), quantized(5, 4, cls=Converting)]
    ),
    "method and part": (lambda x, w: x @ w.dequantize().t() * w.scale, lambda: [leaf(3, 4), quantized(5, 4)]),
    "questions": (lambda x, w: (asks(x, w) @ w.t(), w.note, w.shape), lambda: [leaf(3, 4), quantized(5, 4)]),
    "returned": (lambda x, w: (w, x * 2), lambda: [leaf(3, 4), quantized(5, 4)]),
    "autocast": (lambda x, w: _autocast(x, w), lambda: [leaf(3, 4), quantized(5, 4)]),
    "its gradients": (
        lambda x, w: (torch.nn.functional.linear(x, w).relu(), x.a), lambda: [pair(0, 3, 4), pair(1, 5, 4)]
    ),
    "with a plain one": (lambda x, w: x * w, lambda: [leaf(3, 4), pair(1, 3, 4)]),
    "one twice": (lambda x, w: (x * w, x is w), lambda: [pair(0, 3, 4)] * 2),
    "many results": (lambda x, w: [part * 2 for part in x.split(1)], lambda: [pair(0, 3, 4), pair(1, 3, 4)]),
}  # fmt: skip
TRAINED_IN_PART = {
    "written": (lambda x, w: (w.mul_(2), x @ w.t())[1], lambda: [leaf(3, 4), quantized(5, 4)], "writes to Quantized"),
    "part written": (lambda x, w: (w.scale.mul_(2), x @ w.t())[1], lambda: [leaf(3, 4), quantized(5, 4)], "writes to"),
    "view": (lambda x, w: (w.t(), x @ w.t()), lambda: [leaf(3, 4), quantized(5, 4)], "is a view of an input"),
}


def outcome(run, make, use=lambda results: results):
    inputs = make()
    results = run(*inputs)
    given = results if isinstance(results, (list, tuple)) else [results]
    sums = [r.sum() for r in use(given) if isinstance(r, torch.Tensor) and r.requires_grad]
    leaves = list(dict.fromkeys(v for v in inputs if v.requires_grad))
    ones = [torch.ones_like(each) for each in sums]
    found = [torch.autograd.grad(sums, leaves, ones, retain_graph=again, allow_unused=True) for again in (True, False)]
    return [all_of(each) for each in (results, inputs, found)]


def all_of(value):
    if isinstance(value, Pair):
        return [type(value).__name__, value.tag, *map(all_of, (value.a, value.b))]
    if isinstance(value, Quantized):
        return [type(value).__name__, value.note, *map(all_of, (value.data_int, value.scale))]
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    return list(map(all_of, value)) if isinstance(value, (list, tuple)) else value


def assert_same(ours, theirs):
    if isinstance(theirs, torch.Tensor):
        loose = theirs.dtype is torch.bfloat16
        torch.testing.assert_close(ours, theirs, rtol=2e-2 if loose else 2e-5, atol=2e-2 if loose else 1e-6)
    elif isinstance(theirs, list):
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs, strict=True):
            assert_same(one, other)
    else:
        assert ours == theirs


_slow = pytest.mark.slow


@pytest.mark.parametrize(
    "backend", ["eager", "aot_eager", *(pytest.param(b, marks=_slow) for b in ("native", "inductor"))]
)
def test_training(backend):
    for name, (program, make, *words) in {**TRAINED, **TRAINED_IN_PART}.items():
        compiled = torchmux.compile(program, backend=backend)
        for _ in range(2):
            assert_same(outcome(compiled, make), outcome(program, make))
        report = torchmux.report(compiled)
        reasons = [record.reason for record in report.breaks]
        reasons += [placement.reason for entry in report.graphs for placement in entry.report.fallbacks]
        if not words:
            assert (report.graph_count, reasons) == (1, []), name
        elif backend == "aot_eager":
            assert any(words[0] in why for why in reasons), (name, reasons)


@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("native", marks=_slow)])
def test_results_without_a_gradient(backend):
    """Autograd's zeros for a missing gradient are no tensor of that kind: torch computes such a backward pass."""

    def program(x, w):
        return x * 2, w.sin(), x.a * 3

    compiled = torchmux.compile(program, backend=backend)
    for use in (lambda r: r, lambda r: r[:1], lambda r: r[1:], lambda r: r[2:]):
        assert_same(*(outcome(run, lambda: [pair(0, 3, 4), pair(1, 3, 4)], use) for run in (compiled, program)))


def test_classes_that_compare_their_contexts():
    """``__metadata_guard__`` decides what is the same; without it, every change of the context is another graph."""
    for cls, graphs in ((Pair, 2), (Tolerant, 1)):
        torchmux.reset()
        compiled = torchmux.compile(lambda x: x * 2, backend="aot_eager")
        for tag in ("t", "other"):
            found = compiled(pair(0, 3, 4, cls=cls, tag=tag))
            assert type(found) is cls
        assert torchmux.report(compiled).graph_count == graphs


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
