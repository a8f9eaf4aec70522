"""Threads that compile, call and reset at once, and Ctrl-C at any moment."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time

import pytest
import torch

import torchmux
from torchmux import torch_internals as ti
from torchmux.frontend.hook import entries
from torchmux.frontend.hook.session import Session


def part(x):
    torchmux.graph_break()
    return x - 1


def program(x, k):
    y = (x * k).relu()
    z = part(y)
    for i in range(2):
        z = z + i
    return z


def in_threads(count, work):
    """Run ``work(number)`` in threads that start together; what went wrong."""
    failures, start = [], threading.Barrier(count)

    def run(number):
        try:
            start.wait(60)
            work(number)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(n,)) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not any(thread.is_alive() for thread in threads)
    return failures


def test_threads_leave_the_hook_as_it_was():
    """The hook has one bucket of entries for all threads, and calls in several leave that of torch's own tracer."""
    compiled = torchmux.compile(program, backend="eager")

    def work(number):
        x = torch.ones(3)
        for _ in range(100):
            assert torch.equal(compiled(x, 2.0), program(x, 2.0))

    assert not in_threads(4, work)
    bucket = ti.set_bucket(-1)
    assert bucket == -1


def test_other_threads_use_torchs_own_tracer():
    def both(x, k):
        y = (x * k).relu()
        torchmux.graph_break()
        return y + k

    ours, torchs = torchmux.compile(both, backend="eager"), torch.compile(both, backend="eager", dynamic=False)

    def work(number):
        for k in range(6):
            for x in (torch.ones(3), torch.ones(4)):
                chosen = torchs if number % 2 else ours
                assert torch.equal(chosen(x, k), both(x, k))

    assert not in_threads(4, work)


def test_eight_threads_with_shapes_of_their_own():
    compiled = torchmux.compile(program, backend="eager")

    def work(number):
        for n in range(2, 8):
            x = torch.randn(n if number % 2 else 2 * n, 1 + number % 3)
            assert torch.equal(compiled(x, float(number)), program(x, float(number)))

    assert in_threads(8, work) == []


def test_threads_with_backends_of_their_own():
    def work(number):
        compiled = torchmux.compile(program, backend=lambda gm, inputs: gm.forward)
        for n in (2, 3):
            assert torch.equal(compiled(torch.ones(n), 2.0), program(torch.ones(n), 2.0))
        assert torchmux.report(compiled).graph_count >= 2

    assert in_threads(4, work) == []


def test_reset_while_others_compile_and_run():
    compiled = torchmux.compile(program, backend="eager")
    stop = time.monotonic() + 3

    def work(number):
        if number == 0:
            while time.monotonic() < stop:
                torchmux.reset()
                time.sleep(0.005)
            return
        while time.monotonic() < stop:
            x = torch.randn(2 + number)
            assert torch.equal(compiled(x, 1.0), program(x, 1.0))

    assert in_threads(4, work) == []


def test_an_entry_moved_while_another_thread_looks_is_found(monkeypatch):
    """Two threads look for the second of two entries: one is at the first when the other moves the second to the
    front."""
    this, check_of, run_once, runs = threading.local(), entries.check_of, Session.run_once, []

    def stopping_check_of(guards, owner):
        check = check_of(guards, owner)

        def stopping(frame_locals):
            this.checks = getattr(this, "checks", 0) + 1
            if this.checks == getattr(this, "stops_at", 0):
                this.stopped.set()
                assert this.go_on.wait(60)
            return check(frame_locals)

        return stopping

    def counting_run_once(session, captured):
        runs.append(captured)
        return run_once(session, captured)

    monkeypatch.setattr(entries, "check_of", stopping_check_of)
    monkeypatch.setattr(Session, "run_once", counting_run_once)
    compiled, x, wrong = torchmux.compile(lambda x, k: x * k, backend="eager", dynamic=False), torch.ones(2), []

    def look_up(k, stops_at, stopped, go_on):
        this.stops_at, this.stopped, this.go_on = stops_at, stopped, go_on
        wrong.extend([] if torch.equal(compiled(x, k), x * k) else [k])

    def started(k, stops_at):
        stopped, go_on = threading.Event(), threading.Event()
        thread = threading.Thread(target=look_up, args=(k, stops_at, stopped, go_on))
        thread.start()
        assert stopped.wait(60)
        return thread, go_on

    compiled(x, 2), compiled(x, 3)
    for _ in range(2):
        this.checks = 0
        compiled(x, 3)
        second = 2 if this.checks == 1 else 3
        threads = [started(second, 2), started(second, 1)]
        for thread, go_on in threads:
            go_on.set()
            thread.join(60)
            assert not thread.is_alive()
    assert wrong == []
    assert torchmux.report(compiled).graph_count == 2
    assert len(runs) <= 1  # each leaves an entry in the hook


def test_one_slow_backend_does_not_stop_compiled_code():
    """What is compiled runs on while another thread compiles."""
    ready, compiling, go_on = torchmux.compile(program, backend="eager"), threading.Event(), threading.Event()
    ready(torch.ones(3), 2.0)

    def slow(gm, example_inputs):
        compiling.set()
        assert go_on.wait(60)
        return gm.forward

    thread = threading.Thread(target=torchmux.compile(lambda x: x + 1, backend=slow), args=(torch.ones(2),))
    thread.start()
    assert compiling.wait(60)
    assert torch.equal(ready(torch.ones(3), 2.0), torch.full((3,), 2.0))
    go_on.set()
    thread.join(60)


# --- Ctrl-C -------------------------------------------------------------------------------------------------------


@pytest.fixture
def default_handler():
    found = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, found)


@contextlib.contextmanager
def ctrl_c_after(delay):
    """Sends SIGINT, and again each second: what meets a callback of the garbage collector is lost in any program."""
    over = threading.Event()

    def send():
        wait = delay
        while not over.wait(wait):
            os.kill(os.getpid(), signal.SIGINT)
            wait = 1.0

    sender = threading.Thread(target=send)
    try:
        sender.start()
        yield
    finally:
        over.set()
        sender.join()


def settled():
    assert torch.is_grad_enabled()
    assert not torch.is_autocast_enabled("cpu")
    assert ti.count_dispatch_modes() == 0
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def reset_and_call(compiled, x):
    while True:
        torchmux.reset()
        compiled(x)


@pytest.mark.parametrize("delay", [0.0, 0.002, 0.005, 0.01, 0.02, 0.04])
def test_ctrl_c_at_any_moment_leaves_everything_usable(default_handler, delay):
    layers = torch.nn.Sequential(*[torch.nn.Linear(4, 4) for _ in range(20)])

    def fn(x):
        with torch.no_grad():
            y = layers(x)
        with torch.autocast("cpu"):
            z = layers(y)
        torchmux.graph_break()
        return z.float().relu()

    compiled, x = torchmux.compile(fn, backend="eager"), torch.randn(2, 4)
    limit = sys.getrecursionlimit()
    with pytest.raises(KeyboardInterrupt), ctrl_c_after(delay):
        reset_and_call(compiled, x)
    settled()
    assert sys.getrecursionlimit() == limit
    for _ in range(2):
        assert torch.equal(compiled(x), fn(x))


def test_ctrl_c_in_an_endless_loop_that_is_traced(default_handler):
    def endless(x):
        while True:
            x = x.reshape(-1)

    with pytest.raises(KeyboardInterrupt), ctrl_c_after(0.5):
        torchmux.compile(endless, backend="eager")(torch.ones(2))
    settled()
    assert torch.equal(torchmux.compile(program, backend="eager")(torch.ones(2), 2.0), torch.full((2,), 2.0))


def call_for_half_a_second(compiled, arguments):
    """A loop of its own, as Python 3.13 leaves the jump of one out of the ``try`` around it."""
    end = time.monotonic() + 0.5
    while time.monotonic() < end:
        compiled(*arguments)


@pytest.mark.parametrize(("kind", "error"), [("function", KeyboardInterrupt), ("model", TimeoutError)])
def test_signals_while_guards_are_checked(kind, error, monkeypatch):
    """The hook clears what a check raises.  Each call of a model has two checks once there is a snapshot.

    Python itself drops what is raised in a callback of the garbage collector, and tells ``sys.unraisablehook``.
    """
    interrupted, dropped = 0, []
    monkeypatch.setattr(sys, "unraisablehook", lambda told: dropped.append(told.exc_type))

    def handler(number, frame):
        nonlocal interrupted
        interrupted += 1
        raise error

    layers = torch.nn.Sequential(*[torch.nn.Linear(2, 2) for _ in range(12)])
    compiled = torchmux.compile(layers if kind == "model" else lambda x, a, b: x * a + b, backend="eager")
    arguments = (torch.ones(1, 2),) if kind == "model" else (torch.ones(2), 1.0, 2.0)
    with torch.no_grad():
        for _ in range(20):
            compiled(*arguments)
        found, raised = signal.signal(signal.SIGALRM, handler), 0
        try:
            for number in range(150):
                try:
                    signal.setitimer(signal.ITIMER_REAL, 0.002 + 0.00001 * number)
                    call_for_half_a_second(compiled, arguments)
                except error:
                    raised += 1
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, found)
    assert interrupted == 150
    assert raised + dropped.count(error) == 150
    # The handler is code of the program, which may be captured as well, and counts.
    assert [each for each in torchmux.report(compiled).recompiles if "handler" not in each] == []


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_a_backend_that_is_interrupted_compiles_at_the_next_call(error):
    calls = []

    def backend(gm, example_inputs):
        calls.append(gm)
        if len(calls) == 1:
            raise error
        return gm.forward

    compiled = torchmux.compile(lambda x: x + 1, backend=backend)
    with pytest.raises(error):
        compiled(torch.ones(2))
    for _ in range(2):
        assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 2.0))
    assert len(calls) == 2


def test_modes_of_a_graph_that_fails_are_left():
    table = torch.ones(3, 2)

    def fn(index):
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            return torch.nn.functional.embedding(index, table)

    for backend in ("eager", "aot_eager"):
        compiled = torchmux.compile(fn, backend=backend)
        for _ in range(2):
            with pytest.raises(IndexError):
                compiled(torch.tensor([7]))
            assert torch.is_grad_enabled()
            assert not torch.is_autocast_enabled("cpu")
        assert torch.equal(compiled(torch.tensor([1])), fn(torch.tensor([1])))
