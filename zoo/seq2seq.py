"""Text models with an encoder and a decoder, and time-series models."""

from __future__ import annotations

from typing import Any

import torch

from .architecture import BATCH, LENGTH, Architecture, Inputs, both_labels, both_tokens

_BART: dict[str, Any] = {
    "vocab_size": 100, "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "max_position_embeddings": 64,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1,
}  # fmt: skip
_T5: dict[str, Any] = {
    "vocab_size": 100, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4, "pad_token_id": 0,
    "eos_token_id": 2, "decoder_start_token_id": 0,
}  # fmt: skip


def _bart(name: str, model_class: str, layers: int, **config: Any) -> Architecture:
    deep = {"encoder_layers": layers, "decoder_layers": layers}
    return Architecture(name, "encoder-decoder", model_class, {**_BART, **config}, both_tokens, both_labels, deep)


def _masked(config: Any) -> Inputs:
    """Models that create a missing mask do not do so while they are compiled."""
    return {**both_tokens(config), "attention_mask": torch.ones(BATCH, LENGTH, dtype=torch.long)}


def _series(config: Any) -> Inputs:
    past = config.context_length + max(config.lags_sequence)
    return {
        "past_values": torch.randn(BATCH, past).abs(),
        "past_time_features": torch.randn(BATCH, past, 1),
        "past_observed_mask": torch.ones(BATCH, past),
        "future_time_features": torch.randn(BATCH, config.prediction_length, 1),
        "future_values": torch.randn(BATCH, config.prediction_length).abs(),
    }


def _patches(config: Any) -> Inputs:
    return {"past_values": torch.randn(BATCH, 32, 3), "future_values": torch.randn(BATCH, 8, 3)}


_SERIES: dict[str, Any] = {
    "prediction_length": 4, "context_length": 8, "lags_sequence": [1, 2], "num_time_features": 1, "d_model": 16,
    "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 2, "decoder_attention_heads": 2,
    "encoder_ffn_dim": 32, "decoder_ffn_dim": 32,
}  # fmt: skip

SEQ2SEQ = (
    Architecture(
        "t5", "encoder-decoder", "T5ForConditionalGeneration", _T5, both_tokens, both_labels, {"num_layers": 12}
    ),
    Architecture(
        "umt5", "encoder-decoder", "UMT5ForConditionalGeneration", _T5, both_tokens, both_labels, {"num_layers": 8}
    ),
    Architecture(
        "longt5",
        "encoder-decoder",
        "LongT5ForConditionalGeneration",
        {**_T5, "local_radius": 4},
        _masked,
        both_labels,
        {"num_layers": 12},
    ),
    Architecture(
        "switch_transformers",
        "experts",
        "SwitchTransformersForConditionalGeneration",
        {
            **_T5,
            "num_experts": 2,
            "num_sparse_encoder_layers": 1,
            "num_sparse_decoder_layers": 1,
            "num_decoder_layers": 2,
        },
        _masked,
        both_labels,
        {"num_layers": 12, "num_decoder_layers": 12, "num_sparse_encoder_layers": 3, "num_sparse_decoder_layers": 3},
    ),
    _bart("bart", "BartForConditionalGeneration", 6),
    _bart("pegasus", "PegasusForConditionalGeneration", 16),
    _bart("pegasus_x", "PegasusXForConditionalGeneration", 12, block_size=4, num_global_tokens=2),
    _bart("mbart", "MBartForConditionalGeneration", 12),
    _bart("marian", "MarianMTModel", 6, decoder_vocab_size=100),
    _bart("blenderbot", "BlenderbotForConditionalGeneration", 12),
    _bart("m2m_100", "M2M100ForConditionalGeneration", 12),
    _bart("plbart", "PLBartForConditionalGeneration", 6),
    _bart(
        "led",
        "LEDForConditionalGeneration",
        6,
        attention_window=4,
        max_encoder_position_embeddings=64,
        max_decoder_position_embeddings=64,
    ),
    _bart("bigbird_pegasus", "BigBirdPegasusForConditionalGeneration", 16, attention_type="original_full"),
    _bart(
        "nllb_moe",
        "NllbMoeForConditionalGeneration",
        12,
        num_experts=2,
        expert_capacity=8,
        encoder_sparse_step=2,
        decoder_sparse_step=2,
    ),
    Architecture(
        "fsmt",
        "encoder-decoder",
        "FSMTForConditionalGeneration",
        {**_BART, "langs": ["a", "b"], "src_vocab_size": 100, "tgt_vocab_size": 100},
        both_tokens,
        both_labels,
        {"encoder_layers": 6, "decoder_layers": 6},
    ),
    Architecture(
        "prophetnet",
        "encoder-decoder",
        "ProphetNetForConditionalGeneration",
        {
            "vocab_size": 100,
            "hidden_size": 32,
            "num_encoder_layers": 2,
            "num_decoder_layers": 2,
            "num_encoder_attention_heads": 4,
            "num_decoder_attention_heads": 4,
            "encoder_ffn_dim": 64,
            "decoder_ffn_dim": 64,
            "ngram": 2,
            "max_position_embeddings": 64,
        },
        both_tokens,
        both_labels,
        {"num_encoder_layers": 12, "num_decoder_layers": 12},
    ),
    Architecture(
        "time_series_transformer",
        "time series",
        "TimeSeriesTransformerForPrediction",
        _SERIES,
        _series,
        None,
        {"encoder_layers": 4, "decoder_layers": 4},
    ),
    Architecture(
        "informer",
        "time series",
        "InformerForPrediction",
        {**_SERIES, "sampling_factor": 2},
        _series,
        None,
        {"encoder_layers": 4, "decoder_layers": 4},
    ),
    Architecture(
        "autoformer",
        "time series",
        "AutoformerForPrediction",
        {**_SERIES, "label_length": 4, "moving_average": 3, "feature_size": 5},
        _series,
        None,
        {"encoder_layers": 4, "decoder_layers": 4},
    ),
    Architecture(
        "patchtst",
        "time series",
        "PatchTSTForPrediction",
        {
            "num_input_channels": 3,
            "context_length": 32,
            "patch_length": 8,
            "patch_stride": 8,
            "prediction_length": 8,
            "d_model": 16,
            "num_attention_heads": 2,
            "num_hidden_layers": 2,
            "ffn_dim": 32,
        },
        _patches,
        None,
        {"num_hidden_layers": 4},
    ),
    Architecture(
        "patchtsmixer",
        "time series",
        "PatchTSMixerForPrediction",
        {
            "num_input_channels": 3,
            "context_length": 32,
            "patch_length": 8,
            "patch_stride": 8,
            "prediction_length": 8,
            "d_model": 16,
            "num_layers": 2,
        },
        _patches,
        None,
        {"num_layers": 8},
    ),
)
