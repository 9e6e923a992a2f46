"""Normalisations keep their digits where numbers are large, masked or far from zero."""

from __future__ import annotations

import numpy as np

from .in_tvm import assert_as_onnx_runtime, in_tvm, single


def test_a_softmax_of_large_numbers_and_of_masked_ones() -> None:
    x = np.array([[1e4, 1e4 + 1, -1e4], [-np.inf, 0.0, 1.0], [-np.inf] * 3, [1e-30, -1e-30, 0.0]], np.float32)
    assert_as_onnx_runtime([single("Softmax", {"x": x}), single("LogSoftmax", {"x": x[:2]})])


def test_the_variance_of_numbers_far_from_zero() -> None:
    x = (1000 + np.random.default_rng(0).standard_normal((4, 64))).astype(np.float32)
    (outputs,) = in_tvm([single("LayerNormalization", {"x": x, "s": np.ones(64, np.float32)}, epsilon=1e-5)])
    wide = x.astype(np.float64)
    expected = (wide - wide.mean(1, keepdims=True)) / np.sqrt(wide.var(1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(outputs["y0"], expected, 0, 1e-3)
