"""The networks that AGO measures (Xu et al., INFOCOM 2023, section VI), and two more, as exporters write them today.

Batch normalisation is folded into the convolutions, sizes are fixed, opset 17, batch 1. Weights are random, drawn so
that values neither vanish nor explode on the way and outputs depend on inputs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import onnx

from ..table5.convolutional import efficientnet_b0
from . import attention, convolutional, mobile
from .folded import FoldedNetwork

SIDES = (56, 112, 224)
"""Heights and widths of images that AGO's convolutional networks are given."""


@dataclass(frozen=True)
class Network:
    """A network at one size of its input; `family` is its name without it."""

    family: str
    build: Callable[[], onnx.ModelProto]


def _at_every_side(family: str, build: Callable[[int], onnx.ModelProto]) -> dict[str, Network]:
    return {f"{family}_{side}": Network(family, partial(build, side)) for side in SIDES}


AGO: dict[str, Network] = {
    **_at_every_side("mobilenet_v2", mobile.mobilenet_v2),
    **_at_every_side("mnasnet", mobile.mnasnet),
    **_at_every_side("squeezenet", convolutional.squeezenet),
    **_at_every_side("shufflenet_v2", mobile.shufflenet_v2),
    "bert_tiny": Network("bert_tiny", attention.bert_tiny),
    "mobilevit_xxs": Network("mobilevit_xxs", attention.mobilevit_xxs),
}
"""AGO's six."""

NETWORKS: dict[str, Network] = {
    **AGO,
    "resnet50": Network("resnet50", convolutional.resnet50),
    "efficientnet_b0": Network("efficientnet_b0", partial(efficientnet_b0, FoldedNetwork)),
}
"""All of them by name."""
