"""Models of ``transformers`` in bfloat16 and under autocast: eager, torch's Inductor and the native backend in turns.

    python benchmarks/half_precision.py [ROW ...] [--seconds N] [--engines NAME ...] [--threads N] [--dynamic]

A row is ``model/kind/mode``: a model of few layers in its usual widths, with random weights; ``autocast``,
``bfloat16`` or, where it is asked for, ``float32``; ``infer`` or ``train`` (forward and backward).  ``--dynamic``
compiles with ``dynamic=True``.  Under autocast the program enters the region, and what is
compiled is the model in it.  Columns: milliseconds (the least of all turns; processor time with one thread), how many
times longer Inductor and eager take than native, and the largest error against float64 as a multiple of eager's.

``ONEDNN_MAX_CPU_ISA=AVX512_CORE`` in the environment shows a processor without instructions for bfloat16 as far as the
library is concerned; native decides by what the processor has.
"""

from __future__ import annotations

import argparse
import copy
import gc
import math
import statistics
import time
from typing import Any

import torch
import transformers

import torchmux

ENGINES = ("eager", "inductor", "native")
MODES = ("infer", "train")
KINDS = ("autocast", "bfloat16")


def bert() -> tuple[Any, dict[str, torch.Tensor]]:
    config = transformers.BertConfig(num_hidden_layers=2, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    mask = torch.ones(2, 128, dtype=torch.long)
    mask[:, 120:] = 0
    return transformers.BertModel(config), {"input_ids": torch.randint(0, 30000, (2, 128)), "attention_mask": mask}


def vit() -> tuple[Any, dict[str, torch.Tensor]]:
    model = transformers.ViTModel(transformers.ViTConfig(num_hidden_layers=2))
    return model, {"pixel_values": torch.randn(2, 3, 224, 224)}


def llama() -> tuple[Any, dict[str, torch.Tensor]]:
    config = transformers.LlamaConfig(
        vocab_size=1000, hidden_size=1024, intermediate_size=2816, num_hidden_layers=2, num_attention_heads=16,
        num_key_value_heads=4, use_cache=False)  # fmt: skip
    return transformers.LlamaModel(config), {"input_ids": torch.randint(0, 1000, (1, 128))}


def gpt2() -> tuple[Any, dict[str, torch.Tensor]]:
    config = transformers.GPT2Config(
        n_layer=2, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, vocab_size=1000, use_cache=False)  # fmt: skip
    return transformers.GPT2Model(config), {"input_ids": torch.randint(0, 1000, (2, 128))}


def whisper() -> tuple[Any, dict[str, torch.Tensor]]:
    config = transformers.WhisperConfig(
        d_model=384, encoder_layers=2, decoder_layers=2, encoder_attention_heads=6, decoder_attention_heads=6,
        encoder_ffn_dim=1536, decoder_ffn_dim=1536, max_source_positions=300, use_cache=False, vocab_size=1000,
        pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=3)  # fmt: skip
    words = torch.randint(0, 1000, (1, 32))
    return transformers.WhisperModel(config), {"input_features": torch.randn(1, 80, 600), "decoder_input_ids": words}


def swin() -> tuple[Any, dict[str, torch.Tensor]]:
    model = transformers.SwinModel(transformers.SwinConfig(depths=[1, 1, 1, 1], drop_path_rate=0.0))
    return model, {"pixel_values": torch.randn(1, 3, 224, 224)}


def resnet50() -> tuple[Any, dict[str, torch.Tensor]]:
    model = transformers.ResNetForImageClassification(transformers.ResNetConfig(num_labels=100))
    return model, {"pixel_values": torch.randn(1, 3, 224, 224)}


def resnet18() -> tuple[Any, dict[str, torch.Tensor]]:
    config = transformers.ResNetConfig(
        num_labels=100, hidden_sizes=[64, 128, 256, 512], depths=[2, 2, 2, 2], layer_type="basic",
        embedding_size=64)  # fmt: skip
    return transformers.ResNetForImageClassification(config), {"pixel_values": torch.randn(2, 3, 112, 112)}


MODELS = {f.__name__: f for f in (bert, vit, llama, gpt2, whisper, swin, resnet50, resnet18)}
ROWS = [
    f"{model}/{kind}/{mode}"
    for mode in MODES
    for model in MODELS
    for kind in KINDS
    if (model, mode) not in (("resnet50", "train"), ("resnet18", "infer"))
]


class Side:
    """A model under one engine."""

    def __init__(
        self, engine: str, model: Any, inputs: dict[str, Any], training: bool, autocasts: bool, dynamic: bool | None
    ) -> None:
        self.model, self.inputs, self.training, self.autocasts = model, inputs, training, autocasts
        self.function = model
        if engine == "inductor":
            self.function = torch.compile(model, dynamic=dynamic)
        elif engine == "native":
            self.function = torchmux.compile(model, backend="native", dynamic=dynamic)

    def call(self) -> list[torch.Tensor | None]:
        """The result, or the gradients of all parameters; of those without one, eager has None and others zeros."""
        region = torch.autocast("cpu", torch.bfloat16, enabled=self.autocasts)
        if not self.training:
            with torch.no_grad(), region:
                return [self._result()]
        self.model.zero_grad(set_to_none=True)
        with region:
            result = self._result()
        result.float().pow(2).mean().backward()
        return [p.grad for p in self.model.parameters()]

    def _result(self) -> torch.Tensor:
        output = self.function(**self.inputs)
        return output.logits if "logits" in output else output[0]


def largest_error(got: list[torch.Tensor | None], exact: list[torch.Tensor | None]) -> float:
    pairs = [(g, e) for g, e in zip(got, exact, strict=True) if g is not None and e is not None]
    whole = max(float(e.abs().max()) for _, e in pairs)
    return max(float((g.double() - e).abs().max()) / max(float(e.abs().max()), 1e-3 * whole) for g, e in pairs)


def measure(row: str, engines: list[str], seconds: float, dynamic: bool | None) -> dict[str, float]:
    """Milliseconds of each engine, and native's error."""
    name, kind, mode = row.split("/")
    training, autocasts = mode == "train", kind == "autocast"
    torch.manual_seed(0)
    model, inputs = MODELS[name]()
    model.train(training)

    def side(engine: str, dtype: torch.dtype, autocasts: bool) -> Side:
        given = {k: v.to(dtype) if v.is_floating_point() else v for k, v in inputs.items()}
        return Side(engine, copy.deepcopy(model).to(dtype), given, training, autocasts, dynamic)

    exact = side("eager", torch.float64, False).call()
    dtype = torch.bfloat16 if kind == "bfloat16" else torch.float32
    sides = {engine: side(engine, dtype, autocasts) for engine in engines}
    errors = {engine: largest_error(each.call(), exact) for engine, each in sides.items()}
    for each in sides.values():
        each.call()
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    best = dict.fromkeys(sides, math.inf)
    end, turns = time.perf_counter() + seconds, 0
    while time.perf_counter() < end or turns < 4:
        turns += 1
        for engine, each in sides.items():
            each.call()  # the caches have what another engine left
            start = clock()
            each.call()
            best[engine] = min(best[engine], clock() - start)
    found = {engine: spent * 1e3 for engine, spent in best.items()}
    return {**found, "error": errors["native"] / max(errors["eager"], 1e-30)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", default=ROWS, metavar="ROW", help="model/kind/mode")
    parser.add_argument("--seconds", type=float, default=6.0, help="for each row, first calls excluded")
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=list(ENGINES))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--dynamic", action="store_true", help="compile with dynamic=True")
    args = parser.parse_args()
    engines = list(dict.fromkeys(["eager", *args.engines, "native"]))
    torch.set_num_threads(args.threads)
    print(f"{'':26}" + "".join(f"{name:>10}" for name in (*engines, "ind./n.", "eager/n.", "error")))
    ratios: dict[str, list[float]] = {engine: [] for engine in engines if engine != "native"}
    for row in args.rows:
        found = measure(row, engines, args.seconds, args.dynamic or None)
        for engine, all_of_it in ratios.items():
            all_of_it.append(found[engine] / found["native"])
        cells = [f"{found[engine]:10.2f}" for engine in engines]
        inductor = f"{found['inductor'] / found['native']:10.2f}" if "inductor" in found else f"{'-':>10}"
        cells += [inductor, f"{found['eager'] / found['native']:10.2f}", f"{found['error']:10.2f}"]
        print(f"{row:26}" + "".join(cells), flush=True)
        torch.compiler.reset()
        torchmux.reset()
        gc.collect()
    for engine, all_of_it in ratios.items():
        print(f"beside {engine}: geometric mean {statistics.geometric_mean(all_of_it):.3f}, worst {min(all_of_it):.2f}")


if __name__ == "__main__":
    main()
