"""The cost of programs whose graphs break, in the steady state, compared with eager and with torch.compile.

    python benchmarks/breaks.py [--rounds N] [--programs NAME ...] [--size N]

The backend of both frontends runs the graphs as they were captured, so what is measured is the frontends' own cost
beside eager's.  In one process with one thread, the three sides alternate in batches of about 2 ms of processor time;
the table has eager's minimum over the batches, and the minima of the frontends divided by it.  *Third* is the time of
the third call divided by eager's minimum: a frontend that goes on trying in vain shows there.  Programs of library code
need the library; without it they are left out.
"""

from __future__ import annotations

import argparse
import collections
import functools
import importlib.util
import re
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

SIDES = ("eager", "torchmux", "torch")
BATCH = 0.002  # seconds

Program = Callable[[Any], Any]
PROGRAMS: dict[str, Callable[[int], Any]] = {}
"""Each takes the size of its tensors, and returns a function of one tensor, or a module."""


def program(make: Callable[[int], Any]) -> Callable[[int], Any]:
    PROGRAMS[make.__name__] = make
    return make


def work(x: torch.Tensor) -> torch.Tensor:
    """What a program computes between two breaks."""
    return torch.relu(x * 0.5 + 0.1).sin() @ x


def opaque(x: torch.Tensor) -> float:
    """A number that no tracer knows."""
    return float(re.compile(str(x.dim())).groups)


# --- explicit breaks -------------------------------------------------------------------------------------------------


def _breaks(count: int) -> Program:
    def run(x: torch.Tensor) -> torch.Tensor:
        for _ in range(count):
            x = work(x)
            print(end="")
        return x

    return run


def _straight(count: int) -> Program:
    """A function with ``count`` breaks one after the other, without a loop."""
    lines = "".join("    x = work(x)\n    print(end='')\n" for _ in range(count))
    namespace: dict[str, Any] = {"work": work}
    exec(compile(f"def run(x):\n{lines}    return work(x)\n", f"<straight {count}>", "exec"), namespace)
    return namespace["run"]


for _count in (1, 3, 10, 30):
    PROGRAMS[f"straight_{_count}"] = lambda size, count=_count: _straight(count)
for _count in (10, 100):
    PROGRAMS[f"loop_{_count}"] = lambda size, count=_count: _breaks(count)


@program
def nested_functions(size: int) -> Program:
    def inner(x: torch.Tensor) -> torch.Tensor:
        y = work(x)
        print(end="")
        return y + 1

    def middle(x: torch.Tensor) -> torch.Tensor:
        return inner(inner(x) * 2)

    return lambda x: middle(middle(x)) + 1


@program
def break_at_the_start(size: int) -> Program:
    def run(x: torch.Tensor) -> torch.Tensor:
        print(end="")
        return work(work(x))

    return run


@program
def break_at_the_end(size: int) -> Program:
    def run(x: torch.Tensor) -> torch.Tensor:
        x = work(work(x))
        print(end="")
        return x

    return run


# --- values of tensors -----------------------------------------------------------------------------------------------


@program
def branch_on_data(size: int) -> Program:
    def run(x: torch.Tensor) -> torch.Tensor:
        y = work(x)
        y = y + 1 if y.sum() > 0 else y - 1
        return work(y)

    return run


@program
def ten_branches_on_data(size: int) -> Program:
    def run(x: torch.Tensor) -> torch.Tensor:
        y = x
        for _ in range(10):
            y = work(y) if y.sum() > 0 else work(y) - 1
        return y

    return run


@program
def item_as_a_number(size: int) -> Program:
    def run(x: torch.Tensor) -> torch.Tensor:
        scale = work(x).abs().max().item()
        return work(x) / (scale + 1)

    return run


@program
def tolist(size: int) -> Program:
    return lambda x: work(x) * sum(work(x)[0, :4].tolist())


@program
def boolean_mask(size: int) -> Program:
    return lambda x: work(x)[x > 0].sum() + work(x)


@program
def numpy_between(size: int) -> Program:
    return lambda x: work(torch.from_numpy(work(x).numpy() + 1))


# --- Python that is not traced ---------------------------------------------------------------------------------------


class Recipe:
    def __init__(self, text: str) -> None:
        self.text = text
        self.parts = text.split()


@functools.lru_cache(256)
def _recipe(text: str) -> Recipe:
    return Recipe(text)


@functools.lru_cache(256)
def _sizes(recipe: Recipe, shape: tuple[int, ...]) -> list[int]:
    return [shape[0] * shape[1]] if len(recipe.parts) > 1 else list(shape)


@program
def cached_function_of_objects(size: int) -> Program:
    def run(x: torch.Tensor) -> torch.Tensor:
        for _ in range(5):
            y = work(x)
            x = y.reshape(_sizes(_recipe("a b"), tuple(y.shape))).view(x.shape)
        return x

    return run


@program
def cached_method(size: int) -> Program:
    class Holder:
        @functools.lru_cache  # noqa: B019
        def scale(self, n: int) -> float:
            return 1 / n

        def __call__(self, x: torch.Tensor) -> torch.Tensor:
            return work(x) * self.scale(3) + work(x)

    holder = Holder()
    return lambda x: holder(x)


@program
def regular_expression(size: int) -> Program:
    pattern = re.compile(r"layer(\d+)")

    def run(x: torch.Tensor) -> torch.Tensor:
        number = int(pattern.match("layer3").group(1))  # type: ignore[union-attr]
        return work(x) * number

    return run


@program
def generator_that_breaks(size: int) -> Program:
    def parts(x: torch.Tensor) -> Iterator[torch.Tensor]:
        for number in range(5):
            print(end="")
            yield work(x) + number

    def run(x: torch.Tensor) -> torch.Tensor:
        total = x
        for part in parts(x):
            total = total + part
        return total

    return run


@program
def generator_kept(size: int) -> Program:
    def parts(x: torch.Tensor) -> Iterator[torch.Tensor]:
        for number in range(5):
            yield work(x) + number

    def run(x: torch.Tensor) -> torch.Tensor:
        pending = parts(x)
        first = next(pending)
        print(end="")
        return work(first) + sum(pending)

    return run


@program
def counter_of_calls(size: int) -> Program:
    calls: collections.Counter[str] = collections.Counter()

    def run(x: torch.Tensor) -> torch.Tensor:
        calls["calls"] += 1
        y = work(x)
        sys.getrefcount(calls)
        return work(y)

    return run


@program
def log_of_shapes(size: int) -> Program:
    log: collections.deque[Any] = collections.deque(maxlen=8)

    def run(x: torch.Tensor) -> torch.Tensor:
        y = work(x)
        log.append((tuple(y.shape), time.perf_counter()))
        return work(y)

    return run


@program
def exception_caught(size: int) -> Program:
    def careful(x: torch.Tensor) -> torch.Tensor:
        if opaque(x) > 1:
            return x
        raise ValueError("not this one")

    def run(x: torch.Tensor) -> torch.Tensor:
        y = work(x)
        try:
            y = careful(y)
        except ValueError:
            y = y + 1
        return work(y)

    return run


@program
def helpers_without_tensors(size: int) -> Program:
    def digits(n: int) -> list[int]:
        return [int(c) for c in re.sub("x", "", str(n))]

    def run(x: torch.Tensor) -> torch.Tensor:
        y = x
        for n in (12, 345, 6789):
            y = work(y) + sum(digits(n))
        return work(y)

    return run


@program
def context_manager_that_breaks(size: int) -> Program:
    class Timer:
        seconds = 0.0

        def __enter__(self) -> Timer:
            self.began = time.perf_counter()
            return self

        def __exit__(self, *_: Any) -> None:
            self.seconds = time.perf_counter() - self.began

    def run(x: torch.Tensor) -> torch.Tensor:
        for _ in range(3):
            with Timer():
                x = work(x)
        return x

    return run


@program
def disabled_function(size: int) -> Program:
    @torch.compiler.disable
    def off(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    return lambda x: work(off(work(off(work(x)))))


# --- modules ---------------------------------------------------------------------------------------------------------


class Block(torch.nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(size)
        self.up, self.down = torch.nn.Linear(size, 2 * size), torch.nn.Linear(2 * size, size)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.relu(self.up(self.norm(x))))


class BreakingBlock(Block):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = super().forward(x)
        print(end="")
        return y * 2


class Stack(torch.nn.Module):
    def __init__(self, *blocks: torch.nn.Module) -> None:
        super().__init__()
        self.blocks = torch.nn.ModuleList(blocks)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return x


@program
def stack_of_breaking_blocks(size: int) -> torch.nn.Module:
    return Stack(*(BreakingBlock(size) for _ in range(6)))


@program
def sequential_with_one_break(size: int) -> torch.nn.Module:
    return torch.nn.Sequential(Block(size), Block(size), BreakingBlock(size), Block(size), Block(size))


@program
def module_that_counts(size: int) -> torch.nn.Module:
    class Counts(Block):
        seen = 0.0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.seen += opaque(x)
            return super().forward(x)

    return Stack(Counts(size), Counts(size), Counts(size))


@program
def hook_of_a_module(size: int) -> torch.nn.Module:
    model = torch.nn.Sequential(*(Block(size) for _ in range(4)))
    model[1].register_forward_hook(lambda module, args, result: print(end=""))
    return model


@program
def experts(size: int) -> torch.nn.Module:
    class Experts(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gate = torch.nn.Linear(size, 4)
            self.experts = torch.nn.ModuleList(Block(size) for _ in range(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            chosen = self.gate(x).argmax(-1)
            y = torch.zeros_like(x)
            for number, expert in enumerate(self.experts):
                where = torch.where(chosen == number)[0]
                if where.numel():
                    y[where] = expert(x[where])
            return y

    return Experts()


@program
def recurrence(size: int) -> torch.nn.Module:
    class Recurrence(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell = torch.nn.GRUCell(size, size)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            h = torch.zeros_like(x)
            for _ in range(8):
                h = self.cell(x, h)
                if h.abs().max() > 100:
                    break
            return h

    return Recurrence()


# --- library code ----------------------------------------------------------------------------------------------------


def _has(*names: str) -> bool:
    return all(importlib.util.find_spec(name) is not None for name in names)


if _has("einops"):

    @program
    def einops_attention(size: int) -> torch.nn.Module:
        from einops import rearrange, reduce

        class Attention(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.qkv = torch.nn.Linear(size, 3 * size)

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                q, k, v = rearrange(self.qkv(x[None]), "b n (t h d) -> t b h n d", t=3, h=4)
                y = rearrange(torch.softmax(q @ k.transpose(-1, -2), -1) @ v, "b h n d -> b n (h d)")
                return y + reduce(y, "b n d -> b 1 d", "mean")

        return Attention()


if _has("monai"):

    @program
    def monai_swin(size: int) -> Any:
        from monai.networks.nets import SwinUNETR

        heads, depths = (1, 1, 2, 2), (1, 1, 1, 1)
        model = SwinUNETR(
            in_channels=1, out_channels=2, feature_size=12, spatial_dims=2, depths=depths, num_heads=heads
        )
        image = torch.randn(1, 1, 64, 64)
        model.register_forward_pre_hook(lambda module, args: (image,))
        return model


if _has("transformers"):

    @program
    def mixture_of_transformers(size: int) -> torch.nn.Module:
        from transformers import MixtralConfig, MixtralModel

        config = MixtralConfig(
            vocab_size=99, hidden_size=64, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, num_local_experts=4, use_cache=False,
        )  # fmt: skip
        model, ids = MixtralModel(config), torch.arange(32)[None]

        class Whole(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.model = model

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return self.model(input_ids=ids).last_hidden_state

        return Whole()


# --- measuring -------------------------------------------------------------------------------------------------------


def measure(name: str, size: int, rounds: int) -> dict[str, Any]:
    """Minimum microseconds of each side, the third calls, and what torchmux captured."""
    import torchmux

    calls: dict[str, Callable[[], Any]] = {}
    third: dict[str, float] = {}
    graphs: list[int] = []
    for side in SIDES:
        torch.manual_seed(0)
        target = PROGRAMS[name](size)
        if isinstance(target, torch.nn.Module):
            target.eval()
        x = torch.randn(size, size)
        if side == "torchmux":
            target = ours = torchmux.compile(target, backend="eager")
        elif side == "torch":
            torch._dynamo.reset()
            target = torch.compile(target, backend=lambda gm, args: (graphs.append(1), gm.forward)[1])
        call = calls[side] = functools.partial(target, x)
        call(), call()
        third[side] = _seconds(call, 1)
        for _ in range(20):
            call()
    count = max(1, int(BATCH / min(_seconds(calls["eager"], 2) for _ in range(5))))
    times: dict[str, list[float]] = {side: [] for side in SIDES}
    for number in range(rounds):
        for side in SIDES if number % 2 else reversed(SIDES):
            times[side].append(_seconds(calls[side], count))
    report = torchmux.report(ours)
    return {
        **{side: min(times[side]) * 1e6 for side in SIDES},
        "third": {side: third[side] / min(times["eager"]) for side in SIDES},
        "graphs": report.graph_count,
        "breaks": report.break_count,
        "torch graphs": len(graphs),
    }


def _seconds(call: Callable[[], Any], count: int) -> float:
    """Processor seconds, which other programs affect less."""
    begun = time.process_time()
    for _ in range(count):
        call()
    return (time.process_time() - begun) / count


def main() -> None:
    parser = argparse.ArgumentParser(description="Programs with graph breaks beside eager and torch.compile.")
    parser.add_argument("--rounds", type=int, default=60, help="batches of each side")
    parser.add_argument("--size", type=int, default=64, help="of the square matrices")
    parser.add_argument("--programs", nargs="*", choices=list(PROGRAMS), default=list(PROGRAMS), metavar="NAME")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    print(f"{'program':30}{'eager us':>10}{'torchmux':>10}{'torch':>8}{'third':>8}{'graphs':>8}{'torch graphs':>14}")
    ratios: dict[str, list[float]] = {"torchmux": [], "torch": []}
    for name in arguments.programs:
        found = measure(name, arguments.size, arguments.rounds)
        ours, theirs = (found[side] / found["eager"] for side in ("torchmux", "torch"))
        ratios["torchmux"].append(ours)
        ratios["torch"].append(theirs)
        print(
            f"{name:30}{found['eager']:10.1f}{ours:10.2f}{theirs:8.2f}{found['third']['torchmux']:8.1f}"
            f"{found['graphs']:8}{found['torch graphs']:14}",
            flush=True,
        )
    means = [statistics.geometric_mean(values) for values in ratios.values()]
    print(f"{'geometric mean':40}{means[0]:10.2f}{means[1]:8.2f}")
    print(f"{'worst':40}{max(ratios['torchmux']):10.2f}{max(ratios['torch']):8.2f}")


if __name__ == "__main__":
    main()
