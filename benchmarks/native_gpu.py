"""Native on a GPU compared with eager and with Inductor, in the same process.

    python benchmarks/native_gpu.py [--rows ROW ...] [--engines ENGINE ...] [--rounds N] [--quick] [--json FILE]
                                    [--together N] [--kernels N]

A row is ``model:phase:dtype:batch``, as ``bert:inference:bf16:32``.  ``tf32`` is float32 whose products use TF32, and
``amp`` float32 under autocast to bfloat16.  In the phase ``decode``, a causal model of ``transformers`` computes one
token after another, with a static cache of 1,024 tokens that holds 128 at first.  All engines of a row alternate; a
number is the median of batches of calls, between two CUDA events.  *Speed-up* is eager's
time divided by the engine's.  *Error* is the distance from float64, divided by eager's distance from it; in training,
the largest difference of a loss from eager's over 20 steps, in percent.  *Compile* is the time of the first call.
*Peak* is the memory that a call needs beyond what is there before it.  *Host* is the time until a call returns, before
the GPU is done.  *Limit* is the share of the call that the hardware needs at least: the operations of all products and
convolutions at 790 TFLOP/s (395 with TF32, 49 in float32), or, if that takes longer, the bytes of weights, inputs and
results, in training also of gradients, at the speed of a copy that is measured first.  An engine that fails says so,
and has no number.

* ``--together N`` compiles N rows at a time, each in a process of its own, and then measures one after the other: it
  takes a fraction of the time, but *compile* is then that of a busy machine.
* ``--kernels N`` prints the N kernels of each engine that take most of a call.

ResNet-50 comes from ``torchvision``, ViT-B/16 from ``timm``, the rest from ``transformers``; weights are random.  Any
other model of these is ``timm/NAME``, ``torchvision/NAME`` or ``transformers/TYPE``.  The engines that end in
``dynamic`` compile for sizes that change; they are measured only where ``--engines`` names them.
"""

from __future__ import annotations

import argparse
import copy
import functools
import gc
import json
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

import torchmux
from torchmux.config import config

ROWS = [
    f"{model}:{phase}:bf16:32" for phase in ("inference", "training") for model in ("resnet50", "bert", "gpt2", "vit")
]
ROWS += ["llama:inference:bf16:1", "llama:inference:bf16:32", "bert:inference:bf16:1", "gpt2:inference:bf16:1"]
ROWS += ["resnet50:inference:bf16:1", "vit:inference:bf16:1", "bert:inference:tf32:32", "gpt2:inference:tf32:32"]
QUICK = ["resnet50:inference:bf16:32", "bert:inference:bf16:32", "bert:training:bf16:32"]

ENGINES: dict[str, Callable[[Any], Any]] = {
    "eager": lambda f: f,
    "torch.compile": torch.compile,
    "torch.compile RO": lambda f: torch.compile(f, mode="reduce-overhead"),
    "torch.compile MA": lambda f: torch.compile(f, mode="max-autotune"),
    "native": lambda f: torchmux.compile(f, backend="native"),
    "native RO": lambda f: torchmux.compile(f, backend="native", mode="reduce-overhead"),
    "native MA": lambda f: torchmux.compile(f, backend="native", mode="max-autotune"),
    "inductor": lambda f: torchmux.compile(f, backend="inductor"),
    "inductor RO": lambda f: torchmux.compile(f, backend="inductor", mode="reduce-overhead"),
    "torch.compile dynamic": lambda f: torch.compile(f, dynamic=True),
    "native dynamic": lambda f: torchmux.compile(f, backend="native", dynamic=True),
}
USUAL = [engine for engine in ENGINES if "dynamic" not in engine]
DTYPES = {
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "f32": torch.float32,
    "tf32": torch.float32,
    "amp": torch.float32,
}

PEAK = {"bf16": 790e12, "fp16": 790e12, "tf32": 395e12, "f32": 49e12, "amp": 790e12}
"""Operations in a second of large products, on an H100 or H200."""

CHECKED = 4
"""The call whose result is compared with float64."""

Call = Callable[[], torch.Tensor]


# --- the models -------------------------------------------------------------------------------------------------------


def bert(batch: int) -> tuple[torch.nn.Module, torch.Tensor]:
    from transformers import BertConfig, BertModel

    return BertModel(BertConfig()), torch.randint(0, 30000, (batch, 128))


def gpt2(batch: int) -> tuple[torch.nn.Module, torch.Tensor]:
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config(use_cache=False, loss_type="ForCausalLM"))
    return model, torch.randint(0, 50000, (batch, 128))


def llama(batch: int) -> tuple[torch.nn.Module, torch.Tensor]:
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 16, "num_attention_heads": 32}
    model = LlamaForCausalLM(LlamaConfig(**sizes, num_key_value_heads=8, vocab_size=32000, use_cache=False))
    return model, torch.randint(0, 32000, (batch, 128))


def resnet50(batch: int) -> tuple[torch.nn.Module, torch.Tensor]:
    import torchvision

    return torchvision.models.resnet50(), torch.randn(batch, 3, 224, 224)


def vit(batch: int) -> tuple[torch.nn.Module, torch.Tensor]:
    import timm

    return timm.create_model("vit_base_patch16_224"), torch.randn(batch, 3, 224, 224)


MODELS: dict[str, Callable[[int], tuple[torch.nn.Module, torch.Tensor]]] = {
    f.__name__: f for f in (bert, gpt2, llama, resnet50, vit)
}


def from_library(name: str, batch: int) -> tuple[torch.nn.Module, torch.Tensor]:
    """``timm/NAME``, ``torchvision/NAME``, or ``transformers/TYPE`` in its default size; of two halves the encoder."""
    library, _, model = name.partition("/")
    if library == "timm":
        import timm

        made = timm.create_model(model)
        return made, torch.randn(batch, *made.default_cfg["input_size"])
    if library == "torchvision":
        import torchvision

        return torchvision.models.get_model(model), torch.randn(batch, 3, 224, 224)
    from transformers import AutoConfig, AutoModel

    config = AutoConfig.for_model(model)
    for setting, value in vars(config).items():  # dropout draws other numbers in each engine
        if "drop" in setting and isinstance(value, float):
            setattr(config, setting, 0.0)
    config.use_cache = False
    made = AutoModel.from_config(config)
    if config.is_encoder_decoder:
        made = made.get_encoder()
    match made.main_input_name:
        case "pixel_values":
            size = getattr(config, "image_size", 224)
            return made, torch.randn(batch, config.num_channels, size, size)
        case "input_values":
            return made, torch.randn(batch, 16000)
        case "input_features":
            return made, torch.randn(batch, config.num_mel_bins, 2 * config.max_source_positions)
    return made, torch.randint(0, config.vocab_size, (batch, 128))


def result_of(answer: Any) -> torch.Tensor:
    """The tensor that a model is judged by."""
    return answer if isinstance(answer, torch.Tensor) else answer[0]


# --- one row ----------------------------------------------------------------------------------------------------------


class Row:
    """A model with its inputs, and each engine's call of it."""

    def __init__(self, name: str) -> None:
        self.name = name
        model, self.phase, dtype, batch = name.split(":")
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = dtype == "tf32"
        torch.manual_seed(0)
        made, data = MODELS[model](int(batch)) if model in MODELS else from_library(model, int(batch))
        if self.phase == "training":
            for module in made.modules():  # dropout draws other numbers in each engine
                if isinstance(module, torch.nn.Dropout):
                    module.p = 0.0
                for attribute in ("dropout_prob", "attn_dropout"):
                    if isinstance(getattr(module, attribute, None), float):
                        setattr(module, attribute, 0.0)
        self.dtype, self.peak = DTYPES[dtype], PEAK[dtype]
        self.autocast = functools.partial(torch.autocast, "cuda", torch.bfloat16, enabled=dtype == "amp")
        self.model = made.cuda().to(self.dtype).train(self.phase == "training")
        self.data = data.cuda().to(self.dtype) if data.is_floating_point() else data.cuda()

    def call(self, engine: str) -> Call:
        """A call of the model, the next token of its cache, or a step of its training without the optimizer."""
        if self.phase == "decode":
            return self.decode(self.model, ENGINES[engine])
        if self.phase == "inference":
            run = ENGINES[engine](self.model)

            def infer() -> torch.Tensor:
                with torch.no_grad(), self.autocast():
                    return result_of(run(self.data))

            return infer
        model = copy.deepcopy(self.model)
        step = ENGINES[engine](model)

        def train() -> torch.Tensor:
            with self.autocast():
                loss = result_of(step(self.data)).float().square().mean()
            loss.backward()
            for parameter in model.parameters():
                parameter.grad = None
            return loss.detach()

        return train

    def decode(self, model: torch.nn.Module, engine: Callable[[Any], Any]) -> Call:
        """A call of ``model`` with one token more, and a cache of its own."""
        from transformers import StaticCache

        cache = StaticCache(model.config, max_cache_len=1024)
        with torch.no_grad():
            model(self.data, past_key_values=cache, use_cache=True)
        run, token = engine(model), self.data[:, -1:].contiguous()

        def step() -> torch.Tensor:
            with torch.no_grad(), self.autocast():
                return result_of(run(token, past_key_values=cache, use_cache=True))

        return step

    def exact(self) -> torch.Tensor:
        """What float64 computes."""
        model = copy.deepcopy(self.model).double()
        if self.phase == "decode":
            step = self.decode(model, ENGINES["eager"])
            return [step() for _ in range(CHECKED)][-1]
        data = self.data.double() if self.data.is_floating_point() else self.data
        with torch.no_grad():
            return result_of(model(data))

    def limit(self) -> float:
        """The milliseconds that the hardware needs at least for a call."""
        with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
            result = self.call("eager")()  # the counter knows no attention of groups of heads
        weights = {id(p): p for p in self.model.parameters()}
        lookups = [m for m in self.model.modules() if isinstance(m, torch.nn.Embedding)]
        others = {id(p) for m in self.model.modules() if m not in lookups for p in m.parameters(recurse=False)}
        skipped = {id(m.weight) for m in lookups} - others  # a call reads some of their rows
        moved = [p for key, p in weights.items() if key not in skipped] + [self.data]  # of a cache nothing is counted
        if self.phase == "training":  # weights are read forward and backward, and gradients written
            moved += [*moved[:-1], *weights.values()]
        else:
            moved.append(result)
        seconds = counter.get_total_flops() / self.peak, sum(t.nbytes for t in moved) / copy_speed()
        return max(seconds) * 1e3

    def losses(self, engine: str) -> list[float]:
        """The losses of 20 steps of training."""
        model = copy.deepcopy(self.model)
        run = ENGINES[engine](model)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        found = []
        for _ in range(20):
            with self.autocast():
                loss = result_of(run(self.data)).float().square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            found.append(loss.item())
        return found


@functools.cache
def copy_speed() -> float:
    """Bytes in a second that a copy of 1 GiB reads and writes."""
    source = torch.empty(2**30, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    return 2 * source.nbytes / (in_turns({"copy": lambda: target.copy_(source)}, 10)["copy"] / 1e3)


def distance(got: torch.Tensor, exact: torch.Tensor) -> float:
    return float((got.double() - exact).norm() / exact.norm())


def in_turns(calls: dict[str, Call], rounds: int) -> dict[str, float]:
    """The median milliseconds of each."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    counts = {}
    for name, call in calls.items():
        for _ in range(3):
            call()
        torch.cuda.synchronize()
        begin = time.perf_counter()
        call()
        torch.cuda.synchronize()
        counts[name] = max(2, min(20, int(0.03 / (time.perf_counter() - begin))))
    for _ in range(rounds):
        for name, call in calls.items():
            first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            first.record()
            for _ in range(counts[name]):
                call()
            last.record()
            last.synchronize()
            times[name].append(first.elapsed_time(last) / counts[name])
    return {name: statistics.median(found) for name, found in times.items()}


def host_time(call: Call) -> float:
    """The median milliseconds until a call returns."""
    spent = []
    for _ in range(15):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        call()
        spent.append((time.perf_counter() - begin) * 1e3)
    torch.cuda.synchronize()
    return statistics.median(spent)


def kernels_of(call: Call) -> list[tuple[str, int, float]]:
    """The kernels of a call: name, how many times, and microseconds together; the longest first."""
    for _ in range(2):
        call()
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        call()
        torch.cuda.synchronize()
    found = [(e.key, e.count, float(e.self_device_time_total)) for e in profile.key_averages()]
    return sorted((each for each in found if each[2]), key=lambda each: -each[2])


class Measured:
    """A row whose engines are compiled, and what is known of them; :meth:`finish` measures the time of calls."""

    def __init__(self, name: str, engines: list[str], *, check: bool, note: Callable[[str], None]) -> None:
        row = Row(name)
        self.found: dict[str, dict[str, Any]] = {}
        self.calls: dict[str, Call] = {}
        exact = row.exact() if check and row.phase != "training" else None
        eager_losses = row.losses("eager") if check and row.phase == "training" else None
        self.limit = row.limit()
        for engine in engines:
            try:
                torch.cuda.synchronize()
                call = row.call(engine)
                begin = time.perf_counter()
                got = call()
                torch.cuda.synchronize()
                told: dict[str, Any] = {"compile": time.perf_counter() - begin}
                for _ in range(CHECKED - 1):
                    got = call().clone()
                if exact is not None:
                    told["distance"] = distance(got, exact)
                if eager_losses is not None and engine != "eager":
                    losses = row.losses(engine)
                    told["error"] = max(abs(a / b - 1) for a, b in zip(losses, eager_losses, strict=True)) * 100
                del got
                torch.cuda.reset_peak_memory_stats()
                before = torch.cuda.memory_allocated()
                call()
                torch.cuda.synchronize()
                told["peak"] = (torch.cuda.max_memory_allocated() - before) / 2**20
                self.calls[engine], self.found[engine] = call, told
            except Exception:
                note(f"--- {name}, {engine} fails:\n{traceback.format_exc()[-6000:]}")

    def finish(self, rounds: int, kernels: int) -> dict[str, Any]:
        """The numbers, by engine."""
        for engine, milliseconds in in_turns(self.calls, rounds).items():
            self.found[engine]["ms"] = milliseconds
        for engine, call in self.calls.items():
            self.found[engine]["host"] = host_time(call)
            if kernels:
                self.found[engine]["kernels"] = kernels_of(call)[:kernels]
        own = self.found["eager"].get("distance")
        for told in self.found.values():
            told["speed-up"] = self.found["eager"]["ms"] / told["ms"]
            told["limit"] = self.limit / told["ms"]
            if own is not None:
                told["error"] = told["distance"] / own
        return self.found


def shown(name: str, found: dict[str, Any]) -> str:
    lines = []
    for engine, told in found.items():
        error = f"{told['error']:8.2f}" if "error" in told else f"{'':8}"
        numbers = f"{told['ms']:9.3f}{told['host']:9.3f}{told['speed-up']:10.2f}{told['limit']:7.2f}{error}"
        lines.append(f"{name:28}{engine:18}{numbers}{told['compile']:9.1f}{told['peak']:9.0f}")
        lines += [f"    {spent:9.0f} us {count:5}  {what[:110]}" for what, count, spent in told.get("kernels", ())]
    return "\n".join(lines)


def together(rows: list[str], count: int, options: list[str]) -> dict[str, Any]:
    """The numbers of all rows: so many processes compile at a time, and measure in turns."""
    results: dict[str, Any] = {}
    for at in range(0, len(rows), count):
        command = [sys.executable, __file__, *options, "--wait", "--rows"]
        pipe = subprocess.PIPE
        begun = {
            row: subprocess.Popen([*command, row], stdin=pipe, stdout=pipe, text=True) for row in rows[at : at + count]
        }
        ready = {}
        for row, process in begun.items():
            assert process.stdout is not None
            ready[row] = process.stdout.readline().strip() == "ready"
        for row, process in begun.items():
            told, _ = process.communicate("go\n" if ready[row] else None)
            if process.returncode or not ready[row]:
                print(f"--- {row} fails with {process.returncode}", flush=True)
                continue
            results[row] = json.loads(told.splitlines()[-1])
            print(shown(row, results[row]), flush=True)
    return results


def main() -> None:
    """Measure, and print each row as it completes."""
    parser = argparse.ArgumentParser(description="Compare native with Inductor and eager on a GPU.")
    parser.add_argument("--rows", nargs="+", default=ROWS, help="model:phase:dtype:batch")
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=USUAL)
    parser.add_argument("--rounds", type=int, default=15, help="turns of each engine (15)")
    parser.add_argument("--quick", action="store_true", help="three rows, and nothing is checked")
    parser.add_argument("--json", type=Path, help="where all numbers go")
    parser.add_argument("--log", type=Path, help="where the traceback of an engine that fails goes (standard error)")
    parser.add_argument("--together", type=int, default=1, metavar="N", help="compile N rows at a time")
    parser.add_argument("--kernels", type=int, default=0, metavar="N", help="print the N longest kernels")
    parser.add_argument("--wait", action="store_true", help=argparse.SUPPRESS)  # a process of --together
    arguments = parser.parse_args()
    rows = QUICK if arguments.quick and not arguments.wait else arguments.rows
    engines = ["eager", *(e for e in arguments.engines if e != "eager")]
    log = arguments.log.open("a") if arguments.log else sys.stderr

    def note(text: str) -> None:
        print(text, file=log, flush=True)
        if log is not sys.stderr and not arguments.wait:
            print(text.splitlines()[0], text.splitlines()[-1][:300], sep="\n    ", flush=True)

    def measured(name: str) -> Measured:
        return Measured(name, engines, check=not arguments.quick, note=note)

    if arguments.wait:
        with tempfile.TemporaryDirectory() as folder, config.patch(cache_dir=folder):
            row = measured(rows[0])
            print("ready", flush=True)
            sys.stdin.readline()
            print(json.dumps(row.finish(arguments.rounds, arguments.kernels)))
        return
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, torchmux {torchmux.__version__}")
    heads = f"{'ms':>9}{'host':>9}{'speed-up':>10}{'limit':>7}{'error':>8}{'compile':>9}{'peak MB':>9}"
    print(f"{'':46}{heads}", flush=True)
    results = {}
    if arguments.together > 1:
        options = ["--rounds", str(arguments.rounds), "--kernels", str(arguments.kernels), "--engines", *engines]
        options += [
            *(["--quick"] if arguments.quick else []),
            *(["--log", str(arguments.log)] if arguments.log else []),
        ]
        results = together(rows, arguments.together, options)
        rows = []
    with tempfile.TemporaryDirectory() as folder, config.patch(cache_dir=folder):
        for name in rows:
            torchmux.reset()
            torch.compiler.reset()
            gc.collect()
            torch.cuda.empty_cache()
            try:
                results[name] = measured(name).finish(arguments.rounds, arguments.kernels)
            except Exception:
                note(f"--- {name} fails:\n{traceback.format_exc()[-6000:]}")
                continue
            print(shown(name, results[name]), flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
