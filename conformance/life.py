"""Cases about the whole life of compiled code: many calls, threads, the end of a process, the process after it."""

from __future__ import annotations

import contextlib
import ctypes
import glob
import itertools
import os
import select
import signal
import statistics
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F

import torchmux

from .case import Case, Collection, Trial
from .judging.calls import plain

_calls = Collection("life/calls")
_threads = Collection("life/threads")
_process = Collection("life/process")


def cases() -> Iterator[Case]:
    """All of them."""
    for subject in (_calls, _threads, _process):
        yield from subject


def _network(trial: Trial) -> torch.nn.Module:
    torch.manual_seed(0)
    return trial.module(torch.nn.Sequential(torch.nn.Linear(12, 20), torch.nn.GELU(), torch.nn.Linear(20, 5)))


@_calls()
def two_hundred(trial: Trial) -> Any:
    """The two hundredth call is as right as the first one."""
    net = _network(trial)
    compiled = trial.compile(net)
    with torch.no_grad():
        return torch.stack([compiled(trial.tensor(3, 12)) for _ in range(200)])


@_calls("training")
def a_hundred_steps(trial: Trial) -> Any:
    """A hundred training steps, each from the same weights: gradients do not change from call to call."""
    net = _network(trial)
    compiled, x, found = trial.compile(net), trial.tensor(4, 12, requires_grad=True), []
    for _ in range(100):
        net.zero_grad()
        x.grad = None
        compiled(x).square().mean().backward()
        found.append(torch.cat([x.grad.flatten(), net[0].weight.grad.flatten()]))
    return torch.stack(found)


@_calls("training")
def beyond_a_byte(trial: Trial) -> Any:
    """260 calls without gradients and as many training steps: no counter of one byte goes wrong."""
    compiled = trial.compile(lambda x, w: (x * w).sin() + x)
    weight, found = trial.tensor(4, requires_grad=True), []
    for _ in range(260):
        x = trial.tensor(4)
        with torch.no_grad():
            found.append(compiled(x, weight))
        compiled(x, weight).sum().backward()
        found.append(weight.grad)
        weight.grad = None
    return torch.stack(found)


@_calls("training")
def thousands_of_calls(trial: Trial) -> Any:
    """Each of 2,000 calls, and of 500 training steps, has the result of the first one, to the last bit."""
    compiled = trial.compile(lambda x, w: (x * w).sin() + x)
    x, weight = trial.tensor(4), trial.tensor(4, requires_grad=True)
    with torch.no_grad():
        first = compiled(x, weight)
        unlike = sum(not torch.equal(plain(compiled)(x, weight), first) for _ in range(2000))
    found = [compiled(x, weight)]
    found[0].sum().backward()
    slope, other = weight.grad, 0
    for _ in range(500):
        weight.grad = None
        plain(compiled)(x, weight).sum().backward()
        other += not torch.equal(weight.grad, slope)
    return first, found[0].detach(), slope, unlike, other


@_calls("training", quick=False)
def much_later(trial: Trial) -> Any:
    """More calls than two bytes count, and a call half a minute later, have the result of the first one."""
    compiled, began = trial.compile(lambda x, w: (x * w).sin() + x), time.monotonic()
    x, weight, found = trial.tensor(4), trial.tensor(4, requires_grad=True), []
    for last in (False, True):
        with torch.no_grad():
            found.append(compiled(x, weight))
        result = compiled(x, weight)
        found += [result.detach(), *torch.autograd.grad(result.sum(), weight)]
        with torch.no_grad():
            unlike = sum(not torch.equal(plain(compiled)(x, weight), found[0]) for _ in range(0 if last else 66_000))
        if not last and trial.backend is not None:
            time.sleep(max(0.0, began + 32 - time.monotonic()))
        found.append(unlike)
    return found


@_calls()
def nothing_is_kept(trial: Trial) -> Any:
    """After a call, nothing keeps its inputs and results alive, nor files and threads; memory does not grow."""
    compiled = trial.compile(lambda x, y: ((x * y).sum(0), x + y))
    alive, memory, files, workers = [], _Memory(trial), [], []
    for number in range(160):
        x, y = trial.tensor(8, 8192), trial.tensor(8, 8192)
        results = compiled(x, y)
        if number in (0, 100, 130):  # what the first call got, a compiler might keep as an example
            alive += [weakref.ref(each) for each in (x, y, *results)]
        del x, y, results
        if number in (60, 93, 126, 159):
            memory.measure()
            files.append(_open_files())
            workers.append(threading.active_count())
    return {
        "kept alive": sum(each() is not None for each in alive),
        "memory grows": memory.grows(12 << 20),
        "files grow": files[-1] > files[0] + 3,
        "threads grow": workers[-1] > workers[0],
    }


@_calls()
def nothing_is_left_by_compilations(trial: Trial) -> Any:
    """Each program that is compiled leaves no files, threads and processes open, and at most a megabyte of memory; and
    is there when others have been compiled after it."""
    x, memory, found = trial.tensor(4, 8), _Memory(trial), []
    results, programs = [], []
    for number in range(18):
        programs.append(trial.compile(eval(f"lambda x: (x * {number}.5).tanh() + {number}.25")))
        results.append(programs[-1](x))
        if number in (4, 7, 10, 13):
            memory.measure()
            found.append((_open_files(), threading.active_count(), len(_processes())))
    more = ["files", "threads", "processes"]
    left = [name for name, before, after in zip(more, found[0], found[-1], strict=True) if after - before > 5]
    return torch.stack(results + [each(x) for each in programs]), left, memory.grows(9 << 20)


@_calls("training", "dynamic_shapes")
def nothing_is_kept_by_turns(trial: Trial) -> Any:
    """Sizes that change, threads that end, and results whose gradients nobody asks for keep no memory."""
    compiled = trial.compile(lambda x, w: (x * w).sin() + x, dynamic=True)
    weight, memory = trial.tensor(8, requires_grad=True), _Memory(trial)

    def in_a_thread(x: torch.Tensor) -> None:
        with torch.no_grad():
            compiled(x, weight)

    for number in range(60):
        compiled(trial.tensor(9000 + 8 * number, 8), weight)
        worker = threading.Thread(target=in_a_thread, args=(trial.tensor(5000, 8),))
        worker.start()
        worker.join()
        if number in (20, 33, 46, 59):
            memory.measure()
    x = trial.tensor(3, 8)
    # Each thread may leave a little in an arena of the allocator.
    return compiled(x, weight), memory.grows(24 << 20)


@_calls("training")
def nothing_is_kept_of_models(trial: Trial) -> Any:
    """A model that is dropped with what was compiled for it is released, with its weights, at the latest by a reset."""
    alive, found = [], []
    for trains in (False, True):
        net, x = _network(trial), trial.tensor(3, 12)
        with torch.set_grad_enabled(trains):
            result = trial.once(net, x)
        if trains:
            result.sum().backward()
        found.append(result.detach().clone())
        alive += [weakref.ref(each) for each in (net, net[0].weight, x)]
        del net, x, result
    trial.reset()
    trial.collect()
    return found, [each() is not None for each in alive]


@_calls()
def nothing_runs_between_calls(trial: Trial) -> Any:
    """Once a call has returned, and its threads have had a moment to rest, the processor is left to others; the
    next call is right."""
    compiled, x = trial.compile(lambda x: (x @ x.t()).softmax(-1).sum(0)), trial.tensor(256, 256)
    results = [compiled(x) for _ in range(3)]
    time.sleep(0.2 if trial.backend is not None else 0)
    before, woken = time.process_time(), _wakings()
    time.sleep(0.3 if trial.backend is not None else 0)
    # Threads that look for work every few milliseconds take little time, and keep a processor from resting.
    rested = time.process_time() - before > 0.03, _wakings() - woken > 40
    return results, *rested, compiled(x)


def _wakings() -> int:
    """How often the threads of this process have been woken up."""
    found = 0
    for task in glob.glob("/proc/self/task/*/status"):
        with contextlib.suppress(OSError), open(task, encoding="ascii") as file:
            found += sum(int(line.split()[1]) for line in file if line.startswith("voluntary_ctxt_switches"))
    return found


def _open_files() -> int:
    return len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0


def _processes() -> list[str]:
    """The processes that the threads of this one started."""
    found = []
    for task in glob.glob("/proc/self/task/*/children"):
        with contextlib.suppress(OSError), open(task, encoding="ascii") as file:
            found += file.read().split()
    return found


@_calls("training")
def nothing_is_kept_in_training(trial: Trial) -> Any:
    """After a training step, nothing keeps its inputs, results and saved tensors alive."""
    net = _network(trial)
    compiled, alive, memory = trial.compile(net), [], _Memory(trial)
    for number in range(90):
        x = trial.tensor(2048, 12)
        result = compiled(x)
        result.square().mean().backward()
        net.zero_grad()
        if number == 60:
            alive += [weakref.ref(each) for each in (x, result)]
        del x, result
        if number in (40, 56, 72, 89):
            memory.measure()
    return {"kept alive": sum(each() is not None for each in alive), "memory grows": memory.grows(12 << 20)}


class _Memory:
    """The memory of this process, measured at regular intervals of a case: does it grow in most of them?

    What others release in one interval then hides no growth, and what one allocates once is none.
    """

    def __init__(self, trial: Trial) -> None:
        self._trial = trial
        self._sizes: list[int] = []

    def measure(self) -> None:
        self._trial.collect()
        # An allocator keeps what is freed, and would take from it what grows.
        with contextlib.suppress(AttributeError, OSError):
            ctypes.CDLL(None).malloc_trim(0)
        self._sizes.append(_resident())

    def grows(self, most: int) -> bool:
        """Whether by more than ``most`` in all; eager's own does not count, as its process answers other cases too."""
        growth = [after - before for before, after in itertools.pairwise(self._sizes)]
        return self._trial.backend is not None and statistics.median(growth) * len(growth) > most


def _resident() -> int:
    """The bytes of memory of this process that is its own; 0 where the system does not say."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            fields = file.read().split()
    except OSError:
        return 0
    return (int(fields[1]) - int(fields[2])) * os.sysconf("SC_PAGE_SIZE")


@_calls()
def arguments_by_turns(trial: Trial) -> Any:
    """Numbers, bools, texts and shapes that change by turns each get their own result, the same each time."""

    def f(x: torch.Tensor, factor: float, mode: str, flag: bool) -> torch.Tensor:
        y = x * factor if mode == "times" else x + factor
        return y.flip(0) if flag else y

    compiled, x, y = trial.compile(f), trial.tensor(5), trial.tensor(3, 2)
    turns = [(x, 2.0, "times", True), (x, 3.0, "times", True), (y, 2.0, "plus", False), (x, 2.0, "times", False)]
    return [compiled(*turns[number % 4]) for number in range(12)]


def _at_once(work: Callable[[int], Any], count: int) -> list[Any]:
    """The results of ``work`` in so many threads that start together; an exception in one is raised here."""
    results: list[Any] = [None] * count
    start = threading.Barrier(count)

    def run(place: int) -> None:
        start.wait()
        try:
            results[place] = work(place)
        except BaseException as error:
            results[place] = error

    threads = [threading.Thread(target=run, args=(place,)) for place in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results


@_threads()
def inference(trial: Trial) -> Any:
    """Eight threads that call at the same time, each several times with its own input, get their own results."""
    compiled = trial.compile(lambda x, y: ((x @ y).softmax(-1), (x * 2).sum(0)))
    given = [[(trial.tensor(24, 24), trial.tensor(24, 24)) for _ in range(5)] for _ in range(8)]
    compiled(*given[0][0])
    return _at_once(lambda place: [compiled(*each) for each in given[place]], 8)


@_threads("training")
def training(trial: Trial) -> Any:
    """Two threads that train at the same time, each its own model, get their own gradients."""
    nets = [_network(trial), _network(trial)]
    compiled = [trial.compile(net) for net in nets]
    given = [[trial.tensor(4, 12) for _ in range(5)] for _ in range(2)]

    def work(place: int) -> Any:
        for x in given[place]:
            compiled[place](x).square().mean().backward()
        return {name: p.grad for name, p in nets[place].named_parameters()}

    for net, each, xs in zip(nets, compiled, given, strict=True):
        each(xs[0]).sum().backward()
        net.zero_grad()
    return _at_once(work, 2)


@_threads()
def another_thread(trial: Trial) -> Any:
    """What one thread compiled works in another one, and settings of that thread are its own."""
    net, x = _network(trial), trial.tensor(3, 12)
    compiled = trial.compile(net)

    def work(place: int) -> Any:
        with torch.no_grad():
            return compiled(x), torch.get_default_dtype(), (torch.tensor([1e-39]) * 1.0).item() != 0

    return work(0), *_at_once(work, 1), torch.is_grad_enabled()


@_threads("training")
def subnormal_numbers(trial: Trial) -> Any:
    """Whichever thread computes, subnormal numbers are numbers: in threads of the program, in several threads of torch,
    in backward passes, and in what eager computes afterwards."""
    compiled, before = trial.compile(lambda x, y: (x * 0.5, x + y, (x * y.exp()).cumsum(-1))), torch.get_num_threads()
    large = trial.given(torch.full((4, 1 << 16), 3e-39))
    eager = large[:1].clone()

    def work(place: int) -> Any:
        x = trial.given(torch.linspace(-9e-39, 9e-39, 33 + place)).requires_grad_()
        results = compiled(x, x.detach())
        (results[0] * 3e-39).sum().backward()
        return [r.detach() for r in results], x.grad, (eager[0, :3] * 0.5).tolist()

    found = [work(0), *_at_once(work, 2)]
    try:
        for number in (1, 4):
            torch.set_num_threads(number)
            with torch.no_grad():
                found.append([r.amin() for r in compiled(large, large)])
                found.append((large * 0.25).amin())
    finally:
        torch.set_num_threads(before)
    return found


@_threads()
def numbers_of_threads(trial: Trial) -> Any:
    """Results are right with one, two and four threads of torch, in any order, and the number stays what it was."""
    compiled, found = trial.compile(lambda x, y: ((x @ y).relu(), x.sum(0), x.sum(), x.softmax(-1))), []
    x, y = trial.tensor(300, 257), trial.tensor(257, 130)
    before = torch.get_num_threads()
    try:
        for number in (1, 2, 4, 1):
            torch.set_num_threads(number)
            found.append((compiled(x, y), torch.get_num_threads()))
    finally:
        torch.set_num_threads(before)
    return found


@_threads()
def sizes_and_compilations_at_once(trial: Trial) -> Any:
    """Threads that call one function with sizes of their own, while others compile, each get their own results."""
    shared = trial.compile(lambda x, y: ((x @ y).relu() + x.shape[0], x.softmax(-1)), dynamic=True)
    given = [[(trial.tensor(n, 6), trial.tensor(6, 4)) for n in (3 + place, 8 - place)] for place in range(3)]
    shared(*given[0][0])

    own = [trial.compile(eval(f"lambda x, y: (x @ y * {place + 2}).sin() - {place}")) for place in range(3)]

    def work(place: int) -> Any:
        return [(shared(*each), own[place](*each)) for _ in range(4) for each in given[place]]

    return _at_once(work, 3)


@_process("training", processes=1)
def an_end(trial: Trial) -> Any:
    """A process that compiled, called and trained ends as others do: soon, silently, and leaves nothing behind."""
    net = _network(trial)
    compiled, x = trial.compile(net), trial.tensor(3, 12)
    with torch.no_grad():
        first = compiled(x)
    compiled(x).sum().backward()
    return first, trial.run(lambda x: (x.sin() + 1).sum(), x), net[0].weight.grad


@_process(processes=1)
def in_a_copy(trial: Trial) -> Any:
    """A copy of the process, such as one that loads data, calls what was compiled before it, and compiles more."""
    torch.set_num_threads(1)  # the threads of OpenMP are not copied, and eager waits for them, too
    compiled, x = trial.compile(lambda x: (x.sin() + 1) * x.sum(0)), trial.tensor(4, 6)
    first = compiled(x)
    found = _in_a_copy(lambda: [compiled(x), trial.run(lambda x: x.cos() * 3 - 1, x)])
    return first, [torch.frombuffer(found, dtype=x.dtype).clone() if found else "nothing"]


@_process("training", processes=1)
def training_in_a_copy(trial: Trial) -> Any:
    """A copy of the process trains what was compiled before it, and the process itself goes on."""
    torch.set_num_threads(1)
    compiled = trial.compile(lambda x, w: (x @ w).tanh() * x.sum(1, keepdim=True))
    given = [trial.tensor(*size, requires_grad=True) for size in ((5, 4), (4, 4))]

    def step() -> list[torch.Tensor]:
        result = compiled(*given)
        return [result.detach(), *torch.autograd.grad(result.square().sum(), given)]

    first, copied = step(), _in_a_copy(step)
    return first, [torch.frombuffer(copied, dtype=given[0].dtype).clone() if copied else "nothing"], step()


def _in_a_copy(work: Callable[[], list[torch.Tensor]]) -> bytes:
    """The numbers of what ``work`` returns in a copy of this process; nothing if it fails or takes too long."""
    source, told = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # from Python 3.12 on, if there are threads
        copy = os.fork()
    if not copy:
        with contextlib.suppress(BaseException):
            os.write(told, b"".join(each.numpy().tobytes() for each in work()))
        os._exit(0)
    os.close(told)
    with os.fdopen(source, "rb") as file:
        found = file.read() if select.select([file], [], [], 20)[0] else b""
    os.kill(copy, signal.SIGKILL)
    os.waitpid(copy, 0)
    return found


@_process("training", processes=2)
def a_warm_cache(trial: Trial) -> Any:
    """What one process left in a cache is used by the next one only for the same program.

    The second process runs programs that resemble those of the first: other constants, other wiring, other dimensions,
    other sizes, other dtypes, other weights.  Files of the cache that are cut off are not used.
    """
    last = trial.process == 2
    x, y = trial.tensor(4, 6), trial.tensor(4, 6)
    number, table = (3.0, torch.tensor([1.0, 2.0])) if last else (2.0, torch.tensor([4.0, 8.0]))
    dim, start = (1, 2) if last else (0, 1)
    operation = torch.mul if last else torch.add
    torch.manual_seed(trial.process)
    net = trial.module(torch.nn.Linear(6, 3))
    net.eval()
    grown = trial.compile(lambda x: (x - x.mean(0)) * x.shape[0], dynamic=True)
    sizes = ((5, 6), (9, 4)) if last else ((4, 6), (8, 6))
    other = trial.compile(lambda x: x.sum(-1) * 2)

    def wired(x: torch.Tensor) -> torch.Tensor:
        a, b = x.sin(), x.cos()  # inputs may be put in order
        return a - b if last else b - a

    with torch.no_grad():
        results = [
            trial.run(wired, x),
            trial.run(lambda x: x * number + 1, x),
            trial.run(lambda x: x[:, :2] * table.to(x), x),
            trial.run(lambda a, b: a - b if last else b - a, x, y),
            trial.run(lambda x: (x.sum(dim), x.softmax(dim)), x),
            trial.run(lambda x: x[start : start + 2] + 1, x),
            trial.run(lambda a, b: operation(a, b).exp(), x, y),
            trial.run(lambda x: x.clamp(-number, number), x * 9),
            trial.run(net, x),
            [grown(trial.tensor(*size)) for size in sizes],
            [other(each) for each in ((x.double(), x.t()) if last else (x, x.contiguous()))],
        ]
        results += [trial.run(each, x) for each in _kin(last)]
    trained = trial.tensor(4, 6, requires_grad=True)
    trial.run(lambda x: (x.tanh() * number).sum(dim), trained).square().sum().backward()
    found = [results, trained.grad]
    if last:
        _damage(torchmux.config.cache_dir if trial.backend is not None else "")
    trial.reset()
    found.append([trial.run(eval(f"lambda x: (x * {n}.5).sin() + x.sum(0)"), x) for n in (3, 4)])
    return found


def _kin(last: bool) -> list[Callable[[torch.Tensor], Any]]:
    """Programs whose twins differ in a keyword, a word, a dtype, the bounds of a part, an operator, the last of many
    operators."""
    if last:
        return [
            lambda x: torch.add(x, x[0], alpha=3), lambda x: F.gelu(x, approximate="tanh"), lambda x: x.to(torch.int32),
            lambda x: x[1:3] * 2, lambda x: x.sin() < 0.5, lambda x: (x * 2 + 1).tanh().exp().sum(0).cos(),
            lambda x: (x.sum(0), x + 1),
        ]  # fmt: skip
    return [
        lambda x: torch.add(x, x[0], alpha=2), lambda x: F.gelu(x), lambda x: x.to(torch.int64), lambda x: x[0:2] * 2,
        lambda x: x.sin() > 0.5, lambda x: (x * 2 + 1).tanh().exp().sum(0).sin(), lambda x: (x + 1, x.sum(0)),
    ]  # fmt: skip


def _damage(folder: str | os.PathLike[str]) -> None:
    """Cut each file in half, as a full disk does: what it holds is to be found out, and made anew."""
    for home, _, names in os.walk(folder) if folder else ():
        for path in (os.path.join(home, name) for name in names):
            with contextlib.suppress(OSError), open(path, "rb") as file:
                half = file.read(os.path.getsize(path) // 2)
                with open(f"{path}.half", "wb") as other:
                    other.write(half)
                os.chmod(f"{path}.half", os.stat(path).st_mode)
                os.replace(f"{path}.half", path)  # what this process has loaded of it stays as it is


PROCESSES = {case.id: case.processes for case in cases() if case.processes}
"""How many processes run a case one after another, for those that have their own."""
