"""Audio models."""

from __future__ import annotations

from typing import Any

import torch

from .architecture import BATCH, TEXT, Architecture, Inputs, class_labels, random_tokens, sound

_WAVE: dict[str, Any] = {
    **TEXT, "conv_dim": [16, 16], "conv_kernel": [10, 3], "conv_stride": [5, 2], "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 4, "num_feat_extract_layers": 2, "mask_time_prob": 0.0, "layerdrop": 0.0,
}  # fmt: skip
_TWELVE = {"num_hidden_layers": 12}
_BOTH: dict[str, Any] = {
    "vocab_size": 100, "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "pad_token_id": 0, "bos_token_id": 1,
    "eos_token_id": 2, "decoder_start_token_id": 1,
}  # fmt: skip


def _letters(config: Any) -> Inputs:
    return {"labels": random_tokens(config, 6)}


def _spectrum(config: Any) -> Inputs:
    return {"input_values": torch.randn(BATCH, config.max_length, config.num_mel_bins)}


def _mel(length: int, transposed: bool = False) -> Any:
    def inputs(config: Any) -> Inputs:
        bins = getattr(config, "num_mel_bins", None) or config.input_feat_per_channel
        shape = (BATCH, length, bins) if transposed else (BATCH, bins, length)
        return {"input_features": torch.randn(shape), "decoder_input_ids": random_tokens(config, 7)}

    return inputs


def _frames(config: Any) -> Inputs:
    return {"input_features": torch.randn(BATCH, 40, config.feature_projection_input_dim)}


def _codec(config: Any) -> Inputs:
    return {"input_values": torch.randn(BATCH, 1, 640)}


AUDIO = (
    Architecture("wav2vec2", "audio", "Wav2Vec2ForCTC", _WAVE, sound(), _letters, _TWELVE),
    Architecture("hubert", "audio", "HubertForCTC", _WAVE, sound(), _letters, _TWELVE),
    Architecture(
        "wavlm",
        "audio",
        "WavLMForCTC",
        {**_WAVE, "num_buckets": 8, "max_bucket_distance": 16},
        sound(),
        _letters,
        _TWELVE,
    ),
    Architecture("unispeech-sat", "audio", "UniSpeechSatForCTC", _WAVE, sound(), _letters, _TWELVE),
    Architecture(
        "data2vec-audio",
        "audio",
        "Data2VecAudioForCTC",
        {**_WAVE, "conv_pos_kernel_size": 3, "num_conv_pos_embeddings": 2},
        sound(),
        _letters,
        _TWELVE,
    ),
    Architecture("sew", "audio", "SEWForCTC", {**_WAVE, "squeeze_factor": 2}, sound(), _letters, _TWELVE),
    Architecture(
        "wav2vec2-bert",
        "audio",
        "Wav2Vec2BertForCTC",
        {
            **TEXT,
            "feature_projection_input_dim": 20,
            "conv_depthwise_kernel_size": 3,
            "mask_time_prob": 0.0,
            "layerdrop": 0.0,
        },
        _frames,
        _letters,
        {"num_hidden_layers": 24},
    ),
    Architecture(
        "whisper",
        "audio",
        "WhisperForConditionalGeneration",
        {**_BOTH, "num_mel_bins": 20, "max_source_positions": 30, "max_target_positions": 20},
        _mel(60),
        lambda c: {"labels": random_tokens(c, 7)},
        {"encoder_layers": 6, "decoder_layers": 6},
    ),
    Architecture(
        "speech_to_text",
        "audio",
        "Speech2TextForConditionalGeneration",
        {
            **_BOTH,
            "input_feat_per_channel": 20,
            "conv_channels": 16,
            "max_source_positions": 64,
            "max_target_positions": 32,
        },
        _mel(40, True),
        lambda c: {"labels": random_tokens(c, 7)},
        {"encoder_layers": 12, "decoder_layers": 6},
    ),
    Architecture(
        "audio-spectrogram-transformer",
        "audio",
        "ASTForAudioClassification",
        {**TEXT, "patch_size": 4, "frequency_stride": 4, "time_stride": 4, "max_length": 24, "num_mel_bins": 16},
        _spectrum,
        class_labels,
        _TWELVE,
    ),
    Architecture(
        "moonshine",
        "audio",
        "MoonshineForConditionalGeneration",
        {
            "vocab_size": 100,
            "hidden_size": 32,
            "intermediate_size": 64,
            "encoder_num_hidden_layers": 2,
            "decoder_num_hidden_layers": 2,
            "encoder_num_attention_heads": 4,
            "decoder_num_attention_heads": 4,
            "pad_token_id": 0,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "decoder_start_token_id": 1,
        },
        lambda c: {"input_values": torch.randn(BATCH, 2000), "decoder_input_ids": random_tokens(c, 7)},
        lambda c: {"labels": random_tokens(c, 7)},
        {"encoder_num_hidden_layers": 6, "decoder_num_hidden_layers": 6},
    ),
    Architecture(
        "vits",
        "audio",
        "VitsModel",
        {
            "vocab_size": 100,
            "hidden_size": 16,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "ffn_dim": 32,
            "flow_size": 16,
            "spectrogram_bins": 9,
            "prior_encoder_num_flows": 2,
            "upsample_initial_channel": 16,
            "upsample_rates": [4, 4],
            "upsample_kernel_sizes": [8, 8],
            "resblock_kernel_sizes": [3],
            "resblock_dilation_sizes": [[1, 2]],
            "noise_scale": 0.0,
            "noise_scale_duration": 0.0,
            "use_stochastic_duration_prediction": False,
        },
        lambda c: {"input_ids": random_tokens(c)},
        None,
    ),
    Architecture(
        "encodec",
        "audio",
        "EncodecModel",
        {
            "num_filters": 4,
            "upsampling_ratios": [4, 2],
            "codebook_size": 16,
            "hidden_size": 16,
            "codebook_dim": 16,
            "num_lstm_layers": 1,
            "target_bandwidths": [24.0],
            "sampling_rate": 24000,
        },
        _codec,
        None,
    ),
    Architecture(
        "univnet",
        "audio",
        "UnivNetModel",
        {
            "model_in_channels": 8,
            "model_hidden_channels": 8,
            "num_mel_bins": 10,
            "resblock_kernel_sizes": [3, 3],
            "resblock_stride_sizes": [4, 4],
            "resblock_dilation_sizes": [[1, 3], [1, 3]],
            "kernel_predictor_num_blocks": 1,
            "kernel_predictor_hidden_channels": 8,
        },
        lambda c: {
            "input_features": torch.randn(BATCH, 7, c.num_mel_bins),
            "noise_sequence": torch.randn(BATCH, 7, c.model_in_channels),
        },
        None,
    ),
)
