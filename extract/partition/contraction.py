"""Groups of operators that grow by merging, and never into a cycle."""

from __future__ import annotations

from collections.abc import Iterator, Sequence


class Contraction:
    """An acyclic graph whose operators are merged step by step into groups.

    Invariants: the quotient graph (of groups) is acyclic, and `_position` numbers the groups in a topological order of
    it. A merge looks only at the groups between the two in that order, so it costs little if they are near.
    """

    def __init__(self, successors: Sequence[Sequence[int]], members: Sequence[tuple[int, ...]] | None = None) -> None:
        """`successors` of each operator are later ones. `members`: groups to start from, labelled by their positions,
        in an order in which they can run; else each operator by itself."""
        self._successors_of = successors
        self._group = list(range(len(successors)))
        self._members: list[tuple[int, ...]] = [(index,) for index in self._group] if members is None else [*members]
        for label, group in enumerate(members or ()):
            for member in group:
                self._group[member] = label
        self._position = list(range(len(self._members)))
        self._order: list[int | None] = list(range(len(self._members)))

    @property
    def labels(self) -> tuple[int, ...]:
        """Per operator, the label of its group."""
        return tuple(self._group)

    def group(self, operator: int) -> int:
        """The label of an operator's group."""
        return self._group[operator]

    def members(self, group: int) -> tuple[int, ...]:
        """The operators of a group, ascending."""
        return self._members[group]

    def can_merge(self, first: int, second: int) -> bool:
        """Whether no path leads from one group to the other through a third: merging them would make a cycle."""
        return self._between(*self._in_order(first, second)) is not None

    def merge(self, first: int, second: int) -> int:
        """Make one group of two, and give its label, `first`. Raises ValueError if that would make a cycle."""
        low, high = self._in_order(first, second)
        later = self._between(low, high)
        if later is None:
            raise ValueError(f"a third group lies between {first} and {second}")
        self._reorder(low, high, first, later)
        for member in self._members[second]:
            self._group[member] = first
        self._members[first] = tuple(sorted(self._members[first] + self._members[second]))
        self._members[second] = ()
        return first

    def _in_order(self, first: int, second: int) -> tuple[int, int]:
        return (first, second) if self._position[first] <= self._position[second] else (second, first)

    def _successors(self, group: int) -> Iterator[int]:
        for member in self._members[group]:
            for user in self._successors_of[member]:
                if self._group[user] != group:
                    yield self._group[user]

    def _between(self, low: int, high: int) -> set[int] | None:
        """The groups that `low` reaches and that come before `high`; None if one of them reaches `high`."""
        limit = self._position[high]
        if limit == self._position[low] + 1:
            return set()
        after: set[int] = set()
        stack = [low]
        while stack:
            group = stack.pop()
            for user in self._successors(group):
                if user == high and group != low:
                    return None
                if user not in after and self._position[user] < limit:
                    after.add(user)
                    stack.append(user)
        return after

    def _reorder(self, low: int, high: int, merged: int, later: set[int]) -> None:
        """First the groups that `low` does not reach, then the merged group, then those that it reaches."""
        start, end = self._position[low], self._position[high] + 1
        window = [g for g in self._order[start:end] if g is not None and g not in (low, high)]
        order = [*(g for g in window if g not in later), merged, *(g for g in window if g in later)]
        free = end - start - len(order)  # places in front, so that the group stands next to those that it may grow into
        self._order[start:end] = [*[None] * free, *order]
        for position, group in enumerate(order, start + free):
            self._position[group] = position
