"""Extraction for a runtime that runs convolutions in a layout of its own, in blocks of channels.

The runtime decides the layout of an operator from those of its operands. So each class of images is up to four classes
of the problem: its value as a plain tensor by plain operators (the class itself), in blocks by operators that run in
blocks, and in either layout by way of the other, for the cost of a change of layout:

    blocks(c)  = Conv(blocked, w) | Relu(blocks) | Add(blocks, blocks) | ...
    plain(c)   = c | reorder(blocks(c))
    blocked(c) = blocks(c) | reorder(c)

An operator that starts blocks always runs in them, so most classes of a convolutional network have no plain operator,
and the last two have one candidate each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ...costmodels.runtime import Blocked
from ...engine.egraph.graph import EGraph, ENode, postorder
from ...ir.operators import OPERATORS
from ...ir.operators.linear import is_convolution
from ...ir.types import TensorType
from .problem import Candidate, Problem
from .sizes import Types

Row = Sequence[tuple[ENode, float]]
_MOST_MIXED = 300
"""The most classes with operators of both layouts: with 194 the proof takes a second, with 432 over nine seconds."""


class Place(NamedTuple):
    """A candidate by its class and its place in the row of the class."""

    owner: int
    position: int


@dataclass(frozen=True)
class PlacedProblem:
    """A problem with several classes for some classes of an e-graph, such as one for each layout.

    `places` gives the e-node of each class and candidate, None for one that is no e-node, such as a change of layout.
    """

    problem: Problem
    places: tuple[tuple[Place | None, ...], ...]

    def choose(self, rows: Sequence[Row], roots: Sequence[int], choice: Mapping[int, int]) -> dict[int, ENode] | None:
        """The e-nodes of a solution; None if those of several classes of one cannot be one without a cycle."""
        picked: dict[int, ENode] = {}
        for number in sorted(choice):  # those of classes that the problem has beside those of the e-graph win
            place = self.places[number][choice[number]]
            if place is not None:
                picked[place.owner] = rows[place.owner][place.position][0]
        order = postorder(roots, lambda owner: picked[owner].children)
        rank = {owner: number for number, owner in enumerate(order)}
        if any(rank[child] >= rank[owner] for owner in order for child in picked[owner].children):
            return None
        return {owner: picked[owner] for owner in order}


@dataclass
class _Builder:
    egraph: EGraph
    rows: Sequence[Row]
    types: Types
    blocked: Blocked
    reorder_cost: Callable[[TensorType], float]
    fused: frozenset[str]
    starting: dict[Place, bool] = field(default_factory=dict)
    keeping: set[Place] = field(default_factory=set)
    only_blocks: set[int] = field(default_factory=set)
    classes: list[list[Candidate]] = field(default_factory=list)
    places: list[list[Place | None]] = field(default_factory=list)
    numbers: dict[tuple[str, int], int] = field(default_factory=dict)

    def classify(self) -> set[int]:
        """Sort the candidates into those that start blocks and those that keep them; returns their classes."""
        waiting: dict[int, list[Place]] = {}
        for owner, row in enumerate(self.rows):
            for index, (node, _) in enumerate(row):
                if (reads_blocks := self._starts(owner, node)) is not None:
                    self.starting[Place(owner, index)] = reads_blocks
                elif self._may_keep(owner, node):
                    for child in self._images(node):
                        waiting.setdefault(child, []).append(Place(owner, index))
        blockable = {place.owner for place in self.starting}
        ready = list(blockable)
        while ready:
            for place in waiting.get(ready.pop(), ()):
                node = self.rows[place.owner][place.position][0]
                if place not in self.keeping and all(child in blockable for child in self._images(node)):
                    self.keeping.add(place)
                    if place.owner not in blockable:
                        blockable.add(place.owner)
                        ready.append(place.owner)
        self._find_only_blocks(blockable)
        return blockable

    def _find_only_blocks(self, blockable: set[int]) -> None:
        """Find the classes whose candidates all run in blocks: they start them, or their operands have only blocks."""
        is_growing = True
        while is_growing:
            before = len(self.only_blocks)
            for owner in blockable - self.only_blocks:
                if all(self._is_never_plain(Place(owner, index)) for index in range(len(self.rows[owner]))):
                    self.only_blocks.add(owner)
            is_growing = len(self.only_blocks) > before

    def _is_never_plain(self, place: Place) -> bool:
        if place in self.starting:
            return True
        node = self.rows[place.owner][place.position][0]
        return place in self.keeping and all(child in self.only_blocks for child in self._images(node))

    def _starts(self, owner: int, node: ENode) -> bool | None:
        """Whether an operator that starts blocks reads its operand in blocks; None if it runs on plain tensors."""
        if node.op not in self.blocked.starting or not self._is_image(owner) or not self._is_image(node.children[0]):
            return None
        channels = self._channels(node.children[0])
        if not is_convolution(node.op):
            return True if channels % self.blocked.block == 0 else None
        weight = self.types[node.children[1]]
        if weight is None or not weight.is_static or not self.egraph.classes[node.children[1]].constant:
            return None
        outputs, inputs = (int(d) for d in (weight.shape or ())[:2])
        group = channels // max(1, inputs)
        if group == 1:
            reads_blocks = channels >= self.blocked.block
            return None if reads_blocks and channels % self.blocked.multiple else reads_blocks
        if inputs == 1:
            return True if channels >= self.blocked.multiple and channels % self.blocked.multiple == 0 else None
        return True if inputs % self.blocked.block == 0 and outputs // group % self.blocked.block == 0 else None

    def _may_keep(self, owner: int, node: ENode) -> bool:
        if not self._is_image(owner) or not node.children or not self._is_image(node.children[0]):
            return False
        if node.op in self.fused and any(is_convolution(n.op) for n in self.egraph.classes[node.children[0]].nodes):
            return True
        if node.op not in self.blocked.keeping:
            return False
        if node.op == "Concat":
            aligned = all(self._is_image(c) and self._channels(c) % self.blocked.block == 0 for c in node.children)
            return node.attributes[0] == 1 and aligned
        if OPERATORS[node.op].category == "elementwise.binary":
            return all(self._is_image(c) and self.types[c] == self.types[owner] for c in node.children)
        return True

    def _images(self, node: ENode) -> list[int]:
        return [child for child in node.children if self._is_image(child)]

    def _is_image(self, owner: int) -> bool:
        type_ = self.types[owner]
        is_image = type_ is not None and type_.dtype == "float32" and type_.is_static and len(type_.shape or ()) == 4
        return is_image and not self.egraph.classes[owner].constant

    def _channels(self, owner: int) -> int:
        type_ = self.types[owner]
        return int((type_.shape or (0, 0))[1]) if type_ is not None else 0

    def build(self, blockable: set[int]) -> PlacedProblem:
        """The problem with classes for both layouts."""
        self.classes = [[] for _ in self.rows]
        self.places = [[] for _ in self.rows]
        for owner in sorted(blockable):
            self._add("blocks", owner)
        for owner, row in enumerate(self.rows):
            for index, (node, cost) in enumerate(row):
                self._add_candidate(Place(owner, index), node, cost)
        roots = tuple(self._plain(root) for root in self.egraph.roots)
        classes = tuple(tuple(candidates) for candidates in self.classes)
        return PlacedProblem(Problem(classes, roots), tuple(tuple(places) for places in self.places))

    def _add_candidate(self, place: Place, node: ENode, cost: float) -> None:
        plain = tuple(self._plain(child) for child in node.children)
        if not self._is_never_plain(place):
            self._append(place.owner, Candidate(cost, plain), place)
        blocks = self.numbers.get(("blocks", place.owner), -1)
        if place in self.starting:
            data = self._class_in_blocks(node.children[0]) if self.starting[place] else plain[0]
            self._append(blocks, Candidate(cost, (data, *plain[1:])), place)
        elif place in self.keeping:
            children = tuple(
                self.numbers["blocks", child] if self._is_image(child) else other
                for child, other in zip(node.children, plain, strict=True)
            )
            convolved = any(is_convolution(n.op) for child in node.children for n in self.egraph.classes[child].nodes)
            share = self.blocked.sum if node.op == "Add" and convolved else self.blocked.shares.get(node.op, 1.0)
            self._append(blocks, Candidate(cost * share, children), place)

    def _append(self, number: int, candidate: Candidate, place: Place | None) -> None:
        self.classes[number].append(candidate)
        self.places[number].append(place)

    def _add(self, kind: str, owner: int) -> int:
        self.numbers[kind, owner] = len(self.classes)
        self.classes.append([])
        self.places.append([])
        return self.numbers[kind, owner]

    def _plain(self, owner: int) -> int:
        """The class of the plain value."""
        return self._either("plain", owner, owner, self.numbers.get(("blocks", owner)))

    def _class_in_blocks(self, owner: int) -> int:
        """The class of the value in blocks."""
        if owner in self.only_blocks:
            return self.numbers["blocks", owner]
        if ("blocks", owner) not in self.numbers:
            return self._either("blocked", owner, None, owner)
        return self._either("blocked", owner, self.numbers["blocks", owner], owner)

    def _either(self, kind: str, owner: int, same: int | None, other: int | None) -> int:
        if other is None and same is not None:
            return same
        if (kind, owner) not in self.numbers:
            number = self._add(kind, owner)
            if same is not None and not (kind == "plain" and owner in self.only_blocks):
                self._append(number, Candidate(0.0, (same,)), None)
            type_ = self.types[owner]
            assert type_ is not None
            assert other is not None
            self._append(number, Candidate(self.reorder_cost(type_), (other,)), None)
        return self.numbers[kind, owner]


def layout_problem(
    egraph: EGraph,
    rows: Sequence[Row],
    types: Types,
    blocked: Blocked,
    fused: frozenset[str],
    reorder_cost: Callable[[TensorType], float],
) -> PlacedProblem | None:
    """The extraction problem in which a change of layout has a cost; None if nothing runs in blocks, or too much may.

    `fused` are the operators that run in the kernel of a convolution before them.
    """
    builder = _Builder(egraph, rows, types, blocked, reorder_cost, fused)
    blockable = builder.classify()
    is_small = len(blockable) - len(builder.only_blocks) <= _MOST_MIXED
    return builder.build(blockable) if blockable and is_small else None
