"""Convolutions in three dimensions, by Winograd's filters too: of images, and with a window along the depth."""

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
"""Of the largest element: Winograd's filters round more than products."""


def convolution(
    kernel: tuple[int, ...], channels: int = 32, batch: int = 1, depth: int = 3, size: int = 14, *,
    pads: tuple[int, ...] = (0, 1, 1, 0, 1, 1), is_first: bool = False, has_bias: bool = True, **attributes: object,
) -> onnx.ModelProto:  # fmt: skip
    """A convolution with Relu, behind a pointwise one unless it `is_first`: then its map has the caller's layout."""
    random = np.random.default_rng(0)
    weights = {
        "front": random.normal(size=(channels, 4, 1, 1, 1)),
        "w": random.normal(size=(32, 4 if is_first else channels, *kernel)),
        "b": random.normal(size=32),
    }
    names = ["w", "b"] if has_bias else ["w"]
    nodes = [
        *([] if is_first else [helper.make_node("Conv", ["x", "front"], ["a"])]),
        helper.make_node("Conv", ["x" if is_first else "a", *names], ["c"], pads=pads, **attributes),
        helper.make_node("Relu", ["c"], ["y"]),
    ]
    shape = [batch, 4, depth, size, size]
    graph = helper.make_graph(
        nodes, "images", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array.astype(np.float32), name) for name, array in weights.items()],
    )  # fmt: skip
    return onnx.shape_inference.infer_shapes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    )


def check(model: onnx.ModelProto) -> list[str]:
    """Compare with ONNX Runtime; the rules of the kernels' schedules."""
    feeds = draw_inputs(model)
    _, expected = in_onnx_runtime(model, feeds)
    assert all(array.std() > 0 for array in expected.values())
    kernels = compile_form(model, len(model.graph.node) - 2, target_of("host", 1))
    assert largest_difference(kernels.bind(feeds).results(), expected) < TOLERANCE
    return [scheduled.rule for _, scheduled in kernels.built.values()]


@pytest.mark.parametrize(
    ("pads", "batch"), [((0, 1, 1, 0, 1, 1), 2), pytest.param((0,) * 6, 1, marks=pytest.mark.conformance)]
)
def test_images_are_convolved_by_minimal_filters(pads: tuple[int, ...], batch: int) -> None:
    assert "winograd" in check(convolution((1, 3, 3), channels=64, size=28, pads=pads, batch=batch))


@pytest.mark.representatives(2)
@pytest.mark.parametrize(
    ("depth", "pads", "attributes"),
    [
        pytest.param(3, (1,) * 6, {"batch": 2}, id="padded, two samples"),
        pytest.param(3, (0, 1, 1, 2, 1, 0), {}, id="more padding behind"),
        pytest.param(3, (1,) * 6, {"strides": [2, 1, 1]}, id="every other slice"),
        pytest.param(2, (2, 0, 0, 1, 0, 0), {"dilations": [2, 1, 1]}, id="dilated along the depth"),
        pytest.param(4, (0,) * 6, {"depth": 4}, id="one slice"),
    ],
)
def test_a_window_along_the_depth_is_computed_by_minimal_filters(
    depth: int, pads: tuple[int, ...], attributes: dict[str, Any]
) -> None:
    given = {"channels": 64, "size": 28, "depth": 5, **attributes}
    assert "winograd" in check(convolution((depth, 3, 3), pads=pads, **given))


@pytest.mark.representatives(2)
@pytest.mark.parametrize(
    "model",
    [
        convolution((1, 3, 3), has_bias=False, strides=[1, 2, 2]),
        convolution((1, 5, 3), is_first=True, pads=(0, 2, 0, 0, 1, 1)),
        convolution((1, 3, 3), dilations=[1, 2, 2], pads=(0, 2, 2, 0, 2, 2)),
    ],
    ids=["stride", "the caller's layout", "dilated"],
)
def test_other_convolutions_of_images(model: onnx.ModelProto) -> None:
    assert "winograd" not in check(model)


@pytest.mark.conformance
@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.tuples(st.integers(1, 3), *[st.integers(1, 5)] * 2) | st.tuples(st.integers(1, 4), st.just(3), st.just(3)),
    st.lists(st.integers(0, 2), min_size=6, max_size=6),
    st.sampled_from([1, 8, 17, 32]),
    st.integers(1, 2),
    st.integers(1, 4),
    st.integers(10, 17),
    st.booleans(),
    st.booleans(),
    st.tuples(st.integers(1, 2), st.integers(1, 2)),
    st.tuples(st.integers(1, 2), st.integers(1, 2)),
)
def test_any_convolution(
    kernel: tuple[int, ...], pads: list[int], channels: int, batch: int, depth: int, size: int, is_first: bool,
    has_bias: bool, strides: tuple[int, int], dilations: tuple[int, int],
) -> None:  # fmt: skip
    """Strides and dilations are those along the depth, and those in the plane."""
    steps = (dilations[0], dilations[1], dilations[1])
    own = [min(pad, step * (k - 1)) for pad, step, k in zip(pads, steps * 2, kernel * 2, strict=True)]
    check(
        convolution(
            kernel, channels, batch, depth + dilations[0] * (kernel[0] - 1), size, pads=tuple(own), is_first=is_first,
            has_bias=has_bias, strides=[strides[0], strides[1], strides[1]], dilations=steps,
        )
    )  # fmt: skip
