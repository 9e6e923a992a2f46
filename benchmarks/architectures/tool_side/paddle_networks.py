"""Networks of Paddle, exported by paddle2onnx."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import paddle
from paddle import nn

from .answering import Request, answer_all, require_use, shape_of


def _mlp() -> nn.Layer:
    return nn.Sequential(nn.Linear(16, 64), nn.LayerNorm(64), nn.GELU(), nn.Linear(64, 8))


def _convolutional() -> nn.Layer:
    blocks = [
        part
        for first, last in ((3, 16), (16, 32))
        for part in (nn.Conv2D(first, last, 3, padding=1), nn.BatchNorm2D(last), nn.Hardswish(), nn.MaxPool2D(2))
    ]
    return nn.Sequential(*blocks, nn.AdaptiveAvgPool2D(1), nn.Flatten(), nn.Linear(32, 10))


class Attention(nn.Layer):
    """An encoder's layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(32, 4, 64, activation="gelu")

    def forward(self, x: Any) -> Any:
        return self.layer(x)


class Lstm(nn.Layer):
    """A recurrence in both directions."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.last = nn.LSTM(8, 16, direction="bidirect"), nn.Linear(32, 4)

    def forward(self, x: Any) -> Any:
        return self.last(self.lstm(x)[0])


def _upsampling() -> nn.Layer:
    return nn.Sequential(
        nn.Conv2D(3, 8, 3, padding=1), nn.ReLU(), nn.Upsample(size=[32, 32], mode="bilinear"),
        nn.Conv2DTranspose(8, 4, 2, stride=2), nn.ReLU(), nn.Conv2D(4, 3, 1),
    )  # fmt: skip


NETWORKS = {
    "Mlp": _mlp, "Convolutional": _convolutional, "Attention": Attention, "Lstm": Lstm, "Upsampling": _upsampling,
}  # fmt: skip


def _export(request: Request) -> dict[str, Any]:
    paddle.seed(0)
    network = NETWORKS[request["architecture"]["model"]]()
    network.eval()
    specification = [paddle.static.InputSpec(shape_of(request), "float32", "x")]
    path = Path(request["path"])
    paddle.onnx.export(network, str(path.with_suffix("")), input_spec=specification, opset_version=17)
    require_use(request)
    return {}


if __name__ == "__main__":
    answer_all(_export)
