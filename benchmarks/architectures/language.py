"""Architectures for text and for sound, of transformers, with two layers."""

from __future__ import annotations

from typing import Any

from .rows import Architecture, Input

_VOCABULARY = 200
_LENGTH = 12
_TEXT: dict[str, Any] = {
    "vocab_size": _VOCABULARY, "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "intermediate_size": 96, "max_position_embeddings": 64,
}  # fmt: skip


def _tokens(name: str = "input_ids", high: int = _VOCABULARY, length: int = _LENGTH) -> Input:
    return Input(name, (1, length), "integers", high, free={0: "batch", 1: "length"})


_MASK = Input("attention_mask", (1, _LENGTH), "ones", 2, free={0: "batch", 1: "length"})


def _encoder(model: str, /, **configuration: Any) -> Architecture:
    return Architecture("transformers", model, {**_TEXT, **configuration}, (_tokens(), _MASK))


def _decoder(model: str, /, **configuration: Any) -> Architecture:
    return _encoder(model, use_cache=False, **configuration)


def _sound(model: str, samples: int, /, **configuration: Any) -> Architecture:
    values = Input("input_values", (1, samples), free={0: "batch", 1: "samples"})
    return Architecture("transformers", model, configuration, (values,))


_WAVES: dict[str, Any] = {
    "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 96,
    "conv_dim": [24, 24, 24], "conv_stride": [5, 4, 4], "conv_kernel": [10, 4, 4], "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 4, "vocab_size": 32,
}  # fmt: skip

LANGUAGE: tuple[Architecture, ...] = (
    _encoder("BertForSequenceClassification"),
    _encoder("RobertaModel"),
    _encoder("ElectraForTokenClassification", embedding_size=32),
    _encoder("AlbertModel", embedding_size=32),
    _encoder("DebertaV2Model", relative_attention=True, pos_att_type=["p2c", "c2p"], position_buckets=16),
    _encoder("RoFormerModel", embedding_size=48),
    _encoder("SqueezeBertModel", embedding_size=48),
    Architecture("transformers", "FNetModel", {**_TEXT, "use_tpu_fourier_optimizations": False}, (_tokens(),)),
    Architecture(
        "transformers", "DistilBertForQuestionAnswering",
        {"vocab_size": _VOCABULARY, "dim": 48, "n_layers": 2, "n_heads": 4, "hidden_dim": 96}, (_tokens(), _MASK),
    ),
    Architecture(
        "transformers", "GPT2LMHeadModel",
        {"vocab_size": _VOCABULARY, "n_embd": 48, "n_layer": 2, "n_head": 4, "n_positions": 64, "use_cache": False},
        (_tokens(), _MASK),
    ),
    _decoder("OPTModel", ffn_dim=96, word_embed_proj_dim=48),
    _decoder("LlamaForCausalLM", num_key_value_heads=2),
    _decoder("Qwen2Model", num_key_value_heads=2),
    _decoder("GemmaModel", num_key_value_heads=2, head_dim=12),
    _decoder("GPTNeoXModel"),
    _decoder("PhiModel"),
    Architecture(
        "transformers", "BloomModel",
        {"vocab_size": _VOCABULARY, "hidden_size": 48, "n_layer": 2, "n_head": 4, "use_cache": False},
        (_tokens(), _MASK),
    ),
    Architecture(
        "transformers", "T5EncoderModel",
        {"vocab_size": _VOCABULARY, "d_model": 48, "d_kv": 12, "d_ff": 96, "num_layers": 2, "num_heads": 4},
        (_tokens(), _MASK),
    ),
    Architecture(
        "transformers", "BartModel",
        {
            "vocab_size": _VOCABULARY, "d_model": 48, "encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 96,
            "decoder_ffn_dim": 96, "encoder_attention_heads": 4, "decoder_attention_heads": 4, "use_cache": False,
            "max_position_embeddings": 64,
        },
        (_tokens(), _tokens("decoder_input_ids")),
    ),
    Architecture(
        "transformers", "MambaModel",
        {"vocab_size": _VOCABULARY, "hidden_size": 32, "state_size": 4, "num_hidden_layers": 1, "use_cache": False},
        (_tokens(length=6),),
    ),
    _sound("SEWModel", 1600, **_WAVES, squeeze_factor=2),
    _sound("Wav2Vec2ForCTC", 1600, **_WAVES),
    _sound("HubertModel", 1600, **_WAVES),
    _sound("WavLMModel", 1600, **_WAVES),
    _sound("Wav2Vec2ConformerForCTC", 1600, **_WAVES, position_embeddings_type="relative",
           conv_depthwise_kernel_size=7),
    Architecture(
        "transformers", "ASTForAudioClassification",
        {"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 96,
         "max_length": 48, "num_mel_bins": 32, "patch_size": 16, "frequency_stride": 10, "time_stride": 10},
        (Input("input_values", (1, 48, 32), free={0: "batch"}),),
    ),
    Architecture(
        "transformers", "EncodecModel.encoder",
        {"num_filters": 4, "upsampling_ratios": [4, 2], "hidden_size": 16, "num_lstm_layers": 1},
        (Input("hidden_states", (1, 1, 320), free={0: "batch", 2: "samples"}),),
    ),
    Architecture(
        "transformers", "CLIPModel",
        {
            "text_config": {**_TEXT, "projection_dim": 32, "eos_token_id": 199},
            "vision_config": {"hidden_size": 48, "num_hidden_layers": 1, "num_attention_heads": 4, "image_size": 32,
                              "intermediate_size": 96, "patch_size": 8, "projection_dim": 32},
            "projection_dim": 32,
        },
        (_tokens(), Input("pixel_values", (1, 3, 32, 32)), _MASK),
    ),
    _encoder("ConvBertModel", embedding_size=32, conv_kernel_size=3),
)  # fmt: skip
