"""Scales and zero points that do not fit their operands are named before anything else is done."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from eqfuse.engine.onnx.model import read
from eqfuse.engine.shapes.inference import infer
from eqfuse.support.errors import ModelError

from ..models import model, value


def scales(*shape: int) -> np.ndarray[Any, Any]:
    return np.full(shape, 0.5, np.float32)


def zeros(*shape: int, dtype: str = "uint8") -> np.ndarray[Any, Any]:
    return np.zeros(shape, dtype)


def quantised(
    scale: np.ndarray[Any, Any], zero: np.ndarray[Any, Any] | None, columns: int | str = 6, **attributes: int
) -> onnx.ModelProto:
    """A matrix of 4 rows to integers."""
    stored = {"s": scale} if zero is None else {"s": scale, "z": zero}
    node = helper.make_node("QuantizeLinear", ["x", *stored], ["y"], "quantise", **attributes)
    return model([node], [value("x", [4, columns])], ["y"], stored, opset=21, ir_version=10)


def dequantised(scale: np.ndarray[Any, Any], zero: np.ndarray[Any, Any], **attributes: int) -> onnx.ModelProto:
    node = helper.make_node("DequantizeLinear", ["x", "s", "z"], ["y"], "dequantise", **attributes)
    inputs = [value("x", [4, 6], TensorProto.UINT8)]
    return model([node], inputs, ["y"], {"s": scale, "z": zero}, opset=21, ir_version=10)


def product(left: np.ndarray[Any, Any], right: np.ndarray[Any, Any]) -> onnx.ModelProto:
    """Of bytes [4, 6] and [6, 3], with these zero points."""
    stored = {"w": zeros(6, 3, dtype="int8"), "a": left, "b": right}
    node = helper.make_node("MatMulInteger", ["x", *stored], ["y"], "product")
    return model([node], [value("x", [4, 6], TensorProto.UINT8)], ["y"], stored)


def convolution(left: np.ndarray[Any, Any], right: np.ndarray[Any, Any]) -> onnx.ModelProto:
    """Of maps of 2 channels by 5 filters, with these zero points."""
    stored = {"w": zeros(5, 2, 3, 3, dtype="int8"), "a": left, "b": right}
    node = helper.make_node("ConvInteger", ["x", *stored], ["y"], "convolution")
    return model([node], [value("x", [1, 2, 8, 8], TensorProto.UINT8)], ["y"], stored)


def on_integers(operator: str, scale: np.ndarray[Any, Any], zero: np.ndarray[Any, Any]) -> onnx.ModelProto:
    """A convolution of 2 channels by 5 filters, or a product of matrices, with these parameters of the weights."""
    shapes = {"QLinearConv": ([1, 2, 8, 8], (5, 2, 3, 3)), "QLinearMatMul": ([4, 6], (6, 3))}
    fed, weights = shapes[operator]
    stored = {"s": scales(), "z": zeros(), "w": zeros(*weights, dtype="int8"), "t": scale, "v": zero}
    node = helper.make_node(operator, ["x", "s", "z", "w", "t", "v", "s", "z"], ["y"], "whole")
    return model([node], [value("x", fed, TensorProto.UINT8)], ["y"], stored)


ONE = scales(), zeros()
RIGHT = zeros(dtype="int8")


@pytest.mark.parametrize(
    "fitting",
    [
        quantised(scales(), None),
        quantised(scales(), zeros(1)),
        quantised(scales(1), zeros(), axis=7),
        quantised(scales(6), None),
        quantised(scales(4), zeros(4), axis=-2),
        quantised(scales(5), zeros(5), columns="N"),
        quantised(scales(4, 2), zeros(4, 2), block_size=4),
        dequantised(*ONE),
        product(zeros(4), zeros(3, dtype="int8")),
        product(zeros(1), RIGHT),
        convolution(zeros(), zeros(5, dtype="int8")),
        on_integers("QLinearConv", scales(5), zeros(5, dtype="int8")),
        on_integers("QLinearMatMul", scales(3), zeros(3, dtype="int8")),
        on_integers("QLinearMatMul", scales(1), RIGHT),
    ],
)
def test_parameters_that_fit(fitting: onnx.ModelProto) -> None:
    assert infer(read(fitting)).types["y"].shape


@pytest.mark.parametrize(
    ("unfit", "message"),
    [
        (quantised(scales(5), None), r"'quantise' .* scale is float32\[5\], .*\[4, 6\].*each position of axis 1"),
        (quantised(scales(6), None, axis=0), r"scale is float32\[6\], .*each position of axis 0"),
        (quantised(scales(4, 6), None), r"scale is float32\[4, 6\], .*each position of axis 1"),
        (quantised(scales(6), zeros(6), axis=2), r"no axis 2: its operand is float32\[4, 6\]"),
        (quantised(scales(6), zeros()), r"scale is float32\[6\], its zero point a number of uint8: .* same shape"),
        (quantised(scales(), zeros(6)), r"scale is a number of float32, its zero point uint8\[6\]: .* same shape"),
        (quantised(scales(4, 3), zeros(4, 3), block_size=4), r"one for each block of 4 on axis 1"),
        (dequantised(scales(), RIGHT), r"zero point is of int8, its integers of uint8"),
        (product(zeros(3), RIGHT), r"'product' .* 3 zero points for its data, uint8\[4, 6\]: there is one, or 4"),
        (product(zeros(), zeros(4, dtype="int8")), r"4 zero points for its weights, int8\[6, 3\]: there is one, or 3"),
        (product(RIGHT, RIGHT), r"zero point of its data is of int8, these are of uint8"),
        (convolution(zeros(2), RIGHT), r"'convolution' .* 2 zero points for its data, .*: there is one;"),
        (convolution(zeros(), zeros(2, dtype="int8")), r"2 zero points for its weights, .*: there is one, or 5"),
        (on_integers("QLinearConv", scales(3), zeros(3, dtype="int8")), r"operand 3, .*: there is one, or 5"),
        (on_integers("QLinearMatMul", scales(6), RIGHT), r"'whole' .* operand 3, int8\[6, 3\], .*: there is one, or 3"),
        (on_integers("QLinearConv", scales(), zeros()), r"its operand 3 is of uint8, the integers of int8"),
    ],
)
def test_parameters_that_do_not_fit(unfit: onnx.ModelProto, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        infer(read(unfit))
