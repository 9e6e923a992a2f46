"""The spilled buffers, against every other choice."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eqfuse.lowering.base.errors import DsaError
from eqfuse.lowering.dsa.codegen.spilling import Resident, least_traffic, longest_liveness

STEPS = 5


@st.composite
def buffers(draw: st.DrawFn) -> tuple[list[Resident], list[list[int]]]:
    """Residents of a buffer that holds those that are fixed."""
    cores = draw(st.integers(1, 3))
    residents = [draw(residents_on(cores)) for _ in range(draw(st.integers(0, 7)))]
    fixed = [used(residents, [i for i, r in enumerate(residents) if not r.fixed], step) for step in range(STEPS)]
    return residents, [[draw(st.integers(0, 12)) + (row[c] if row else 0) for c in range(cores)] for row in fixed]


@st.composite
def residents_on(draw: st.DrawFn, cores: int) -> Resident:
    start = draw(st.integers(0, STEPS - 1))
    sizes = tuple(draw(st.integers(0, 8)) for _ in range(cores))
    end = draw(st.integers(start, STEPS - 1))
    return Resident(start, end, sizes, float(draw(st.integers(0, 20))), fixed=draw(st.integers(0, 5)) == 0)


def used(residents: Sequence[Resident], spilled: Collection[int], step: int) -> list[int]:
    live = [r for i, r in enumerate(residents) if i not in spilled and r.start <= step <= r.end]
    return [sum(column) for column in zip(*(r.sizes for r in live), strict=True)]


def fits(residents: Sequence[Resident], room: Sequence[Sequence[int]], spilled: Collection[int]) -> bool:
    rows = [(used(residents, spilled, step), cores) for step, cores in enumerate(room)]
    stay = not any(residents[index].fixed for index in spilled)
    return stay and all(a <= b for use, cores in rows for a, b in zip(use, cores, strict=bool(use)))


def cost(residents: Sequence[Resident], spilled: Collection[int]) -> float:
    return sum(residents[index].cost for index in spilled)


def cheapest(residents: Sequence[Resident], room: Sequence[Sequence[int]]) -> float:
    choices = (c for n in range(len(residents) + 1) for c in combinations(range(len(residents)), n))
    return min((cost(residents, c) for c in choices if fits(residents, room, c)), default=math.inf)


@settings(deadline=None)
@given(buffers())
def test_no_choice_is_cheaper(buffer: tuple[list[Resident], list[list[int]]]) -> None:
    residents, room = buffer
    found = least_traffic(residents, room, gap=0.0)
    assert fits(residents, room, found.spilled)
    assert found.cost == cost(residents, found.spilled) == pytest.approx(cheapest(residents, room))
    assert found.bound == pytest.approx(found.cost)


@settings(deadline=None)
@given(buffers())
def test_without_effort_the_choice_is_no_costlier_than_that_of_the_text(
    buffer: tuple[list[Resident], list[list[int]]],
) -> None:
    residents, room = buffer
    found = least_traffic(residents, room, effort=0)
    assert fits(residents, room, found.spilled)
    assert found.cost <= cost(residents, longest_liveness(residents, room))
    assert found.bound == 0.0


@settings(deadline=None)
@given(buffers())
def test_what_lives_longest_leaves_enough_room_and_nothing_is_spilled_in_vain(
    buffer: tuple[list[Resident], list[list[int]]],
) -> None:
    residents, room = buffer
    spilled = longest_liveness(residents, room)
    assert fits(residents, room, spilled)
    assert not any(fits(residents, room, spilled - {index}) for index in spilled)


def test_figure_12_spills_what_lives_longest() -> None:
    """Four tensors at once, room for three: the first lives across seven tasks, the others across fewer."""
    lives = [(0, 6), (0, 1), (1, 2), (2, 3), (2, 3), (3, 4)]
    residents = [Resident(start, end, (1,), 1.0) for start, end in lives]
    assert longest_liveness(residents, [[3]] * 7) == {0}


def test_what_is_cheap_is_spilled_rather_than_what_lives_longest() -> None:
    residents = [Resident(0, 4, (4,), 9.0), Resident(2, 2, (4,), 1.0)]
    assert longest_liveness(residents, [[4]] * STEPS) == {0}
    assert least_traffic(residents, [[4]] * STEPS).spilled == {1}


def test_a_core_that_is_short_is_not_helped_by_others() -> None:
    residents = [Resident(0, 4, (0, 4), 1.0), Resident(1, 2, (4, 0), 2.0), Resident(1, 1, (3, 0), 3.0)]
    assert longest_liveness(residents, [[4, 4]] * STEPS) == {1}


def test_large_tensors_fit_to_the_byte() -> None:
    """The solver's tolerance is a few bytes of sizes like these."""
    residents = [Resident(0, 0, (10**9,), 1.0), Resident(0, 0, (10**9 + 1,), 1.5), Resident(0, 0, (10**9,), 3.0)]
    found = least_traffic(residents, [[2 * 10**9]], gap=0.0)
    assert fits(residents, [[2 * 10**9]], found.spilled)
    assert found.cost == 1.5 if found.spilled == {1} else found.cost == 1.0


def test_what_is_fixed_has_to_fit() -> None:
    residents = [Resident(0, 4, (3,), 1.0, fixed=True), Resident(2, 3, (3,), 1.0, fixed=True)]
    with pytest.raises(DsaError, match=r"step 2: .* exceeds it by 1 bytes"):
        longest_liveness(residents, [[5]] * STEPS)
