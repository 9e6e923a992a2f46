"""Networks whose batch normalisation the exporter folded into the convolutions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx

from ..table5.network import Network

OPSET = 17
LINEAR = 1.0
"""Gain of a convolution with no activation behind it."""
BRANCH = 0.25
"""Gain of the last convolution of a residual branch: what a deep sum of them adds up to stays small."""


class FoldedNetwork(Network):
    """Convolutions that batch normalisation followed have a bias in its place; opset 17."""

    def norm(self, x: str) -> str:
        """Fold: the convolution that made x gets the bias."""
        (node,) = (node for node in self.nodes if x in node.output)
        node.input.append(self.weight(self.channels[x]))
        return x

    def norm_apart(self, x: str) -> str:
        """A batch normalisation that stays, for no convolution is before it."""
        return super().norm(x)

    def model(self, outputs: Mapping[str, Sequence[int]], opset: int = OPSET) -> onnx.ModelProto:
        """The whole model; outputs by name, with their shapes."""
        return super().model(outputs, opset)

    def relu6(self, x: str) -> str:
        """min(max(x, 0), 6), a Clip."""
        return self.add("Clip", x, self.constant(0.0), self.constant(6.0))

    def depthwise(self, x: str, kernel: int, stride: int, gain: float = 2.0) -> str:
        """A convolution of each channel by itself."""
        return self.conv(x, self.channels[x], kernel, stride=stride, group=self.channels[x], gain=gain)

    def classifier(self, x: str, inputs: int, classes: int = 1000, batch: int = 1) -> onnx.ModelProto:
        """The model that ends with a linear layer on x, which is (batch, inputs)."""
        return self.model({self.linear(x, inputs, classes): (batch, classes)})
