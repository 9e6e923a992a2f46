"""Quantise a model to 8 bits by ONNX Runtime's tools, as its documentation says: a QDQ file with ranges of images.

The images are random; real ones give ranges that suit a trained network.

    python examples/quantised_model.py demo.onnx -o quantised.onnx
"""

from __future__ import annotations

import argparse
import logging
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

IMAGES = 16
"""How many determine the ranges."""


class Images(CalibrationDataReader):  # type: ignore[misc]
    """Random values for the model's only input."""

    def __init__(self, model: onnx.ModelProto) -> None:
        (port,) = model.graph.input
        shape = [dimension.dim_value for dimension in port.type.tensor_type.shape.dim]
        generator = np.random.default_rng(0)
        drawn = (generator.standard_normal(shape).astype(np.float32) for _ in range(IMAGES))
        self._feeds = ({port.name: image} for image in drawn)

    def get_next(self) -> dict[str, NDArray[Any]] | None:
        return next(self._feeds, None)


def quantise(source: Path, target: Path) -> None:
    """Write the quantised model: activations of uint8, weights of int8 with a scale for each channel."""
    logging.disable(logging.WARNING)  # the tools wish for their own preprocessing
    quantize_static(
        source, target, Images(onnx.load(source)), quant_format=QuantFormat.QDQ, per_channel=True,
        activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8,
    )  # fmt: skip
    logging.disable(logging.NOTSET)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("-o", dest="output", type=Path, required=True)
    options = parser.parse_args()
    quantise(options.model, options.output)


if __name__ == "__main__":
    main()
