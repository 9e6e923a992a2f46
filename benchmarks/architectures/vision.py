"""Architectures for images, of timm, torchvision and transformers, with few channels and few layers."""

from __future__ import annotations

from typing import Any

from .rows import Architecture, Input, Library


def _image(side: int, name: str = "pixel_values", channels: int = 3, free_sides: bool = False) -> Input:
    free = {0: "batch", 2: "height", 3: "width"} if free_sides else {0: "batch"}
    return Input(name, (1, channels, side, side), free=free)


def _row(library: Library, model: str, side: int, free_sides: bool = False, /, **configuration: Any) -> Architecture:
    return Architecture(library, model, configuration, (_image(side, "pixel_values", 3, free_sides),))


_SMALL: dict[str, Any] = {
    "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 96, "image_size": 32,
    "patch_size": 8,
}  # fmt: skip
"""A small vision transformer."""

VISION: tuple[Architecture, ...] = (
    *(
        _row("timm", name, 64)
        for name in (
            "test_byobnet", "test_convnext", "test_convnext2", "test_efficientnet", "test_efficientnet_gn",
            "test_efficientnet_ln", "test_mambaout", "test_nfnet", "test_resnet",
        )
    ),
    _row("timm", "test_vit", 160),
    _row("timm", "test_vit3", 160),
    _row("timm", "test_vit_relpos", 160),
    _row("timm", "test_maxvit", 160),
    _row("timm", "test_coatnet", 160),
    _row("timm", "mobilenetv3_small_050", 64, True),
    _row("timm", "mobilenetv2_035", 64, True),
    _row("timm", "ghostnet_050", 64),
    _row("timm", "lcnet_035", 64, True),
    _row("timm", "regnety_002", 64),
    _row("timm", "mobileone_s0", 64),
    _row("timm", "densenet121", 64, growth_rate=8, block_config=[2, 2, 2, 2]),
    _row("timm", "hrnet_w18_small", 64),
    _row("timm", "levit_128s", 224, depth=[1, 1, 1]),
    _row("timm", "convit_tiny", 64, img_size=64, depth=2),
    _row("timm", "cait_xxs24_224", 64, img_size=64, depth=2),
    _row("timm", "convnextv2_atto", 64, depths=[1, 1, 1, 1]),
    _row("timm", "tnt_s_legacy_patch16_224", 64, img_size=64, depth=2),
    _row("timm", "swin_tiny_patch4_window7_224", 64, img_size=64, window_size=4, embed_dim=24, depths=[2, 2],
         num_heads=[2, 4]),
    _row("timm", "dla46_c", 64),
    _row("timm", "xcit_nano_12_p16_224", 64, img_size=64, depth=2),
    _row("timm", "edgenext_xx_small", 64, depths=[1, 1, 2, 1]),
    _row("timm", "efficientvit_b0", 64),
    _row("timm", "mobilevitv2_050", 64),
    _row("timm", "pvt_v2_b0", 64, depths=[1, 1, 1, 1]),
    _row("timm", "beit_base_patch16_224", 64, img_size=64, depth=2, embed_dim=48, num_heads=4),
    _row("timm", "eva02_tiny_patch14_224", 56, img_size=56, depth=2),
    _row("timm", "sequencer2d_s", 64, layers=[1, 1, 1, 1], img_size=64, embed_dims=[32, 32, 32, 32],
         hidden_sizes=[16, 16, 16, 16]),
    _row("timm", "skresnet18", 64),
    _row("timm", "res2net50_14w_8s", 64, layers=[1, 1, 1, 1]),
    _row("timm", "hgnetv2_b0", 64, True),
    _row("torchvision", "shufflenet_v2_x0_5", 64),
    _row("torchvision", "squeezenet1_1", 64, True),
    _row("torchvision", "segmentation.lraspp_mobilenet_v3_large", 64),
    _row("torchvision", "googlenet", 64, aux_logits=False, init_weights=False),
    _row("transformers", "ViTForImageClassification", 32, **_SMALL),
    _row("transformers", "SegformerForSemanticSegmentation", 64, hidden_sizes=[16, 32, 32, 64], depths=[1, 1, 1, 1],
         decoder_hidden_size=32),
    _row("transformers", "YolosForObjectDetection", 32, hidden_size=48, num_hidden_layers=2, num_attention_heads=4,
         intermediate_size=96, image_size=[32, 32], patch_size=8, num_detection_tokens=10),
    _row("transformers", "Dinov2Model", 32, **{**_SMALL, "mlp_ratio": 2}),
    _row("timm", "ese_vovnet19b_slim_dw", 64),
    _row("timm", "starnet_s1", 64),
    _row(
        "transformers", "RTDetrForObjectDetection", 64, d_model=32, encoder_hidden_dim=32, encoder_ffn_dim=64,
        encoder_in_channels=[32, 48, 64], feat_strides=[8, 16, 32], decoder_in_channels=[32, 32, 32],
        decoder_layers=2, decoder_attention_heads=4, decoder_ffn_dim=64, num_queries=20, encoder_attention_heads=4,
        hidden_expansion=0.5, num_denoising=0, num_labels=8,
        backbone_config={
            "model_type": "rt_detr_resnet", "embedding_size": 16, "hidden_sizes": [16, 32, 48, 64],
            "depths": [1, 1, 1, 1], "layer_type": "basic", "out_features": ["stage2", "stage3", "stage4"],
        },
    ),
    Architecture(
        "transformers", "DetrForObjectDetection",
        {
            "d_model": 32, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 4,
            "decoder_attention_heads": 4, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "num_queries": 10,
            "use_timm_backbone": False, "use_pretrained_backbone": False, "backbone": None,
            "backbone_config": {
                "model_type": "resnet", "embedding_size": 16, "hidden_sizes": [16, 32, 48, 64], "depths": [1, 1, 1, 1],
                "layer_type": "basic", "out_features": ["stage4"],
            },
        },
        (_image(64), Input("pixel_mask", (1, 64, 64), "ones", 2, free={0: "batch"})),
    ),
)  # fmt: skip
"""Names that begin with `test_` are timm's own small models of their families."""
