"""Transpositions by shuffles: of any sizes, in any order of axes, and what they leave to other rules."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tvm import te, topi

from eqfuse.costmodels.device import Device
from eqfuse.lowering.schedules import Scheduled, schedule
from eqfuse.lowering.schedules.base.draft import Draft
from eqfuse.lowering.schedules.base.extents import TYPICAL
from eqfuse.lowering.schedules.rules.transposition import Axis, find_movement

from ....properties import examples
from ..functions import ARM, HOST, SERVER, Shape, check, execute, of_one

pytestmark = pytest.mark.usefixtures("shared_by_threads")


def transpose(shape: Shape, axes: tuple[int, ...]) -> Any:
    return of_one(shape, lambda x: topi.transpose(x, axes))


@pytest.mark.representatives(3)
@pytest.mark.parametrize("device", [HOST, ARM])
@pytest.mark.parametrize(
    ("shape", "axes"),
    [
        ((16, 16), (1, 0)),
        ((17, 23), (1, 0)),
        ((4, 64), (1, 0)),
        ((1, 24, 14, 14), (0, 2, 3, 1)),
        ((2, 7, 7, 20), (0, 3, 1, 2)),
        ((2, 5, 6, 16), (0, 2, 3, 1)),
        ((5, 17, 4, 19), (1, 3, 0, 2)),
    ],
)
def test_every_element_gets_to_its_place(shape: Shape, axes: tuple[int, ...], device: Device) -> None:
    check(transpose(shape, axes), "transposition", device)


@examples(4)
@given(
    st.lists(st.integers(4, 20), min_size=2, max_size=4).flatmap(
        lambda shape: st.tuples(st.just(tuple(shape)), st.permutations(range(len(shape))).map(tuple))
    )
)
@example(((4, 4), (1, 0)))
def test_any_order_of_axes(drawn: tuple[Shape, tuple[int, ...]]) -> None:
    shape, axes = drawn
    function = transpose(shape, axes)
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    moved = x.transpose(axes)
    computed = execute(schedule(function, HOST), [x, np.full(moved.shape, np.nan, np.float32)])
    np.testing.assert_array_equal(computed, moved)


@pytest.mark.representatives(2)
@pytest.mark.parametrize(
    "function",
    [
        transpose((3, 40, 50), (0, 2, 1)),
        of_one((20, 40), lambda x: te.compute((32, 16), lambda i, j: x[j + 3, i + 5], name="y")),
        of_one((16, 20), lambda x: te.compute((20, 3, 16), lambda i, _, j: x[j, i], name="y")),
    ],
    ids=["by two threads", "of a part", "repeated"],
)
def test_other_forms(function: Any) -> None:
    check(function, "transposition", threads=2)


def test_whole_numbers_move_too() -> None:
    x = te.placeholder((24, 18), "int32", name="x")
    scheduled = schedule(te.create_prim_func([x, topi.transpose(x, (1, 0))]), HOST)
    assert scheduled.rule == "transposition"
    numbers = np.arange(24 * 18, dtype=np.int32).reshape(24, 18)
    computed = execute(scheduled, [numbers, np.zeros((18, 24), np.int32)])
    np.testing.assert_array_equal(computed, numbers.T)


@pytest.mark.parametrize(
    "function",
    [
        of_one((16, 16), lambda x: topi.transpose(x, (1, 0)), topi.negative),  # computes something
        transpose((3, 64), (1, 0)),  # too few of one axis
        transpose((8, 16, 32), (1, 0, 2)),  # rows stay as they are
        of_one((16, 16), lambda x: topi.nn.pad(topi.transpose(x, (1, 0)), [1, 1], [1, 1])),
        te.create_prim_func([x := te.placeholder((16, 16), "int64", name="x"), topi.transpose(x, (1, 0))]),
    ],
)
def test_what_others_do(function: Any) -> None:
    assert schedule(function, HOST).rule != "transposition"


@pytest.mark.representatives(2)
@pytest.mark.parametrize("plane", [(1, 1), (3, 5), (4, 4), (7, 9), (1, 40)])
def test_planes_of_any_size_get_their_channels_last(free_planes: Scheduled, plane: tuple[int, int]) -> None:
    x = np.random.default_rng(0).standard_normal((2, 24, *plane)).astype(np.float32)
    moved = x.transpose(0, 2, 3, 1)
    np.testing.assert_array_equal(execute(free_planes, [x, np.full(moved.shape, np.nan, np.float32)]), moved)


@pytest.fixture(scope="module")
def free_planes() -> Scheduled:
    x = te.placeholder((te.var("n"), 24, te.var("h"), te.var("w")), name="x")
    function = te.create_prim_func([x, topi.transpose(x, (0, 2, 3, 1))])
    scheduled = schedule(function.with_attr(TYPICAL, {"n": 1, "h": 20, "w": 20}), HOST)
    assert scheduled.rule == "transposition"
    return scheduled


def test_axes_that_follow_each_other_in_both_memories_are_one() -> None:
    draft = Draft.of(transpose((2, 24, 14, 7), (0, 2, 3, 1)), HOST)
    (block,) = draft.blocks()
    movement = find_movement(draft, block)
    assert movement is not None
    assert movement.axes == (Axis(2, 24 * 98, 24 * 98), Axis(98, 1, 24), Axis(24, 98, 1))


@pytest.mark.parametrize(("device", "shuffles"), [(SERVER, 64), (ARM, 8)])
def test_a_tile_takes_a_round_of_shuffles_for_each_doubling(device: Device, shuffles: int) -> None:
    text = str(schedule(transpose((64, 64), (1, 0)), device).schedule.mod)
    assert text.lower().count("shuffle") == shuffles
