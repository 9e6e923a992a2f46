"""Transposed convolutions whose strides do not divide their kernels: phases leave out what is behind a kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from eqfuse.benchmarks.forms.compiled_form import compile_form, draw_inputs, in_onnx_runtime, largest_difference
from eqfuse.lowering.base.target import target_of

TOLERANCE = 1e-4
"""Of the largest element."""


def transposed(
    kernel: tuple[int, int], strides: tuple[int, int], *, channels: int = 24, group: int = 1, size: int = 7,
    **attributes: Any,
) -> onnx.ModelProto:  # fmt: skip
    """Alone, so that an input meets nothing but the products of its own windows."""
    random = np.random.default_rng(0)
    weights = random.normal(size=(channels, 16 if group == 1 else channels // group, *kernel)).astype(np.float32)
    node = helper.make_node("ConvTranspose", ["x", "w"], ["y"], strides=strides, group=group, **attributes)
    graph = helper.make_graph(
        [node], "transposed",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, channels, size, size + 2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(weights, "w")],
    )  # fmt: skip
    return onnx.shape_inference.infer_shapes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    )


@pytest.mark.parametrize(
    ("kernel", "strides", "group"),
    [((3, 3), (2, 2), 1), ((4, 3), (2, 2), 1), ((5, 5), (3, 2), 1), ((3, 3), (2, 2), 4)],
)
def test_products_with_zeros_are_left_out(kernel: tuple[int, int], strides: tuple[int, int], group: int) -> None:
    model = transposed(kernel, strides, group=group, pads=[1] * 4, output_padding=[1, 1])
    feeds = draw_inputs(model)
    feeds["x"][0, 3, 4, 5] = np.inf  # infinity times zero would be no number
    expected = in_onnx_runtime(model, feeds)[1]["y"]
    result = compile_form(model, 0, target_of("host", 1)).bind(feeds).results()["y"]
    np.testing.assert_array_equal(np.isinf(result), np.isinf(expected))
    assert np.isinf(expected).any()
    assert not np.isnan(result).any()


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("strides", "channels", "group"), [((3, 3), 16, 16), ((4, 3), 16, 16), ((4, 3), 8, 1)])
def test_phases_that_padding_shifts_along_both_axes(
    strides: tuple[int, int], channels: int, group: int, threads: int
) -> None:
    model = transposed(strides, strides, channels=channels, group=group, size=5, pads=[1, 1, 0, 0])
    feeds = draw_inputs(model)
    expected = in_onnx_runtime(model, feeds)[1]
    assert largest_difference(compile_form(model, 0, target_of("host", threads)).bind(feeds).results(), expected) < 1e-6


@pytest.mark.conformance
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_drawn_transposed_convolutions(data: st.DataObject) -> None:
    strides = data.draw(st.tuples(st.integers(1, 4), st.integers(1, 4)), "strides")
    kernel = tuple(data.draw(st.integers(s, s + 4), "kernel") for s in strides)
    channels, group = data.draw(st.sampled_from([(1, 1), (8, 1), (40, 1), (24, 3), (16, 16)]), "channels and groups")
    pads = [data.draw(st.integers(0, kernel[n % 2] - 1), "pad") for n in range(4)]
    more = [data.draw(st.integers(0, s - 1), "output padding") for s in strides]
    size = data.draw(st.integers(5, 18), "size")
    window = {"channels": channels, "group": group, "size": size, "pads": pads, "output_padding": more}
    model = transposed(kernel, strides, **window)
    feeds = draw_inputs(model)
    expected = in_onnx_runtime(model, feeds)[1]
    results = compile_form(model, 0, target_of("host", 1)).bind(feeds).results()
    assert largest_difference(results, expected) < TOLERANCE
