"""Convolutions by minimal filters with a pooling behind them: the numbers of both, one after the other."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import te, topi

from eqfuse.lowering.kernels.channels_last import channels_last
from eqfuse.lowering.schedules import Draft, Scheduled, Trace, apply_rule, mark_constants
from eqfuse.lowering.schedules.rules.winograd import pooled_convolution

from ..functions import HOST, execute, inputs
from .test_winograd import close, sums

Kind = Literal["max", "avg"]


def pooled(
    shape: tuple[Any, ...],
    outputs: int,
    windows: tuple[int, int],
    kind: Kind = "max",
    strides: tuple[int, int] = (0, 0),
) -> Any:
    """relu(convolution + bias + r), then its pooling times 2; strides of 0 are the windows."""
    x, b = te.placeholder(shape, name="x"), te.placeholder((outputs,), name="b")
    w = te.placeholder((outputs, shape[1], 3, 3), name="w")
    y = topi.nn.conv2d(x, w, 1, 1, 1, "NCHW")
    r = te.placeholder(y.shape, name="r")
    biased = te.compute(y.shape, lambda n, c, i, j: y(n, c, i, j) + b(c) + r(n, c, i, j), name="biased")
    steps = [stride or window for stride, window in zip(strides, windows, strict=True)]
    pool = topi.nn.pool2d(topi.nn.relu(biased), list(windows), steps, [1, 1], [0, 0, 0, 0], kind, False, "NCHW")
    twice = te.compute(pool.shape, lambda *i: pool(*i) * 2.0, name="twice")
    return channels_last(mark_constants(te.create_prim_func([x, w, b, r, twice]), (1, 2)), {0, 3, 4})


def schedule(function: Any, algorithm: str, threads: int = 1) -> Scheduled | None:
    return apply_rule(pooled_convolution, Draft.of(function, HOST, threads, Trace({"algorithm": algorithm})))


def check(function: Any, algorithm: str, windows: tuple[int, int], kind: Kind = "max", threads: int = 1) -> None:
    scheduled = schedule(function, algorithm, threads)
    assert scheduled is not None
    given_inputs = inputs(function)
    x, w, b, r = given_inputs[:4]
    whole = np.maximum(sums(x, w, (1, 1, 1, 1)) + b + r, 0.0)
    rows, columns = (extent // size for extent, size in zip(whole.shape[1:3], windows, strict=True))
    inside = whole[:, : rows * windows[0], : columns * windows[1]]
    apart = inside.reshape(len(whole), rows, windows[0], columns, windows[1], -1)
    close(execute(scheduled, given_inputs), 2.0 * (apart.max((2, 4)) if kind == "max" else apart.mean((2, 4))))


@pytest.mark.parametrize(
    ("algorithm", "kind"),
    [
        ("winograd 2", "max"),
        ("winograd 4", "avg"),
        pytest.param("winograd 2", "avg", marks=pytest.mark.conformance),
        pytest.param("winograd 4", "max", marks=pytest.mark.conformance),
    ],
)
def test_windows_of_a_tile(algorithm: str, kind: Kind) -> None:
    check(pooled((1, 16, 8, 8), 32, (2, 2), kind), algorithm, (2, 2), kind)


def test_rows_and_columns_behind_the_last_window_are_left_out() -> None:
    check(pooled((2, 16, 13, 11), 32, (2, 2)), "winograd 4", (2, 2), threads=2)


@pytest.mark.conformance
@settings(deadline=None, max_examples=40)
@given(
    plane=st.tuples(st.integers(8, 20), st.integers(8, 20)),
    windows=st.tuples(st.sampled_from([1, 2, 4]), st.sampled_from([2, 4])),
    channels=st.sampled_from([(8, 16), (16, 32), (5, 16)]),
    images=st.integers(1, 2),
    kind=st.sampled_from(["max", "avg"]),
    threads=st.integers(1, 2),
)
def test_any_plane_and_window(
    plane: tuple[int, int],
    windows: tuple[int, int],
    channels: tuple[int, int],
    images: int,
    kind: Kind,
    threads: int,
) -> None:
    check(pooled((images, channels[0], *plane), channels[1], windows, kind), "winograd 4", windows, kind, threads)


@pytest.mark.parametrize(
    ("windows", "strides"),
    [((3, 3), (2, 2)), ((2, 2), (1, 1)), ((3, 3), (3, 3))],
    ids=["overlap", "by one", "of three"],
)
def test_windows_that_no_tile_is_made_of(windows: tuple[int, int], strides: tuple[int, int]) -> None:
    assert schedule(pooled((1, 16, 12, 12), 32, windows, strides=strides), "winograd 4") is None


def test_a_plane_of_dynamic_size_is_left_to_others() -> None:
    assert schedule(pooled((1, 16, te.var("h"), 12), 32, (2, 2)), "winograd 4") is None
