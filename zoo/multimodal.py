"""Models of text combined with images or audio."""

from __future__ import annotations

from typing import Any

import torch

from .architecture import BATCH, LENGTH, PATCHES, TEXT, Architecture, Inputs, random_tokens

_IMAGE_TOKEN = 95
_PAIR: dict[str, Any] = {"text_config": dict(TEXT), "vision_config": dict(PATCHES)}
_DEEP_PAIR = {"text_config": {"num_hidden_layers": 12}, "vision_config": {"num_hidden_layers": 12}}
_LLAMA = {**TEXT, "model_type": "llama", "num_key_value_heads": 2}


def _pictures(size: int = 32) -> torch.Tensor:
    return torch.randn(BATCH, 3, size, size)


def _pair(config: Any) -> Inputs:
    return {"input_ids": random_tokens(config), "pixel_values": _pictures()}


def _pair_with_loss(config: Any) -> Inputs:
    return {"return_loss": True}


def _caption(config: Any) -> Inputs:
    return {"labels": random_tokens(config)}


def _within(images: int) -> Any:
    """Tokens; the first ones represent the patches of one image in each row."""

    def inputs(config: Any) -> Inputs:
        ids = torch.cat([torch.full((BATCH, images), _IMAGE_TOKEN), random_tokens(config)], 1)
        return {"input_ids": ids, "pixel_values": _pictures(), "attention_mask": torch.ones_like(ids)}

    return inputs


def _within_labels(images: int) -> Any:
    return lambda config: {"labels": random_tokens(config, LENGTH + images)}


def _regions(config: Any) -> Inputs:
    return {
        "input_ids": random_tokens(config),
        "visual_feats": torch.randn(BATCH, 5, config.visual_feat_dim),
        "visual_pos": torch.rand(BATCH, 5, 4),
    }


def _visual_bert(config: Any) -> Inputs:
    return {"input_ids": random_tokens(config), "visual_embeds": torch.randn(BATCH, 5, config.visual_embedding_dim)}


MULTIMODAL = (
    Architecture(
        "clip", "multimodal", "CLIPModel", {**_PAIR, "projection_dim": 16}, _pair, _pair_with_loss, _DEEP_PAIR
    ),
    Architecture(
        "siglip",
        "multimodal",
        "SiglipModel",
        _PAIR,
        lambda c: {"input_ids": random_tokens(c), "pixel_values": _pictures()},
        _pair_with_loss,
        _DEEP_PAIR,
    ),
    Architecture(
        "altclip",
        "multimodal",
        "AltCLIPModel",
        {"text_config": {**TEXT, "project_dim": 16}, "vision_config": dict(PATCHES), "projection_dim": 16},
        _pair,
        _pair_with_loss,
        _DEEP_PAIR,
    ),
    Architecture(
        "chinese_clip",
        "multimodal",
        "ChineseCLIPModel",
        {**_PAIR, "projection_dim": 16},
        _pair,
        _pair_with_loss,
        _DEEP_PAIR,
    ),
    Architecture(
        "clipseg",
        "multimodal",
        "CLIPSegForImageSegmentation",
        {
            "text_config": dict(TEXT),
            "vision_config": {**PATCHES, "num_hidden_layers": 4},
            "projection_dim": 16,
            "extract_layers": [1, 2, 3],
            "reduce_dim": 8,
            "decoder_num_attention_heads": 2,
            "decoder_intermediate_size": 16,
        },
        _pair,
        None,
        _DEEP_PAIR,
    ),
    Architecture(
        "owlvit",
        "multimodal",
        "OwlViTForObjectDetection",
        {**_PAIR, "projection_dim": 32},
        lambda c: {
            "input_ids": random_tokens(c),
            "pixel_values": _pictures(),
            "attention_mask": torch.ones(BATCH, LENGTH, dtype=torch.long),
        },
        None,
        _DEEP_PAIR,
    ),
    Architecture(
        "groupvit",
        "multimodal",
        "GroupViTModel",
        {
            "text_config": dict(TEXT),
            "vision_config": {**PATCHES, "depths": [2, 2], "num_group_tokens": [8, 4], "num_output_groups": [8, 4]},
            "projection_dim": 16,
            "projection_intermediate_dim": 16,
        },
        _pair,
        _pair_with_loss,
    ),
    Architecture(
        "blip",
        "multimodal",
        "BlipForConditionalGeneration",
        {"text_config": {**TEXT, "encoder_hidden_size": 32}, "vision_config": dict(PATCHES), "projection_dim": 16},
        _pair,
        _caption,
        _DEEP_PAIR,
    ),
    Architecture(
        "blip-2",
        "multimodal",
        "Blip2ForConditionalGeneration",
        {
            "vision_config": dict(PATCHES),
            "qformer_config": {**TEXT, "encoder_hidden_size": 32, "cross_attention_frequency": 1},
            "text_config": {**TEXT, "model_type": "opt", "ffn_dim": 64, "word_embed_proj_dim": 32},
            "num_query_tokens": 4,
            "image_token_index": _IMAGE_TOKEN,
        },
        _within(4),
        _within_labels(4),
        _DEEP_PAIR,
    ),
    Architecture(
        "llava",
        "multimodal",
        "LlavaForConditionalGeneration",
        {
            "text_config": _LLAMA,
            "vision_config": {**PATCHES, "model_type": "clip_vision_model"},
            "image_token_id": _IMAGE_TOKEN,
            "image_token_index": _IMAGE_TOKEN,
            "vision_feature_layer": -1,
        },
        _within(16),
        _within_labels(16),
        _DEEP_PAIR,
    ),
    Architecture(
        "paligemma",
        "multimodal",
        "PaliGemmaForConditionalGeneration",
        {
            "text_config": {**TEXT, "model_type": "gemma", "num_key_value_heads": 1, "head_dim": 8},
            "vision_config": {**PATCHES, "model_type": "siglip_vision_model"},
            "projection_dim": 32,
            "image_token_id": _IMAGE_TOKEN,
            "image_token_index": _IMAGE_TOKEN,
        },
        _within(16),
        None,
        _DEEP_PAIR,
    ),
    Architecture(
        "gemma3-vision",
        "multimodal",
        "Gemma3ForConditionalGeneration",
        {
            "text_config": {
                **TEXT,
                "model_type": "gemma3_text",
                "num_key_value_heads": 1,
                "head_dim": 8,
                "sliding_window": 8,
            },
            "vision_config": {**PATCHES, "model_type": "siglip_vision_model"},
            "mm_tokens_per_image": 4,
            "image_token_id": _IMAGE_TOKEN,
            "image_token_index": _IMAGE_TOKEN,
        },
        _within(4),
        None,
        _DEEP_PAIR,
    ),
    Architecture(
        "git",
        "multimodal",
        "GitForCausalLM",
        {**TEXT, "vision_config": dict(PATCHES)},
        _pair,
        _caption,
        {"num_hidden_layers": 6, "vision_config": {"num_hidden_layers": 12}},
    ),
    Architecture(
        "vilt",
        "multimodal",
        "ViltForImageAndTextRetrieval",
        {**TEXT, **PATCHES, "max_image_length": 16},
        _pair,
        None,
        {"num_hidden_layers": 12},
    ),
    Architecture(
        "flava",
        "multimodal",
        "FlavaModel",
        {
            "text_config": dict(TEXT),
            "image_config": dict(PATCHES),
            "multimodal_config": {**PATCHES},
            "hidden_size": 32,
            "projection_dim": 16,
        },
        _pair,
        None,
        {
            "text_config": {"num_hidden_layers": 12},
            "image_config": {"num_hidden_layers": 12},
            "multimodal_config": {"num_hidden_layers": 6},
        },
    ),
    Architecture(
        "lxmert",
        "multimodal",
        "LxmertModel",
        {**TEXT, "l_layers": 2, "x_layers": 1, "r_layers": 1, "visual_feat_dim": 12},
        _regions,
        None,
        {"l_layers": 9, "x_layers": 5, "r_layers": 5},
    ),
    Architecture(
        "visual_bert",
        "multimodal",
        "VisualBertModel",
        {**TEXT, "visual_embedding_dim": 12},
        _visual_bert,
        None,
        {"num_hidden_layers": 12},
    ),
    Architecture(
        "idefics3",
        "multimodal",
        "Idefics3ForConditionalGeneration",
        {"text_config": _LLAMA, "vision_config": dict(PATCHES), "scale_factor": 2, "image_token_id": _IMAGE_TOKEN},
        lambda c: {**_within(4)(c), "pixel_values": torch.randn(BATCH, 1, 3, 32, 32)},
        _within_labels(4),
        _DEEP_PAIR,
    ),
    Architecture(
        "clap",
        "multimodal",
        "ClapModel",
        {
            "text_config": dict(TEXT),
            "audio_config": {
                "spec_size": 32,
                "num_mel_bins": 8,
                "patch_size": 2,
                "patch_stride": [2, 2],
                "patch_embeds_hidden_size": 8,
                "depths": [1, 1],
                "num_attention_heads": [2, 2],
                "hidden_size": 16,
                "window_size": 4,
                "num_classes": 4,
                "patch_embed_input_channels": 1,
                "aff_block_r": 1,
            },
            "projection_dim": 16,
        },
        lambda c: {
            "input_ids": random_tokens(c),
            "input_features": torch.randn(BATCH, 1, 80, 8),
            "is_longer": torch.zeros(BATCH, 1, dtype=torch.bool),
        },
        _pair_with_loss,
    ),
)
