"""Models of the sizes at which compilers are compared, with inputs of any batch; nothing is downloaded.

The architectures of :data:`torchmux.zoo.ARCHITECTURES` are tiny: they test what is computed.  These take milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from torchmux.demo.models import MODELS

from .architecture import Inputs
from .own import Chain, GraphNetwork, Mlp, Tagger, UNet

Made = tuple[torch.nn.Module, Inputs]

# Dropout draws random numbers, and gradients with different ones cannot be compared.
_STILL = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
_STILL_GPT = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}


@dataclass(frozen=True)
class Workload:
    """A model with random weights, and keyword arguments for it.

    ``make`` takes the batch.  ``transformers`` says whether it needs that package.
    """

    name: str
    family: str
    summary: str
    make: Callable[[int], Made]
    transformers: bool = True

    def build(self, batch: int = 1, *, training: bool = False, seed: int = 0) -> Made:
        """The model, in ``train`` mode if ``training``, and its inputs; the same for the same seed.

        Raises:
            ImportError: ``transformers`` is not installed.
        """
        torch.manual_seed(seed)
        model, inputs = self.make(batch)
        return model.train(training), inputs


def _family(name: str, still: dict[str, Any] | None = None, **changes: Any) -> Callable[[int], Made]:
    def make(batch: int) -> Made:
        family = MODELS[name]
        model = family.build("full", **(still or {}), **changes)
        if hasattr(model.config, "use_cache"):
            model.config.use_cache = False
        return model, family.example(model, "full", batch)

    return make


def _mlp(batch: int) -> Made:
    return Mlp(), {"x": torch.randn(batch, 64)}


def _chain(batch: int) -> Made:
    return Chain(), {"x": torch.randn(256 * batch, 1024), "y": torch.randn(256 * batch, 1024)}


def _t5(batch: int) -> Made:
    import transformers

    config = transformers.T5Config(
        d_model=512, d_kv=64, d_ff=2048, num_layers=6, num_heads=8, use_cache=False, dropout_rate=0.0
    )
    tokens = {name: torch.randint(0, 32000, (batch, 128)) for name in ("input_ids", "decoder_input_ids")}
    return transformers.T5ForConditionalGeneration(config), tokens


def _resnet18(batch: int) -> Made:
    import transformers

    config = transformers.ResNetConfig(hidden_sizes=[64, 128, 256, 512], depths=[2, 2, 2, 2], layer_type="basic")
    return transformers.ResNetForImageClassification(config), {"pixel_values": torch.randn(batch, 3, 224, 224)}


def _wav2vec2(batch: int) -> Made:
    import transformers

    config = transformers.Wav2Vec2Config(
        hidden_size=256, num_hidden_layers=4, num_attention_heads=4, intermediate_size=1024, conv_dim=(256,) * 7,
        mask_time_prob=0.0, layerdrop=0.0, hidden_dropout=0.0, attention_dropout=0.0, activation_dropout=0.0,
        feat_proj_dropout=0.0, final_dropout=0.0,
    )  # fmt: skip
    return transformers.Wav2Vec2ForCTC(config), {"input_values": torch.randn(batch, 16000)}


def _detr(batch: int) -> Made:
    import transformers

    backbone = transformers.ResNetConfig(
        hidden_sizes=[64, 128, 256, 512], depths=[2, 2, 2, 2], layer_type="basic", out_features=["stage4"]
    )
    config = transformers.DetrConfig(
        backbone_config=backbone, use_timm_backbone=False, use_pretrained_backbone=False, backbone=None, d_model=128,
        encoder_layers=3, decoder_layers=3, encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=512,
        decoder_ffn_dim=512, num_queries=50, dropout=0.0,
    )  # fmt: skip
    return transformers.DetrForObjectDetection(config), {
        "pixel_values": torch.randn(batch, 3, 256, 256),
        "pixel_mask": torch.ones(batch, 256, 256, dtype=torch.long),
    }


def _gnn(batch: int) -> Made:
    nodes, edges = 2000 * batch, 16000 * batch
    ends = torch.randint(0, nodes, (2, edges))
    return GraphNetwork(), {"features": torch.randn(nodes, 64), "edges": ends}


def _lstm(batch: int) -> Made:
    return Tagger(), {"tokens": torch.randint(0, 4000, (batch, 32))}


def _unet(batch: int) -> Made:
    return UNet(), {"images": torch.randn(batch, 4, 32, 32), "times": torch.rand(batch) * 1000}


def _mixtral(batch: int) -> Made:
    import transformers

    config = transformers.MixtralConfig(
        vocab_size=4000, hidden_size=256, intermediate_size=512, num_hidden_layers=4, num_attention_heads=8,
        num_key_value_heads=4, num_local_experts=4, num_experts_per_tok=2, max_position_embeddings=128, use_cache=False,
    )  # fmt: skip
    return transformers.MixtralForCausalLM(config), {"input_ids": torch.randint(0, 4000, (batch, 64))}


WORKLOADS: dict[str, Workload] = {
    each.name: each
    for each in (
        Workload("mlp", "feed-forward", "two linear layers on 64 features", _mlp, transformers=False),
        Workload("chain", "elementwise", "functions and reductions of 256 rows of 1024", _chain, transformers=False),
        Workload("bert", "encoder", "BERT base, 128 tokens", _family("bert", _STILL)),
        Workload("bert4", "encoder", "BERT base with 4 layers", _family("bert", _STILL, num_hidden_layers=4)),
        Workload("gpt2", "decoder", "GPT-2, 128 tokens", _family("gpt2", _STILL_GPT)),
        Workload("llama", "decoder", "Llama, 8 layers of 512, 128 tokens", _family("llama")),
        Workload("t5", "encoder-decoder", "T5 small, 128 and 128 tokens", _t5),
        Workload("vit", "vision", "ViT base, an image of 224 x 224", _family("vit")),
        Workload("resnet18", "vision", "ResNet-18, an image of 224 x 224", _resnet18),
        Workload("resnet50", "vision", "ResNet-50, an image of 224 x 224", _family("resnet")),
        Workload("wav2vec2", "audio", "wav2vec 2.0, 4 layers of 256, a second of sound", _wav2vec2),
        Workload("detr", "detection", "DETR on ResNet-18, an image of 256 x 256", _detr),
        Workload("gnn", "graph", "graph attention, 2000 nodes and 16000 edges", _gnn, transformers=False),
        Workload("lstm", "recurrent", "two layers of LSTM of 256, 32 tokens", _lstm, transformers=False),
        Workload("unet", "diffusion", "a UNet of 64 channels, an image of 32 x 32", _unet, transformers=False),
        Workload("mixtral", "experts", "Mixtral, 4 layers of 256 with 4 experts, 64 tokens", _mixtral),
    )
}
