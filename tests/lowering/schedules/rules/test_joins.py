"""Joined and cut tensors: the same elements, by whole vectors, without a selection at any element."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import pytest
from tvm import te, tirx, topi

from eqfuse.lowering.schedules import Scheduled

from ..functions import ARM, HOST, Shape, check, of_one

pytestmark = pytest.mark.usefixtures("share_everything")

Step = Callable[[te.Tensor], te.Tensor]


@pytest.fixture
def share_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """However little there is to do, as many threads as there are share it."""
    monkeypatch.setattr(import_module("eqfuse.lowering.schedules.rules.joins"), "PARALLEL_ELEMENTS", 0)


def identity(x: te.Tensor) -> te.Tensor:
    return x


def join(parts: Sequence[te.Tensor], axis: int) -> te.Tensor:
    """Their concatenation as the lowering writes it."""
    ends = [sum(int(part.shape[axis]) for part in parts[: n + 1]) for n in range(len(parts))]
    shape = [*parts[0].shape[:axis], ends[-1], *parts[0].shape[axis + 1 :]]

    def element(*i: Any) -> Any:
        value: Any = None
        for part, end in reversed(list(zip(parts, ends, strict=True))):
            own = part(*i[:axis], i[axis] - (end - part.shape[axis]), *i[axis + 1 :])
            value = own if value is None else te.if_then_else(i[axis] < end, own, value)
        return value

    return te.compute(shape, element, name="joined")


def concat(shapes: Sequence[Shape], axis: int, before: Step = identity, after: Step = identity) -> Any:
    """A function that joins its parameters, with steps on each of them and on the result."""
    parts = [te.placeholder(shape, name=f"x{n}") for n, shape in enumerate(shapes)]
    return te.create_prim_func([*parts, after(join([before(part) for part in parts], axis))])


def cut_part(x: te.Tensor, low: int, size: int) -> te.Tensor:
    """A part of the last axis."""
    return te.compute((*x.shape[:-1], size), lambda *i: x(*i[:-1], i[-1] + low), name=f"from_{low}")


def shuffle(x: te.Tensor, groups: int) -> te.Tensor:
    """The elements of the last axis, one of each group after the other."""
    size = int(x.shape[-1]) // groups
    return te.compute(x.shape, lambda *i: x(*i[:-1], i[-1] % groups * size + i[-1] // groups), name="shuffled")


def script(scheduled: Scheduled) -> str:
    return str(scheduled.schedule.mod["main"].script())


@pytest.mark.representatives(2)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    ("shapes", "axis"),
    [
        (((7, 64), (7, 32)), 1),
        (((7, 5), (7, 12), (7, 1), (7, 33)), 1),
        (((64,), (3,), (40,)), 0),
        (((2, 3, 14, 14), (2, 5, 14, 14)), 1),
        (((1, 4, 8, 8), (1, 2, 8, 8)), 1),
        (((1, 6, 5, 40), (1, 6, 3, 40)), 2),
        (((1, 56, 7, 24), (1, 56, 7, 8), (1, 56, 7, 16)), 3),
    ],
)
def test_concat(shapes: Sequence[Shape], axis: int, threads: int) -> None:
    text = script(check(concat(shapes, axis), "joins", HOST, threads))
    assert "if_then_else" not in text
    assert ("parallel" in text) == (threads > 1)


def test_every_part_is_copied_by_vectors() -> None:
    text = script(check(concat([(7, 64), (7, 12), (7, 20)], 1), "joins", ARM))
    assert text.count("T.vectorized(4)") == 3


def square(x: te.Tensor) -> te.Tensor:
    """A square that names its operand."""

    def element(*i: Any) -> Any:
        value = tirx.Var("t", "float32")
        return tirx.Let(value, x(*i), value * value)

    return te.compute(x.shape, element, name="square")


def concat_of_concat() -> Any:
    x, y = te.placeholder((5, 32), name="x"), te.placeholder((5, 16), name="y")
    return te.create_prim_func([x, y, join([y, join([x, y], 1), x], 1)])


@pytest.mark.representatives(3)
@pytest.mark.parametrize(
    ("function", "absent"),
    [
        (concat([(7, 64), (7, 12)], 1, topi.nn.relu, topi.exp), "alloc_buffer"),
        (concat([(7, 64), (7, 12)], 1, after=square), "alloc_buffer"),
        (concat([(7, 7, 58), (7, 7, 58)], 2, after=lambda x: shuffle(x, 2)), "alloc_buffer"),
        (concat_of_concat(), "if_then_else"),
        (of_one((3, 6, 24), lambda x: topi.nn.pad(x, [0, 0, 8], [0, 0, 16])), "if_then_else"),
    ],
    ids=["steps around", "named values", "a shuffle", "concat of a concat", "padding along one axis"],
)
def test_other_joins(function: Any, absent: str) -> None:
    assert absent not in script(check(function, "joins"))


def test_booleans_are_joined_by_vectors_of_bytes() -> None:
    x, masks = te.placeholder((3, 48), name="x"), [te.placeholder((3, n), "uint8", name=f"m{n}") for n in (32, 16)]
    mask = join(masks, 1)
    chosen = te.compute(
        x.shape, lambda i, j: tirx.Select(tirx.NE(mask[i, j], tirx.const(0, "uint8")), x[i, j], -x[i, j])
    )
    assert "vectorized" in script(check(te.create_prim_func([x, *masks, chosen]), "joins"))


@pytest.mark.representatives(2)
@pytest.mark.parametrize("device", [ARM, HOST], ids=lambda device: device.name)
@pytest.mark.parametrize("low", [3, 29])
def test_slice(low: int, device: Any) -> None:
    function = of_one((1, 7, 7, 58), lambda x: cut_part(x, low, 29), topi.nn.relu)
    assert "vectorized" in script(check(function, "joins", device, threads=2))


@pytest.mark.parametrize("last", [0, 1])
def test_split(last: int) -> None:
    x = te.placeholder((6, 6, 48), name="x")
    parts = [cut_part(x, 0, 20), cut_part(x, 20, 28)]
    function = te.create_prim_func([x, parts[1 - last], parts[last]])
    assert script(check(function, "joins")).count("vectorized") == 2


@pytest.mark.representatives(2)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("groups", [2, 3, 4])
def test_channel_shuffle(groups: int, threads: int) -> None:
    text = script(check(of_one((1, 7, 7, 12 * groups), lambda x: shuffle(x, groups)), "joins", HOST, threads))
    assert f"T.unroll({groups})" in text


def test_maps_that_alternate_are_no_shuffle_of_their_columns() -> None:
    def alternate(x: te.Tensor) -> te.Tensor:
        return te.compute((12, 5, 24), lambda i, j, k: x[i // 2, i % 2, j, k], name="alternated")

    assert "vectorized" in script(check(of_one((6, 2, 5, 24), alternate), "pointwise"))
