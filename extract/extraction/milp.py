"""Proven optimal selections of a large core by mixed integer programming (HiGHS).

A binary variable per choice. A required class has one, any other at most one; for every class and child, the choices
that read the child are no more than the choices of the child that do not read the class back; each landmark has one
(`find_landmarks`). Longer cycles are ruled out lazily: an optimum that holds one adds the loop formulas of its classes,
and without those it remains a valid bound.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from ...support.deadlines import OutOfTime, require_time, seconds_left
from ...support.directed_graphs import Successors, connected_components, cyclic_components, short_cycles
from ...support.solvers import IntegerProgram, Row, as_integers
from .bounds import Kept, drop_unextractable_choices, reachable_components
from .cores import Answer, Core, Selection
from .dominance import drop_dominated_options
from .options import Graph, Option, drop_unextractable, restrict_to_reachable, strongly_connected_classes
from .problem import follow_choices, selected_children

_SCALED_COST = 1e4
"""The objective is scaled so that the answer at hand costs this: HiGHS stops at an absolute gap of 1e-6."""
_MOST_UNITS = 1e6
"""If all costs are multiples of a unit and the answer at hand has at most this many of them, the objective counts
units: HiGHS then knows that the next better selection is a whole unit below."""
_LEAST_SECONDS = 0.05
"""With less time than this no further program is solved."""

Pair = tuple[int, int]
"""A class and the position of a choice of it."""


def prove_by_milp(
    core: Core, answer: Answer, deadline: float, kept: Kept | None = None, nodes: int | None = None
) -> Answer:
    """Improve an answer and its bound until it is proven optimal or the deadline (time.monotonic) has come.

    kept: for every class the positions of the choices that a better selection may have; all by default. The bound holds
    if that is so. nodes: the most of HiGHS's search tree; the first such search that does not end is the last.
    """
    if answer.is_proven:
        return answer
    if kept is None:
        kept = drop_unextractable_choices(core, [range(len(choices)) for choices in core.classes])
    try:
        program = _SelectionProgram(core, kept, answer.cost, deadline)
    except OutOfTime:
        return answer
    while not answer.is_proven and seconds_left(deadline) > _LEAST_SECONDS:
        selection, bound = program.minimise(deadline, nodes)
        if math.isinf(bound):
            return answer.raise_bound(answer.cost)
        answer = answer.raise_bound(bound)
        sets = [] if selection is None else unfounded_sets(selected_children(core, selection))
        answer = answer.improve(selection, core)
        if not sets or nodes is not None:
            return answer
        for classes in sets:
            program.add_loop_formulas(classes)
    return answer


def supports(core: Core, number: int, child: int) -> list[Pair]:
    """The choices of a child that do not read the class back: one of them is chosen if the class reads the child.

    This alone rules out the cycles of two classes that involutive rewrites make, for fractional solutions too.
    """
    return [(child, position) for position, choice in enumerate(core.classes[child]) if number not in choice.children]


def cheapest_selection(core: Core, chosen: Iterable[Pair]) -> Selection | None:
    """The selection in a solver's set of choices; None if the set is not closed."""
    best: dict[int, int] = {}
    for number, position in sorted(chosen, key=lambda pair: (core.classes[pair[0]][pair[1]].cost, pair)):
        best.setdefault(number, position)
    return follow_choices(core, best.get)


def unfounded_sets(successors: Successors[int]) -> list[tuple[int, ...]]:
    """Sets of classes of a selection that are built from each other alone: its cyclic components and short cycles."""
    components = (tuple(sorted(component)) for component in cyclic_components(successors))
    return list(dict.fromkeys([*components, *short_cycles(successors)]))


class _SelectionProgram:
    """The integer program over the choices that are kept, in `pairs`."""

    def __init__(self, core: Core, kept: Kept, cost: float, deadline: float) -> None:
        self.core = core
        self.kept = kept
        classes = [number for component in reachable_components(core, kept) for number in component]
        self.pairs = [(number, position) for number in sorted(classes) for position in kept[number]]
        self.column = {pair: number for number, pair in enumerate(self.pairs)}
        costs = [core.classes[number][position].cost for number, position in self.pairs]
        unit = float(as_integers([own for own in costs if own <= cost])[1])
        if 0 < cost <= unit * _MOST_UNITS:
            self.scale = 1 / unit
        else:
            self.scale = _SCALED_COST / cost if cost > 0 else 1.0
        # Choices that cost more than the answer at hand are all alike, and in no optimum. They cost twice that answer,
        # for with huge coefficients HiGHS's bound would be off by more than the tolerance.
        self.program = IntegerProgram([min(own * self.scale, 2 * cost * self.scale) for own in costs])
        roots = frozenset(core.roots)
        for number in classes:
            own = self._terms(((number, position) for position in kept[number]), 1.0)
            self.program.rows.append(Row(own, float(number in roots), 1.0))
            self._require_children(number, deadline)
        self.program.rows.extend(Row(self._terms(ways, 1.0), lower=1.0) for ways in find_landmarks(core, kept))

    def _terms(self, choices: Iterable[Pair], factor: float) -> list[tuple[int, float]]:
        return [(self.column[choice], factor) for choice in choices if choice in self.column]

    def _require_children(self, number: int, deadline: float) -> None:
        readers: dict[int, list[Pair]] = {}
        for position in self.kept[number]:
            for child in self.core.classes[number][position].children:
                readers.setdefault(child, []).append((number, position))
        for child, choices in readers.items():
            require_time(deadline)
            terms = self._terms(supports(self.core, number, child), 1.0) + self._terms(choices, -1.0)
            self.program.rows.append(Row(terms, lower=0.0))

    def add_loop_formulas(self, unfounded: Sequence[int]) -> None:
        """If one of some classes is selected, one of them is by a choice that reads none of them: they are built
        from something outside of them (the loop formula of Lin & Zhao, "ASSAT", Artificial Intelligence 2004)."""
        members = frozenset(unfounded)
        ways_out = {
            number: [p for p in self.kept[number] if members.isdisjoint(self.core.classes[number][p].children)]
            for number in unfounded
        }
        for number in unfounded:
            inward = [(number, position) for position in self.kept[number] if position not in ways_out[number]]
            others = [(other, p) for other in unfounded if other != number for p in ways_out[other]]
            self.program.rows.append(Row(self._terms(inward, 1.0) + self._terms(others, -1.0), upper=0.0))

    def minimise(self, deadline: float, nodes: int | None) -> tuple[Selection | None, float]:
        """The best selection found under the rows so far, cyclic perhaps, and the bound proven."""
        values, bound = self.program.minimise(deadline, nodes)
        if values is None:
            return None, bound / self.scale
        chosen = [pair for pair, value in zip(self.pairs, values, strict=True) if value > 0.5]
        return cheapest_selection(self.core, chosen), bound / self.scale


# Landmarks: sets of choices of which every selection has one (Hoffmann, Porteous & Sebastia, JAIR 2004).
#
# A value that exists in several shapes is several classes, none of which must be selected, though one of them must: the
# linear relaxation of an integer program then takes half of each. Classes that read each other at the least cost there
# is (a Reshape's) are taken for one value; a value that every selection contains is built by a choice that reads none
# of its own classes. Values are a partition of the classes: which one it is decides on how strong the landmarks are,
# and not on whether they hold.

_LEAST_COSTS = 1.01
"""Choices of one child count as views up to this multiple of the cheapest."""

Landmark = list[tuple[int, int]]
"""Classes and positions of their choices."""


def find_landmarks(core: Core, kept: Kept) -> list[Landmark]:
    """The landmarks of a core among the choices that are kept; none if these choices leave no selection."""
    home = _values(core, kept)
    ways: dict[int, Landmark] = {value: [] for value in home}
    for number, positions in enumerate(kept):
        for position in positions:
            if all(home[child] != home[number] for child in core.classes[number][position].children):
                ways[home[number]].append((number, position))
    graph: Graph = {
        value: tuple(
            Option(index, 0.0, frozenset(home[child] for child in core.classes[number][position].children))
            for index, (number, position) in enumerate(choices)
        )
        for value, choices in ways.items()
        if choices
    }
    roots = frozenset(home[root] for root in core.roots)
    graph = drop_unextractable(graph)
    if not roots <= graph.keys():
        return []
    graph = restrict_to_reachable(graph, roots)
    _, forced = drop_dominated_options(graph, strongly_connected_classes(graph), roots)
    return [ways[value] for value in sorted(forced)]


def _values(core: Core, kept: Kept) -> list[int]:
    """For each class a number that the classes of one value share."""
    unary = {
        (number, choice.children[0]): choice.cost
        for number, positions in enumerate(kept)
        for choice in (core.classes[number][position] for position in positions)
        if len(choice.children) == 1 and choice.cost > 0
    }
    limit = _LEAST_COSTS * min(unary.values(), default=0.0)
    views: dict[int, set[int]] = {number: set() for number in range(len(core.classes))}
    for (number, child), cost in unary.items():
        if cost <= limit:
            views[number].add(child)
    home = list(range(len(core.classes)))
    for members in connected_components(views):
        for member in members:
            home[member] = min(members)
    return home
