"""JOIN: which kernels may become one, which of them do, and how schedules are composed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from eqfuse.lowering.base.decisions import DecisionSite, Option
from eqfuse.lowering.tuning.joins import Join, best_joins, compose_schedules

PAIRS = st.lists(
    st.tuples(st.integers(0, 6), st.floats(0.1, 10.0), st.floats(0.1, 10.0), st.floats(0.1, 20.0)), max_size=8
)


def site(name: str, *labels: str) -> DecisionSite:
    return DecisionSite(name, tuple(Option(label, 1.0 + place, {}) for place, label in enumerate(labels)), 0)


def neighbours(pairs: list[tuple[int, float, float, float]]) -> tuple[list[Join], dict[tuple[int, ...], float]]:
    """Joins of kernel n with n + 1, and what each kernel takes."""
    seconds: dict[tuple[int, ...], float] = {}
    joins = []
    for first, a, b, both in pairs:
        seconds.setdefault((first,), a)
        seconds.setdefault((first + 1,), b)
        seconds.setdefault((first, first + 1), both)
        joins.append(Join(((first,), (first + 1,)), (first, first + 1)))
    return joins, seconds


@given(PAIRS)
def test_joins_that_are_chosen_save_time_and_share_no_kernel(pairs: list[tuple[int, float, float, float]]) -> None:
    joins, seconds = neighbours(pairs)
    chosen = best_joins(joins, seconds.__getitem__)
    assert all(join.saving(seconds.__getitem__) > 0 for join in chosen)
    apart = [kernel for join in chosen for kernel in join.apart]
    assert len(apart) == len(set(apart))


@given(PAIRS)
def test_what_is_left_out_saves_nothing_or_meets_one_that_was_chosen(
    pairs: list[tuple[int, float, float, float]],
) -> None:
    joins, seconds = neighbours(pairs)
    chosen = best_joins(joins, seconds.__getitem__)
    taken = {kernel for join in chosen for kernel in join.apart}
    for join in joins:
        assert join in chosen or join.saving(seconds.__getitem__) <= 0 or not taken.isdisjoint(join.apart)


def test_what_is_left_over_counts() -> None:
    join = Join(((0, 1), (2,)), (1, 2), ((0,),))
    seconds = {(0, 1): 2.0, (2,): 2.0, (1, 2): 2.0, (0,): 1.5}
    assert join.saving(seconds.__getitem__) == 0.5
    assert join.together == ((1, 2), (0,))


def test_a_kernel_that_never_ran_is_not_joined() -> None:
    join = Join(((0,), (1,)), (0, 1))
    seconds = {(0,): 1.0, (1,): 1.0, (0, 1): float("inf")}
    assert best_joins([join], seconds.__getitem__) == ()


def test_a_joined_kernel_begins_with_the_tiles_of_its_parts() -> None:
    first, second = ("c3 r2 4x2x16", "c3 r2 2x2x16"), ("6x1x16", "4x1x16")
    sites = [site("slab", "1", "2"), site("first.tile", *first), site("second.tile", *second)]
    parts = [{"tile": "c2 r1 2x2x16", "parallel": "1"}, {"tile": "4x1x16"}]
    assert compose_schedules(sites, parts) == {"first.tile": "c3 r2 2x2x16", "second.tile": "4x1x16"}


def test_parts_are_told_apart_by_names_not_by_the_order_of_questions() -> None:
    sites = [site("second.tile", "2x2x16", "4x1x16"), site("first.tile", "4x1x16", "2x2x16")]
    assert compose_schedules(sites, [{"tile": "2x2x16"}, {"tile": "4x1x16"}]) == {
        "first.tile": "2x2x16", "second.tile": "4x1x16"
    }  # fmt: skip


def test_a_part_that_never_ran_keeps_its_place() -> None:
    sites = [site("first.tile", "2x2x16", "4x1x16"), site("second.tile", "2x2x16", "4x1x16")]
    assert compose_schedules(sites, [{}, {"tile": "4x1x16"}]) == {"second.tile": "4x1x16"}


def test_what_a_joined_kernel_cannot_do_is_left_to_the_estimate() -> None:
    assert compose_schedules([site("first.tile", "c3 r2 4x2x16")], [{"tile": "c2 r1 9x9x16"}]) == {}
