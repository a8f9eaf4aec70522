"""Small graphs called from C++: the same results, writes and errors as from Python, which is called for the rest."""

from __future__ import annotations

import gc
import os
import random
import shutil
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from ctypes import CFUNCTYPE, c_int64, c_void_p, cast
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import torchmux
from torchmux import program_calls, sooner
from torchmux.backends.common.cache.cache import default_cache
from torchmux.backends.native import runtime
from torchmux.backends.native.ir import index
from torchmux.backends.native.targets.cpu import toolchain
from torchmux.backends.native.targets.cpu.calls import extension as calls
from torchmux.backends.native.targets.cpu.calls.plan import _Planner
from torchmux.backends.native.targets.host import text_of
from torchmux.config import config
from torchmux.frontend.hook.thread_state import this_thread


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The extension, compiled once, also where several processes run the tests."""
    base = tmp_path_factory.getbasetemp()
    with config.patch(cache_dir=(base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "calls"):
        return _built(calls._Extension())


def _built(extension: calls._Extension) -> bytes:
    until = time.monotonic() + 300
    while extension.look() is None:
        assert extension.why_not is None and time.monotonic() < until, extension.why_not
        time.sleep(0.05)
    found = default_cache().load(calls._key())
    assert found is not None
    return found


@pytest.fixture
def unknown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """A process that has not looked yet, with a cache of its own."""
    monkeypatch.setattr(calls, "_extension", calls._Extension())
    monkeypatch.setattr(runtime, "OFTEN", 4)
    monkeypatch.setattr(sooner, "_brought", {})
    monkeypatch.setattr(sooner, "_waiting", {"runner": weakref.WeakSet(), "caller": weakref.WeakSet()})
    torchmux.reset()  # equal functions share what was compiled
    with config.patch(cache_dir=tmp_path, calls_in_cpp=True):
        yield tmp_path
    if (compiling := calls._extension.compiling) is not None:
        compiling.process.kill()
        compiling.process.wait()


@pytest.fixture
def in_python(content: bytes, unknown: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The extension is there; what Python calls all the same."""
    default_cache().store(calls._key(), content)
    assert calls._extension.look() is not None
    called: list[str] = []
    made = runtime._function

    def function(text: str, namespace: dict[str, Any]) -> Callable[..., Any]:
        run = made(text, namespace)

        def counted(*args: Any) -> Any:
            called.append(text)
            return run(*args)

        return counted

    monkeypatch.setattr(runtime, "_function", function)
    return called


def _same(program: Callable[..., Any], *inputs: Any, **options: Any) -> Callable[..., Any]:
    """Compiled and in eager, a program returns, writes and counts the same; returns what was compiled."""
    compiled = torchmux.compile(program, backend="native", fullgraph=True, **options)
    for _ in range(2):
        sides = []
        for function in (program, compiled):
            given = [x.clone() if isinstance(x, torch.Tensor) else x for x in inputs]
            with torch.no_grad():
                found = function(*given)
            results = list(found) if isinstance(found, tuple) else [found]
            sides.append((given, results))
        (eager, expected), (taken, got) = sides
        torch.testing.assert_close(got, expected)
        torch.testing.assert_close(taken, eager, rtol=0, atol=0)
        tensors = [(a, b) for a, b in zip([*got, *taken], [*expected, *eager], strict=True) if torch.is_tensor(b)]
        assert [a.stride() for a, _ in tensors] == [b.stride() for _, b in tensors]
        assert [a._version > 0 for a, _ in tensors] == [b._version > 0 for _, b in tensors]
        positions = [
            [at for at, x in enumerate(given) if x is result]
            for given, results in ((taken, got), (eager, expected))
            for result in results
        ]
        assert positions[: len(got)] == positions[len(got) :]
    return compiled


A, B = torch.randn(8, 16), torch.randn(8, 16)
WIDE = torch.randn(70, 90)
ROWS = torch.tensor([3, 0, 7])


def in_place(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x[:, 2:4] = y[:, :2]
    return x


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]] = {
    "sum": (lambda x, y: x + y, (A, B), {}),
    "several": (lambda x: (x * 2, x.sum(-1), x.t() + 1), (A,), {}),
    "views": (lambda x: ((y := x * 2), y.t(), y[1:, ::2], y.view(4, -1)), (A,), {}),
    "written": (in_place, (A, B), {}),
    "rows": (lambda x, at: x[at] + 1, (A, ROWS), {}),
    "integers": (lambda x: (x.argmax(-1), (x > 0).sum()), (A,), {}),
    "scratch": (lambda x: (x.softmax(-1) @ x).cumsum(0).softmax(0), (torch.randn(128, 128),), {}),
    "kept scratch": (lambda x: (x.softmax(-1) @ x).cumsum(0).softmax(0), (torch.randn(128, 128),),
                     {"options": {"keep_scratch": True}}),
    "symbolic": (lambda x, y: (x[1:] + y[:-1]).reshape(-1), (A, B), {"dynamic": True}),
    "symbolic scratch": (lambda x: x.softmax(-1).cumsum(0).flip(0).softmax(0), (WIDE,), {"dynamic": True}),
    "number": (lambda x, n: (x + n, n * 2), (A, 5), {"dynamic": True}),
    "strided": (lambda x: x.contiguous() + 1, (A.t(),), {}),
    "none": (lambda x: x * 2, (torch.randn(0, 4),), {}),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name: str, in_python: list[str]) -> None:
    program, inputs, options = PROGRAMS[name]
    _same(program, *inputs, **options)
    assert not in_python


def test_layers(in_python: list[str]) -> None:
    module = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4)).requires_grad_(False)
    _same(module, A)
    _same(module, A, options={"freeze": True})  # whose weights are constants of the plan
    assert not in_python
    trained = nn.Linear(16, 4)
    compiled = torchmux.compile(trained, backend="native", fullgraph=True)
    gradients = []
    for side in (trained, compiled):
        trained.zero_grad()
        side(A).square().sum().backward()
        gradients.append([p.grad.clone() for p in trained.parameters()])
    torch.testing.assert_close(*gradients)


class Marked(torch.Tensor):
    pass


def test_what_python_calls(in_python: list[str]) -> None:
    compiled = _same(lambda x: x * 2 + 1, A)
    assert not in_python
    function = next(o for o in gc.get_objects() if type(o).__name__ == "Call")
    expected = A * 2 + 1
    unusual = {
        "strides": (A.t().contiguous().t(),),
        "a subclass": (A.as_subclass(Marked),),
    }
    for name, given in unusual.items():
        in_python.clear()
        torch.testing.assert_close(torch.Tensor(function(*given)[0]), expected, msg=name)
        assert in_python, name
    in_python.clear()
    with pytest.raises(TypeError):
        function(A, A)
    with pytest.raises((TypeError, AttributeError)):
        function(3)
    assert len(in_python) == 2
    with torch.inference_mode():
        torch.testing.assert_close(compiled(A.clone()), expected)
    with pytest.raises(RuntimeError):  # it has no memory of its own
        torch.vmap(function)(A[None])
    assert len(in_python) == 3


def test_faults(in_python: list[str]) -> None:
    def program(x, at):
        y = x[at] * 2
        x.zero_()
        return y

    compiled = torchmux.compile(program, backend="native", fullgraph=True)
    for function in (program, compiled):
        x = A.clone()
        function(x.clone(), ROWS)
        with pytest.raises(IndexError, match="index 8 is out of bounds for dimension 0 with size 8"):
            function(x, ROWS + 5 - 4)
        assert torch.equal(x, A)
    assert not [text for text in in_python if "fault" in text]


def test_a_write_to_an_inference_tensor(in_python: list[str]) -> None:
    compiled = torchmux.compile(lambda x: x.mul_(2), backend="native")
    compiled(A.clone())
    with torch.inference_mode():
        x = A.clone()
    with pytest.raises(RuntimeError, match="nference"):
        compiled(x)


def test_nothing_stays(in_python: list[str]) -> None:
    compiled = torchmux.compile(lambda x: (x * 2, x), backend="native")
    x = A.clone()
    compiled(x)
    count = sys.getrefcount(x)
    results = compiled(x)
    gone = weakref.ref(results[0])
    del results
    assert gone() is None and sys.getrefcount(x) == count


def test_threads(in_python: list[str]) -> None:
    compiled = torchmux.compile(lambda x, y: (x @ y).relu().sum(0), backend="native")
    with torch.no_grad():
        compiled(A, B.t().contiguous())
        wrong: list[Any] = []

        def work(seed: int) -> None:
            torch.manual_seed(seed)
            x, y = torch.randn(8, 16), torch.randn(16, 8)
            expected = (x @ y).relu().sum(0)
            for _ in range(200):
                if not torch.allclose(compiled(x, y), expected, atol=1e-5):
                    wrong.append(seed)

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong


def test_expressions(content: bytes, in_python: list[str]) -> None:
    """What a plan computes of sizes is what Python computes of them."""
    draw = random.Random(0)
    sizes = [index.size(f"s{n}", None if n == 2 else 0) for n in range(3)]

    def expression(depth: int) -> Any:
        if depth == 0:
            return draw.choice([*sizes, draw.randrange(-3, 9)])
        left, right = expression(depth - 1), expression(depth - 1)
        match draw.randrange(4):
            case 0:
                return left + right
            case 1:
                return left * right
            case 2:
                return index.floordiv(left, draw.randrange(1, 7))
            case _:
                return index.remainder(left, draw.randrange(1, 7))

    planner = object.__new__(_Planner)
    planner.position = {f"s{n}": n for n in range(3)}
    launch = CFUNCTYPE(c_int64, c_void_p, c_void_p, c_void_p)(lambda *_: 0)
    for _ in range(150):
        value = expression(draw.randrange(4))
        steps = calls._tupled(planner.expression(value))
        numbers = tuple((0, at, 0, 0, 1, 1) for at in range(3))
        plan = (3, numbers, (), (), (), (), (), None, 0, ((calls.COUNTED, steps),))
        call = calls._extension.cls(None, cast(launch, c_void_p).value, None, None, (), plan)
        for _ in range(5):
            given = (draw.randrange(0, 50), draw.randrange(0, 50), draw.randrange(-50, 50))
            assert call(*given) == (eval(text_of(value), dict(zip(("s0", "s1", "s2"), given, strict=True))),), value


def test_malformed_plans(in_python: list[str]) -> None:
    cls = calls._extension.cls
    for plan in [(), (1,), (1, (), (), ((3, 6, None),), (), (), (), None, 0, ()), (1, (), ((1, 2),)), ("x", (), ())]:
        with pytest.raises((ValueError, TypeError)):
            cls(None, 0, None, None, (), plan)


# --- runners ----------------------------------------------------------------------------------------------------------


class Thread:
    def __init__(self, owner: Any) -> None:
        self.doing = SimpleNamespace(owner=owner)


def test_a_runner(in_python: list[str]) -> None:
    record, modes, on = {"captured": [4]}, SimpleNamespace(_current_level=-1), [False]

    def graph(*args: Any) -> Any:
        if not args:
            raise KeyError("of the graph")
        return args

    def translated(error: BaseException) -> None:
        if on[0] is None:
            raise ValueError("another") from None

    given = ("captured", Thread(record), lambda: bool(on[0]), modes, graph, translated)
    runner = sooner._brought["runner"](*given)
    assert runner((1, 2)) == (1, 2) and record == {"captured": [5]}
    with torch.autocast("cpu"):
        assert runner((1,)) is NotImplemented
    with torch.autocast("cpu", enabled=False):
        assert runner((1,)) == (1,)
    on[0] = True
    assert runner((1,)) is NotImplemented
    on[0], modes._current_level = False, 0
    assert runner((1,)) is NotImplemented
    modes._current_level = -1
    assert record == {"captured": [6]}
    with pytest.raises(KeyError, match="of the graph"):
        runner(())
    on[0] = None
    with pytest.raises(ValueError, match="another"):
        runner(())
    for wrong in ((), ([],), ((), ())):
        with pytest.raises(TypeError):
            runner(*wrong)
    with pytest.raises(TypeError):
        sooner._brought["runner"](1, 2)
    with pytest.raises(AttributeError):
        sooner._brought["runner"](*given[:1], 3, *given[2:])((1,))
    assert sooner._brought["runner"](*given[:1], Thread(None), *given[2:])((1,)) == (1,)


def test_a_runner_is_brought(content: bytes, unknown: Path) -> None:
    """To what was captured before and after; calls are counted and profiled all the same."""
    default_cache().store(calls._key(), content)
    programs = [lambda x: x * 5 + 1, lambda x: x * 7 + 1]
    with torch.no_grad():
        before = torchmux.compile(programs[0], backend="native")
        before(A)
        waiting = list(sooner._waiting["runner"])
        assert calls._extension.look() is not None and waiting and not sooner._waiting["runner"]
        after = torchmux.compile(programs[1], backend="native")
        for compiled, program in zip((before, after), programs, strict=True):
            for _ in range(6):
                torch.testing.assert_close(compiled(A), program(A))
            with torch.profiler.profile() as profile:
                compiled(A)
            assert any("torchmux native" in event.key for event in profile.key_averages())
        for compiled, times in ((before, 8), (after, 7)):
            assert torchmux.report(compiled).graphs[0].calls == times
    for function in waiting:
        assert "runner" in function.__code__.co_freevars


def _is_called_in_cpp(compiled: Any) -> bool:
    return type(compiled.func).__name__ == "Caller"


def test_a_caller(in_python: list[str]) -> None:
    """A call that begins in C++ ends in Python wherever it is not of the usual kind."""

    def program(x, at=None):
        return x[ROWS] * 2 if at is None else x[at] * 2

    def plain(x, at):
        return x[at] * 2

    for function in (program, plain):
        compiled = torchmux.compile(function, backend="native")
        with torch.no_grad():
            for _ in range(4):
                assert torch.equal(compiled(A, ROWS), A[ROWS] * 2)
            assert _is_called_in_cpp(compiled) is (function is plain)
            doing = this_thread.doing
            with pytest.raises(IndexError) as raised:
                compiled(A, ROWS + 5)
            files = [entry.path for entry in raised.traceback]
            assert all(str(path) == __file__ for path in files), files
            assert doing.owner is None and len(files) == 2
            assert torch.equal(compiled(A, at=ROWS), A[ROWS] * 2)
            assert torch.equal(compiled(x=A, at=ROWS), A[ROWS] * 2)
            with pytest.raises(TypeError, match="argument"):
                compiled(A, ROWS, 3)
            with torchmux.set_stance("force_eager"):
                assert torch.equal(compiled(A, ROWS), A[ROWS] * 2)
            assert torch.equal(compiled(A[:, :3], ROWS), A[:, :3][ROWS] * 2)  # compiled anew
            assert not _is_called_in_cpp(compiled)
            assert torch.equal(compiled(A, ROWS), A[ROWS] * 2)
        expected = compiled._torchmux_record.calls[0]
        assert f"{expected} calls" in str(torchmux.report(compiled))


def test_a_caller_inside_of_another_call(in_python: list[str]) -> None:
    inner = torchmux.compile(lambda x: x * 2, backend="native")

    def program(x):
        print(end="")
        return inner(x) + 1

    outer = torchmux.compile(program, backend="native")
    with torch.no_grad():
        for _ in range(4):
            inner(A)
        assert _is_called_in_cpp(inner)
        made = program_calls.made[0]
        for _ in range(4):
            torch.testing.assert_close(outer(A), A * 2 + 1)
        torch.testing.assert_close(inner(A), A * 2)
    assert program_calls.made[0] == made + 5 and this_thread.doing.owner is None


def test_a_caller_is_forgotten_and_freed(in_python: list[str]) -> None:
    def make() -> Any:
        compiled = torchmux.compile(lambda x: x * 13, backend="native")
        with torch.no_grad():
            for _ in range(4):
                compiled(A)
            assert _is_called_in_cpp(compiled)
            torchmux.reset()
            torch.testing.assert_close(compiled(A), A * 13)
            assert not _is_called_in_cpp(compiled)
            for _ in range(20):
                torch.testing.assert_close(compiled(A), A * 13)
            assert _is_called_in_cpp(compiled)
        return weakref.ref(compiled), weakref.ref(compiled._torchmux_original), weakref.ref(compiled._torchmux_record)

    refs = make()
    gc.collect()
    assert [ref() for ref in refs] == [None, None, None]


def test_what_is_to_be_raised_in_the_end(in_python: list[str]) -> None:
    record_of = []

    def program(x):
        return x * 17

    compiled = torchmux.compile(
        program, backend=lambda gm, inputs: lambda *args: (record_of and set_error(), gm(*args))[1]
    )

    def set_error() -> None:
        compiled._torchmux_record.must_raise = KeyError("later")

    with torch.no_grad():
        for _ in range(4):
            compiled(A)
        assert _is_called_in_cpp(compiled)
        record_of.append(True)
        with pytest.raises(KeyError, match="later"):
            compiled(A)
        assert compiled._torchmux_record.must_raise is None and this_thread.doing.owner is None


def test_nothing_waits_longer_than_it_lives(unknown: Path) -> None:
    compiled = torchmux.compile(lambda x: x * 11, backend="eager")
    compiled(A)
    compiled(A)
    assert len(sooner._waiting["runner"]) == len(sooner._waiting["caller"]) == 1
    del compiled
    torchmux.reset()
    gc.collect()
    assert not sooner._waiting["runner"] and not sooner._waiting["caller"]


# --- when it is built -------------------------------------------------------------------------------------------------


def _called_often(times: int = 6) -> Any:
    compiled = torchmux.compile(lambda x: x * 3 + 1, backend="native")
    with torch.no_grad():
        for _ in range(times):
            torch.testing.assert_close(compiled(A), A * 3 + 1)
    return compiled


def test_found_in_the_cache(content: bytes, unknown: Path) -> None:
    default_cache().store(calls._key(), content)
    compiled = _called_often(3)
    assert calls._extension.cls is None and "C++" not in str(torchmux.report(compiled))
    with torch.no_grad():
        for _ in range(3):
            torch.testing.assert_close(compiled(A), A * 3 + 1)
    assert calls._extension.cls is not None
    assert str(torchmux.report(compiled)).count(runtime.IN_CPP) == 1


def test_an_entry_that_is_no_library(unknown: Path) -> None:
    default_cache().store(calls._key(), b"nothing")
    compiled = _called_often()
    assert calls._extension.why_not is not None
    assert str(torchmux.report(compiled)).count(runtime.IN_PYTHON) == 1
    assert not default_cache().has(calls._key())  # the next process makes it anew


def test_a_damaged_entry(content: bytes, unknown: Path) -> None:
    default_cache().store(calls._key(), content)
    (path,) = (path for path in unknown.rglob("*") if path.is_file() and path.stat().st_size > len(content))
    path.write_bytes(path.read_bytes()[:-100])
    _called_often()
    assert calls._extension.cls is None and calls._extension.compiling is not None  # made anew


def test_no_compiler(unknown: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = _called_often(2)
    monkeypatch.setattr(toolchain, "compiler_command", lambda: None)
    with torch.no_grad():
        for _ in range(10):
            torch.testing.assert_close(compiled(A), A * 3 + 1)
    assert str(torchmux.report(compiled)).count(runtime.IN_PYTHON) == 1


def test_a_compiler_that_fails(unknown: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = _called_often(2)
    monkeypatch.setattr(calls, "_FLAGS", ("--no-such-flag",))
    until = time.monotonic() + 20
    while calls._extension.why_not is None and time.monotonic() < until:
        torch.testing.assert_close(compiled(A), A * 3 + 1)
    assert "no-such-flag" in str(torchmux.report(compiled))


def test_no_headers(unknown: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "_python_headers", lambda: str(unknown))
    assert "Python.h" in str(torchmux.report(_called_often(12)))


def test_switched_off(content: bytes, unknown: Path) -> None:
    default_cache().store(calls._key(), content)
    with config.patch(calls_in_cpp=False):
        compiled = _called_often(12)
    assert calls._extension.cls is None
    assert "config.calls_in_cpp is off" in str(torchmux.report(compiled))


def test_another_process_compiles(unknown: Path) -> None:
    key = calls._key()
    other = calls._Extension()
    assert other.look() is None and other.compiling is not None
    assert calls._extension.look() is None and calls._extension.compiling is None and calls._extension.why_not is None
    other.compiling.process.kill()
    other.compiling.process.wait()
    with pytest.raises(calls.Unusable):
        other.compiling.content()
    assert not default_cache().has(key)


def test_a_forked_process_leaves_the_compiler_alone(unknown: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolchain, "compiler_command", lambda: [shutil.which("sleep"), "5", "#"])
    monkeypatch.setattr(calls, "_FLAGS", ())
    assert calls._extension.look() is None
    compiling = calls._extension.compiling
    assert compiling is not None
    child = os.fork()
    if child == 0:
        try:
            calls._here()
            gc.collect()
            os._exit(0 if calls._extension.compiling is None else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert compiling.folder.exists()
