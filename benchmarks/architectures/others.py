"""Architectures of `torch_side/modules.py`: for tables, graphs, speech, points, series and states."""

from __future__ import annotations

from typing import Any

from .rows import Architecture, Input


def _row(model: str, *inputs: Input, **configuration: Any) -> Architecture:
    return Architecture("own", model, configuration, inputs)


_BATCH = {0: "batch"}
_SERIES = {0: "batch", 1: "length"}

OTHERS: tuple[Architecture, ...] = (
    _row("TabNet", Input("features", (4, 12), free=_BATCH)),
    _row("DeepFm", Input("categories", (4, 6), "integers", 30, free=_BATCH), Input("numbers", (4, 5), free=_BATCH)),
    _row("CrossNetwork", Input("features", (4, 16), free=_BATCH)),
    _row("GraphConvolution", Input("nodes", (10, 8)), Input("edges", (2, 30), "integers", 10, free={1: "edges"})),
    _row("GraphAttention", Input("nodes", (10, 8), free={0: "nodes"}),
         Input("adjacency", (10, 10), "uniform", free={0: "nodes", 1: "nodes"})),
    _row("LstmTagger", Input("tokens", (1, 9), "integers", 50, free={1: "length"})),
    _row("GruForecaster", Input("series", (1, 12, 4), free={0: "batch"})),
    _row("ConvLstm", Input("frames", (1, 3, 2, 12, 12), free=_BATCH)),
    _row("TemporalConvolution", Input("series", (1, 6, 40), free={0: "batch", 2: "length"})),
    _row("UNet", Input("image", (1, 1, 32, 32), free={0: "batch", 2: "height", 3: "width"})),
    _row("QuartzNet", Input("features", (1, 16, 50), free={0: "batch", 2: "frames"})),
    _row("DeepSpeech", Input("spectrogram", (1, 1, 20, 40), free={0: "batch"})),
    _row("Conformer", Input("features", (1, 20, 24), free=_SERIES)),
    _row("Siren", Input("coordinates", (50, 2), free={0: "points"})),
    _row("PointNet", Input("points", (1, 3, 40), free={0: "batch", 2: "points"})),
    _row("SubPixel", Input("image", (1, 1, 16, 16), free={0: "batch", 2: "height", 3: "width"})),
    _row("VectorQuantizer", Input("image", (1, 3, 16, 16), free=_BATCH)),
    _row("MixtureOfExperts", Input("tokens", (6, 16), free={0: "tokens"})),
    _row("WaveNet", Input("sound", (1, 1, 80), free={0: "batch", 2: "samples"})),
    _row("MaskDecoder", Input("embedding", (1, 16, 8, 8)), Input("points", (1, 3, 2), "uniform", free={1: "points"})),
    _row("FlowWarp", Input("image", (1, 3, 16, 16), free=_BATCH), Input("flow", (1, 2, 16, 16), free=_BATCH)),
    _row("StyleBlock", Input("noise", (2, 16), free=_BATCH)),
    _row("FixedPoint", Input("samples", (1, 64), "integers", 40, free={1: "samples"})),
    _row("TopKRouter", Input("scores", (3, 20), free=_BATCH)),
)  # fmt: skip
