"""Compiled code in the middle of other code: recursion, other compilers, unusual callables, long and deep functions."""

from __future__ import annotations

import asyncio
import copy
import functools
import gc
import io
import pickle
import sys
import warnings

import pytest
import torch
import torch._dynamo
from torch import nn

import torchmux

X = torch.ones(3)


def compiled(fn, backend="eager", **options):
    return torchmux.compile(fn, backend=backend, **options)


# --- one in another -----------------------------------------------------------------------------------------------


def test_two_that_call_one_another():
    @compiled
    def even(x, n):
        return x if n == 0 else odd(x + 1, n - 1)

    @compiled
    def odd(x, n):
        return x * 2 if n == 0 else even(x + 2, n - 1)

    assert even(X, 6)[0] == 10
    assert odd(X, 3)[0] == 6


@pytest.mark.parametrize("breaks", [False, True])
def test_one_that_calls_itself(breaks):
    @compiled
    def fn(x, n):
        if n == 0:
            return x
        if breaks:
            torchmux.graph_break()
        return fn(x + 1, n - 1)

    assert fn(X, 5)[0] == 6
    assert fn(X, 3)[0] == 4


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "native"])
def test_recursion_without_end(backend):
    def fn(x):
        return fn(x + 1)

    each = compiled(fn, backend=backend)
    gc.collect()
    gc.disable()  # a finalizer that it runs at the end of the stack fails, which pytest reports as this test's failure
    try:
        for _ in range(2):
            with pytest.raises(RecursionError):
                each(X)
    finally:
        gc.enable()
    assert torch.equal(compiled(lambda x: x + 1)(X), X + 1)


def test_deeper_than_the_tracer_goes():
    def chain(n):
        if n == 0:
            return lambda x: x
        inner = chain(n - 1)
        return lambda x: inner(x) + 1

    assert compiled(chain(100), fullgraph=True)(X)[0] == 101
    assert compiled(chain(250))(X)[0] == 251


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_with_torch_compile_around_and_inside(backend):
    torch._dynamo.reset()

    def fn(x):
        return x.sin() + 1

    ours, theirs = torchmux.compile(fn, backend=backend), torch.compile(fn, backend=backend)
    for both in (
        torch.compile(lambda x: ours(x) * 2, backend=backend),
        torchmux.compile(lambda x: theirs(x) * 2, backend=backend),
    ):
        for x in (X, X, torch.ones(5)):
            torch.testing.assert_close(both(x), fn(x) * 2)
    for both in (torch.compile(ours, backend=backend), torchmux.compile(theirs, backend=backend)):
        for x in (X, torch.ones(5)):
            torch.testing.assert_close(both(x), fn(x))


def test_modules_with_torch_compile_around_and_inside():
    torch._dynamo.reset()
    net = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    for both in (torch.compile(compiled(net), backend="eager"), compiled(torch.compile(net, backend="eager"))):
        for _ in range(2):
            assert torch.equal(both(X), net(X))


@pytest.mark.parametrize(
    "compile",
    [compiled, lambda fn: torch.compile(fn, backend="eager"), torchmux.disable],
    ids=["ours", "torch", "disable"],
)
def test_a_wrapper_that_copies_attributes_is_not_what_it_wraps(compile):
    """``functools.wraps`` copies what marks a compiled function to a function that does more."""
    inner = compile(lambda x: x * 2)

    @functools.wraps(inner)
    def outer(x):
        return inner(x) + 1

    for fn in (compiled(outer), compiled(lambda x: outer(x) + 0), compiled(compiled(outer))):
        for _ in range(2):
            assert torch.equal(fn(X), X * 2 + 1)


@pytest.mark.parametrize("stance", ["default", "eager_on_recompile"])
@pytest.mark.parametrize("original", [lambda x: x + 1, nn.ReLU()], ids=["function", "module"])
def test_torch_compile_runs_ours_without_a_warning(recwarn, original, stance):
    torch._dynamo.reset()
    ours = compiled(original)
    ours(X)
    with torchmux.set_stance(stance):
        assert torch.equal(torch.compile(lambda x: ours(x * 2) * 3, backend="eager")(X), original(X * 2) * 3)
    assert torchmux.report(ours).graph_count == 1
    assert [str(w.message) for w in recwarn if "set_eval_frame" in str(w.message)] == []


# --- backends -----------------------------------------------------------------------------------------------------


def test_a_backend_that_calls_what_it_compiles():
    depth = []

    def backend(gm, example_inputs):
        depth.append(gm)
        if len(depth) < 3:
            fn(torch.ones(3))
        return gm.forward

    fn = torchmux.compile(lambda x: x + 1, backend=backend)
    assert torch.equal(fn(X), X + 1)
    assert len(depth) <= 3


def test_a_backend_that_compiles_and_resets():
    other = compiled(lambda x: x * 2)

    def backend(gm, example_inputs):
        assert torch.equal(other(X), X * 2)
        torchmux.reset()
        return gm.forward

    fn = torchmux.compile(lambda x: x + 1, backend=backend)
    for _ in range(3):
        assert torch.equal(fn(X), X + 1)


def test_a_backend_that_changes_the_graph():
    def backend(gm, example_inputs):
        for node in gm.graph.nodes:
            if node.target is torch.add:
                node.target = torch.sub
        gm.recompile()
        return gm.forward

    fn = torchmux.compile(lambda x: torch.add(x, 3), backend=backend)
    for _ in range(2):
        assert torch.equal(fn(X), X - 3)  # what a backend returns is what runs


def test_a_backend_whose_code_fails_once():
    calls = []

    def backend(gm, example_inputs):
        def run(*args):
            calls.append(args)
            if len(calls) == 1:
                raise ValueError("once")
            return gm.forward(*args)

        return run

    fn = torchmux.compile(lambda x: x + 1, backend=backend)
    with pytest.raises(ValueError, match="once"):
        fn(X)
    assert torch.equal(fn(X), X + 1)


def test_compiled_code_that_resets():
    def fn(x):
        y = x + 1
        torchmux.reset()
        return y * 2

    each = compiled(fn)
    for _ in range(3):
        assert torch.equal(each(X), (X + 1) * 2)


def test_the_garbage_collector_calls_back():
    """What the collector calls in the middle of compiled code is no part of it."""
    times = []

    def callback(phase, info):
        times.append(len(phase) * 0.5 + len(times))

    def fn(x):
        y = x + 1
        torchmux.graph_break()
        gc.collect()
        return y * 2

    each = compiled(fn)
    gc.callbacks.append(callback)
    try:
        for _ in range(3):
            assert torch.equal(each(X), (X + 1) * 2)
    finally:
        gc.callbacks.remove(callback)
    assert times
    assert not [entry for entry in torchmux.report(each).graphs if "callback" in entry.function]


def test_the_last_reference_goes_while_it_runs():
    holder = {}

    def fn(x):
        y = x + 1
        holder.clear()
        torchmux.graph_break()
        return y * 2

    holder["fn"] = compiled(fn)
    assert torch.equal(holder["fn"](X), (X + 1) * 2)


# --- unusual callables --------------------------------------------------------------------------------------------


def test_generators_and_coroutines():
    @compiled
    def generator(x):
        for i in range(3):
            got = yield x + i
            if got:
                yield x * got

    @compiled
    async def coroutine(x):
        await asyncio.sleep(0)
        return x + 1

    @compiled
    async def agen(x):
        for i in range(2):
            yield x + i

    async def collect():
        return [int(x[0]) async for x in agen(X)]

    assert [int(x[0]) for x in generator(X)] == [1, 2, 3]
    running = generator(X)
    next(running)
    assert running.send(5)[0] == 5
    assert asyncio.run(coroutine(X))[0] == 2
    assert asyncio.run(collect()) == [1, 2]


def test_all_kinds_of_callables():
    class Callable:
        def __call__(self, x):
            return x + 1

    class Made:
        def __init__(self, x):
            self.value = x + 1

    assert torch.equal(compiled(Callable())(X), X + 1)
    assert torch.equal(compiled(functools.partial(lambda a, b: a + b, b=2))(X), X + 2)
    assert torch.equal(compiled(torch.sin)(X), X.sin())
    assert torch.equal(compiled(X.add)(1), X + 1)
    assert torch.equal(compiled(Made)(X).value, X + 1)


def test_methods_that_are_compiled_in_their_class():
    class Scaler:
        factor = 2

        @torchmux.compile(backend="eager")
        def run(self, x):
            return x * self.factor

        @classmethod
        @torchmux.compile(backend="eager")
        def of_class(cls, x):
            return x * cls.factor

    scaler = Scaler()
    assert torch.equal(scaler.run(X), X * 2)
    scaler.factor = 7
    for fn in (scaler.run, compiled(scaler.run), torchmux.export(scaler.run)(X)):
        assert torch.equal(fn(X), X * 7)
    assert torchmux.explain(scaler.run)(X).graph_count == 1
    assert torch.equal(Scaler.of_class(X), X * 2)


def test_functions_without_source():
    namespace = {"torchmux": torchmux}
    exec("def fn(x):\n  torchmux.graph_break()\n  return x + 1", namespace)
    assert torch.equal(compiled(namespace["fn"])(X), X + 1)
    (record,) = torchmux.explain(namespace["fn"])(X).break_reasons
    assert "<string>:2 in fn" in record.message()


def test_copies_and_pickles():
    net = compiled(nn.Sequential(nn.Linear(3, 3)))
    expected = net(X)
    saved = io.BytesIO()
    torch.save(net, saved)
    saved.seek(0)
    for other in (
        copy.deepcopy(net),
        copy.copy(net),
        pickle.loads(pickle.dumps(net)),
        torch.load(saved, weights_only=False),
    ):
        assert torch.equal(other(X), expected)
    assert torch.equal(copy.deepcopy(compiled(lambda x: x + 1))(X), X + 1)


# --- long and deep ------------------------------------------------------------------------------------------------


def made(source):
    namespace = {"graph_break": torchmux.graph_break}
    exec(source, namespace)
    return namespace["fn"]


def test_five_thousand_statements():
    fn = made("def fn(x):\n" + "".join(f"    x = x + {i % 7}\n" for i in range(5000)) + "    return x\n")
    assert torch.equal(compiled(fn, fullgraph=True)(X), fn(X))


def test_many_breaks():
    fn = made("def fn(x):\n" + "".join(f"    x = x + {i}\n    graph_break()\n" for i in range(12)) + "    return x\n")
    assert torch.equal(compiled(fn)(X), fn(X))


def test_deeply_nested_blocks():
    loops = "".join("    " * (i + 1) + f"for i{i} in range(1):\n" for i in range(18))
    fn = made("def fn(x):\n" + loops + "    " * 19 + "x = x + 1\n    return x\n")
    assert torch.equal(compiled(fn, fullgraph=True)(X), X + 1)


# --- tools that watch ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("setter", [sys.settrace, sys.setprofile], ids=["trace", "profile"])
def test_while_the_program_is_traced_or_profiled(setter):
    def fn(x):
        y = x + 1
        torchmux.graph_break()
        return y * 2

    events = []

    def watch(frame, event, arg):
        if frame.f_code.co_filename == __file__:
            events.append(event)
            return watch
        return None

    getter = {sys.settrace: sys.gettrace, sys.setprofile: sys.getprofile}[setter]
    found, each = getter(), compiled(fn)
    compiled(lambda x: x + 1)(X)  # what is imported at a process's first capture is not watched
    setter(watch)
    try:
        results = [each(X), each(X)]
    finally:
        setter(found)
    assert all(torch.equal(result, (X + 1) * 2) for result in results)
    assert events


@pytest.mark.parametrize("backend", ["eager", "native"])
@pytest.mark.parametrize("called", [False, True])
def test_jit_trace_records_the_program(backend, called):
    """And no compiled code, in which the sizes of this call are fixed."""
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU())
    compiled = torchmux.compile(model, backend=backend)
    if called:
        compiled(torch.randn(5, 8))
    traced = torch.jit.trace(compiled, torch.randn(5, 8))
    assert {"aten::linear", "aten::gelu"} <= {node.kind() for node in traced.inlined_graph.nodes()}
    x = torch.randn(3, 8)
    torch.testing.assert_close(traced(x), model(x))
    torch.testing.assert_close(compiled(x), model(x))
    assert "torch.jit.trace records this call" in str(torchmux.report(compiled))


def test_warnings_name_the_programs_line():
    def fn(x):
        warnings.warn("careful", stacklevel=1)
        return x + 1

    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        compiled(fn)(X)
    (warning,) = [each for each in seen if str(each.message) == "careful"]
    assert (warning.filename, warning.lineno) == (__file__, fn.__code__.co_firstlineno + 1)
