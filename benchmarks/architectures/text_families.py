"""Further families of architectures of transformers and torchaudio: decoders with and without caches, encoders, pairs
of both, for sound, images, video and series, with one or two layers."""

from __future__ import annotations

from typing import Any

from .rows import Architecture, Input

_VOCABULARY = 200
_LENGTH = 12
_WIDTH = 48
_HEADS = 4
_LAYERS = 2
_PAST = 9
"""Tokens whose keys and values a decoder with a cache is given."""
_TEXT: dict[str, Any] = {
    "vocab_size": _VOCABULARY, "hidden_size": _WIDTH, "num_hidden_layers": _LAYERS, "num_attention_heads": _HEADS,
    "intermediate_size": 96, "max_position_embeddings": 64, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
_PAIR: dict[str, Any] = {
    "vocab_size": _VOCABULARY, "d_model": _WIDTH, "encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 96,
    "decoder_ffn_dim": 96, "encoder_attention_heads": _HEADS, "decoder_attention_heads": _HEADS, "use_cache": False,
    "max_position_embeddings": 64, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1,
}  # fmt: skip
_SMALL_IMAGE: dict[str, Any] = {
    "hidden_size": _WIDTH, "num_hidden_layers": _LAYERS, "num_attention_heads": _HEADS, "intermediate_size": 96,
    "image_size": 32, "patch_size": 8,
}  # fmt: skip
_SWIN: dict[str, Any] = {
    "image_size": 32, "patch_size": 4, "embed_dim": 24, "depths": [1, 1], "num_heads": [2, 4], "window_size": 4,
}  # fmt: skip


def _tokens(name: str = "input_ids") -> Input:
    return Input(name, (1, _LENGTH), "integers", _VOCABULARY, free={0: "batch", 1: "length"})


_MASK = Input("attention_mask", (1, _LENGTH), "ones", 2, free={0: "batch", 1: "length"})


def _text(model: str, /, **configuration: Any) -> Architecture:
    return Architecture("transformers", model, {**_TEXT, **configuration}, (_tokens(), _MASK))


def _decoder(model: str, /, **configuration: Any) -> Architecture:
    return _text(model, use_cache=False, **configuration)


def _other_names(model: str, /, **configuration: Any) -> Architecture:
    """Where the configuration has its own names for the sizes."""
    return Architecture("transformers", model, {"vocab_size": _VOCABULARY, **configuration}, (_tokens(), _MASK))


def _cached(model: str, heads: int = _HEADS, width: int = _WIDTH // _HEADS, /, **configuration: Any) -> Architecture:
    """A decoder that takes one token, and the keys and values of earlier ones, and gives these with its own added."""
    past = [
        Input(f"past_{kind}_{layer}", (1, heads, _PAST, width), free={0: "batch", 2: "past"})
        for layer in range(_LAYERS)
        for kind in ("key", "value")
    ]
    token = Input("input_ids", (1, 1), "integers", _VOCABULARY, free={0: "batch"})
    mask = Input("attention_mask", (1, _PAST + 1), "ones", 2, free={0: "batch", 1: "total"})
    return Architecture("cached", model, {**_TEXT, **configuration}, (token, mask, *past))


def _pair(model: str, /, **configuration: Any) -> Architecture:
    inputs = (_tokens(), _tokens("decoder_input_ids"))
    return Architecture("transformers", model, {**_PAIR, **configuration}, inputs)


def _image(model: str, side: int, /, **configuration: Any) -> Architecture:
    pixels = Input("pixel_values", (1, 3, side, side), free={0: "batch"})
    return Architecture("transformers", model, configuration, (pixels,))


def _sound(model: str, shape: tuple[int, ...], name: str, /, **configuration: Any) -> Architecture:
    values = Input(name, shape, free={0: "batch", len(shape) - 1: "samples"})
    return Architecture("transformers", model, configuration, (values,))


def _heard(model: str, *inputs: Input, **configuration: Any) -> Architecture:
    return Architecture("torchaudio", model, configuration, inputs)


_GPT2: dict[str, Any] = {"n_embd": _WIDTH, "n_layer": _LAYERS, "n_head": _HEADS, "n_positions": 64}

TEXT_FAMILIES: tuple[Architecture, ...] = (
    _cached("GPT2LMHeadModel", **_GPT2),
    _cached("LlamaForCausalLM", 2, num_key_value_heads=2),
    _cached("Qwen2ForCausalLM", 2, num_key_value_heads=2),
    _cached("Qwen3ForCausalLM", 2, 16, num_key_value_heads=2, head_dim=16),
    _cached("MistralForCausalLM", 2, num_key_value_heads=2, sliding_window=32, head_dim=12),
    _cached("GemmaForCausalLM", 1, 16, num_key_value_heads=1, head_dim=16),
    _cached("PhiForCausalLM"),
    _cached("GPTNeoXForCausalLM"),
    _cached("OPTForCausalLM", ffn_dim=96, word_embed_proj_dim=_WIDTH),
    _cached("StableLmForCausalLM", num_key_value_heads=4, partial_rotary_factor=0.5),
    _cached("OlmoForCausalLM", num_key_value_heads=4),
    _cached("GraniteForCausalLM", 2, num_key_value_heads=2),
    _text("XLMRobertaModel"),
    _text("CamembertModel"),
    _text("MPNetModel"),
    _text("ErnieModel"),
    _text("MegatronBertModel"),
    _text("RemBertModel", input_embedding_size=24, output_embedding_size=24),
    _text("DebertaModel", relative_attention=True, pos_att_type=["p2c", "c2p"]),
    _text("ModernBertModel", global_attn_every_n_layers=2, local_attention=8, cls_token_id=1, sep_token_id=2),
    _text("NystromformerModel", num_landmarks=_LENGTH, segment_means_seq_len=_LENGTH),
    _text("MobileBertModel", embedding_size=24, intra_bottleneck_size=24, num_feedforward_networks=2),
    _text("BigBirdModel", attention_type="original_full"),
    _text("EsmModel", position_embedding_type="rotary", mask_token_id=3),
    _text("IBertModel"),
    _other_names("XLNetModel", d_model=_WIDTH, n_layer=2, n_head=4, d_inner=96),
    _other_names("FunnelModel", block_sizes=[1, 1], d_model=_WIDTH, n_head=4, d_head=12, d_inner=96,
                 num_decoder_layers=1),
    _other_names("CTRLModel", n_embd=_WIDTH, n_layer=2, n_head=4, dff=96, n_positions=64, use_cache=False),
    _other_names("OpenAIGPTModel", n_embd=_WIDTH, n_layer=2, n_head=4, n_positions=64),
    _other_names("GPTNeoForCausalLM", hidden_size=_WIDTH, num_layers=2, num_heads=4, intermediate_size=96,
                 attention_types=[[["global", "local"], 1]], max_position_embeddings=64, use_cache=False),
    _other_names("GPTJForCausalLM", **_GPT2, rotary_dim=8, use_cache=False),
    _other_names("CodeGenForCausalLM", **_GPT2, rotary_dim=8, use_cache=False),
    _other_names("GPTBigCodeForCausalLM", **_GPT2, use_cache=False),
    _other_names("MptForCausalLM", d_model=_WIDTH, n_layers=2, n_heads=4, expansion_ratio=2, max_seq_len=64,
                 use_cache=False),
    _other_names("FalconForCausalLM", hidden_size=_WIDTH, num_hidden_layers=2, num_attention_heads=4, use_cache=False),
    _other_names("XGLMForCausalLM", d_model=_WIDTH, ffn_dim=96, num_layers=2, attention_heads=4, use_cache=False),
    Architecture("transformers", "RwkvModel", {
        "vocab_size": _VOCABULARY, "hidden_size": 32, "num_hidden_layers": 2, "attention_hidden_size": 32,
        "intermediate_size": 64, "use_cache": False,
    }, (_tokens(),)),
    _decoder("MistralForCausalLM", num_key_value_heads=2, head_dim=12, sliding_window=8),
    _decoder("Qwen3ForCausalLM", num_key_value_heads=2, head_dim=16),
    _decoder("Phi3ForCausalLM", num_key_value_heads=2),
    _decoder("Gemma2ForCausalLM", num_key_value_heads=2, head_dim=12, sliding_window=8),
    _decoder("Gemma3ForCausalLM", num_key_value_heads=2, head_dim=12, sliding_window=8),
    _decoder("OlmoForCausalLM", num_key_value_heads=4),
    _decoder("Olmo2ForCausalLM", num_key_value_heads=4),
    _decoder("StableLmForCausalLM", num_key_value_heads=4, partial_rotary_factor=0.5),
    _decoder("Starcoder2ForCausalLM", num_key_value_heads=2),
    _decoder("CohereForCausalLM", num_key_value_heads=4),
    _decoder("GraniteForCausalLM", num_key_value_heads=2),
    _decoder("BioGptForCausalLM"),
    _decoder("PersimmonForCausalLM"),
    _decoder("SmolLM3ForCausalLM", num_key_value_heads=2),
    _decoder("HeliumForCausalLM", num_key_value_heads=4, head_dim=12),
    _decoder("GlmForCausalLM", num_key_value_heads=2, head_dim=12),
    _decoder("NemotronForCausalLM", num_key_value_heads=2),
    _decoder("DiffLlamaForCausalLM", num_key_value_heads=2),
    _decoder("MixtralForCausalLM", num_key_value_heads=2, num_local_experts=4),
    _decoder("Qwen2MoeForCausalLM", num_key_value_heads=2, num_experts=4, moe_intermediate_size=32,
             shared_expert_intermediate_size=32),
    _pair("MarianModel"),
    _pair("MBartModel"),
    _pair("PegasusModel"),
    _pair("BlenderbotModel"),
    _pair("M2M100Model"),
    Architecture("transformers", "T5Model", {
        "vocab_size": _VOCABULARY, "d_model": _WIDTH, "d_kv": 12, "d_ff": 96, "num_layers": 1, "num_heads": 4,
        "use_cache": False,
    }, (_tokens(), _tokens("decoder_input_ids"))),
    Architecture("transformers", "WhisperModel", {
        **_PAIR, "num_mel_bins": 16, "max_source_positions": 20, "max_target_positions": 32,
    }, (Input("input_features", (1, 16, 40), free={0: "batch"}), _tokens("decoder_input_ids"))),
    _image("DeiTModel", 32, **_SMALL_IMAGE),
    _image("ViTMSNModel", 32, **_SMALL_IMAGE),
    _image("SiglipVisionModel", 32, **_SMALL_IMAGE),
    _image("DPTForDepthEstimation", 32, **{**_SMALL_IMAGE, "num_hidden_layers": 4}, backbone_out_indices=[0, 1, 2, 3],
           neck_hidden_sizes=[8, 8, 16, 16], fusion_hidden_size=16, reassemble_factors=[4, 2, 1, 0.5]),
    _image("SwinModel", 32, **_SWIN),
    _image("Swinv2Model", 32, **_SWIN),
    _image("ConvNextModel", 32, hidden_sizes=[16, 24, 32, 48], depths=[1, 1, 1, 1]),
    _image("CvtModel", 64, embed_dim=[16, 32, 48], num_heads=[1, 2, 4], depth=[1, 1, 2]),
    _image("PvtModel", 64, image_size=64, hidden_sizes=[16, 16, 32, 32], depths=[1, 1, 1, 1],
           num_attention_heads=[1, 1, 2, 2]),
    _image("GLPNForDepthEstimation", 64, hidden_sizes=[16, 16, 32, 32], depths=[1, 1, 1, 1], decoder_hidden_size=16,
           num_attention_heads=[1, 1, 2, 2]),
    _image("ResNetModel", 64, embedding_size=16, hidden_sizes=[16, 32, 48, 64], depths=[1, 1, 1, 1]),
    _image("PoolFormerModel", 64, hidden_sizes=[16, 16, 32, 32], depths=[1, 1, 1, 1]),
    _image("Swin2SRForImageSuperResolution", 32, image_size=32, embed_dim=24, depths=[1, 1], num_heads=[2, 2],
           window_size=4, upscale=2),
    Architecture("transformers", "VideoMAEModel", {**_SMALL_IMAGE, "num_frames": 4, "tubelet_size": 2}, (
        Input("pixel_values", (1, 4, 3, 32, 32), free={0: "batch"}),
    )),
    Architecture("transformers", "TimesformerModel", {**_SMALL_IMAGE, "num_frames": 4}, (
        Input("pixel_values", (1, 4, 3, 32, 32), free={0: "batch"}),
    )),
    _sound("SpeechT5HifiGan", (1, 20, 16), "spectrogram", model_in_dim=16, upsample_initial_channel=32,
           upsample_rates=[4, 4], upsample_kernel_sizes=[8, 8], resblock_kernel_sizes=[3],
           resblock_dilation_sizes=[[1, 3]], normalize_before=False),
    _sound("DacModel.encoder", (1, 1, 320), "hidden_state", encoder_hidden_size=8, downsampling_ratios=[4, 2],
           decoder_hidden_size=32, codebook_dim=4),
    Architecture("transformers", "PatchTSTForPrediction", {
        "num_input_channels": 3, "context_length": 32, "patch_length": 8, "patch_stride": 8, "prediction_length": 8,
        "d_model": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "ffn_dim": 64,
    }, (Input("past_values", (1, 32, 3), free={0: "batch"}),)),
    Architecture("transformers", "PatchTSMixerForPrediction", {
        "num_input_channels": 3, "context_length": 32, "patch_length": 8, "patch_stride": 8, "prediction_length": 8,
        "d_model": 16, "num_layers": 2,
    }, (Input("past_values", (1, 32, 3), free={0: "batch"}),)),
    _heard("ConvTasNet", Input("input", (1, 1, 320), free={0: "batch"}), enc_num_feats=32, msk_num_feats=16,
           msk_num_hidden_feats=32, msk_num_layers=2, msk_num_stacks=1),
    _heard("DeepSpeech", Input("x", (1, 1, 12, 16), free={0: "batch"}), n_feature=16, n_hidden=32),
)  # fmt: skip
