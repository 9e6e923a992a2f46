"""Dynamically quantised convolutions: integers of windows over single channels may be products of floats, which hold
them; ranges are found by the kernels that make the feature maps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

import eqfuse
from eqfuse.lowering.plan.kernel_facts import read_table

Array = NDArray[Any]
WINDOWS = """<ir_version: 8, opset_import: ["": 17]> windows (float[1, 32, 30, 30] x) => (float[1, 32, {0}, {0}] y)
    <int8[32, 1, {1}, {1}] w, float[32, 1, 1] c> {{
    q, s, z = DynamicQuantizeLinear (x)
    i = ConvInteger <group = 32, pads = [{2}, {2}, {2}, {2}]> (q, w, z)
    f = Cast <to = 1> (i)
    g = Mul (f, s)
    y = Add (g, c)
}}"""
"""Results, kernel and pads of a convolution of single channels."""


def compiled(text: str, stored: dict[str, Array], folder: Path, target: str = "host") -> eqfuse.LoadedModel:
    model = onnx.parser.parse_model(text)
    model.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in stored.items())
    onnx.save(model, folder / "model.onnx")
    eqfuse.compile(folder / "model.onnx", folder / "bundle", target=target, threads=1, measure=False, verify=False)
    return eqfuse.load(folder / "bundle")


def quantised(x: Array) -> tuple[Array, np.float32]:
    """The integers less their zero point, and the scale."""
    low, high = min(x.min(), np.float32(0)), max(x.max(), np.float32(0))
    scale = np.float32((high - low) / np.float32(255))
    zero = np.rint(-low / scale)
    return np.clip(np.rint(x / scale) + zero, 0, 255) - zero, scale


@pytest.mark.parametrize(("kernel", "pad"), [(3, 1), (16, 0)])
def test_windows_over_single_channels_are_those_of_integers(kernel: int, pad: int, tmp_path: Path) -> None:
    """The largest window has sums near 2^23, of which floats hold each integer."""
    draw = np.random.default_rng(0)
    size = 30 + 2 * pad - kernel + 1
    x = draw.uniform(0.5, 1, (1, 32, 30, 30)).astype(np.float32)
    w = draw.integers(-128, -100, (32, 1, kernel, kernel), np.int8)
    w[::2] = draw.integers(-128, 128, w[::2].shape, np.int8)
    c = np.zeros((32, 1, 1), np.float32)
    integers, scale = quantised(x)
    padded = np.pad(integers.astype(np.int64), ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    views = np.lib.stride_tricks.sliding_window_view(padded, (kernel, kernel), (2, 3))
    expected = np.einsum("nchwij,cij->nchw", views, w[:, 0].astype(np.int64))
    y = compiled(WINDOWS.format(size, kernel, pad), {"w": w, "c": c}, tmp_path).run({"x": x})["y"]
    np.testing.assert_array_equal(y, expected.astype(np.float32) * scale)


SQUARE = """<ir_version: 8, opset_import: ["": 17]> square (float[1, 64, 28, 28] x) => (float[1, 64, 28, 28] y)
    <int8[64, 64, 3, 3] w> {
    q, s, z = DynamicQuantizeLinear (x)
    i = ConvInteger <pads = [1, 1, 1, 1]> (q, w, z)
    f = Cast <to = 1> (i)
    y = Mul (f, s)
}"""


def test_minimal_filters_multiply_integers_as_numbers_where_words_are_slower(tmp_path: Path) -> None:
    """Numbers as near to the sums of integers as float32 has them. That weights become four times as long in the
    bundle does not count: the model keeps bytes."""
    draw = np.random.default_rng(2)
    x, w = draw.uniform(-1, 1, (1, 64, 28, 28)).astype(np.float32), draw.integers(-128, 128, (64, 64, 3, 3), np.int8)
    integers, scale = quantised(x)
    padded = np.pad(integers.astype(np.int64), ((0, 0), (0, 0), (1, 1), (1, 1)))
    views = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    expected = np.einsum("nchwij,ocij->nohw", views, w.astype(np.int64)) * np.float64(scale)
    model = compiled(SQUARE, {"w": w}, tmp_path, target="x86-64-v3")
    y = model.run({"x": x})["y"]
    assert np.abs(y - expected).max() <= 1e-5 * np.abs(expected).max()
    (maker,) = [each for each in read_table(tmp_path / "bundle") if "Conv" in each.operators]
    assert maker.rule == "winograd"


CHAIN = """<ir_version: 8, opset_import: ["": 17]> chain (float[1, 8, 12, 12] x) => (float[1, 32, 12, 12] y, float s)
    <int8[32, 8, 1, 1] w, float[32, 1, 1] c> {
    q0, s0, z0 = DynamicQuantizeLinear (x)
    i0 = ConvInteger (q0, w, z0)
    f0 = Cast <to = 1> (i0)
    g0 = Mul (f0, s0)
    a0 = Add (g0, c)
    y = Relu (a0)
    q1, s, z1 = DynamicQuantizeLinear (y)
}"""


def test_the_kernel_that_makes_a_feature_map_finds_its_range(tmp_path: Path) -> None:
    draw = np.random.default_rng(1)
    stored = {"w": draw.integers(-128, 128, (32, 8, 1, 1), np.int8)}
    stored["c"] = draw.normal(0, 100, (32, 1, 1)).astype(np.float32)
    model = compiled(CHAIN, stored, tmp_path)
    results = model.run({"x": draw.normal(0, 1, (1, 8, 12, 12)).astype(np.float32)})
    assert results["s"] == pytest.approx(results["y"].max() / 255, rel=1e-6)
    (makers,) = (each.operators for each in read_table(tmp_path / "bundle") if "ConvInteger" in each.operators)
    assert {"ReduceMax", "Relu"} < set(makers)
