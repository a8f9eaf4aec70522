"""Builds five models of ``transformers`` from their configurations, with random weights; nothing is downloaded.

Each has three sizes: ``tiny`` for tests, ``small`` for a demonstration, and ``full`` as people use it (base sizes;
ResNet-50; Llama with 8 layers of 512, because a full Llama does not fit everywhere).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch

Size = Literal["tiny", "small", "full"]
Inputs = dict[str, torch.Tensor]


@dataclass(frozen=True)
class ModelFamily:
    """One architecture: the names of its classes in ``transformers``, and its configuration changes for each size.

    ``shape`` is, for each size, the shape of the input without the batch.
    """

    name: str
    model_class: str
    config_class: str
    config: Mapping[Size, Mapping[str, Any]]
    shape: Mapping[Size, tuple[int, ...]]
    inputs: Callable[[Any, tuple[int, ...]], Inputs]
    targets: Callable[[Any, tuple[int, ...]], torch.Tensor]

    def build(self, size: Size = "small", seed: int = 0, **config: Any) -> torch.nn.Module:
        """The model, in ``eval`` mode; ``config`` overrides the settings of the size.

        Raises:
            ImportError: ``transformers`` is not installed.
        """
        import transformers

        torch.manual_seed(seed)
        configuration = getattr(transformers, self.config_class)(**{**self.config[size], **config})
        return getattr(transformers, self.model_class)(configuration).eval()

    def example(self, model: torch.nn.Module, size: Size = "small", batch: int = 1, seed: int = 0) -> Inputs:
        """Random inputs for a model of that size, as keyword arguments."""
        torch.manual_seed(seed)
        return self.inputs(model.config, (batch, *self.shape[size]))

    def example_with_targets(
        self, model: torch.nn.Module, size: Size = "small", batch: int = 1, seed: int = 0
    ) -> Inputs:
        """The same with ``labels``, so that the model returns a loss."""
        inputs = self.example(model, size, batch, seed)
        return {**inputs, "labels": self.targets(model.config, (batch, *self.shape[size]))}


def _tokens(config: Any, shape: tuple[int, ...]) -> Inputs:
    return {"input_ids": torch.randint(0, config.vocab_size, shape)}


def _next_tokens(config: Any, shape: tuple[int, ...]) -> torch.Tensor:
    return torch.randint(0, config.vocab_size, shape)


def _image(config: Any, shape: tuple[int, ...]) -> Inputs:
    return {"pixel_values": torch.randn(shape)}


def _classes(config: Any, shape: tuple[int, ...]) -> torch.Tensor:
    return torch.randint(0, config.num_labels, shape[:1])


MODELS: dict[str, ModelFamily] = {
    family.name: family
    for family in (
        ModelFamily(
            name="bert",
            model_class="BertForMaskedLM",
            config_class="BertConfig",
            config={
                "tiny": {
                    "vocab_size": 100,
                    "hidden_size": 32,
                    "num_hidden_layers": 2,
                    "num_attention_heads": 4,
                    "intermediate_size": 64,
                    "max_position_embeddings": 64,
                },
                "small": {
                    "vocab_size": 4000,
                    "hidden_size": 256,
                    "num_hidden_layers": 4,
                    "num_attention_heads": 4,
                    "intermediate_size": 1024,
                },
                "full": {},
            },
            shape={"tiny": (12,), "small": (128,), "full": (128,)},
            inputs=_tokens,
            targets=_next_tokens,
        ),
        ModelFamily(
            name="gpt2",
            model_class="GPT2LMHeadModel",
            config_class="GPT2Config",
            config={
                "tiny": {
                    "vocab_size": 100,
                    "n_embd": 32,
                    "n_layer": 2,
                    "n_head": 4,
                    "n_positions": 64,
                    "bos_token_id": 0,
                    "eos_token_id": 0,
                },
                "small": {
                    "vocab_size": 4000,
                    "n_embd": 256,
                    "n_layer": 4,
                    "n_head": 4,
                    "bos_token_id": 0,
                    "eos_token_id": 0,
                },
                "full": {},
            },
            shape={"tiny": (12,), "small": (128,), "full": (128,)},
            inputs=_tokens,
            targets=_next_tokens,
        ),
        ModelFamily(
            name="llama",
            model_class="LlamaForCausalLM",
            config_class="LlamaConfig",
            config={
                "tiny": {
                    "vocab_size": 100,
                    "hidden_size": 32,
                    "intermediate_size": 64,
                    "num_hidden_layers": 2,
                    "num_attention_heads": 4,
                    "num_key_value_heads": 2,
                    "max_position_embeddings": 64,
                },
                "small": {
                    "vocab_size": 4000,
                    "hidden_size": 256,
                    "intermediate_size": 688,
                    "num_hidden_layers": 4,
                    "num_attention_heads": 4,
                    "num_key_value_heads": 2,
                },
                "full": {
                    "hidden_size": 512,
                    "intermediate_size": 1376,
                    "num_hidden_layers": 8,
                    "num_attention_heads": 8,
                    "num_key_value_heads": 4,
                },
            },
            shape={"tiny": (12,), "small": (128,), "full": (128,)},
            inputs=_tokens,
            targets=_next_tokens,
        ),
        ModelFamily(
            name="vit",
            model_class="ViTForImageClassification",
            config_class="ViTConfig",
            config={
                "tiny": {
                    "image_size": 16,
                    "patch_size": 8,
                    "hidden_size": 32,
                    "num_hidden_layers": 2,
                    "num_attention_heads": 4,
                    "intermediate_size": 64,
                    "num_labels": 7,
                },
                "small": {
                    "image_size": 128,
                    "hidden_size": 256,
                    "num_hidden_layers": 4,
                    "num_attention_heads": 4,
                    "intermediate_size": 1024,
                    "num_labels": 100,
                },
                "full": {"num_labels": 1000},
            },
            shape={"tiny": (3, 16, 16), "small": (3, 128, 128), "full": (3, 224, 224)},
            inputs=_image,
            targets=_classes,
        ),
        ModelFamily(
            name="resnet",
            model_class="ResNetForImageClassification",
            config_class="ResNetConfig",
            config={
                "tiny": {
                    "embedding_size": 8,
                    "hidden_sizes": [8, 16],
                    "depths": [1, 2],
                    "layer_type": "basic",
                    "num_labels": 7,
                },
                "small": {
                    "hidden_sizes": [64, 128, 256, 512],
                    "depths": [2, 2, 2, 2],
                    "layer_type": "basic",
                    "num_labels": 100,
                },
                "full": {"num_labels": 1000},
            },
            shape={"tiny": (3, 32, 32), "small": (3, 128, 128), "full": (3, 224, 224)},
            inputs=_image,
            targets=_classes,
        ),
    )
}
