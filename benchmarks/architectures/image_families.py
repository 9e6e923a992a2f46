"""Further families of architectures for images: of timm, torchvision and diffusers, small or for small images."""

from __future__ import annotations

from typing import Any

from .rows import Architecture, Input, Library


def _image(library: Library, model: str, side: int = 64, /, **configuration: Any) -> Architecture:
    return Architecture(library, model, configuration, (Input("pixels", (1, 3, side, side), free={0: "batch"}),))


def _video(model: str, frames: int, side: int, /, **configuration: Any) -> Architecture:
    pixels = Input("pixels", (1, 3, frames, side, side), free={0: "batch"})
    return Architecture("torchvision", model, configuration, (pixels,))


def _diffusion(model: str, *inputs: Input, **configuration: Any) -> Architecture:
    return Architecture("diffusers", model, configuration, inputs)


_NOISE = Input("sample", (1, 4, 16, 16), free={0: "batch"})
_STEP = Input("timestep", (1,), "integers", 1000)
_PROMPT = Input("encoder_hidden_states", (1, 8, 24), free={0: "batch", 1: "tokens"})
_UNET: dict[str, Any] = {
    "sample_size": 16, "in_channels": 4, "out_channels": 4, "layers_per_block": 1, "block_out_channels": [16, 32],
    "norm_num_groups": 4,
}  # fmt: skip
_SMALL_SWIN: dict[str, Any] = {"patch_size": [4, 4], "embed_dim": 24, "depths": [2, 2], "num_heads": [2, 4]}

IMAGE_FAMILIES: tuple[Architecture, ...] = (
    *(
        _image("timm", name)
        for name in (
            "resnet18", "regnetx_002", "repvit_m0_9", "fasternet_t0", "repghostnet_050", "mobilenetv4_conv_small",
            "tf_efficientnetv2_b0", "mnasnet_small", "fbnetc_100", "spnasnet_100", "mixnet_s", "hardcorenas_a",
            "semnasnet_075", "rexnet_100", "selecsls42", "cs3darknet_s", "darknet17", "resnest14d", "tinynet_e",
            "efficientnet_lite0", "shvit_s1", "ghostnetv2_100", "resnetv2_18", "dla34",
            "inception_next_atto",
        )
    ),
    _image("timm", "efficientvim_m1", 128),
    _image("timm", "mobilenetv4_hybrid_medium", 96),
    _image("timm", "efficientvit_m0", 224),
    _image("timm", "fastvit_t8", 64),
    _image("timm", "poolformerv2_s12"),
    _image("timm", "caformer_s18"),
    _image("timm", "coat_lite_tiny", 64, img_size=64),
    _image("timm", "crossvit_9_240", 240, depth=[[1, 1, 0]]),
    _image("timm", "davit_tiny", 64, depths=[1, 1, 1, 1]),
    _image("timm", "deit3_small_patch16_224", 64, img_size=64, depth=2, embed_dim=96, num_heads=3),
    _image("timm", "efficientformer_l1", 224, depths=[1, 1, 1, 1]),
    _image("timm", "efficientformerv2_s0", 224, depths=[1, 1, 1, 1]),
    _image("timm", "focalnet_tiny_srf"),
    _image("timm", "gcvit_xxtiny", 224),
    _image("timm", "mixer_s32_224", 224),
    _image("timm", "gmlp_ti16_224", 224),
    _image("timm", "resmlp_12_224", 224),
    _image("timm", "mvitv2_tiny", 224),
    _image("timm", "nest_tiny", 224),
    _image("timm", "pit_ti_224", 224, depth=[1, 1, 1]),
    _image("timm", "rdnet_tiny", 64),
    _image("timm", "swinv2_tiny_window8_256", 64, img_size=64, window_size=8, embed_dim=24, depths=[1, 1],
           num_heads=[2, 4]),
    _image("timm", "swiftformer_xs", 64),
    _image("timm", "tiny_vit_5m_224", 224, depths=[1, 1, 1, 1]),
    _image("timm", "twins_svt_small", 224, depths=[1, 1, 1, 1]),
    _image("timm", "visformer_tiny", 224, depth=[1, 1, 1]),
    _image("timm", "volo_d1_224", 64, img_size=64),
    _image("timm", "xception41", 64),
    _image("timm", "nextvit_small"),
    _image("timm", "hiera_tiny_224", 64, img_size=[64, 64], stages=[1, 1, 1, 1]),
    _image("torchvision", "mobilenet_v3_small"),
    _image("torchvision", "mnasnet0_5"),
    _image("torchvision", "efficientnet_b0"),
    _image("torchvision", "regnet_y_400mf"),
    _image("torchvision", "densenet121"),
    _image("torchvision", "inception_v3", 96, aux_logits=False, init_weights=False),
    _image("torchvision", "segmentation.deeplabv3_mobilenet_v3_large"),
    _image("torchvision", "segmentation.fcn_resnet50", 32),
    _image("torchvision", "maxvit_t", 224),
    _image("torchvision", "swin_transformer.SwinTransformer", 64, **_SMALL_SWIN, window_size=[4, 4]),
    _video("video.mc3_18", 4, 32),
    _video("video.r2plus1d_18", 4, 32),
    _video("video.s3d", 14, 224),
    _diffusion("UNet2DModel", _NOISE, _STEP, **_UNET, down_block_types=["DownBlock2D", "AttnDownBlock2D"],
               up_block_types=["AttnUpBlock2D", "UpBlock2D"], attention_head_dim=8),
    _diffusion("UNet2DConditionModel", _NOISE, _STEP, _PROMPT, **_UNET,
               down_block_types=["DownBlock2D", "CrossAttnDownBlock2D"],
               up_block_types=["CrossAttnUpBlock2D", "UpBlock2D"], cross_attention_dim=24, attention_head_dim=4),
    _diffusion("AutoencoderKL.encoder", Input("sample", (1, 3, 32, 32), free={0: "batch"}), block_out_channels=[16, 32],
               down_block_types=["DownEncoderBlock2D"] * 2, up_block_types=["UpDecoderBlock2D"] * 2, norm_num_groups=4),
    _diffusion("AutoencoderKL.decoder", Input("sample", (1, 4, 8, 8), free={0: "batch"}), block_out_channels=[16, 32],
               down_block_types=["DownEncoderBlock2D"] * 2, up_block_types=["UpDecoderBlock2D"] * 2, norm_num_groups=4),
    _diffusion("AutoencoderTiny.decoder", Input("x", (1, 4, 8, 8), free={0: "batch", 2: "height", 3: "width"}),
               encoder_block_out_channels=[16, 16], decoder_block_out_channels=[16, 16], num_encoder_blocks=[1, 1],
               num_decoder_blocks=[1, 1]),
    _diffusion("DiTTransformer2DModel", Input("hidden_states", (1, 4, 16, 16), free={0: "batch"}), _STEP,
               Input("class_labels", (1,), "integers", 10), num_attention_heads=4, attention_head_dim=12, num_layers=2,
               sample_size=16, num_embeds_ada_norm=10, in_channels=4, out_channels=8),
    _diffusion("SD3Transformer2DModel", Input("hidden_states", (1, 4, 16, 16)),
               Input("encoder_hidden_states", (1, 8, 24)), Input("pooled_projections", (1, 32)), _STEP,
               sample_size=16, in_channels=4, out_channels=4, num_layers=2, attention_head_dim=12,
               num_attention_heads=4, joint_attention_dim=24, caption_projection_dim=48, pooled_projection_dim=32,
               pos_embed_max_size=16),
)  # fmt: skip
