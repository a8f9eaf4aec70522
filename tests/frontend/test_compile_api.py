"""The front door: forms of ``compile``, compiled modules, reports, sharing, threads."""

import copy
import gc
import pickle
import threading
import weakref

import pytest
import torch
from torch import nn

import torchmux


class Net(nn.Module):
    """A parameter, a buffer, a submodule, a hook point and plain state."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))
        self.scale = 2.0

    def forward(self, x):
        self.calls += 1
        return self.layer(x) * self.scale

    @property
    def doubled(self):
        return self.scale * 2


def test_function_decorator_and_decorator_with_arguments():
    def plain(x):
        """Its docstring."""
        return x + 1

    for compiled in (
        torchmux.compile(plain, backend="eager"),
        torchmux.compile(backend="eager")(plain),
        torchmux.compile(backend="eager", fullgraph=True)(plain),
    ):
        assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 2.0))
        assert compiled.__name__ == "plain"
        assert compiled.__doc__ == "Its docstring."
        assert torchmux.report(compiled).graph_count == 1

    @torchmux.compile
    def by_default(x):
        return x * 2

    assert callable(by_default)


def test_methods_and_lambdas():
    class Holder:
        def __init__(self):
            self.factor = 3

        def times(self, x):
            return x * self.factor

    holder = Holder()
    compiled = torchmux.compile(holder.times, backend="eager", fullgraph=True)
    assert torch.equal(compiled(torch.ones(1)), torch.tensor([3.0]))
    holder.factor = 5
    assert torch.equal(compiled(torch.ones(1)), torch.tensor([5.0]))
    assert torch.equal(torchmux.compile(lambda x: x - 1, backend="eager")(torch.ones(1)), torch.zeros(1))


def test_not_a_callable():
    with pytest.raises(torchmux.InvalidOption, match="not an int"):
        torchmux.compile(3, backend="eager")


def test_disable_returns_the_model():
    net = Net()
    assert torchmux.compile(net, disable=True) is net


def test_compiled_module_is_the_module():
    net = Net()
    compiled = torchmux.compile(net, backend="eager")
    assert isinstance(compiled, Net)
    assert list(compiled.state_dict()) == list(net.state_dict())
    assert [id(p) for p in compiled.parameters()] == [id(p) for p in net.parameters()]
    x = torch.ones(2, 4)
    assert torch.equal(compiled(x), net(x))
    assert int(net.calls) == int(compiled.calls) == 2

    compiled.scale = 7.0
    assert net.scale == 7.0
    assert net.doubled == compiled.doubled == 14.0
    assert torch.equal(compiled(x), net(x))

    compiled.eval()
    assert not net.training and not net.layer.training
    compiled.to(torch.float64)
    assert net.layer.weight.dtype == torch.float64
    assert torch.equal(compiled(x.double()), net(x.double()))
    net.layer = nn.Linear(4, 4).double()
    assert torch.equal(compiled(x.double()), net(x.double()))


def test_hooks_run_once_on_a_compiled_module():
    net = Net()
    compiled = torchmux.compile(net, backend="eager")
    seen = []
    compiled.register_forward_hook(lambda module, args, result: seen.append(result.shape) or result + 1)
    net.layer.register_forward_pre_hook(lambda module, args: (args[0] * 2,))
    x = torch.ones(2, 4)
    wanted = net(x)
    seen.clear()
    assert torch.equal(compiled(x), wanted)
    assert seen == [torch.Size([2, 4])]


def test_deepcopy_is_compiled_and_independent():
    compiled = torchmux.compile(Net(), backend="eager")
    x = torch.ones(2, 4)
    before = compiled(x)
    other = copy.deepcopy(compiled)
    with torch.no_grad():
        other.layer.weight.zero_()
    assert torch.equal(compiled(x), before)
    assert not torch.equal(other(x), before)
    assert torchmux.report(other).graph_count == 1


def test_pickle_holds_the_plain_module():
    compiled = torchmux.compile(Net(), backend="eager")
    compiled(torch.ones(2, 4))
    loaded = pickle.loads(pickle.dumps(compiled))
    assert type(loaded) is Net
    assert torch.equal(loaded.layer.weight, compiled.layer.weight)


def test_training_through_a_compiled_module():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.5), nn.BatchNorm1d(8), nn.Linear(8, 1))
    twin = copy.deepcopy(net)
    compiled = torchmux.compile(net, backend="eager", fullgraph=True)
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in (net, twin)]
    for step in range(3):
        x = torch.randn(16, 4, generator=torch.Generator().manual_seed(step))
        for model, optimizer in zip((compiled, twin), optimizers, strict=True):
            torch.manual_seed(step)
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
    for (name, a), (_, b) in zip(net.state_dict().items(), twin.state_dict().items(), strict=True):
        assert torch.equal(a, b), name


def test_compile_in_a_loop_compiles_once():
    compilations = []

    def backend(gm, example_inputs):
        compilations.append(gm)
        return gm

    def fn(x):
        return x + 1

    for _ in range(20):
        assert torch.equal(torchmux.compile(fn, backend=backend)(torch.ones(1)), torch.full((1,), 2.0))
    assert len(compilations) == 1


def test_a_compiled_function_inside_another_is_inlined():
    @torchmux.compile(backend="eager")
    def inner(x):
        return x * 2

    @torchmux.compile(backend="eager", fullgraph=True)
    def outer(x):
        return inner(x) + 1

    assert torch.equal(outer(torch.ones(1)), torch.full((1,), 3.0))
    assert torchmux.report(outer).graph_count == 1


def test_a_compiled_module_inside_another():
    net = torchmux.compile(nn.Sequential(torchmux.compile(Net(), backend="eager"), nn.ReLU()), backend="eager")
    x = torch.ones(2, 4)
    assert torch.equal(net(x), net[1](net[0](x)))


def test_under_torch_compile_and_beside_it():
    def fn(x):
        return x.sin() + 1

    ours = torchmux.compile(fn, backend="eager")
    theirs = torch.compile(fn, backend="eager")
    x = torch.ones(3)
    for _ in range(2):
        assert torch.equal(ours(x), theirs(x))
    x = torch.ones(5)
    assert torch.equal(theirs(x), ours(x))
    both = torch.compile(lambda x: ours(x) * 2, backend="eager")
    assert torch.equal(both(x), fn(x) * 2)


def test_modules_made_inside_after_torch_compile_was_used():
    """torch's tracer replaces ``Module.__init__`` for the whole process."""
    torch.compile(nn.Linear(2, 2), backend="eager")(torch.ones(1, 2))

    def fn(x, y):
        return nn.CrossEntropyLoss()(x, y)

    x, y = torch.randn(3, 4), torch.tensor([0, 1, 3])
    assert torch.equal(torchmux.compile(fn, backend="eager", fullgraph=True)(x, y), fn(x, y))


def test_threads_compile_and_call_at_once():
    def fn(x, k):
        return (x * k).relu() + k

    compiled = torchmux.compile(fn, backend="eager")
    failures = []

    def work(k):
        for n in range(2, 12):
            x = torch.randn(n, 3)
            if not torch.equal(compiled(x, k), fn(x, k)):
                failures.append((k, n))

    threads = [threading.Thread(target=work, args=(float(k),)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_a_backend_that_raises_is_named_and_suppressible():
    def broken(gm, example_inputs):
        raise RuntimeError("no such luck")

    def fn(x):
        return x + 1

    with pytest.raises(torchmux.CompilationFailed, match="no such luck"):
        torchmux.compile(fn, backend=broken)(torch.ones(1))
    with torchmux.config.patch(suppress_errors=True):
        assert torch.equal(torchmux.compile(fn, backend=broken)(torch.ones(1)), torch.full((1,), 2.0))


def test_keyboard_interrupt_passes_and_leaves_no_state():
    def interrupted(gm, example_inputs):
        raise KeyboardInterrupt

    def fn(x):
        with torch.no_grad():
            return x + 1

    compiled = torchmux.compile(fn, backend=interrupted)
    with pytest.raises(KeyboardInterrupt):
        compiled(torch.ones(1))
    assert torch.is_grad_enabled()
    assert torch.equal(torchmux.compile(fn, backend="eager")(torch.ones(1)), torch.full((1,), 2.0))


def test_reset_forgets():
    compilations = []

    def backend(gm, example_inputs):
        compilations.append(gm)
        return gm

    compiled = torchmux.compile(lambda x: x + 1, backend=backend)
    compiled(torch.ones(1))
    torchmux.reset()
    compiled(torch.ones(1))
    assert len(compilations) == 2


def test_compiled_code_keeps_nothing_of_the_model_alive():
    layer, x = nn.Linear(8, 8), torch.ones(2, 8)
    compiled = torchmux.compile(layer, backend="eager")
    compiled(x)
    remembered = [weakref.ref(o) for o in (layer, layer.weight, x)]
    del layer, x, compiled
    gc.collect()
    assert [r() for r in remembered] == [None, None, None]


def test_models_of_one_class_do_not_share_a_limit():
    with torchmux.config.patch(recompile_limit=2):
        for width in range(2, 8):
            layer = nn.Linear(width, 3)
            compiled = torchmux.compile(layer, backend="eager", fullgraph=True)
            x = torch.ones(2, width)
            assert torch.equal(compiled(x), layer(x))
            assert torchmux.report(compiled).recompiles == []


def test_lstm_is_one_graph():
    torch.manual_seed(0)
    lstm, x = nn.LSTM(4, 5, num_layers=2), torch.randn(3, 2, 4)
    compiled = torchmux.compile(lstm, backend="eager", fullgraph=True)
    assert torch.equal(compiled(x)[0], lstm(x)[0])


COUNTER = 0


def test_counters_become_symbolic():
    def fn(x):
        global COUNTER
        COUNTER += 1
        return x * COUNTER

    compiled = torchmux.compile(fn, backend="eager", fullgraph=True)
    for expected in range(COUNTER + 1, COUNTER + 20):
        assert torch.equal(compiled(torch.ones(2)), torch.full((2,), float(expected)))
    assert torchmux.report(compiled).graph_count <= 3


def test_appending_does_not_compile_anew():
    log = []

    def fn(x):
        log.append(x.sum())
        log.extend([1, 2])
        return x + 1

    compiled = torchmux.compile(fn, backend="eager", fullgraph=True)
    for n in range(1, 6):
        compiled(torch.ones(2))
        assert len(log) == 3 * n
        assert log[-3:] == [2.0, 1, 2]
    assert torchmux.report(compiled).graph_count == 1


def test_report_of_something_else():
    with pytest.raises(TypeError, match="the result of torchmux.compile"):
        torchmux.report(len)


def test_strict_refuses_a_fallback():
    torchmux.register_backend(
        torchmux.BackendSpec(name="refuses_sin", summary="refuses sin", load=_RefusesSin, graph="aten")
    )
    try:
        fn = torchmux.compile(lambda x: x.sin().cos(), backend="refuses_sin", strict=True)
        with pytest.raises(torchmux.FallbackRefused, match="sin"):
            fn(torch.ones(2))
        lenient = torchmux.compile(lambda x: x.sin().cos(), backend="refuses_sin")
        assert torch.equal(lenient(torch.ones(2)), torch.ones(2).sin().cos())
        fallbacks = torchmux.report(lenient).fallbacks
        assert [f.reason for f in fallbacks] == ["sin is refused"]
        assert fallbacks[0].where.startswith(__file__)
    finally:
        torchmux.unregister_backend("refuses_sin")


class _RefusesSin:
    @staticmethod
    def supports(node):
        return "sin is refused" if "sin" in str(node.target) else True

    @staticmethod
    def compile(gm, example_inputs, request):
        return gm


@pytest.mark.parametrize("make", [lambda function: function, torch.nn.Sequential])
def test_a_compiled_callable_used_twice_is_compiled_once(make):
    inner = torchmux.compile(make(torch.nn.Tanh()), backend="eager")
    twice = torchmux.compile(lambda x: inner(inner(x) + 1), backend="eager", fullgraph=True)
    for _ in range(3):
        twice(torch.ones(2))
    assert torchmux.report(twice).graph_count == 1
