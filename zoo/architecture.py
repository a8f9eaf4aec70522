"""The class of a zoo entry, and the inputs that entries share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch

Inputs = dict[str, Any]
Depth = Literal["tiny", "deep"]

BATCH = 2
LENGTH = 12

# Settings that most configurations of language models share.
TEXT: Mapping[str, Any] = {
    "vocab_size": 100,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
# The same for image encoders.
PATCHES: Mapping[str, Any] = {
    "image_size": 32,
    "patch_size": 8,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
}


@dataclass(frozen=True)
class Architecture:
    """One architecture of ``transformers``, named by its class, with a configuration of tiny width.

    ``inputs`` and ``targets`` create random keyword arguments for a model of that configuration.  The targets make it
    return a loss; None means that it has no loss.  ``deep`` has the changes for the number of layers that people use.
    A model that does not work in ``train`` mode has ``trains=False``.
    """

    name: str
    kind: str
    model_class: str
    config: Mapping[str, Any]
    inputs: Callable[[Any], Inputs]
    targets: Callable[[Any], Inputs] | None = None
    deep: Mapping[str, Any] = field(default_factory=dict)
    trains: bool = True

    def build(self, depth: Depth = "tiny", seed: int = 0, **config: Any) -> torch.nn.Module:
        """The model with random weights, in ``eval`` mode; ``config`` overrides the entry's own settings.

        Raises:
            ImportError: ``transformers``, or another requirement of this model, is not installed.
            AttributeError: this release of ``transformers`` does not have it.
        """
        import transformers

        torch.manual_seed(seed)
        model_class = getattr(transformers, self.model_class)
        deep = self.deep if depth == "deep" else {}
        return model_class(model_class.config_class(**_joined(_joined(self.config, deep), config))).eval()

    def example(self, model: Any, seed: int = 0) -> Inputs:
        """Random inputs, as keyword arguments."""
        torch.manual_seed(seed)
        return self.inputs(model.config)

    def example_with_targets(self, model: Any, seed: int = 0) -> Inputs:
        """The same, with targets that make the model return a loss if it can."""
        inputs = self.example(model, seed)
        return inputs if self.targets is None else {**inputs, **self.targets(model.config)}


def _joined(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """``base`` overridden by ``over``, including nested configurations."""
    joined = dict(base)
    for key, value in over.items():
        nested = isinstance(value, Mapping) and isinstance(joined.get(key), Mapping)
        joined[key] = _joined(joined[key], value) if nested else value
    return joined


# --- inputs ----------------------------------------------------------------------------------------------------------


def random_tokens(config: Any, length: int = LENGTH) -> torch.Tensor:
    """Token ids without special tokens, which are at the start of the vocabulary here."""
    return torch.randint(5, 90, (BATCH, length))


def tokens(config: Any) -> Inputs:
    return {"input_ids": random_tokens(config)}


def masked_tokens(config: Any) -> Inputs:
    """Tokens; the last few of one row are padding."""
    mask = torch.ones(BATCH, LENGTH, dtype=torch.long)
    mask[1, -4:] = 0
    return {"input_ids": random_tokens(config), "attention_mask": mask}


def token_labels(config: Any) -> Inputs:
    return {"labels": random_tokens(config)}


def class_labels(config: Any) -> Inputs:
    return {"labels": torch.randint(0, config.num_labels, (BATCH,))}


def both_tokens(config: Any) -> Inputs:
    """Inputs for an encoder and a decoder."""
    return {"input_ids": random_tokens(config), "decoder_input_ids": random_tokens(config, 7)}


def both_labels(config: Any) -> Inputs:
    return {"labels": random_tokens(config, 7)}


def pixels(size: int = 32, channels: int = 3) -> Callable[[Any], Inputs]:
    """Images of the given size."""
    return lambda config: {"pixel_values": torch.randn(BATCH, channels, size, size)}


def sound(samples: int = 800) -> Callable[[Any], Inputs]:
    """Raw audio samples."""
    return lambda config: {"input_values": torch.randn(BATCH, samples)}
