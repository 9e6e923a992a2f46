"""What a sub-graph costs on a device: the fused kernels it becomes, and the time of each.

A kernel is one nest of loops. It may hold several anchor ops where their loops can be tiled together without computing
anything twice (loops.py): AGO's intensive fusion (section III.B), found from the index maps for any operators, not for
two kinds of convolution. What it keeps between them has to fit: the tiles of all such values share half of the second
cache. A value that no tile cuts is a plain buffer, is_allowed up to half of the first cache.

The price is the roofline's: the longer of computing and moving what crosses the kernel's border at the bandwidth of the
level that holds it, plus the traffic of the buffers, plus what reordered reads cost. A sub-graph is one launch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field
from math import inf

from ...costmodels.device import Device
from ...costmodels.fused import ANCHORS
from ...costmodels.roofline import compute_seconds, copy_seconds
from ...costmodels.traffic import VIEWS, traffic
from ...ir.graph import Operator, OperatorGraph
from ...ir.index_maps import OperatorCall, index_maps
from ...ir.operators import OPERATORS, SCHEMAS
from .baselines.weights import COMPLEX, THRESHOLD, weights
from .contraction import Contraction
from .groups import Partition
from .loops import Axes, Loops, Misaligned
from .operator_loops import OperandUse, OperatorLoops

Members = tuple[int, ...]
"""Operators of one kernel or sub-graph, ascending."""
Measured = Callable[[Members], float | None]
"""Seconds of a kernel from the profile database, without its launch; None where it was never measured."""

_PICKING = frozenset({"Slice", "Gather"})
_OTHERS = frozenset({"Sum", "Mean", "Dropout", "Shape", "Size", "LRN"})
"""Operators that rules cannot look into, and that may be in one kernel with others all the same."""
_LARGEST_KERNEL = 256
"""Operators of one kernel at most: the price of each that joins takes as long as the kernel is large."""


@dataclass(frozen=True)
class Buffers:
    """What a kernel keeps between anchor ops: bytes of each value and of its smallest tile.

    It runs in `rounds`, so that what it keeps of one round fits the cache; `repeated` are the bytes from outside that
    every round reads, because no loop of theirs is cut.
    """

    kept: tuple[tuple[int, int], ...] = ()
    rounds: int = 1
    repeated: int = 0

    def seconds(self, device: Device) -> float:
        """Seconds to write and read the values kept, and in all rounds but one to read the repeated bytes once more."""
        again = (self.rounds - 1) * self.repeated / device.bandwidth(self.repeated) if self.repeated else 0.0
        return again + sum(2 * size / device.bandwidth(max(tile, size // self.rounds)) for size, tile in self.kept)


@dataclass
class KernelModel:
    """Prices of sets of operators of one graph, each computed once.

    Without `intensive`, fusion is conventional: a kernel has one anchor op at most, and then no Concat. What was not
    `measured` is estimated to take `calibration` times as long as by the device file: beside measured kernels, which
    never reach the roofline, all others would look too fast.
    """

    graph: OperatorGraph
    device: Device
    measured: Measured | None = None
    intensive: bool = True
    calibration: float = 1.0
    _kernels: dict[Members, float] = field(default_factory=dict)
    _cuts: dict[Members, tuple[Members, ...]] = field(default_factory=dict)
    _loops: dict[int, tuple[OperatorLoops, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        operations = self.graph.operations
        self._compute = [compute_seconds(operation, self.device) for operation in operations]
        self._copy = [copy_seconds(operation, self.device) for operation in operations]
        self._weights = weights(self.graph)
        self._sizes = [value.extent.bytes for value in self.graph.values]
        self._plain = self.device.caches[0].size // 2
        self._tiled = self.device.second_cache // 2

    # --- prices

    def partition(self, partition: Partition) -> float:
        """Seconds of one run of every sub-graph."""
        return sum(map(self.group, partition.members))

    def group(self, members: Members) -> float:
        """Seconds of a sub-graph: one launch, and its kernels one after the other."""
        if all(self.graph.operators[m].op in VIEWS for m in members):
            return self.device.view_overhead
        return self.device.launch_overhead + sum(map(self.kernel, self.kernels(members)))

    def shares(self, partition: Partition) -> tuple[float, ...]:
        """What each operator adds to the price of a partition; they sum up to it.

        Its own arithmetic and copying; of the rest of its kernel, a part by the bytes it moves over the border; and of
        the launch of its sub-graph an equal part.
        """
        shares = [0.0] * len(self.graph)
        for members in partition.members:
            rest = self.group(members)
            for kernel in self.kernels(members):
                for member, share in self._split(kernel):
                    shares[member] = share
                    rest -= share
            for member in members:
                shares[member] += rest / len(members)
        return tuple(shares)

    def _split(self, kernel: Members) -> Iterable[tuple[int, float]]:
        own = {m: self.calibration * (self._compute[m] + self._copy[m]) for m in kernel}
        rest = self.kernel(kernel) - sum(own.values())
        inside = set(kernel)
        moved = {m: self._crossing(m, inside) for m in kernel}
        total = sum(moved.values())
        if rest < 0.0:  # measured to be faster than the estimate of its arithmetic alone
            return ((m, own[m] * self.kernel(kernel) / sum(own.values())) for m in kernel)
        return ((m, own[m] + (rest * moved[m] / total if total else rest / len(kernel))) for m in kernel)

    def _crossing(self, member: int, inside: Set[int]) -> int:
        """Bytes that an operator of a kernel reads from outside, or writes to it."""
        operator, values = self.graph.operators[member], self.graph.values
        read = (v for v in operator.inputs if v is not None and values[v].producer not in inside)
        return sum(self._sizes[v] for v in (*read, *(v for v in operator.outputs if self._leaves(v, inside))))

    def bound(self) -> float:
        """Seconds below which no partition of the graph can be: every operator computed once, on what it has to read.

        One launch, or one view; arithmetic, and what copies cost beyond bytes, counted in full; of bytes nothing. What
        was measured may be faster than that.
        """
        if self.measured is not None:
            return 0.0
        least = min(self.device.launch_overhead, self.device.view_overhead)
        return least + sum(self._compute) + sum(self._copy) if self._compute else 0.0

    def kernel_with_launch(self, members: Members) -> float:
        """Seconds of a kernel launched by itself; infinite where its operators cannot be one."""
        return self.kernel(members) + self.device.launch_overhead

    def kernel(self, members: Members) -> float:
        """Seconds of a kernel without its launch; infinite where its operators cannot be one."""
        if members not in self._kernels:
            self._kernels[members] = self._price(members)
        return self._kernels[members]

    def kernels(self, members: Members) -> tuple[Members, ...]:
        """The kernels of a sub-graph, in the order they run: each operator joins the kernels it reads from, those that
        save the most bytes first, wherever that is possible and cheaper."""
        if members not in self._cuts:
            self._cuts[members] = _cut_into_kernels(self, members) if len(members) > 1 else (members,)
        return self._cuts[members]

    def is_allowed(self, members: Members) -> bool:
        """Whether operators may be one kernel or sub-graph.

        One of them at most is complex, as AGO calls convolutions and products, or together they stay below its
        threshold of weight, which keeps them possible to tune.
        """
        complex_ = sum(self.graph.operators[m].op in COMPLEX for m in members)
        return complex_ <= 1 or sum(self._weights[m] for m in members) < THRESHOLD

    def _is_conventional(self, members: Members) -> bool:
        operators = [self.graph.operators[m].op for m in members]
        anchors = sum(op in ANCHORS for op in operators)
        return anchors == 0 or (anchors == 1 and "Concat" not in operators)

    def _price(self, members: Members) -> float:
        if not self.is_allowed(members) or not (self.intensive or self._is_conventional(members)):
            return inf
        if self.measured is not None and (seconds := self.measured(members)) is not None:
            return seconds
        buffers = self._buffers(members)
        if buffers is None:
            return inf
        border = self._border(members)
        moved = border / self.device.bandwidth(border) + buffers.seconds(self.device)
        estimate = max(sum(self._compute[m] for m in members), moved) + sum(self._copy[m] for m in members)
        return self.calibration * estimate

    def _border(self, members: Members) -> int:
        """Bytes read from outside and written to it. Of an operand that is only picked from, the picked bytes count."""
        inside = set(members)
        read: dict[int, int] = {}
        written = 0
        for member in members:
            operator, operation = self.graph.operators[member], self.graph.operations[member]
            picks = operator.op in _PICKING
            taken = min(operation.operand(0).bytes, operation.output.bytes) if picks else 0
            if operator.op in VIEWS and len(members) == 1:
                return 0
            for position, value in enumerate(operator.inputs):
                if value is not None and self.graph.values[value].producer not in inside:
                    size = taken if picks and position == 0 else self._sizes[value]
                    read[value] = max(read.get(value, 0), size)
            written += sum(self._sizes[v] for v in operator.outputs if self._leaves(v, inside))
        if len(members) == 1 and operator.op == "Expand":
            return traffic(operation).total
        return sum(read.values()) + written

    def _leaves(self, value: int, inside: Set[int]) -> bool:
        return self.graph.values[value].is_output or any(user not in inside for user in self.graph.consumers[value])

    # --- legality

    def _buffers(self, members: Members) -> Buffers | None:
        """The values that a kernel keeps between its anchor ops; None where the operators cannot be one kernel."""
        if len(members) == 1:
            return Buffers()
        try:
            loops, axes = self.loops(members)
        except Misaligned:
            return None
        values = self.kept_values(members)
        kept = tuple((self._sizes[v], self._tile_bytes(v, loops.tile(axes[v]))) for v in values)
        if any(tile == size > self._plain for size, tile in kept) or sum(tile for _, tile in kept) > self._tiled:
            return None
        rounds = max(1, -(-sum(size for size, _ in kept) // self._tiled))
        cut = set().union(*(loops.tiled(axes[v]) for v in values))
        inside = set(members)
        outside = (v for v in axes if self.graph.values[v].producer not in inside)
        return Buffers(kept, rounds, sum(self._sizes[v] for v in outside if not cut & loops.tiled(axes[v])))

    def kept_values(self, members: Members) -> tuple[int, ...]:
        """Values that the kernel computes and reads repeatedly."""
        inside = set(members)
        read = (v for m in members if self.graph.operators[m].op in ANCHORS for v in self.graph.operators[m].inputs)
        return tuple(dict.fromkeys(v for v in read if v is not None and self.graph.values[v].producer in inside))

    def loops(self, members: Members) -> tuple[Loops, Mapping[int, Axes]]:
        """The loops of a kernel, and the axes of all its values. Raises Misaligned where it can have none."""
        loops, axes = Loops(), dict[int, Axes]()
        costly: set[int] = set()
        inside = set(members)
        for member in members:
            operator = self.graph.operators[member]
            uses = self._uses(member, axes, inside, costly, loops)
            results = [each.result_axes(uses, loops) for each in self._operator_loops(member)]
            axes.update(zip(operator.outputs, results, strict=True))
            if operator.op in ANCHORS or not costly.isdisjoint(operator.inputs):
                costly.update(operator.outputs)
        return loops, axes

    def _uses(
        self, member: int, axes: dict[int, Axes], inside: Set[int], costly: Set[int], loops: Loops
    ) -> list[OperandUse | None]:
        values = self.graph.operators[member].inputs
        for value in values:
            if value is not None and value not in axes:
                axes[value] = loops.axes(self._extents(value))
        return [
            None if v is None else OperandUse(axes[v], self.graph.values[v].producer in inside, v in costly)
            for v in values
        ]

    def _operator_loops(self, member: int) -> tuple[OperatorLoops, ...]:
        """The loops of each result. Raises Misaligned where the operator's index maps are not known."""
        if member not in self._loops:
            self._loops[member] = self._make_operator_loops(self.graph.operators[member])
        if not self._loops[member]:
            raise Misaligned
        return self._loops[member]

    def _make_operator_loops(self, operator: Operator) -> tuple[OperatorLoops, ...]:
        schema = SCHEMAS.get(operator.op) if operator.op in OPERATORS or operator.op in _OTHERS else None
        if schema is None or schema.index_maps is None or operator.is_opaque:
            return ()
        operands = tuple(None if v is None else self._extents(v) for v in operator.inputs)
        results = tuple(map(self._extents, operator.outputs))
        calls = (OperatorCall(operator.attributes, operands, results, number) for number in range(len(results)))
        maps = [index_maps(schema.index_maps, call) for call in calls]
        return tuple(OperatorLoops(m) for m in maps if m is not None) if None not in maps else ()

    def _extents(self, value: int) -> tuple[int, ...]:
        type_ = self.graph.values[value].type
        if type_ is None or type_.shape is None:
            raise Misaligned
        return self.graph.values[value].extent.dimensions

    def _tile_bytes(self, value: int, elements: int) -> int:
        extent = self.graph.values[value].extent
        return elements * max(1, extent.bytes // max(1, extent.elements))


def _cut_into_kernels(model: KernelModel, members: Members) -> tuple[Members, ...]:
    """The kernels of a sub-graph, in an order in which they can run."""
    graph = model.graph
    place = {member: position for position, member in enumerate(members)}
    groups = Contraction([[place[user] for user in graph.successors[m] if user in place] for m in members])
    content: dict[int, Members] = {position: (member,) for position, member in enumerate(members)}
    for position, member in enumerate(members):
        sources = [p for p in graph.predecessors[member] if p in place]
        for source in sorted(sources, key=lambda p: (-graph.output_bytes(p), p)):
            first, second = groups.group(place[source]), groups.group(position)
            one, other = content[first], content[second]
            if first == second or len(one) + len(other) > _LARGEST_KERNEL or not groups.can_merge(first, second):
                continue
            both = tuple(sorted(one + other))
            if model.kernel(both) <= model.kernel(one) + model.kernel(other):
                groups.merge(first, second)
                content[first] = both
    order: dict[int, None] = {}
    stack = [(label, False) for label in reversed(groups.labels)]
    while stack:
        group, is_ready = stack.pop()
        if is_ready:
            order[group] = None
        elif group not in order:
            sources = [p for m in content[group] for p in graph.predecessors[m] if p in place]
            needed = {groups.group(place[source]) for source in sources} - {group}
            stack += [(group, True), *((label, False) for label in sorted(needed, reverse=True))]
    return tuple(content[group] for group in order)
