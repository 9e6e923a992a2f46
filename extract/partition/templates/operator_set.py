"""Operators that may become one kernel, with the answers to the templates' questions about them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from ....costmodels.device import Device
from ....costmodels.fused import ANCHORS
from ....costmodels.scheduled import (
    border_seconds,
    copies_border,
    is_window,
    moving_seconds,
)
from ....costmodels.traffic import traffic
from ....ir.graph import OperatorGraph
from ....ir.operators import VIEWS
from ..loops import Axes, Loops, Misaligned
from ..operator_loops import OperandUse
from .kernel_graph import KernelGraph

Members = tuple[int, ...]
"""Operators of one kernel or sub-graph, ascending."""

_SHOWN = 0.01
"""The share of the shorter of arithmetic and moving that is not hidden: of two kernels with equal arithmetic, the one
that moves fewer bytes is faster."""
_WAITING = 0.5
"""The share of the shorter of arithmetic and fetching weights that prefetches do not hide; also of the shorter of
arithmetic and writing results that leave the second cache, whose lines are fetched to be written: a product of 16
steps with 2.4 MB of results takes 1.1 to 1.5 times as long as its arithmetic (AMD Zen 5)."""
_PICKING = frozenset({"Slice", "Gather"})
_MOVES = VIEWS | {"Transpose", "Slice", "Split", "Concat"}
_CUTS = frozenset({"Slice", "Split"})


@dataclass(frozen=True)
class Buffers:
    """The values that a kernel keeps between operators: bytes of each one that an anchor op reads, and of its tile.

    It runs in `rounds`, so that the values of one round fit the cache; `repeated` are the bytes from outside that
    every round reads, because none of their loops is tiled.
    """

    kept: tuple[tuple[int, int], ...] = ()
    rounds: int = 1
    repeated: int = 0

    def seconds(self, device: Device) -> float:
        """Seconds to write the values kept, which an anchor op reads as it reads any operand, and in all rounds but one
        to read the repeated bytes once more."""
        again = (self.rounds - 1) * self.repeated / device.bandwidth(self.repeated) if self.repeated else 0.0
        return again + sum(size / device.bandwidth(max(tile, size // self.rounds)) for size, tile in self.kept)


def roofline(arithmetic: float, moving: float) -> float:
    """Seconds of arithmetic and of moving bytes at once. The longer hides most of the shorter."""
    return max(arithmetic, moving) + _SHOWN * min(arithmetic, moving)


@dataclass(frozen=True)
class OperatorSet:
    """Operators of one graph, without views at their border."""

    within: KernelGraph
    members: Members

    @property
    def graph(self) -> OperatorGraph:
        """The graph that they are from."""
        return self.within.graph

    @property
    def device(self) -> Device:
        """The device that costs are for."""
        return self.within.device

    @cached_property
    def inside(self) -> frozenset[int]:
        """The members as a set."""
        return frozenset(self.members)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The types of the operators."""
        return tuple(self.graph.operators[m].op for m in self.members)

    @cached_property
    def anchors(self) -> Members:
        """Operators of which one element needs many elements of an operand."""
        return tuple(m for m in self.members if self.graph.operators[m].op in ANCHORS)

    @cached_property
    def inputs(self) -> tuple[int, ...]:
        """Values that members read and none of them makes, in the order in which they are first read."""
        return self.graph.inputs_of(self.members)

    @cached_property
    def outputs(self) -> tuple[int, ...]:
        """Values that members make and others, or the caller, read."""
        return self.graph.outputs_of(self.members)

    def leaves(self, value: int) -> bool:
        """Whether a value is read outside, or an output of the graph."""
        return self.graph.values[value].is_output or not self.inside.issuperset(self.graph.consumers[value])

    def part(self, members: Iterable[int]) -> OperatorSet:
        """Some of the operators."""
        return OperatorSet(self.within, tuple(sorted(members)))

    # --- seconds

    @cached_property
    def arithmetic(self) -> float:
        """Seconds of the arithmetic alone."""
        return sum(self.within.compute[m] for m in self.members)

    @cached_property
    def copying(self) -> float:
        """Seconds that reordered reads cost beyond their bytes."""
        return sum(self.within.copying[m] for m in self.members)

    @property
    def moving(self) -> float:
        """Seconds to move the bytes that cross the border: weights from the level that holds those of the whole graph,
        of others the part that each level holds at its rate."""
        return self.fetching + moving_seconds(self.border - self.weights, self.device)

    @property
    def fetching(self) -> float:
        """Seconds to read the weights."""
        return self.weights / self.within.weights_bandwidth

    @cached_property
    def bordering(self) -> float:
        """Seconds to surround the operands of windows over single channels with borders, if they are copied for
        that."""
        copying = (self.graph.operations[m] for m in self.anchors if self._copies_border(m))
        return sum(border_seconds(operation, self.device) for operation in copying)

    def _copies_border(self, anchor: int) -> bool:
        operation, source = self.graph.operations[anchor], self.graph.operators[anchor].inputs[0]
        if source is None or not is_window(operation):
            return False
        value = self.graph.values[source]
        is_outside = value.producer not in self.inside and value.type is not None and value.type.is_static
        return copies_border(operation) or not is_outside

    @property
    def seconds(self) -> float:
        """The longer of arithmetic and moving (the roofline), then reordered reads, and the values that the kernel
        keeps.

        Nothing hides the copies that surround operands with a border."""
        work = self.arithmetic - self.exposed
        if self.bordering:
            busy = work + self.moving + self.bordering
        else:
            busy = roofline(work, self.moving) + self.waiting(work)
        return busy + self.exposed + self.copying + self.keeping

    def waiting(self, work: float) -> float:
        """Seconds that this much arithmetic waits for weights, and for results that the second cache does not hold."""
        return _WAITING * (min(work, self.fetching) + min(work, self.leaving))

    @property
    def leaving(self) -> float:
        """Seconds to write the part of the results that the second cache does not hold."""
        written = sum(self.within.sizes[v] for v in self.outputs)
        return max(0, written - self.device.second_cache) / self.device.bandwidth(written)

    @property
    def keeping(self) -> float:
        """Seconds for the values that the kernel keeps."""
        return self.buffers.seconds(self.device) if self.buffers is not None else 0.0

    @cached_property
    def exposed(self) -> float:
        """Seconds of arithmetic that nothing hides: of operators in front of an anchor op, or without one, which work
        on memory and not on registers."""
        if len(self.members) == 1:
            return 0.0
        front: set[int] = set()
        for member in reversed(self.members):
            readers = self.graph.successors[member]
            if member not in self.anchors and any(reader in front or reader in self.anchors for reader in readers):
                front.add(member)
        return sum(self.within.compute[m] for m in (front if self.anchors else self.members))

    @cached_property
    def behind(self) -> frozenset[int]:
        """The anchor ops, and all operators that depend on them."""
        behind = set(self.anchors)
        for member in self.members:
            if not behind.isdisjoint(self.graph.predecessors[member]):
                behind.add(member)
        return frozenset(behind)

    @cached_property
    def border(self) -> int:
        """Bytes read from outside and written to it. If only some elements of an operand are picked, those count."""
        if self.names == ("Expand",):
            return traffic(self.graph.operations[self.members[0]]).total
        return sum(self.reads.values()) + sum(self.within.sizes[v] for v in self.outputs)

    @cached_property
    def weights(self) -> int:
        """The part of these bytes that are constants."""
        return sum(size for value, size in self.reads.items() if self.graph.values[value].is_constant)

    @cached_property
    def reads(self) -> Mapping[int, int]:
        """The bytes of each value that is read from outside."""
        sizes, values = self.within.sizes, self.graph.values
        read: dict[int, int] = {}
        for member in self.members:
            operator, operation = self.graph.operators[member], self.graph.operations[member]
            picks = operator.op in _PICKING
            taken = min(operation.operand(0).bytes, operation.output.bytes) if picks else 0
            for position, value in enumerate(operator.inputs):
                if value is not None and values[value].producer not in self.inside:
                    size = taken if picks and position == 0 else sizes[value]
                    read[value] = max(read.get(value, 0), size)
        return read

    # --- loops

    @cached_property
    def kept(self) -> tuple[int, ...]:
        """Values that the kernel computes and reads repeatedly."""
        read = (v for m in self.anchors for v in self.graph.operators[m].inputs)
        return tuple(dict.fromkeys(v for v in read if v is not None and self.graph.values[v].producer in self.inside))

    @cached_property
    def buffers(self) -> Buffers | None:
        """The values that the kernel keeps; None if its loops cannot be tiled together without recomputation.

        The tiles of all values that it keeps share half of the second cache; a value that is not tiled is a plain
        buffer, allowed up to half of the first cache.
        """
        if len(self.members) == 1:
            return Buffers()
        try:
            loops, axes = self.loops()
        except Misaligned:
            return None
        sizes, tiled, plain = self.within.sizes, self.device.second_cache // 2, self.device.caches[0].size // 2
        kept = tuple((sizes[v], self._tile_bytes(v, loops.tile(axes[v]))) for v in self.kept)
        if any(tile == size > plain for size, tile in kept) or sum(tile for _, tile in kept) > tiled:
            return None
        rounds = max(1, -(-sum(size for size, _ in kept) // tiled))
        cut = set().union(*(loops.tiled(axes[v]) for v in self.kept))
        outside = (v for v in axes if self.graph.values[v].producer not in self.inside)
        return Buffers(kept, rounds, sum(sizes[v] for v in outside if not cut & loops.tiled(axes[v])))

    def loops(self) -> tuple[Loops, Mapping[int, Axes]]:
        """The loops of the kernel, and the axes of all its values. Raises Misaligned if it can have none."""
        loops, axes = Loops(), dict[int, Axes]()
        costly: set[int] = set()
        for member in self.members:
            operator = self.graph.operators[member]
            uses = self._uses(member, axes, costly, loops)
            results = [each.result_axes(uses, loops) for each in self.within.operator_loops(member)]
            axes.update(zip(operator.outputs, results, strict=True))
            if operator.op in ANCHORS or not costly.isdisjoint(operator.inputs):
                costly.update(operator.outputs)
        return loops, axes

    def _uses(self, member: int, axes: dict[int, Axes], costly: set[int], loops: Loops) -> list[OperandUse | None]:
        values = self.graph.operators[member].inputs
        for value in values:
            if value is not None and value not in axes:
                axes[value] = loops.axes(self.within.extents(value))
        return [
            None
            if v is None
            else OperandUse(axes[v], self.graph.values[v].producer in self.inside, v in costly)
            for v in values
        ]

    def _tile_bytes(self, value: int, elements: int) -> int:
        extent = self.graph.values[value].extent
        return elements * max(1, extent.bytes // max(1, extent.elements))


@dataclass(frozen=True)
class Bordered:
    """Operators without the views at their border, which move nothing between kernels: those in `front`, in the order
    they run, read values from outside; nothing inside reads those `behind`."""

    front: Members
    core: Members
    behind: Members

    @property
    def parts(self) -> Iterator[Members]:
        """Each view by itself, and the other operators, in an order in which they can run."""
        yield from ((view,) for view in self.front)
        if self.core:
            yield self.core
        yield from ((view,) for view in self.behind)


def without_border_views(within: KernelGraph, members: Members) -> Bordered:
    """Remove views at the border, which would copy inside a kernel, and operators that split a result whose readers can
    do that. But a view of a feature map that the kernel moves anyway stays, for that has its channels last then.
    """
    graph = within.graph
    rest = set(members)
    views = [m for m in members if within.is_view(m) and not _moves_map(within, m, rest)]
    cuts = [m for m in members if m in within.in_place and graph.operators[m].op in _CUTS]
    if not views and not cuts:
        return Bordered((), members, ())
    front: list[int] = []
    behind: list[int] = []
    for view in views:
        if graph.values[graph.operators[view].inputs[0] or 0].producer not in rest:
            front.append(view)
            rest.remove(view)
    for view in sorted((*views, *cuts), reverse=True):
        read = {reader for value in graph.operators[view].outputs for reader in graph.consumers[value]}
        is_last = view in rest and rest.isdisjoint(read)
        if is_last and (view in views or not rest.isdisjoint(graph.predecessors[view])):
            behind.insert(0, view)
            rest.remove(view)
    return Bordered(tuple(front), tuple(sorted(rest)), tuple(behind))


def _moves_map(within: KernelGraph, view: int, inside: Collection[int]) -> bool:
    """Whether one end of a view is a feature map of several pixels, and at the other the kernel moves elements."""
    graph, operator = within.graph, within.graph.operators[view]
    near = {*graph.predecessors[view], *graph.consumers[operator.outputs[0]]} & set(inside)
    moves = [graph.operators[other].op in _MOVES for other in near]
    ends = (operator.inputs[0], operator.outputs[0])
    return bool(moves) and all(moves) and not within.maps.isdisjoint(v for v in ends if v is not None)
