"""Random weights with which outputs depend on inputs: no parameter at exactly 0 or 1, statistics taken from data."""

from __future__ import annotations

import torch
from torch import Tensor, nn

_JITTER = 0.05
"""Standard deviation added to parameters that initialisation leaves at one value: biases, scales of normalisations."""
_LEAST_SCALE = 0.3
"""Scales of a normalisation that begin below this mean (some residual branches begin at 0) are moved up by one."""
_SMALLEST_VARIANCE = 1e-3


def calibrate(model: nn.Module, batches: list[dict[str, Tensor]]) -> None:
    """Move all constant parameters, then set statistics of batch normalisations from these batches, in place."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.is_floating_point() and parameter.numel() > 1:
                _vary(parameter, generator)
    _set_statistics(model, batches)


def _vary(parameter: Tensor, generator: torch.Generator) -> None:
    """Parameters of one value get a spread; near zero that value would switch its branch off."""
    if parameter.dim() > 1 and float(parameter.std()) > 0:
        return
    if parameter.dim() == 1 and float(parameter.std()) == 0 and 0 < float(parameter[0].abs()) < _LEAST_SCALE:
        parameter.add_(_LEAST_SCALE)
    parameter.add_(_JITTER * torch.randn(parameter.shape, generator=generator))


def _set_statistics(model: nn.Module, batches: list[dict[str, Tensor]]) -> None:
    layers = [each for each in model.modules() if isinstance(each, nn.modules.batchnorm._BatchNorm)]
    if not layers:
        return
    for layer in layers:
        if layer.weight is not None and float(layer.weight.abs().mean()) < _LEAST_SCALE:
            layer.weight.data.add_(1.0)
        layer.reset_running_stats()
        layer.momentum = None  # the mean over all batches
        layer.train()
    with torch.no_grad():
        for batch in batches:
            model(**batch)
    for layer in layers:
        layer.eval()
        layer.running_var.clamp_(min=_SMALLEST_VARIANCE)
