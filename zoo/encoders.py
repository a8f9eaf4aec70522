"""Text encoders."""

from __future__ import annotations

from typing import Any

import torch

from .architecture import (
    BATCH,
    LENGTH,
    TEXT,
    Architecture,
    Inputs,
    class_labels,
    masked_tokens,
    random_tokens,
    token_labels,
    tokens,
)

_TWELVE = {"num_hidden_layers": 12}


def _boxes(config: Any) -> Inputs:
    corners = torch.randint(0, 50, (BATCH, LENGTH, 2))
    return {"input_ids": random_tokens(config), "bbox": torch.cat([corners, corners + 10], -1)}


ENCODERS = (
    Architecture("bert", "encoder", "BertForMaskedLM", TEXT, masked_tokens, token_labels, _TWELVE),
    Architecture("roberta", "encoder", "RobertaForMaskedLM", TEXT, tokens, token_labels, _TWELVE),
    Architecture(
        "distilbert",
        "encoder",
        "DistilBertForMaskedLM",
        {"vocab_size": 100, "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64, "max_position_embeddings": 64},
        masked_tokens,
        token_labels,
        {"n_layers": 6},
    ),
    Architecture(
        "albert", "encoder", "AlbertForMaskedLM", {**TEXT, "embedding_size": 16}, tokens, token_labels, _TWELVE
    ),
    Architecture(
        "electra", "encoder", "ElectraForMaskedLM", {**TEXT, "embedding_size": 16}, tokens, token_labels, _TWELVE
    ),
    Architecture(
        "deberta",
        "encoder",
        "DebertaForMaskedLM",
        {**TEXT, "relative_attention": True, "pos_att_type": ["c2p", "p2c"], "type_vocab_size": 0},
        masked_tokens,
        token_labels,
        _TWELVE,
    ),
    Architecture(
        "deberta-v2",
        "encoder",
        "DebertaV2ForMaskedLM",
        {
            **TEXT,
            "relative_attention": True,
            "pos_att_type": ["c2p", "p2c"],
            "position_buckets": 8,
            "norm_rel_ebd": "layer_norm",
            "share_att_key": True,
            "type_vocab_size": 0,
            "position_biased_input": False,
        },
        masked_tokens,
        token_labels,
        _TWELVE,
    ),
    Architecture("mpnet", "encoder", "MPNetForMaskedLM", TEXT, tokens, token_labels, _TWELVE),
    Architecture(
        "longformer", "encoder", "LongformerForMaskedLM", {**TEXT, "attention_window": 4}, tokens, token_labels, _TWELVE
    ),
    Architecture(
        "big_bird",
        "encoder",
        "BigBirdForMaskedLM",
        {**TEXT, "attention_type": "original_full"},
        tokens,
        token_labels,
        _TWELVE,
    ),
    Architecture(
        "xlnet",
        "encoder",
        "XLNetLMHeadModel",
        {"vocab_size": 100, "d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 64},
        tokens,
        token_labels,
        {"n_layer": 12},
    ),
    Architecture("fnet", "encoder", "FNetForMaskedLM", TEXT, tokens, token_labels, _TWELVE),
    Architecture(
        "funnel",
        "encoder",
        "FunnelForMaskedLM",
        {
            "vocab_size": 100,
            "block_sizes": [1, 1, 1],
            "num_decoder_layers": 1,
            "d_model": 32,
            "n_head": 4,
            "d_head": 8,
            "d_inner": 64,
        },
        tokens,
        token_labels,
        {"block_sizes": [4, 4, 4], "num_decoder_layers": 2},
    ),
    Architecture(
        "convbert",
        "encoder",
        "ConvBertForMaskedLM",
        {**TEXT, "embedding_size": 16, "head_ratio": 2, "conv_kernel_size": 3},
        tokens,
        token_labels,
        _TWELVE,
    ),
    Architecture(
        "squeezebert",
        "encoder",
        "SqueezeBertForMaskedLM",
        {**TEXT, "embedding_size": 32},
        tokens,
        token_labels,
        _TWELVE,
    ),
    Architecture(
        "mobilebert",
        "encoder",
        "MobileBertForMaskedLM",
        {**TEXT, "embedding_size": 16, "intra_bottleneck_size": 16, "num_feedforward_networks": 2},
        tokens,
        token_labels,
        {"num_hidden_layers": 24},
    ),
    Architecture(
        "nystromformer",
        "encoder",
        "NystromformerForMaskedLM",
        {**TEXT, "num_landmarks": 12, "segment_means_seq_len": 12, "conv_kernel_size": 3},
        tokens,
        token_labels,
        _TWELVE,
    ),
    Architecture(
        "modernbert", "encoder", "ModernBertForMaskedLM", TEXT, masked_tokens, token_labels, {"num_hidden_layers": 22}
    ),
    Architecture(
        "roformer", "encoder", "RoFormerForMaskedLM", {**TEXT, "embedding_size": 16}, tokens, token_labels, _TWELVE
    ),
    Architecture(
        "rembert",
        "encoder",
        "RemBertForMaskedLM",
        {**TEXT, "input_embedding_size": 16, "output_embedding_size": 16},
        tokens,
        token_labels,
        {"num_hidden_layers": 32},
    ),
    Architecture("ibert", "encoder", "IBertForMaskedLM", TEXT, tokens, token_labels, _TWELVE),
    Architecture(
        "esm",
        "encoder",
        "EsmForMaskedLM",
        {**TEXT, "mask_token_id": 4, "position_embedding_type": "rotary"},
        masked_tokens,
        token_labels,
        {"num_hidden_layers": 33},
    ),
    Architecture(
        "canine",
        "encoder",
        "CanineForSequenceClassification",
        {**TEXT, "num_hash_buckets": 32, "local_transformer_stride": 4, "downsampling_rate": 2},
        tokens,
        class_labels,
        _TWELVE,
    ),
    Architecture(
        "layoutlm",
        "encoder",
        "LayoutLMForMaskedLM",
        {**TEXT, "max_2d_position_embeddings": 64},
        _boxes,
        token_labels,
        _TWELVE,
    ),
    Architecture(
        "xlm",
        "encoder",
        "XLMWithLMHeadModel",
        {"vocab_size": 100, "emb_dim": 32, "n_layers": 2, "n_heads": 4, "max_position_embeddings": 64},
        tokens,
        token_labels,
        {"n_layers": 12},
    ),
    Architecture(
        "megatron_bert",
        "encoder",
        "MegatronBertForMaskedLM",
        TEXT,
        masked_tokens,
        token_labels,
        {"num_hidden_layers": 24},
    ),
    Architecture(
        "yoso",
        "encoder",
        "YosoForMaskedLM",
        {**TEXT, "use_expectation": True, "num_hash": 4},
        tokens,
        token_labels,
        _TWELVE,
    ),
)
