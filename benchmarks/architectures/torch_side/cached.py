"""Decoders of transformers that are given the keys and values of earlier tokens."""

from __future__ import annotations

import torch
import transformers
from torch import Tensor, nn


class CachedDecoder(nn.Module):
    """Takes a token, the mask of all tokens, and the keys and values of each layer; gives scores, and both extended."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor, mask: Tensor, *past: Tensor) -> tuple[Tensor, ...]:
        pairs = list(zip(past[::2], past[1::2], strict=True))
        cache = transformers.DynamicCache(pairs)
        position = torch.full_like(tokens, 1) * past[0].shape[2]
        found = self.model(
            input_ids=tokens, attention_mask=mask, past_key_values=cache, position_ids=position, use_cache=True
        )
        layers = found.past_key_values.layers
        return (found.logits, *(each for layer in layers for each in (layer.keys, layer.values)))
