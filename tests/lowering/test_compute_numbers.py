"""The elementary functions are right to the last places over their whole range."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from scipy import special
from tvm import te

from eqfuse.lowering.compute import elementary

from .in_tvm import Array, assert_as_onnx_runtime, in_tvm, single

EXTREMES = np.array([np.nan, np.inf, -np.inf, 0.0, 88.7, 88.73, -87.4, -103.9, -104.1], np.float32)


def values(function: Callable[..., Any], x: Array) -> Array:
    source = te.placeholder(x.shape, str(x.dtype), "x")
    result = te.compute(x.shape, lambda i: function(source(i)), "y")
    function_ = te.create_prim_func([source, result]).with_attr("global_symbol", "f")
    library = tvm.compile(tvm.IRModule({"f": function_}), target="llvm")
    found = tvm.runtime.tensor(np.empty_like(x))
    library["f"](tvm.runtime.tensor(x), found)
    return np.asarray(found.numpy())


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("ours", "reference", "relative", "absolute"),
    [
        (elementary.exp, np.exp, 2e-7, 1e-44),
        (elementary.erf, special.erf, 5e-7, 5e-7),
        (elementary.tanh, np.tanh, 5e-7, 1e-44),
        (elementary.sigmoid, special.expit, 3e-7, 1e-44),
        (elementary.softplus, lambda x: np.logaddexp(x, 0), 3e-7, 1e-44),
    ],
    ids=["exp", "erf", "tanh", "sigmoid", "softplus"],
)
def test_close_to_the_function(
    ours: Callable[..., Any], reference: Callable[..., Any], relative: float, absolute: float, dtype: str
) -> None:
    x = np.concatenate([np.linspace(-87, 88, 40001), np.linspace(-4.5, 4.5, 40001)]).astype(dtype)
    np.testing.assert_allclose(values(ours, x), reference(x.astype(np.float64)), relative, absolute)


def test_the_exponential_of_extremes() -> None:
    with np.errstate(all="ignore"):
        expected = np.exp(EXTREMES)
    np.testing.assert_allclose(values(elementary.exp, EXTREMES), expected, 1e-6, 2e-45)


def test_a_softmax_of_large_numbers_and_of_masked_ones() -> None:
    x = np.array([[1e4, 1e4 + 1, -1e4], [-np.inf, 0.0, 1.0], [-np.inf] * 3, [1e-30, -1e-30, 0.0]], np.float32)
    assert_as_onnx_runtime([single("Softmax", {"x": x}), single("LogSoftmax", {"x": x[:2]})])


def test_the_variance_of_numbers_far_from_zero() -> None:
    x = (1000 + np.random.default_rng(0).standard_normal((4, 64))).astype(np.float32)
    (found,) = in_tvm([single("LayerNormalization", {"x": x, "s": np.ones(64, np.float32)}, epsilon=1e-5)])
    wide = x.astype(np.float64)
    expected = (wide - wide.mean(1, keepdims=True)) / np.sqrt(wide.var(1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(found["y0"], expected, 0, 1e-3)
