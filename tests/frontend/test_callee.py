"""What is given to ``compile()`` need not be a Python function: it is captured, or the report says that it is not."""

import functools
import gc
import math
import operator
import types
import weakref

import pytest
import torch
import torch.nn.functional as F

import torchmux

X = torch.tensor([[1.0, -2.0, 3.0]])


class ForwardInC(torch.nn.Module):
    forward = staticmethod(torch.relu)


class ForwardOfInstance(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.forward = functools.partial(F.gelu, approximate="tanh")


class CallInC:
    __call__ = staticmethod(torch.relu)


class Called:
    def __call__(self, x):
        return x.relu() + 1


@torch.jit.script
def scripted(x):
    return x.relu() + 1


CAPTURED = {
    "function": lambda x: x.relu(),
    "C function": F.gelu,
    "torch function": torch.relu,
    "Python function of torch": torch.norm,
    "method of tensors": torch.Tensor.relu,
    "bound to a tensor": X.add,
    "slot": X.__add__,
    "method of a C function": types.MethodType(torch.add, X),
    "partial of C": functools.partial(torch.add, X),
    "partial of partial": functools.partial(functools.partial(torch.add, X), alpha=2),
    "partial of Python": functools.partial(F.dropout, p=0.5, training=False),
    "partial of Python in torch": functools.partial(torch.norm, p=1),
    "operator": functools.partial(operator.add, X),
    "overload": torch.ops.aten.relu.default,
    "packet": torch.ops.aten.relu,
    "forward in C": ForwardInC(),
    "forward of an instance": ForwardOfInstance(),
    "__call__ in C": CallInC(),
    "__call__": Called(),
    "wrapped": torch.no_grad()(torch.relu),
    "sequence": torch.nn.Sequential(torch.nn.ReLU()),
    "scripted": scripted,
}
NOT_CAPTURED = {
    "traced": torch.jit.trace(lambda x: x.relu() + 1, (X,)),
    "scripted module": torch.jit.script(torch.nn.ReLU()),
    "parameter": torch.nn.Parameter,
    "methodcaller": operator.methodcaller("relu"),
}


@pytest.mark.parametrize("backend", ["eager", "native"])
@pytest.mark.parametrize("name", CAPTURED)
def test_captured(name, backend):
    fn = CAPTURED[name]
    compiled = torchmux.compile(fn, backend=backend, fullgraph=True, strict=True)
    for x in (X + 1, X + 2, X * 3):
        torch.testing.assert_close(compiled(x), fn(x))
    report = torchmux.report(compiled)
    assert len(report.graphs) == 1
    assert (report.runs, report.compiled_calls, report.eager_calls, report.share) == (3, 3, 0, 1.0)


@pytest.mark.parametrize("name", NOT_CAPTURED)
def test_not_captured_and_not_silent(name):
    fn = NOT_CAPTURED[name]
    compiled = torchmux.compile(fn, backend="eager")
    assert torch.equal(compiled(X), fn(X))
    report = torchmux.report(compiled)
    assert not report.graphs
    assert len(report.breaks) == 1
    assert math.isnan(report.share)
    with pytest.raises(torchmux.Unsupported, match="the graph breaks"):
        torchmux.compile(fn, backend="eager", fullgraph=True)(X)
    with pytest.raises(torchmux.FallbackRefused, match="would run in eager: TM"):
        torchmux.compile(fn, backend="eager", strict=True)(X)


def test_nothing_to_capture():
    assert torchmux.compile(math.sin, fullgraph=True, strict=True)(1.0) == math.sin(1.0)
    assert torchmux.compile(len, fullgraph=True, strict=True)([1, 2]) == 2


def test_equal_ones_share_code():
    graphs = []

    def backend(gm, example_inputs):
        graphs.append(gm)
        return gm.forward

    for _ in range(3):
        torchmux.compile(torch.sigmoid, backend=backend)(X)
    assert len(graphs) == 1


def test_a_method_cached_by_lru_cache_is_computed_once():
    calls = []

    @functools.lru_cache
    def cached(n):
        calls.append(n)
        return torch.ones(3) * n

    compiled = torchmux.compile(cached, backend="eager")
    assert compiled(2) is compiled(2)
    assert calls == [2]


@pytest.mark.parametrize(
    "make", [ForwardInC, CallInC, lambda: functools.partial(torch.add, X), lambda: torch.ones(3).add]
)
def test_it_is_not_kept(make):
    fn = make()
    reference = weakref.ref(fn)
    compiled = torchmux.compile(fn, backend="eager")
    compiled(X)
    del fn, compiled
    gc.collect()
    assert reference() is None


def test_errors_are_eagers():
    compiled = torchmux.compile(torch.relu, backend="eager")
    with pytest.raises(TypeError, match=r"relu\(\): argument 'input'") as caught:
        compiled("no tensor")
    assert all("torchmux" not in str(entry.path) for entry in caught.traceback)


def test_export_and_explain():
    assert torch.equal(torchmux.export(torch.relu)(X)(X), X.relu())
    assert torchmux.explain(torch.relu)(X).op_count == 1
