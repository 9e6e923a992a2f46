"""Plans: the JSON form, and the plans that are refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eqfuse.lowering.plan.plan import Buffer, Call, Plan, PlanError, View

from .plans import chain

PLAN = Plan(
    (
        Buffer("x", "float32", (2, 3)),
        Buffer("flat", "float32", (6,)),
        Buffer("w", "int64", ()),
        Buffer("y", "float32", (6,)),
    ),
    (Call("k", (1, 2), (3,)),),
    (0,),
    (3,),
    (2,),
    (View(1, 0),),
)


def test_json_there_and_back() -> None:
    assert Plan.from_json(PLAN.to_json()) == PLAN


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"buffers": 3}'])
def test_other_json_is_refused(text: str) -> None:
    with pytest.raises(PlanError, match="is of another version"):
        Plan.from_json(text)


def test_a_view_has_the_bytes_of_what_it_views() -> None:
    assert PLAN.storage == (0, 0, 2, 3)


def test_sizes_are_bytes() -> None:
    assert [buffer.size for buffer in PLAN.buffers] == [24, 24, 8, 24]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"buffers": (Buffer("x", "complex64", (1,)),)}, r"buffer 0 \(x\): type 'complex64' is none of float64"),
        ({"buffers": (Buffer("x", "float32", (-1,)),)}, r"buffer 0 \(x\): shape \(-1,\)"),
        ({"inputs": (7,)}, "inputs and weights: buffer 7 does not exist; there are 3"),
        ({"inputs": (0, 0)}, r"buffer 0 \(b0\) is filled a second time"),
        ({"inputs": ()}, r"step 0 \(k0\): reads buffer 0, which nothing filled before"),
        ({"steps": (Call("k 0", (0,), (2,)),)}, r"step 0 \(k 0\): the kernel's name must be a C identifier"),
        ({"steps": (Call("k", (0,), (0,)),)}, r"step 0 \(k\): buffer 0 \(b0\) is filled a second time"),
        ({"steps": (Call("k", (1,), (2,)),)}, r"reads buffer 1, which nothing filled"),
        ({"outputs": (0,)}, "output buffer 0 must be filled by a step"),
        ({"outputs": (2, 2)}, "output buffer 2 must .* share its bytes with no other"),
        ({"outputs": (-1,)}, "outputs: buffer -1 does not exist"),
        ({"views": (View(2, 1),)}, "is a view; fill what it views"),
        ({"views": (View(1, 0),)}, "view 0: buffer 1 has not the type and size of 0"),
        ({"views": (View(2, 2),)}, "view 0: buffer 2 is viewed or a view already"),
    ],
)
def test_a_plan_that_no_run_could_follow_is_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        replace(chain(4, 8, 8), **change)
