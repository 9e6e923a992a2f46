"""Depthwise convolutions of maps with channels last, whose borders are not copied."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
import tvm
from hypothesis import given
from hypothesis import strategies as st
from tvm import te, tirx, topi

from eqfuse.lowering.schedules import mark_constants, schedule
from eqfuse.lowering.schedules.base.extents import TYPICAL

from ....properties import examples
from ..functions import ARM, HOST, TARGET, check, of_one

Pads = tuple[int, int, int, int]


def depthwise(
    shape: tuple[Any, ...], kernel: int, stride: int = 1, pads: Pads = (1, 1, 1, 1), outputs: Any = (0, 0)
) -> Any:
    """A depthwise convolution in NHWC, with bias and relu; `pads` are top, left, bottom and right, `outputs` the
    variables for the rows and columns of its result if those of `shape` are variables."""
    top, left, bottom, right = pads
    x = te.placeholder(shape, name="x")
    w = te.placeholder((shape[3], 1, kernel, kernel), name="w")
    b = te.placeholder((shape[3],), name="b")
    padded = topi.nn.pad(x, (0, top, left, 0), (0, bottom, right, 0), name="padded")
    i, j = te.reduce_axis((0, kernel), name="i"), te.reduce_axis((0, kernel), name="j")
    height, width = (
        (extent - kernel) // stride + 1 if isinstance(extent, int | tirx.IntImm) else variable
        for extent, variable in zip(padded.shape[1:3], outputs, strict=True)
    )

    def product(n: Any, h: Any, v: Any, c: Any) -> Any:
        return te.sum(padded(n, h * stride + i, v * stride + j, c) * w(c, 0, i, j), axis=[i, j])

    total = te.compute((shape[0], height, width, shape[3]), product, name="total")
    y = te.compute(total.shape, lambda n, h, v, c: te.max(total(n, h, v, c) + b(c), 0.0), name="y")
    return mark_constants(te.create_prim_func([x, w, b, y]), (1, 2))


def count_copies(scheduled: Any) -> int:
    """Buffers that the function makes, but for its accumulators."""
    return str(scheduled.schedule.mod["main"].script()).count("alloc_buffer(")


@pytest.mark.representatives(2)
@pytest.mark.parametrize(
    ("shape", "kernel", "stride", "pads"),
    [
        ((1, 14, 30, 40), 3, 1, (1, 1, 1, 1)),
        ((2, 13, 29, 24), 5, 2, (2, 2, 2, 2)),
        ((1, 28, 27, 16), 3, 2, (0, 1, 1, 0)),
        ((1, 7, 7, 96), 7, 1, (3, 3, 3, 3)),
        ((1, 3, 2, 17), 3, 1, (1, 1, 1, 1)),
        ((1, 1, 40, 8), 3, 1, (1, 1, 1, 1)),
    ],
)
def test_borders_are_not_copied(shape: tuple[int, ...], kernel: int, stride: int, pads: Pads) -> None:
    assert count_copies(check(depthwise(shape, kernel, stride, pads), "channels")) == 0


def test_borders_of_several_threads() -> None:
    scheduled = check(depthwise((1, 56, 56, 64), 3), "channels", threads=2)
    assert "parallel" in scheduled.schedule.mod["main"].script()


def test_borders_on_short_vectors() -> None:
    check(depthwise((1, 9, 11, 20), 3), "channels", ARM)


def test_borders_wider_than_tiles() -> None:
    """No tile lies in the middle of the map as a whole."""
    check(depthwise((1, 5, 6, 16), 9, 1, (4, 4, 4, 4)), "channels")


def test_borders_of_other_numbers_than_zero_stay() -> None:
    def maxima(x: Any) -> Any:
        return topi.nn.pool2d(x, (3, 3), (2, 2), (1, 1), (1, 1, 1, 1), "max", layout="NHWC")

    check(of_one((1, 15, 16, 24), maxima), "channels")


@examples(3)
@given(
    st.tuples(st.integers(1, 12), st.integers(1, 20), st.integers(2, 40)), st.integers(1, 4), st.integers(1, 2),
    st.tuples(*[st.integers(0, 3)] * 4),
)  # fmt: skip
def test_borders_of_any_size(size: tuple[int, int, int], kernel: int, stride: int, pads: Pads) -> None:
    height, width, channels = size
    if height + pads[0] + pads[2] >= kernel and width + pads[1] + pads[3] >= kernel:
        check(depthwise((1, height, width, channels), kernel, stride, pads), "channels")


@pytest.mark.representatives(1)
@pytest.mark.parametrize(
    ("kernel", "stride", "pads"),
    [(3, 1, (1, 1, 1, 1)), (5, 2, (2, 2, 2, 2)), (3, 2, (0, 0, 1, 1)), (7, 1, (3, 3, 3, 3)), (2, 3, (1, 0, 2, 0))],
)
def test_borders_of_free_size(kernel: int, stride: int, pads: Pads) -> None:
    h, w = map(te.var, "hw")
    is_same = stride == 1 and sum(pads) == 2 * (kernel - 1)
    function = depthwise((1, h, w, 24), kernel, stride, pads, (h, w) if is_same else (te.var("o"), te.var("v")))
    function = function.with_attr(TYPICAL, {"h": 30, "w": 40, "o": 30, "v": 40})
    scheduled = schedule(function, HOST)
    assert scheduled.rule == "channels"
    assert count_copies(scheduled) == 0
    compiled = tvm.compile(scheduled.schedule.mod, target=tvm.target.Target(TARGET))["main"]
    generator = np.random.default_rng(0)
    k, b = (generator.standard_normal(shape).astype(np.float32) for shape in ((24, 1, kernel, kernel), (24,)))
    packed = functools.reduce(lambda array, repack: repack(array), scheduled.repack, k)
    for height, width in [(9, width) for width in range(1, 30)] + [(height, 13) for height in range(1, 13)]:
        x = generator.standard_normal((1, height, width, 24)).astype(np.float32)
        padded = np.pad(x, ((0, 0), (pads[0], pads[2]), (pads[1], pads[3]), (0, 0)))
        if min(padded.shape[1:3]) < kernel:
            continue
        windows = np.lib.stride_tricks.sliding_window_view(padded, (kernel, kernel), (1, 2))[:, ::stride, ::stride]
        expected = np.maximum(np.einsum("nhwcij,cij->nhwc", windows, k[:, 0]) + b, 0.0)
        result = tvm.runtime.tensor(np.full(expected.shape, np.nan, np.float32))
        compiled(*map(tvm.runtime.tensor, (x, packed, b)), result)
        np.testing.assert_allclose(result.numpy(), expected, atol=1e-4)
