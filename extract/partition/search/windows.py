"""Better partitions, window by window: each window is cut into groups again, proven cheapest.

A window is some adjacent groups and their operators; what surrounds it stays. Of its operators every set that may be
a group is priced (connected, convex, allowed, up to a size), and the cheapest acyclic cover by such sets is proven
(cover.py). The price of a set is arbitrary: it need not be the sum of anything. The claim of a window is "optimal over
these sets within the window", not optimal over the whole graph; sweeps go on until no window can be improved.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from math import fsum, inf

from ....ir.graph import OperatorGraph
from ..groups import Partition, partition_of
from .convex import Region, bits, convex_sets, mask_of
from .cover import CoverProblem, cheapest_cover

Price = Callable[[tuple[int, ...]], float]
"""What a set of operators (ascending) costs as one sub-graph: finite, or infinite for what cannot be made."""

Allowed = Callable[[tuple[int, ...]], bool]
"""Whether a set of operators (ascending) may be a group, besides being connected and convex."""

Structure = Callable[[tuple[int, ...]], Hashable]
"""Of a window's operators, in the order given, all that prices and permissions depend on."""


@dataclass(frozen=True)
class Limits:
    """Of a window: groups and operators; of a candidate set: operators; and the convex sets listed per window."""

    groups: int = 12
    operators: int = 40
    largest: int = 10
    sets: int = 20_000


@dataclass(frozen=True)
class Window:
    """What came of one window. `operators` by index in the graph.

    `before` and `after` are its prices; `candidates` the sets that were priced; `complete` says that they are all
    connected, convex and allowed sets up to the limit of size; `proven` that no acyclic cover by them is cheaper.
    """

    operators: tuple[int, ...]
    groups: int
    candidates: int
    before: float
    after: float
    complete: bool
    proven: bool


@dataclass(frozen=True)
class Improvement:
    """A partition no dearer than the one given, and the windows that were solved, in order.

    `proven`: no window of the partition can be improved, over its candidates. `seconds` is the time it took.
    """

    partition: Partition
    windows: tuple[Window, ...]
    proven: bool
    seconds: float

    @property
    def saved(self) -> float:
        """By how much the sum of the groups' prices fell."""
        return sum(window.before - window.after for window in self.windows if window.after < window.before)


def improve(
    partition: Partition,
    price: Price,
    allowed: Allowed,
    time_limit: float = 10.0,
    limits: Limits = Limits(),
    structure: Structure | None = None,
) -> Improvement:
    """Sweep windows over a partition until none can be improved, or for `time_limit` seconds.

    Groups that are there stay possible whether allowed or not. Prices are asked for once per set. Windows that are
    equal in their prices are solved once; with `structure`, windows of equal structure are not even priced again.
    """
    started = time.monotonic()
    search = _Search(partition.graph, price, allowed, limits, structure, started + time_limit)
    windows: list[Window] = []
    improved = True
    while improved and not search.late:
        count = partition.count, partition.group
        partition, found = search.sweep(partition)
        windows += found
        improved = (partition.count, partition.group) != count
    return Improvement(partition, tuple(windows), not improved and search.settled, time.monotonic() - started)


@dataclass(frozen=True)
class _View:
    """A window and its region: `operators[i]` is node i; `known` are the masks of its groups."""

    operators: tuple[int, ...]
    region: Region
    known: tuple[int, ...]

    def members(self, mask: int) -> tuple[int, ...]:
        """The operators of a set, ascending."""
        return tuple(sorted(self.operators[node] for node in bits(mask)))


@dataclass(frozen=True)
class _Answer:
    """The cheapest cover of a window, as masks."""

    masks: tuple[int, ...]
    candidates: int
    complete: bool
    proven: bool


@dataclass
class _Search:
    graph: OperatorGraph
    price: Price
    allowed: Allowed
    limits: Limits
    structure: Structure | None
    deadline: float
    settled: bool = True
    prices: dict[tuple[int, ...], float] = field(default_factory=dict)
    permitted: dict[tuple[int, ...], bool] = field(default_factory=dict)
    by_view: dict[Hashable, _Answer] = field(default_factory=dict)
    by_problem: dict[tuple[CoverProblem, tuple[int, ...]], tuple[int, ...]] = field(default_factory=dict)
    final: set[_View] = field(default_factory=set)

    @property
    def late(self) -> bool:
        """Whether the time is over."""
        return time.monotonic() >= self.deadline

    def sweep(self, partition: Partition) -> tuple[Partition, list[Window]]:
        """Windows around every operator once, in order; an operator is done when it and its neighbours were in one."""
        self.settled = True
        windows: list[Window] = []
        done = [False] * len(self.graph)
        for seed in range(len(self.graph)):
            if done[seed]:
                continue
            if self.late:
                self.settled = False
                break
            groups = _grow(partition, partition.group[seed], done, self.limits)
            view = _view(partition, groups)
            if len(groups) > 1 or len(view.operators) > 1:
                partition = self._solve(partition, view, windows)
            _mark_done(self.graph, view.operators, done)
            done[seed] = True
        return partition, windows

    def _solve(self, partition: Partition, view: _View, windows: list[Window]) -> Partition:
        if view in self.final:
            return partition
        answer = self._answer(view)
        self.settled = self.settled and answer.proven
        before, after = self._total(view, view.known), self._total(view, answer.masks)
        outcome = min(before, after), answer.complete, answer.proven
        windows.append(Window(tuple(sorted(view.operators)), len(view.known), answer.candidates, before, *outcome))
        if after < before:
            return _replaced(partition, [view.members(mask) for mask in answer.masks])
        if answer.proven:
            self.final.add(view)
        return partition

    def _total(self, view: _View, masks: Sequence[int]) -> float:
        return fsum(self._priced(view.members(mask)) for mask in masks)

    def _priced(self, members: tuple[int, ...]) -> float:
        if members not in self.prices:
            self.prices[members] = self.price(members)
        return self.prices[members]

    def _may(self, members: tuple[int, ...]) -> bool:
        if members not in self.permitted:
            self.permitted[members] = self.allowed(members)
        return self.permitted[members]

    def _answer(self, view: _View) -> _Answer:
        own = view.operators if self.structure is None else self.structure(view.operators)
        key = (own, view.region, view.known)
        answer = self.by_view.get(key) or self._cheapest(view)
        if answer.proven:
            self.by_view[key] = answer
        return answer

    def _cheapest(self, view: _View) -> _Answer:
        found = convex_sets(view.region, self.limits.largest, self.limits.sets)
        prices = {mask: self._priced(view.members(mask)) for mask in view.known}
        for mask in found.masks:
            if self.late:
                return _Answer(view.known, len(prices), False, False)
            members = view.members(mask)
            if mask not in prices and self._may(members) and (cost := self._priced(members)) < inf:
                prices[mask] = cost
        # A group that is there but cannot be made is dearer than all sets that can.
        dear = 1.0 + sum(abs(cost) for cost in prices.values() if cost < inf)
        problem = CoverProblem(view.region, tuple(prices), tuple(min(cost, dear) for cost in prices.values()))
        known = tuple(range(len(view.known)))
        chosen = self.by_problem.get((problem, known))
        proven = chosen is not None
        if chosen is None:
            cover = cheapest_cover(problem, known, self.deadline)
            chosen, proven = cover.chosen, cover.proven
        if proven:
            self.by_problem[problem, known] = chosen
        return _Answer(tuple(problem.sets[p] for p in chosen), len(prices), found.complete, proven)


def _grow(partition: Partition, seed: int, done: Sequence[bool], limits: Limits) -> tuple[int, ...]:
    """Groups of a window, ascending: the seed, its neighbours, then theirs, those not done and near in number first."""
    chosen: dict[int, None] = {}
    size = 0
    queue = [(False, False, 0, seed)]
    queued = {seed}
    while queue and len(chosen) < limits.groups:
        *_, group = heapq.heappop(queue)
        members = partition.members[group]
        if size + len(members) > limits.operators and chosen:
            continue
        chosen[group] = None
        size += len(members)
        for other in _neighbours(partition, group) - queued:
            queued.add(other)
            known = all(done[member] for member in partition.members[other])
            heapq.heappush(queue, (group != seed, known, abs(other - seed), other))
    return tuple(sorted(chosen))


def _neighbours(partition: Partition, group: int) -> set[int]:
    graph = partition.graph
    near = {
        partition.group[other]
        for member in partition.members[group]
        for others in (graph.predecessors[member], graph.successors[member])
        for other in others
    }
    return near - {group}


def _mark_done(graph: OperatorGraph, operators: Sequence[int], done: list[bool]) -> None:
    inside = set(operators)
    for operator in operators:
        if inside.issuperset(graph.predecessors[operator]) and inside.issuperset(graph.successors[operator]):
            done[operator] = True


def _view(partition: Partition, groups: Sequence[int]) -> _View:
    operators = tuple(member for group in groups for member in partition.members[group])
    node = {operator: position for position, operator in enumerate(operators)}
    edges = [(node[p], node[o]) for o in operators for p in partition.graph.predecessors[o] if p in node]
    detours = [(node[tail], node[head]) for tail, head in _detours(partition, groups)]
    known = tuple(mask_of(node[member] for member in partition.members[group]) for group in groups)
    return _View(operators, Region(len(operators), tuple(sorted(edges)), tuple(sorted(detours))), known)


def _detours(partition: Partition, groups: Sequence[int]) -> set[tuple[int, int]]:
    """Pairs of operators of a window such that the second depends on the first through groups outside it."""
    window = set(groups)
    reached: dict[int, frozenset[int]] = {}
    found: set[tuple[int, int]] = set()
    for group in groups:
        for member in partition.members[group]:
            for reader in partition.graph.successors[member]:
                if partition.group[reader] not in window:
                    heads = _reached(partition, partition.group[reader], window, groups[-1], reached)
                    found.update((member, head) for head in heads)
    return found


def _reached(
    partition: Partition, start: int, window: set[int], last: int, reached: dict[int, frozenset[int]]
) -> frozenset[int]:
    """The operators of the window that an outside group leads to, through outside groups before group `last` only."""
    if start not in reached:
        heads: set[int] = set()
        queue, seen = [start], {start}
        while queue:
            group = queue.pop()
            for reader in (r for m in partition.members[group] for r in partition.graph.successors[m]):
                owner = partition.group[reader]
                if owner in window:
                    heads.add(reader)
                elif owner < last and owner not in seen:
                    seen.add(owner)
                    queue.append(owner)
        reached[start] = frozenset(heads)
    return reached[start]


def _replaced(partition: Partition, groups: Sequence[tuple[int, ...]]) -> Partition:
    """The partition with some operators grouped anew."""
    labels = list(partition.group)
    for position, members in enumerate(groups):
        for member in members:
            labels[member] = partition.count + position
    method = partition.method if partition.method.endswith("+windows") else f"{partition.method}+windows"
    return partition_of(partition.graph, labels, method)
