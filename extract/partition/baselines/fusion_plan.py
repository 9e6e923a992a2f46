"""DNNFusion's fusion plan: groups grown greedily from seeds, by mapping types and, if those leave it open, by cost.

Niu et al., "DNNFusion", PLDI 2021, section 4.3 and Listing 1. Decisions that the listing leaves open:

- The type of the group, not of its last operator, is combined with that of the candidate: so section 4.3.2 rejects GEMM
  in Figure 3. The colour is that of the operand through which the candidate is reached (section 3.1: a type belongs to
  a pair of operand and output), but a pair of operators that is red as a whole stays red.
- Seeds of equal size start with the earliest.
- A group stays convex: a candidate joins only if no path leads from one to the other through a third group.
- Operators that no seed reaches stay by themselves.
- "Excessive register spills" (step 2.2), whose thresholds were found empirically and are not published, mean more than
  the vector registers and the caches of the device file hold.

Table 3 (section 3.2) gives the type of two fused operators, and whether fusing pays. The results are those printed. The
colours are given by the prose:

- green: One-to-One with anything; Reorganize and Shuffle with each other;
- yellow: Reorganize or Shuffle with One-to-Many or Many-to-Many, in either order; Many-to-Many, then One-to-Many;
- red: One-to-Many, then Many-to-Many; Many-to-Many, then Many-to-Many.

The prose is silent on One-to-Many with One-to-Many, which is yellow here: legal (a result is printed), but as a Resize
of a Resize may compute the inner elements again, it is not profitable without question. Section 4.4.1 counts 23
code generation rules, "one rule corresponding to a green or yellow cell": 25 cells, of which 2 are red, as here.

The printed table and the prose disagree in three places:
- "Reorganize and Shuffle [...] cannot transform others", and both "have the same" impedance, yet the table lets
  Reorganize decide over Shuffle, in either order, whereas footnote 1 would take the more complex Shuffle. Of the three
  only the table is right about the elements: a permutation of axes and a reshape are together a 1-1 relation of the
  elements, which is the definition of Reorganize, but no permutation of axes.
- "One-to-Many and Many-to-Many have the same capability" and each decides the result "solely", yet the table gives
  Many-to-Many for Many-to-Many, then One-to-Many. Both cannot decide; footnote 1 does, and it agrees with the table.
- The prose calls Conv "Many-to-One"; section 3.1 counts that as Many-to-Many.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from ....costmodels.device import Device
from ....ir.graph import OperatorGraph
from ....ir.operators.linear import depth
from ..contraction import Contraction
from ..groups import Partition, partition_of
from .mapping_types import MappingType, edge_mapping_type, mapping_types


class Colour(Enum):
    """Green: fuse. Yellow: fuse if it is faster. Red: do not fuse."""

    GREEN = "green"
    YELLOW = "yellow"
    RED = "red"


@dataclass(frozen=True, slots=True)
class Combination:
    """One cell: the type of the fused operator (None in a red one) and the colour."""

    result: MappingType | None
    colour: Colour


_ORDER = (
    MappingType.ONE_TO_ONE,
    MappingType.ONE_TO_MANY,
    MappingType.MANY_TO_MANY,
    MappingType.REORGANIZE,
    MappingType.SHUFFLE,
)
"""Rows (first operator) and columns (second operator), as printed."""

_RESULTS = dict(zip(("1-1", "1-M", "M-M", "Reo", "Shu"), _ORDER, strict=True))
_COLOURS = {colour.value[0]: colour for colour in Colour}

_PRINTED = """
1-1:g  1-M:g  M-M:g  Reo:g  Shu:g
1-M:g  1-M:y  -:r    1-M:y  1-M:y
M-M:g  M-M:y  -:r    M-M:y  M-M:y
Reo:g  1-M:y  M-M:y  Reo:g  Reo:g
Shu:g  1-M:y  M-M:y  Reo:g  Shu:g
"""


def _cell(text: str) -> Combination:
    result, colour = text.split(":")
    return Combination(_RESULTS.get(result), _COLOURS[colour])


TABLE: Mapping[tuple[MappingType, MappingType], Combination] = {
    (first, second): _cell(text)
    for first, row in zip(_ORDER, _PRINTED.strip().splitlines(), strict=True)
    for second, text in zip(_ORDER, row.split(), strict=True)
}


def combine(first: MappingType, second: MappingType) -> Combination:
    """An operator of type `second` fused behind one of type `first`, whose output it reads."""
    return TABLE[first, second]


Cost = Callable[[tuple[int, ...]], float]
"""Seconds, or anything else that adds up, of one kernel made of these operators (ascending)."""


def fusion_plan(graph: OperatorGraph, device: Device, cost: Cost, *, predecessors_first: bool = False) -> Partition:
    """The partition that Listing 1 finds; method "dnnfusion".

    `cost` decides the yellow combinations: two kernels become one if that costs no more than both. With
    `predecessors_first` a seed looks back before it looks ahead ("Step III and Step II can be swapped"), so that it
    goes to the product before it rather than to the one behind.
    """
    planner = _Planner(graph, device, cost)
    for seed in seeds(graph, planner.types):
        planner.grow(seed, predecessors_first)
    return partition_of(graph, planner.groups.labels, "dnnfusion")


def compared_sets(graph: OperatorGraph, device: Device, cost: Cost) -> tuple[tuple[int, ...], ...]:
    """The sets of operators whose costs decide the yellow combinations that the plan meets: what the profiling database
    is asked for (section 4.3.1). With other costs the plan may meet others."""
    asked: dict[tuple[int, ...], None] = {}

    def note(operators: tuple[int, ...]) -> float:
        asked[operators] = None
        return cost(operators)

    fusion_plan(graph, device, note)
    return tuple(asked)


def seeds(graph: OperatorGraph, types: tuple[MappingType | None, ...]) -> list[int]:
    """The One-to-One operators, those with the smallest intermediate result first."""
    one_to_one = (index for index, type_ in enumerate(types) if type_ is MappingType.ONE_TO_ONE)
    return sorted(one_to_one, key=lambda index: (graph.output_bytes(index), index))


@dataclass
class _Block:
    """A group that grows: its label, the type of the operator it is together, and its cost once asked for."""

    label: int
    type: MappingType
    cost: float | None = None


_Meet = Callable[[_Block, int, MappingType], Combination]


class _Planner:
    """The state of Listing 1: which operators are still unfused, and the groups."""

    def __init__(self, graph: OperatorGraph, device: Device, cost: Cost) -> None:
        self.graph = graph
        self.device = device
        self.cost = cost
        self.types = mapping_types(graph)
        self.groups = Contraction(graph.successors)
        self.unfused = set(range(len(graph)))

    def grow(self, seed: int, predecessors_first: bool) -> None:
        """One round of the listing: a block around `seed`, unless an earlier one took it."""
        type_ = self.types[seed]
        if seed not in self.unfused or type_ is None:
            return
        self.unfused.discard(seed)
        block = _Block(seed, type_)
        directions: list[tuple[tuple[tuple[int, ...], ...], _Meet]] = [
            (self.graph.successors, self._behind),
            (self.graph.predecessors, self._before),
        ]
        for neighbours, meet in reversed(directions) if predecessors_first else directions:
            self._explore(block, seed, neighbours, meet)

    def _explore(self, block: _Block, seed: int, neighbours: tuple[tuple[int, ...], ...], meet: _Meet) -> None:
        """Depth first from `seed` along `neighbours`; the path ends at a candidate that does not join."""
        stack = list(reversed(neighbours[seed]))
        while stack:
            candidate = stack.pop()
            type_ = self.types[candidate]
            if candidate not in self.unfused or type_ is None:
                continue
            if self._join(block, candidate, meet(block, candidate, type_)):
                stack += reversed(neighbours[candidate])

    def _behind(self, block: _Block, candidate: int, type_: MappingType) -> Combination:
        """The block with `candidate` behind it, coloured by the operands that come from the block."""
        whole = combine(block.type, type_)
        if whole.colour is not Colour.YELLOW:
            return whole
        members = set(self.groups.members(block.label))
        read = {v for v in self.graph.operators[candidate].inputs if v is not None}
        edges = [edge_mapping_type(self.graph, v, candidate) for v in read if self.graph.values[v].producer in members]
        is_open = any(edge is None or combine(block.type, edge).colour is Colour.YELLOW for edge in edges)
        return Combination(whole.result, Colour.YELLOW if is_open else Colour.GREEN)

    def _before(self, block: _Block, candidate: int, type_: MappingType) -> Combination:
        """The block with `candidate` in front of it."""
        return combine(type_, block.type)

    def _join(self, block: _Block, candidate: int, combination: Combination) -> bool:
        """Add `candidate` to the block, unless one of the listing's checks fails."""
        if combination.result is None:
            return False
        joined = tuple(sorted((*self.groups.members(block.label), candidate)))
        if not fits(self.graph, self.types, joined, self.device):
            return False
        if not self.groups.can_merge(block.label, candidate):
            return False
        cost = None
        if combination.colour is Colour.YELLOW:
            cost = self.cost(joined)
            if cost > self._cost(block) + self.cost((candidate,)):
                return False
        self.groups.merge(block.label, candidate)
        self.unfused.discard(candidate)
        block.type, block.cost = combination.result, cost
        return True

    def _cost(self, block: _Block) -> float:
        if block.cost is None:
            block.cost = self.cost(self.groups.members(block.label))
        return block.cost


# --- the needs of a fused kernel


def fits(graph: OperatorGraph, types: Sequence[MappingType | None], operators: Sequence[int], device: Device) -> bool:
    """Whether one kernel of `operators` (ascending) keeps its values in the registers and a cache of one core.

    `types` are the mapping types of all operators of the graph.
    """
    if live_registers(graph, operators) > device.vector_registers:
        return False
    private = [cache.size for cache in device.caches if not cache.shared]
    return not private or kept_bytes(graph, types, operators) <= max(private)


def live_registers(graph: OperatorGraph, operators: Sequence[int]) -> int:
    """The most values alive at once when `operators`, in this order, compute one vector of each output.

    A value lives in one register from where it is loaded or computed to where it is last read; the accumulators of
    contractions and reductions are those of their outputs.
    """
    last = {v: step for step, index in enumerate(operators) for v in _operands(graph, index)}
    live: set[int] = set()
    most = 0
    for step, index in enumerate(operators):
        live.update(_operands(graph, index))
        live.update(graph.operators[index].outputs)
        most = max(most, len(live))
        live = {v for v in live if last.get(v, step) > step}
    return most


def kept_bytes(graph: OperatorGraph, types: Sequence[MappingType | None], operators: Sequence[int]) -> int:
    """Bytes that a kernel of `operators` has to compute before it can read them, so that a cache must hold them.

    They are operands of its Many-to-Many operators that it computes itself: of each, the part that one output element
    needs (except for products and convolutions, the last axis stands for it). Others are computed when they are read.
    """
    members = set(operators)
    total = 0
    for index in operators:
        if types[index] is MappingType.MANY_TO_MANY:
            computed = (graph.values[v] for v in _operands(graph, index) if graph.values[v].producer in members)
            sizes = (-(-v.extent.bytes // max(1, v.extent.elements)) for v in computed)
            total += sum(sizes) * depth(graph.operations[index])
    return total


def _operands(graph: OperatorGraph, index: int) -> list[int]:
    return [v for v in graph.operators[index].inputs if v is not None]
