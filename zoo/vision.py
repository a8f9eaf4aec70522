"""Image and video models."""

from __future__ import annotations

from typing import Any

import torch

from .architecture import BATCH, PATCHES, Architecture, Inputs, class_labels, pixels

_TWELVE = {"num_hidden_layers": 12}
_RESNET: dict[str, Any] = {
    "embedding_size": 8,
    "hidden_sizes": [8, 16, 16, 16],
    "depths": [1, 1, 1, 1],
    "layer_type": "basic",
}
_DEEP_RESNET = {"depths": [3, 4, 6, 3]}
_DETR: dict[str, Any] = {
    "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
    "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "num_queries": 5, "num_labels": 3,
}  # fmt: skip


def _video(config: Any) -> Inputs:
    return {"pixel_values": torch.randn(BATCH, config.num_frames, 3, 32, 32)}


def _map(config: Any) -> Inputs:
    return {"labels": torch.randint(0, config.num_labels, (BATCH, 32, 32))}


def _noised(config: Any) -> Inputs:
    return {"pixel_values": torch.randn(BATCH, 3, 32, 32), "noise": torch.rand(BATCH, 16)}


def _masked(config: Any) -> Inputs:
    return {
        "pixel_values": torch.randn(BATCH, config.num_frames, 3, 32, 32),
        "bool_masked_pos": (torch.arange(16) % 2 == 0).expand(BATCH, 16),
    }


def _backbone(**config: Any) -> Any:
    import transformers

    return transformers.ResNetConfig(**{**_RESNET, "out_features": ["stage4"], **config})


VISION = (
    Architecture("vit", "vision", "ViTForImageClassification", PATCHES, pixels(), class_labels, _TWELVE),
    Architecture("deit", "vision", "DeiTForImageClassification", PATCHES, pixels(), class_labels, _TWELVE),
    Architecture(
        "beit",
        "vision",
        "BeitForImageClassification",
        {**PATCHES, "use_relative_position_bias": True},
        pixels(),
        class_labels,
        _TWELVE,
    ),
    Architecture(
        "data2vec-vision", "vision", "Data2VecVisionForImageClassification", PATCHES, pixels(), class_labels, _TWELVE
    ),
    Architecture("dinov2", "vision", "Dinov2ForImageClassification", PATCHES, pixels(), class_labels, _TWELVE),
    Architecture("ijepa", "vision", "IJepaForImageClassification", PATCHES, pixels(), class_labels, _TWELVE),
    Architecture(
        "vit_mae",
        "vision",
        "ViTMAEForPreTraining",
        {
            **PATCHES,
            "decoder_hidden_size": 16,
            "decoder_num_hidden_layers": 1,
            "decoder_num_attention_heads": 2,
            "decoder_intermediate_size": 32,
        },
        _noised,
        None,
        _TWELVE,
    ),
    Architecture(
        "swin",
        "vision",
        "SwinForImageClassification",
        {"image_size": 32, "patch_size": 2, "embed_dim": 8, "depths": [2, 2], "num_heads": [2, 4], "window_size": 4},
        pixels(),
        class_labels,
        {"depths": [2, 6]},
    ),
    Architecture(
        "swinv2",
        "vision",
        "Swinv2ForImageClassification",
        {"image_size": 32, "patch_size": 2, "embed_dim": 8, "depths": [2, 2], "num_heads": [2, 4], "window_size": 4},
        pixels(),
        class_labels,
        {"depths": [2, 6]},
    ),
    Architecture(
        "convnext",
        "vision",
        "ConvNextForImageClassification",
        {"hidden_sizes": [8, 16, 16, 16], "depths": [1, 1, 1, 1]},
        pixels(),
        class_labels,
        {"depths": [3, 3, 9, 3]},
    ),
    Architecture(
        "convnextv2",
        "vision",
        "ConvNextV2ForImageClassification",
        {"hidden_sizes": [8, 16, 16, 16], "depths": [1, 1, 1, 1]},
        pixels(),
        class_labels,
        {"depths": [3, 3, 9, 3]},
    ),
    Architecture("resnet", "vision", "ResNetForImageClassification", _RESNET, pixels(), class_labels, _DEEP_RESNET),
    Architecture(
        "regnet",
        "vision",
        "RegNetForImageClassification",
        {"embedding_size": 8, "hidden_sizes": [8, 16, 16, 16], "depths": [1, 1, 1, 1], "groups_width": 8},
        pixels(),
        class_labels,
        {"depths": [2, 6, 12, 2]},
    ),
    Architecture(
        "bit",
        "vision",
        "BitForImageClassification",
        {"num_groups": 4, "embedding_size": 32, "hidden_sizes": [32, 32, 64, 64], "depths": [1, 1, 1, 1]},
        pixels(),
        class_labels,
        _DEEP_RESNET,
    ),
    Architecture(
        "segformer",
        "vision",
        "SegformerForSemanticSegmentation",
        {
            "depths": [1, 1, 1, 1],
            "hidden_sizes": [8, 8, 16, 16],
            "num_attention_heads": [1, 2, 2, 4],
            "decoder_hidden_size": 16,
            "num_labels": 3,
        },
        pixels(),
        _map,
        {"depths": [2, 2, 2, 2]},
    ),
    Architecture(
        "mobilenet_v1",
        "vision",
        "MobileNetV1ForImageClassification",
        {"depth_multiplier": 0.25, "image_size": 32},
        pixels(),
        class_labels,
    ),
    Architecture(
        "mobilenet_v2",
        "vision",
        "MobileNetV2ForImageClassification",
        {"depth_multiplier": 0.25, "image_size": 32},
        pixels(),
        class_labels,
    ),
    Architecture(
        "mobilevit",
        "vision",
        "MobileViTForImageClassification",
        {
            "image_size": 64,
            "hidden_sizes": [16, 16, 16],
            "neck_hidden_sizes": [8, 8, 8, 8, 8, 8, 16],
            "num_attention_heads": 4,
        },
        pixels(64),
        class_labels,
    ),
    Architecture(
        "mobilevitv2",
        "vision",
        "MobileViTV2ForImageClassification",
        {"image_size": 64, "width_multiplier": 0.25},
        pixels(64),
        class_labels,
    ),
    Architecture(
        "efficientnet",
        "vision",
        "EfficientNetForImageClassification",
        {"image_size": 32, "width_coefficient": 0.25, "depth_coefficient": 0.5, "hidden_dim": 320},
        pixels(),
        class_labels,
        {"depth_coefficient": 1.0},
    ),
    Architecture(
        "poolformer",
        "vision",
        "PoolFormerForImageClassification",
        {"hidden_sizes": [8, 8, 16, 16], "depths": [1, 1, 1, 1]},
        pixels(),
        class_labels,
        {"depths": [2, 2, 6, 2]},
    ),
    Architecture(
        "pvt",
        "vision",
        "PvtForImageClassification",
        {
            "image_size": 32,
            "hidden_sizes": [8, 16, 16, 16],
            "depths": [1, 1, 1, 1],
            "num_attention_heads": [1, 2, 2, 2],
        },
        pixels(),
        class_labels,
        {"depths": [2, 2, 2, 2]},
    ),
    Architecture(
        "pvt_v2",
        "vision",
        "PvtV2ForImageClassification",
        {
            "image_size": 32,
            "hidden_sizes": [8, 16, 16, 16],
            "depths": [1, 1, 1, 1],
            "num_attention_heads": [1, 2, 2, 2],
        },
        pixels(),
        class_labels,
        {"depths": [2, 2, 2, 2]},
    ),
    Architecture(
        "levit",
        "vision",
        "LevitForImageClassification",
        {
            "image_size": 64,
            "hidden_sizes": [16, 24, 32],
            "num_attention_heads": [2, 3, 4],
            "depths": [1, 1, 1],
            "key_dim": [4, 4, 4],
        },
        pixels(64),
        class_labels,
        {"depths": [4, 4, 4]},
    ),
    Architecture(
        "cvt",
        "vision",
        "CvtForImageClassification",
        {"embed_dim": [8, 16, 16], "num_heads": [1, 2, 2], "depth": [1, 2, 3], "cls_token": [False, False, True]},
        pixels(),
        class_labels,
        {"depth": [1, 2, 10]},
    ),
    Architecture(
        "focalnet",
        "vision",
        "FocalNetForImageClassification",
        {
            "image_size": 32,
            "patch_size": 4,
            "embed_dim": 8,
            "hidden_sizes": [8, 16],
            "depths": [1, 1],
            "focal_levels": [2, 2],
            "focal_windows": [3, 3],
        },
        pixels(),
        class_labels,
        {"depths": [2, 6]},
    ),
    Architecture(
        "hiera",
        "vision",
        "HieraForImageClassification",
        {
            "image_size": [32, 32],
            "embed_dim": 8,
            "num_heads": [1, 1, 2, 2],
            "depths": [1, 1, 1, 1],
            "patch_stride": [2, 2],
            "query_stride": [2, 2],
            "num_query_pool": 2,
            "masked_unit_size": [8, 8],
        },
        pixels(),
        class_labels,
        {"depths": [2, 3, 16, 3]},
    ),
    Architecture(
        "swin2sr",
        "vision",
        "Swin2SRForImageSuperResolution",
        {"image_size": 16, "embed_dim": 16, "depths": [2, 2], "num_heads": [2, 2], "window_size": 4, "upscale": 2},
        pixels(16),
        None,
        {"depths": [6, 6]},
    ),
    Architecture(
        "glpn",
        "vision",
        "GLPNForDepthEstimation",
        {
            "depths": [1, 1, 1, 1],
            "hidden_sizes": [8, 8, 16, 16],
            "num_attention_heads": [1, 2, 2, 4],
            "decoder_hidden_size": 8,
        },
        pixels(),
        None,
        {"depths": [2, 2, 2, 2]},
    ),
    Architecture(
        "dpt",
        "vision",
        "DPTForSemanticSegmentation",
        {
            **PATCHES,
            "num_hidden_layers": 4,
            "backbone_out_indices": [0, 1, 2, 3],
            "neck_hidden_sizes": [8, 8, 16, 16],
            "fusion_hidden_size": 16,
            "num_labels": 3,
            "is_hybrid": False,
        },
        pixels(),
        _map,
        _TWELVE,
    ),
    Architecture(
        "yolos",
        "vision",
        "YolosForObjectDetection",
        {**PATCHES, "image_size": [32, 32], "num_detection_tokens": 5, "num_labels": 3},
        pixels(),
        None,
        _TWELVE,
    ),
    Architecture(
        "vitpose",
        "vision",
        "VitPoseForPoseEstimation",
        {
            "backbone_config": {
                "model_type": "vitpose_backbone",
                "image_size": [32, 32],
                "patch_size": [8, 8],
                "hidden_size": 32,
                "num_hidden_layers": 2,
                "num_attention_heads": 4,
                "out_indices": [2],
            },
            "num_labels": 3,
        },
        pixels(),
        None,
    ),
    Architecture(
        "superpoint",
        "vision",
        "SuperPointForKeypointDetection",
        {"encoder_hidden_sizes": [8, 8, 16, 16], "decoder_hidden_size": 16, "descriptor_decoder_dim": 16},
        pixels(),
        None,
    ),
    Architecture(
        "videomae",
        "vision",
        "VideoMAEForPreTraining",
        {
            **PATCHES,
            "num_frames": 2,
            "tubelet_size": 2,
            "decoder_num_attention_heads": 2,
            "decoder_hidden_size": 16,
            "decoder_num_hidden_layers": 1,
            "decoder_intermediate_size": 32,
        },
        _masked,
        None,
        _TWELVE,
    ),
    Architecture(
        "timesformer",
        "vision",
        "TimesformerForVideoClassification",
        {**PATCHES, "num_frames": 2},
        _video,
        class_labels,
        _TWELVE,
    ),
    Architecture(
        "vivit",
        "vision",
        "VivitForVideoClassification",
        {**PATCHES, "num_frames": 2, "tubelet_size": [2, 8, 8]},
        _video,
        class_labels,
        _TWELVE,
    ),
)
