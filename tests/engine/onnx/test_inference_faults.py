"""Sizes behind windows as ONNX Runtime computes them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from onnx import helper

from eqfuse.engine.onnx.model import read
from eqfuse.engine.shapes.inference import infer
from eqfuse.ir.sizes import Size, number, parse_size

from ...onnx_runtime import outputs_of
from ..models import model, value


def pool(op: str, opset: int, size: int, **settings: Any) -> onnx.ModelProto:
    """A pool with ceil_mode, and a Relu behind it."""
    kernel = settings.pop("kernel")
    nodes = [
        helper.make_node(op, ["x"], ["a"], kernel_shape=[kernel], ceil_mode=1, **settings),
        helper.make_node("Relu", ["a"], ["y"]),
    ]
    return model(nodes, [value("x", [1, 2, size])], ["y"], opset=opset)


def actual(proto: onnx.ModelProto, size: int) -> tuple[int, ...]:
    return outputs_of(proto, {"x": np.zeros((1, 2, size), np.float32)})[0].shape


@st.composite
def transposed(draw: Any) -> tuple[int, int, dict[str, Any]]:
    """The size of an operand, that of a kernel, and settings of a ConvTranspose that ONNX Runtime takes."""
    size, kernel = draw(st.integers(1, 6)), draw(st.integers(1, 4))
    stride, dilation = draw(st.integers(1, 4)), draw(st.integers(1, 2))
    extra = draw(st.integers(0, stride - 1))
    settings: dict[str, Any] = {"strides": [stride], "dilations": [dilation], "output_padding": [extra]}
    padding = draw(st.sampled_from(["NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"]))
    if padding != "NOTSET":
        settings["auto_pad"] = padding
    whole = (size - 1) * stride + (kernel - 1) * dilation + 1 + extra
    if draw(st.booleans()):
        settings["output_shape"] = [draw(st.integers(max(1, whole - 3), whole))]
    elif padding == "NOTSET" and whole > 2:
        settings["pads"] = draw(st.sampled_from([[0, 0], [1, 0], [0, 1], [1, 1]]))
    return size, kernel, settings


def size_of(dimension: int | str) -> Size:
    size = number(dimension) if isinstance(dimension, int) else parse_size(dimension)
    assert size is not None
    return size


@given(transposed(), st.booleans())
def test_a_transposed_convolution_is_as_large_as_the_runtime_makes_it(
    case: tuple[int, int, dict[str, Any]], is_free: bool
) -> None:
    """The size of a dynamic dimension is one that becomes a number with it."""
    size, kernel, settings = case
    node = helper.make_node("ConvTranspose", ["x", "w"], ["y"], **settings)
    weight = {"w": np.zeros((2, 2, kernel), np.float32)}
    fixed = model([node], [value("x", [1, 2, size])], ["y"], weight)
    free = model([node], [value("x", [1, 2, "N"])], ["y"], weight)
    inferred = infer(read(free if is_free else fixed)).types["y"].shape
    assert inferred is not None
    numbers = tuple(size_of(each).value({"N": size}.__getitem__) for each in inferred)
    assert numbers == actual(fixed, size)


@given(
    op=st.sampled_from(["AveragePool", "LpPool", "MaxPool"]),
    size=st.integers(6, 20),
    kernel=st.integers(1, 3),
    stride=st.integers(1, 4),
    dilation=st.integers(1, 3),
    padding=st.sampled_from(["SAME_UPPER", "SAME_LOWER"]),
    ceil_mode=st.integers(0, 1),
    is_free=st.booleans(),
)
def test_a_pool_with_same_padding_is_as_large_as_the_runtime_makes_it(
    op: str, size: int, kernel: int, stride: int, dilation: int, padding: str, ceil_mode: int, is_free: bool
) -> None:
    """ONNX Runtime leaves the dilation out of the padding; it refuses a MaxPool with a negative one."""
    assume(op != "MaxPool" or (-(-size // stride) - 1) * stride + kernel >= size)
    settings = {"kernel_shape": [kernel], "strides": [stride], "dilations": [dilation], "auto_pad": padding}
    node = helper.make_node(op, ["x"], ["y"], ceil_mode=ceil_mode, **settings)
    free, fixed = (model([node], [value("x", [1, 2, each])], ["y"], opset=19) for each in ("N", size))
    inferred = infer(read(free if is_free else fixed)).types["y"].shape
    assert inferred is not None
    assert tuple(size_of(each).value({"N": size}.__getitem__) for each in inferred) == actual(fixed, size)


@pytest.mark.parametrize("op", ["AveragePool", "MaxPool"])
@pytest.mark.parametrize("opset", [11, 19, 22])
@pytest.mark.parametrize(
    ("size", "settings"),
    [
        (4, {"kernel": 1, "strides": [2]}),
        (6, {"kernel": 2, "strides": [2], "pads": [1, 1]}),
        (6, {"kernel": 2, "strides": [3], "pads": [1, 1]}),
        (7, {"kernel": 3, "strides": [2], "pads": [0, 1]}),
        (5, {"kernel": 2, "strides": [4]}),
        (6, {"kernel": 3, "strides": [2], "auto_pad": "SAME_UPPER"}),
    ],
)
def test_no_window_begins_in_the_pad_at_the_end(op: str, opset: int, size: int, settings: dict[str, Any]) -> None:
    proto = pool(op, opset, size, **settings)
    assert infer(read(proto)).types["y"].shape == actual(proto, size)
