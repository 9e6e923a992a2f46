"""The arena: buffers alive at the same time never overlap, others share."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from eqfuse.lowering.plan.arena import ALIGNMENT, plan_arena
from eqfuse.lowering.plan.plan import Buffer, Call, Plan, View

from .plans import chain


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """Each call reads some of the earlier buffers; the last buffer is the output."""
    count = draw(st.integers(2, 12))
    sizes = draw(st.lists(st.integers(1, 100), min_size=count, max_size=count))
    reads = [draw(st.sets(st.integers(0, i), min_size=1)) for i in range(count - 1)]
    calls = tuple(Call("k", tuple(sorted(read)), (i + 1,)) for i, read in enumerate(reads))
    return replace(chain(*sizes), steps=calls)


@given(plans())
def test_buffers_alive_together_are_apart(plan: Plan) -> None:
    arena = plan_arena(plan)
    last = {b: number for number, call in enumerate(plan.calls) for b in (*call.inputs, *call.outputs)}
    assert sorted(arena.offsets) == list(range(1, len(plan.buffers) - 1))
    assert all(offset % ALIGNMENT == 0 for offset in arena.offsets.values())
    for early, late in combinations(sorted(arena.offsets), 2):
        if last[early] >= late - 1:  # buffer `late` is filled by call `late - 1`
            first, second = sorted((early, late), key=lambda b: arena.offsets[b])
            assert arena.offsets[first] + plan.buffers[first].size <= arena.offsets[second]


@given(plans())
def test_no_buffer_reaches_beyond_the_arena(plan: Plan) -> None:
    arena = plan_arena(plan)
    assert all(offset + plan.buffers[b].size <= arena.size for b, offset in arena.offsets.items())


def test_a_chain_takes_the_largest_pair() -> None:
    assert plan_arena(chain(1, 16, 16, 16, 16, 16, 1)).size == 2 * 64


def test_a_plan_without_intermediates_takes_nothing() -> None:
    assert plan_arena(chain(5, 5)).size == 0


def test_a_view_keeps_its_storage_alive() -> None:
    """b1 is read last through its view b4, when b2 and b3 are alive: three lines, none shared."""
    plan = chain(16, 16, 16, 16, 1)
    buffers = (*plan.buffers, Buffer("view", "float32", (4, 4)))
    calls = (*plan.calls[:3], Call("k3", (3, 5), (4,)))
    assert plan_arena(plan).size == 2 * 64
    assert plan_arena(replace(plan, buffers=buffers, steps=calls, views=(View(5, 1),))).size == 3 * 64
