"""Which kernels run as one though both have an anchor op: intensive fusion (AGO, section III-B), where it pays.

The kernels of a model are made with one anchor op each. A `Pattern` says which two of them one schedule can run as one,
without computing anything twice, and what that saves on a device; what saves most is joined first, each kernel once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ...costmodels.device import Device
from ...costmodels.flops import flops
from ...costmodels.fused import ANCHORS
from ...ir.graph import Operator, OperatorGraph
from .kernel_function import outer_values, results

Members = tuple[int, ...]
WORTH = 0.95
"""Kernels are joined where that takes at most this share of their time: both times are estimates."""
WINDOW_SHARE = 0.45
"""Share of the peak that a depthwise convolution reaches, of which each product needs a load; measured on `host`."""


@dataclass(frozen=True)
class Neighbours:
    """Two kernels, the second of which alone reads the only result of the first, and their anchor ops."""

    graph: OperatorGraph
    first: Members
    second: Members
    between: int
    producer: Operator
    consumer: Operator

    @property
    def members(self) -> Members:
        """The operators of both, ascending."""
        return tuple(sorted(self.first + self.second))

    def bytes(self, value: int) -> int:
        """Of a value of the graph."""
        return self.graph.values[value].extent.bytes

    def shape(self, value: int) -> tuple[int, ...]:
        """Of a value of the graph; 1 for what is not known."""
        return self.graph.values[value].extent.dimensions

    def operand(self, operator: Operator, position: int) -> tuple[int, ...]:
        """The shape of an operand that is there."""
        value = operator.inputs[position]
        assert value is not None
        return self.shape(value)

    def moved(self, members: Members) -> int:
        """Bytes that a kernel reads and writes."""
        return sum(map(self.bytes, (*outer_values(self.graph, members), *results(self.graph, members))))

    def busy(self, members: Members, device: Device) -> float:
        """Seconds of arithmetic, at the share of the peak that the schedules here reach."""
        return sum(flops(self.graph.operations[m]) / device.peak_flops / self._share(m) for m in members)

    def _share(self, member: int) -> float:
        is_window = _is_depthwise(self, self.graph.operators[member])
        return WINDOW_SHARE if is_window else 1.0


@dataclass(frozen=True)
class Pattern:
    """Kernels that one schedule runs as one. `kept`: bytes of the result between them that are needed at a time;
    None where it does not apply; `again`: bytes that are read more often than by the kernels apart."""

    name: str
    kept: Callable[[Neighbours, Device], int | None]
    again: Callable[[Neighbours, Device], int]


def saving(neighbours: Neighbours, pattern: Pattern, device: Device) -> float:
    """Seconds that one kernel saves; 0 where it does not apply, does not fit half of the second cache, or hardly pays.

    Apart, each kernel takes the longer of its arithmetic and of moving its bytes at the rate of what holds them all;
    as one, what is between them moves at the rate of the cache.
    """
    kept = pattern.kept(neighbours, device)
    if kept is None or kept > device.second_cache // 2:
        return 0.0
    apart = sum(_longer(neighbours, m, neighbours.moved(m), device) for m in (neighbours.first, neighbours.second))
    outside = neighbours.moved(neighbours.members) + pattern.again(neighbours, device)
    inside = 2 * neighbours.bytes(neighbours.between) / device.bandwidth(kept)
    joined = _longer(neighbours, neighbours.members, outside, device, inside)
    return apart - joined if joined <= WORTH * apart else 0.0


def _longer(neighbours: Neighbours, members: Members, moved: int, device: Device, inside: float = 0.0) -> float:
    return max(neighbours.busy(members, device), moved / device.bandwidth(moved) + inside)


def joined(
    graph: OperatorGraph, kernels: Sequence[Members], device: Device, fits: Callable[[Members], bool]
) -> tuple[Members, ...]:
    """The kernels, in an order in which they can run, with those joined that save time and that `fits` accepts.

    `fits` is asked about the operators of two kernels: whether there is a schedule for them.
    """
    found = [(saving(n, pattern, device), n) for n in _neighbours(graph, kernels) for pattern in PATTERNS]
    taken: dict[Members, Neighbours] = {}
    for seconds, neighbours in sorted(found, key=lambda item: -item[0]):
        free = neighbours.first not in taken and neighbours.second not in taken
        if seconds > 0.0 and free and fits(neighbours.members):
            taken[neighbours.first] = taken[neighbours.second] = neighbours
    return tuple(
        taken[kernel].members if kernel in taken else kernel
        for kernel in kernels
        if kernel not in taken or taken[kernel].second == kernel
    )


def candidates(graph: OperatorGraph, kernels: Sequence[Members], device: Device) -> Iterator[Neighbours]:
    """Kernels that a pattern applies to, whose result fits half of the second cache, whether that is said to pay."""
    for neighbours in _neighbours(graph, kernels):
        kept = (pattern.kept(neighbours, device) for pattern in PATTERNS)
        if any(size is not None and size <= device.second_cache // 2 for size in kept):
            yield neighbours


def _neighbours(graph: OperatorGraph, kernels: Sequence[Members]) -> Iterator[Neighbours]:
    kernel_of = {member: kernel for kernel in kernels for member in kernel}
    for first in kernels:
        made = results(graph, first)
        users = {kernel_of[user] for value in made for user in graph.consumers[value]}
        if len(made) != 1 or len(users) != 1 or graph.values[made[0]].is_output:
            continue
        (second,) = users
        anchors = [[graph.operators[m] for m in k if graph.operators[m].op in ANCHORS] for k in (first, second)]
        if all(len(found) == 1 for found in anchors) and anchors[1][0].inputs[0] == made[0]:
            yield Neighbours(graph, first, second, made[0], anchors[0][0], anchors[1][0])


# --- convolutions: see schedules/convolution_pair.py


def _is_convolution(operator: Operator) -> bool:
    return operator.op == "Conv" and not operator.is_opaque


def _is_depthwise(neighbours: Neighbours, operator: Operator) -> bool:
    if not _is_convolution(operator):
        return False
    channels, weights = neighbours.shape(operator.outputs[0])[1], neighbours.operand(operator, 1)
    return operator.attributes.get("group", 1) == channels and weights[1] == 1


def _is_pointwise(neighbours: Neighbours, operator: Operator) -> bool:
    if not _is_convolution(operator) or operator.attributes.get("group", 1) != 1:
        return False
    kernel, source = neighbours.operand(operator, 1)[2:], neighbours.operand(operator, 0)
    return set(kernel) == {1} and source[2:] == neighbours.shape(operator.outputs[0])[2:]


def _of_maps(neighbours: Neighbours) -> bool:
    """Whether a convolution of all channels, or a depthwise one, makes a map of planes between the kernels."""
    producer = neighbours.producer
    dense = _is_convolution(producer) and producer.attributes.get("group", 1) == 1
    return len(neighbours.shape(neighbours.between)) == 4 and (dense or _is_depthwise(neighbours, producer))


def _plane_of_channels(neighbours: Neighbours, device: Device) -> int | None:
    """Downstream depthwise: all pixels of as many channels as a vector has."""
    if not _of_maps(neighbours) or not _is_depthwise(neighbours, neighbours.consumer):
        return None
    return neighbours.bytes(neighbours.between) * device.lanes // max(1, neighbours.shape(neighbours.between)[1])


def _source_for_each_tile(neighbours: Neighbours, device: Device) -> int:
    """What the first convolution reads is read for every tile of channels, if that is no depthwise one."""
    if _is_depthwise(neighbours, neighbours.producer):
        return 0
    tiles = -(-neighbours.shape(neighbours.between)[1] // device.lanes)
    return (tiles - 1) * neighbours.bytes(neighbours.producer.inputs[0] or 0)


def _rows_of_pixels(neighbours: Neighbours, device: Device) -> int | None:
    """Downstream pointwise: one row of all channels."""
    if not _of_maps(neighbours) or not _is_pointwise(neighbours, neighbours.consumer):
        return None
    return neighbours.bytes(neighbours.between) // max(1, neighbours.shape(neighbours.between)[2])


PATTERNS: tuple[Pattern, ...] = (
    Pattern("downstream depthwise", _plane_of_channels, _source_for_each_tile),
    Pattern("downstream pointwise", _rows_of_pixels, lambda neighbours, device: 0),
)
