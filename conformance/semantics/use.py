"""Uses of a backend: options, several models, threads."""

from __future__ import annotations

import threading
from typing import Any

import torch

import torchmux
from torchmux.registry.names import members_of

from ..case import OWN_KERNELS, Collection, Trial

case = Collection("semantics/use")


@case()
def unknown_option(trial: Trial) -> Any:
    """An unknown option raises an error that names it, before anything is computed."""
    if trial.backend is None:
        return "refused"
    try:
        compiled = trial.compile(trial.module(torch.nn.Linear(2, 2)), options={"no_such_option_at_all": 1})
        compiled(trial.tensor(1, 2))
    except Exception as error:
        if not isinstance(trial.frontend.cause(error), torchmux.TorchmuxError):
            raise
        trial.records.clear()  # whether it is refused before the first call or in it does not matter
        return "refused" if "no_such_option_at_all" in str(error) else f"refused without its name: {error}"
    return "accepted"


_SETTINGS = 6


@case()
def modes_and_switches(trial: Trial) -> Any:
    """Each mode and each option that is on or off gives the same results, and none of them lasts: what is compiled
    without any afterwards is as before."""
    torch.manual_seed(0)
    net = trial.module(torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.GELU(), torch.nn.Linear(8, 3))).eval()
    x, found = trial.tensor(5, 6), []
    settings = _settings_of(trial)
    for number in range(_SETTINGS):
        given = settings[number % len(settings)]
        with torch.no_grad():
            found.append(trial.compile(lambda x: net(x).softmax(-1), **given)(x))
    with torch.no_grad():
        plain = [trial.compile(lambda x: net(x).softmax(-1))(x) for _ in range(2)]
    return found, plain, torch.equal(found[0], plain[0]) and torch.equal(*plain)


def _settings_of(trial: Trial) -> list[dict[str, Any]]:
    """The arguments of ``compile`` for each mode and switch, but for those that try many forms of code or that trace;
    of a chain there are none."""
    if not isinstance(trial.backend, str) or members_of(trial.backend) is not None:
        return [{}]
    own = torchmux.list_options(trial.backend)
    modes = "reduce-overhead", *torchmux.list_mode_options(backend=trial.backend)
    switches = {name: info.default for name, info in own.items() if isinstance(info.default, bool)}
    left_out = ("tune", "trace", "profil", "random", "graphs")
    found: list[dict[str, Any]] = [
        {"mode": name, "options": None} for name in dict.fromkeys(modes) if not any(word in name for word in left_out)
    ]
    found += [
        {"options": {**(trial.options or {}), name: not default}}
        for name, default in switches.items()
        if not any(word in name for word in left_out)
    ]
    return [{}, *found]


@case(OWN_KERNELS)
def runs_what_it_says(trial: Trial) -> Any:
    """torch does not run what the report attributes to the backend."""
    x, y = trial.tensor(8, 16), trial.tensor(16, 8)

    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (torch.sin(x) @ torch.exp(y)).softmax(-1) + torch.tanh(x.sum())

    compiled = trial.compile(f)
    result = compiled(x, y)
    with torch.autograd.profiler.profile() as profile:
        compiled(x, y)
    if trial.backend is None:
        return result, ""
    ran = {_bare(event.name) for event in profile.function_events if event.name.startswith("aten::")}
    reported = {_bare(fallback.op) for report in trial.reports(compiled) for fallback in report.fallbacks}
    # These compute; torch may always run operators that only move data.
    silently = sorted((ran & {"sin", "mm", "exp", "softmax", "tanh", "sum"}) - reported)
    return result, f"torch ran {', '.join(silently)}" if silently else ""


@case(OWN_KERNELS)
def runs_each_kind_of_call(trial: Trial) -> Any:
    """Nor does torch run some calls only: those with other sizes, dtypes and orders in memory, or in other modes."""
    x = trial.tensor(4, 6)
    compiled, found = trial.compile(lambda x: x.tanh() * x, dynamic=True), []
    for given in (x, x.t(), trial.tensor(1, 6), trial.tensor(60, 30)):
        found.append(compiled(given))
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            found.append(trial.run(lambda x: x.tanh() * x, x).clone())
    return found, trial.run(lambda x: x.tanh() * x, x.double())


@case("training", OWN_KERNELS)
def trains_what_it_says(trial: Trial) -> Any:
    """torch does not run the gradients of parameters that the report attributes to the backend."""

    class Scaled(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = torch.nn.Parameter(torch.linspace(0.5, 1.5, 6))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (self.scale * x).tanh()

    net = trial.module(Scaled())
    result = trial.run(net, trial.tensor(4, 6))
    result.square().sum().backward()
    return result, net.scale.grad


def _bare(operator: str) -> str:
    """``softmax`` of ``aten::_softmax``, ``aten._softmax.default`` and ``Tensor.softmax``."""
    name = operator.replace("aten::", "aten.").split(".")
    return name[1 if name[0] in ("aten", "torch", "Tensor") else 0].lstrip("_").replace("matmul", "mm")


@case()
def two_models(trial: Trial) -> Any:
    """Two models of one class stay separate."""
    torch.manual_seed(0)
    nets = [trial.module(torch.nn.Linear(4, 3)) for _ in range(2)]
    compiled, x = [trial.compile(net) for net in nets], trial.tensor(2, 4)
    with torch.no_grad():
        return [call(x) for call in (*compiled, *reversed(compiled))]


@case()
def weights_that_change(trial: Trial) -> Any:
    """The next call uses weights that were changed in place, past the count of writes, or replaced."""
    torch.manual_seed(0)
    net = trial.module(torch.nn.Linear(4, 3))
    compiled, x, results = trial.compile(net), trial.tensor(2, 4), []
    with torch.no_grad():
        results.append(compiled(x))
        net.weight.mul_(2)
        results.append(compiled(x))
        net.weight.data.mul_(3)
        results.append(compiled(x))
        net.weight = torch.nn.Parameter(trial.tensor(3, 4))
        results.append(compiled(x))
        net.load_state_dict({name: torch.zeros_like(value) for name, value in net.state_dict().items()})
        results.append(compiled(x))
    return results


@case()
def threads(trial: Trial) -> Any:
    """Four threads that call at the same time each get their own result."""
    compiled = trial.compile(lambda x: (x @ x.t()).softmax(-1))
    inputs = [trial.tensor(8, 8) for _ in range(4)]
    compiled(inputs[0])
    results: list[list[torch.Tensor]] = [[] for _ in inputs]

    def work(place: int) -> None:
        results[place].extend(compiled(inputs[place]) for _ in range(10))

    workers = [threading.Thread(target=work, args=(place,)) for place in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return results


@case()
def the_same_twice(trial: Trial) -> Any:
    """The same input gives the same bits every time."""
    torch.manual_seed(0)
    net = trial.module(torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.Tanh(), torch.nn.Linear(64, 8)))
    compiled, x = trial.compile(net), trial.tensor(16, 32)
    with torch.no_grad():
        first, again = compiled(x), [compiled(x) for _ in range(5)]
    return all(torch.equal(first, other) for other in again), first


@case()
def reset_and_again(trial: Trial) -> Any:
    """After ``reset``, everything is compiled again, with correct results."""
    compiled, x = trial.compile(lambda x: x.sin() + 1), trial.tensor(4)
    first = compiled(x)
    trial.reset()
    return first, compiled(x)


@torch.library.custom_op("torchmux_conformance::noted", mutates_args=())
def _noted(x: torch.Tensor, by: int) -> torch.Tensor:
    _notes.append(by)
    return x.sinh() * by


_notes: list[int] = []


@_noted.register_fake
def _(x: torch.Tensor, by: int) -> torch.Tensor:
    return torch.empty_like(x)


_noted.register_autograd(lambda ctx, gradient: (gradient * 3, None))


@case("training", reference=False)
def operators_of_others(trial: Trial) -> Any:
    """An operator that a library registers runs as often as the program says, in each call, with its own gradient."""
    x, found = trial.tensor(4, requires_grad=True), []
    compiled = trial.compile(lambda x: (_noted(x * 2, 2) + _noted(x, 5)).cos() * _noted(x, 2))
    for number in range(3):
        _notes.clear()
        result = compiled(x)
        # In which order is not promised, and a compiler may try it.
        found.append((result.detach(), sorted(_notes) if number else []))
        result.sum().backward()
    return found, x.grad
