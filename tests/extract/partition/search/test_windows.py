"""Windows of a partition, cut anew: against brute force, and what must never happen."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eqfuse.extract.partition.annotations.certificate import certificate_of
from eqfuse.extract.partition.annotations.proof import certify
from eqfuse.extract.partition.groups import Partition, PartitionError, partition_of, unfused
from eqfuse.extract.partition.search import cover
from eqfuse.extract.partition.search.convex import Region, convex_sets, mask_of
from eqfuse.extract.partition.search.cover import Cover, CoverProblem, cheapest_cover
from eqfuse.extract.partition.search.windows import Cost, Limits, improve
from eqfuse.extract.partition.structure import structure
from eqfuse.ir.graph import OperatorGraph
from eqfuse.support.bitsets import bits

from ....properties import examples
from ..dags import Edges, acyclic, edges, graph_of
from ..graphs import Builder, chain, operator_graphs

FEW = examples(10)

TRIANGLE: Edges = [[], [0], [0, 1]]
"""AGO's Fig. 9: the first and the last may not be fused without the one between."""


def any_set(members: tuple[int, ...]) -> bool:
    return True


def random_cost(seed: int) -> Cost:
    """A table that knows no additivity: half of the sets are worth making."""
    return lambda members: random.Random(f"{seed}{members}").randint(0, 40) / 8 * (1 + len(members) / 4)


def total(partition: Partition, cost: Cost) -> float:
    return sum(cost(members) for members in partition.members)


def labelings(size: int) -> Iterator[list[int]]:
    """Every partition of 0 to size - 1, as labels."""
    if size == 0:
        yield []
        return
    for labels in labelings(size - 1):
        for label in range(max(labels, default=-1) + 2):
            yield [*labels, label]


def groups_of(labels: Sequence[int]) -> list[tuple[int, ...]]:
    return [tuple(n for n, own in enumerate(labels) if own == label) for label in sorted({*labels})]


def connected(predecessors: Edges, members: tuple[int, ...]) -> bool:
    reached, before = {members[0]}, set[int]()
    while reached != before:
        before = set(reached)
        reached |= {n for n in members if any(p in before for p in predecessors[n])}
        reached |= {p for n in before for p in predecessors[n] if p in members}
    return len(reached) == len(members)


def least_total(predecessors: Edges, cost: Cost) -> float:
    """Over all acyclic partitions into connected groups."""
    cut = (labels for labels in labelings(len(predecessors)) if acyclic(predecessors, labels))
    divided = (groups_of(labels) for labels in cut)
    return min(sum(map(cost, g)) for g in divided if all(connected(predecessors, members) for members in g))


@FEW
@given(edges(7).filter(bool), st.integers(0, 999))
def test_a_window_over_the_whole_graph_finds_the_cheapest_acyclic_partition(predecessors: Edges, seed: int) -> None:
    cost = random_cost(seed)
    found = improve(unfused(graph_of(predecessors)), cost, any_set)
    assert found.proven
    assert total(found.partition, cost) == pytest.approx(least_total(predecessors, cost))


@pytest.mark.parametrize("seed", range(2))
def test_nine_operators_are_cut_as_brute_force_cuts_them(seed: int) -> None:
    draw = random.Random(seed)
    predecessors = [sorted({max(0, n - draw.randint(1, 4)) for _ in range(2)}) if n else [] for n in range(9)]
    found = improve(unfused(graph_of(predecessors)), random_cost(seed), any_set)
    assert total(found.partition, random_cost(seed)) == pytest.approx(least_total(predecessors, random_cost(seed)))


@st.composite
def partitions(draw: st.DrawFn) -> Partition:
    """A graph of up to 14 operators, some neighbours of it joined where that makes no cycle."""
    graph = graph_of(draw(edges()))
    partition = unfused(graph)
    for one, other in draw(st.lists(st.tuples(st.integers(0, 13), st.integers(0, 13)), max_size=8)):
        if max(one, other) < len(graph):
            merged = [partition.group[one] if g == partition.group[other] else g for g in partition.group]
            try:
                partition = partition_of(graph, merged, "merged")
            except PartitionError:
                continue
    return partition


@FEW
@given(partitions(), st.integers(0, 999))
def test_small_windows_never_make_it_worse_or_cyclic(partition: Partition, seed: int) -> None:
    cost = random_cost(seed)
    found = improve(partition, cost, any_set, limits=Limits(groups=3, operators=5, largest=3))
    before, after = total(partition, cost), total(found.partition, cost)
    assert after <= before + 1e-9
    assert before - after == pytest.approx(found.saved)
    certify(partition.graph, certificate_of(found.partition))


@FEW
@given(partitions(), st.integers(0, 999))
def test_groups_are_old_or_allowed(partition: Partition, seed: int) -> None:
    def allowed(members: tuple[int, ...]) -> bool:
        return random.Random(f"{seed}{members}").random() < 0.4

    found = improve(partition, random_cost(seed), allowed, limits=Limits(groups=3))
    # A set that is allowed may stay or go; one that is not can only have been there before.
    assert all(allowed(members) or members in partition.members for members in found.partition.members)


@FEW
@given(partitions(), st.integers(0, 999))
def test_a_proven_partition_is_improved_no_more(partition: Partition, seed: int) -> None:
    first = improve(partition, random_cost(seed), any_set, limits=Limits(groups=3))
    again = improve(first.partition, random_cost(seed), any_set, limits=Limits(groups=3))
    assert first.proven
    assert again.partition.group == first.partition.group
    assert again.saved == 0.0


def test_the_ends_of_a_triangle_are_never_fused_however_cheap() -> None:
    def cost(members: tuple[int, ...]) -> float:
        return {(0, 2): -100.0, (0, 1): 1.5}.get(members, float(len(members)))

    found = improve(unfused(graph_of(TRIANGLE)), cost, any_set)
    assert found.partition.members == ((0, 1), (2,))


def test_groups_that_need_each_other_are_never_chosen_together() -> None:
    crossed = graph_of([[], [], [0, 1], [0, 1]])  # {0, 2} and {1, 3} are convex each, and cyclic together

    def cost(members: tuple[int, ...]) -> float:
        return {(0, 2): 0.5, (1, 3): 0.25}.get(members, float(len(members)))

    assert improve(unfused(crossed), cost, any_set).partition.members == ((0,), (1, 3), (2,))


def test_what_surrounds_a_window_counts_for_convexity() -> None:
    # The group {1, 3} is too large for the window, which is {0}, {2}; 2 depends on 0 through it.
    graph = graph_of([[], [0], [0, 1], [1]])
    start = partition_of(graph, [0, 1, 2, 1], "start")

    def cost(members: tuple[int, ...]) -> float:
        return {(0, 2): -100.0}.get(members, float(len(members)))

    found = improve(start, cost, any_set, limits=Limits(operators=2))
    assert found.windows[0].operators == (0, 2)
    assert found.partition.members == start.members


def test_sets_that_cannot_be_made_are_left_out() -> None:
    def cost(members: tuple[int, ...]) -> float:
        return float("inf") if len(members) == 2 else 1.0

    assert improve(unfused(chain("Relu", "Relu", "Relu")), cost, any_set).partition.count == 1


def test_a_group_that_cannot_be_made_is_cut() -> None:
    def cost(members: tuple[int, ...]) -> float:
        return float("inf") if len(members) == 3 else 2.0

    start = partition_of(chain("Relu", "Relu", "Relu"), [0, 0, 0], "start")
    assert improve(start, cost, any_set).partition.count == 2


def test_a_structure_that_does_not_tell_costs_apart_cannot_make_it_worse() -> None:
    def cost(members: tuple[int, ...]) -> float:
        return float(len(members) ** 2 if members[0] > 3 else 1)

    start = unfused(chain(*["Relu"] * 8))
    found = improve(start, cost, any_set, limits=Limits(groups=3), structure=len)
    assert total(found.partition, cost) <= total(start, cost)


def test_without_time_the_partition_stays_and_nothing_is_proven() -> None:
    start = unfused(chain("Relu", "Relu"))
    found = improve(start, lambda members: 1.0, any_set, time_limit=0.0)
    assert (found.partition, found.windows, found.proven) == (start, (), False)


def test_a_window_reports_its_candidates_and_costs() -> None:
    found = improve(unfused(chain("Relu", "Relu", "Relu")), lambda members: 1.0, any_set, limits=Limits(largest=2))
    first = found.windows[0]
    assert (first.operators, first.groups, first.candidates) == ((0, 1, 2), 3, 5)
    assert (first.before, first.after, first.complete, first.proven) == (3.0, 2.0, True, True)


def test_a_cap_on_the_sets_is_reported() -> None:
    found = improve(unfused(chain("Relu", "Relu", "Relu")), lambda members: 1.0, any_set, limits=Limits(sets=4))
    assert not found.windows[0].complete


def test_the_cost_of_each_set_is_computed_once() -> None:
    asked: list[tuple[int, ...]] = []

    def cost(members: tuple[int, ...]) -> float:
        asked.append(members)
        return 1.0 / len(members)

    improve(unfused(chain(*["Relu"] * 8)), cost, any_set, limits=Limits(groups=3))
    assert len(asked) == len(set(asked))


def kinds(graph: OperatorGraph, members: tuple[int, ...]) -> tuple[str, ...]:
    return tuple(graph.operators[member].op for member in members)


@FEW
@given(operator_graphs(), st.integers(0, 999))
def test_windows_of_equal_structure_are_answered_alike(graph: OperatorGraph, seed: int) -> None:
    def cost(members: tuple[int, ...]) -> float:
        return random.Random(f"{seed}{kinds(graph, members)}").randint(0, 40) / 8 * (1 + len(members) / 4)

    limits = Limits(groups=3, operators=6)
    apart = improve(unfused(graph), cost, any_set, limits=limits)
    alike = improve(unfused(graph), cost, any_set, limits=limits, structure=partial(structure, graph))
    assert alike.partition.group == apart.partition.group


def test_equal_layers_have_equal_structure_and_different_ones_do_not() -> None:
    builder = Builder()
    value = builder.input(4, 4)
    for op in ("Relu", "Relu", "Relu", "Exp"):
        value = builder.op("Add", builder.op(op, value), builder.constant(4, 4))
    of = partial(structure, builder.graph(value))
    layers = [of((n, n + 1)) for n in (0, 2, 4, 6)]
    assert layers[0] == layers[1] == layers[2] != layers[3]


def test_an_opaque_operator_is_like_no_other() -> None:
    builder = Builder()
    first = builder.node("Opaque", (builder.input(4),), [(4,)], is_opaque=True)[0]
    second = builder.node("Opaque", (first,), [(4,)], is_opaque=True)[0]
    of = partial(structure, builder.graph(builder.node("Opaque", (second,), [(4,)], is_opaque=True)[0]))
    assert of((0,)) != of((1,)) != of((2,))


@st.composite
def regions(draw: st.DrawFn) -> Region:
    """Up to 7 nodes with some detours, which are no edges of the region."""
    predecessors = draw(edges(7).filter(bool))
    size = len(predecessors)
    pairs = st.tuples(st.integers(0, size - 1), st.integers(0, size - 1)).filter(lambda pair: pair[0] < pair[1])
    detours = draw(st.sets(pairs, max_size=2)) if size > 1 else set()
    return Region(
        size, tuple((p, n) for n, sources in enumerate(predecessors) for p in sources), tuple(sorted(detours))
    )


def is_group(region: Region, mask: int) -> bool:
    """Connected, convex, and without a detour: word by word."""
    members = tuple(bits(mask))
    inner = [[p for p, n in region.edges if n == node] for node in range(region.size)]
    outside = [n for n in range(region.size) if not mask >> n & 1]
    between = [n for n in outside if region.descendants[n] & mask and region.ancestors[n] & mask]
    return not between and connected(inner, members) and not region.holds_detour(mask)


@FEW
@given(regions(), st.integers(1, 7))
def test_the_convex_sets_are_all_there_and_nothing_else(region: Region, largest: int) -> None:
    found = convex_sets(region, largest, 1000)
    expected = {m for m in range(1, 1 << region.size) if m.bit_count() <= largest and is_group(region, m)}
    assert found.complete
    assert len(found.masks) == len(expected)
    assert set(found.masks) == expected


def least_cover(problem: CoverProblem) -> float:
    """By trying the sets in every order in which they can run."""
    best = {0: 0.0}
    for ideal in range(1 << problem.region.size):
        for mask, needed, cost in zip(problem.sets, problem.needs, problem.costs, strict=True):
            if ideal in best and not mask & ideal and not needed & ~ideal:
                best[ideal | mask] = min(best.get(ideal | mask, float("inf")), best[ideal] + cost)
    return best[(1 << problem.region.size) - 1]


@pytest.mark.parametrize("widths", [(), (1,), (32, 1024)], ids=["z3", "z3 after a narrow search", "ideals"])
@FEW
@given(regions(), st.integers(0, 999))
def test_both_solvers_prove_the_cheapest_cover(widths: tuple[int, ...], region: Region, seed: int) -> None:
    sets = convex_sets(region, 7, 1000).masks
    cost = random_cost(seed)
    problem = CoverProblem(region, sets, tuple(cost(tuple(bits(mask))) - 1.0 for mask in sets))
    cover = cheapest_cover(problem, range(region.size), time.monotonic() + 60, widths)
    assert cover.proven
    assert sum(problem.costs[p] for p in cover.chosen) == pytest.approx(least_cover(problem))


def test_z3_proves_the_cover_of_a_region_that_is_too_wide_for_ideals(monkeypatch: pytest.MonkeyPatch) -> None:
    # Between the ends of 24 operators side by side there are more sets of what may have run than the search keeps.
    region = Region(26, tuple([(0, n) for n in range(1, 25)] + [(n, 25) for n in range(1, 25)]))
    draw = random.Random(1)
    sets = tuple(sorted(convex_sets(region, 3, 1000).masks))
    problem = CoverProblem(region, sets, tuple(draw.uniform(0.5, 1.0) + mask.bit_count() / 3 for mask in sets))
    single = [sets.index(1 << node) for node in range(26)]
    asked = []

    def ask_z3(*arguments: Any) -> Cover:
        asked.append(arguments)
        return search_by_z3(*arguments)

    search_by_z3 = cover._search_by_z3
    monkeypatch.setattr(cover, "_search_by_z3", ask_z3)
    assert cheapest_cover(problem, single, time.monotonic() + 60).proven
    assert len(asked) == 1


def test_z3_rules_out_long_cycles() -> None:
    # Three sets {i, i + 3}, each convex, each needed by the next: any two can run, all three cannot.
    region = Region(6, ((0, 3), (1, 4), (2, 5), (0, 4), (1, 5), (2, 3)))
    sets = (*(1 << n for n in range(6)), *(mask_of((n, n + 3)) for n in range(3)))
    problem = CoverProblem(region, sets, (2.0,) * 6 + (1.0,) * 3)
    cover = cheapest_cover(problem, range(6), time.monotonic() + 60, widths=())
    assert cover.proven
    assert sum(problem.costs[p] for p in cover.chosen) == 6.0


def test_a_cover_that_is_not_proven_is_the_known_one() -> None:
    region = Region(3, tuple(pairwise(range(3))))
    problem = CoverProblem(region, (1, 2, 4, 7), (1.0, 1.0, 1.0, 0.5))
    cover = cheapest_cover(problem, (0, 1, 2), time.monotonic() - 1.0)
    assert (cover.chosen, cover.proven) == ((0, 1, 2), False)
