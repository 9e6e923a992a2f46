"""Which two convolutions run as one kernel: intensive fusion (AGO, section III-B), where it pays.

The kernels of a model are made with one anchor op each. Two of them become one where one schedule can run them without
computing anything twice (schedules/intensive/convolution_pair.py), and where that saves time on a device. The pair that
saves most is joined first, each kernel once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ...costmodels.device import Device
from ...costmodels.flops import flops
from ...costmodels.fused import ANCHORS
from ...extract.partition.kernels import Members
from ...ir.graph import Operator, OperatorGraph
from ...ir.operators.linear import is_convolution
from .prim_funcs import list_inputs, list_outputs

WORTH = 0.95
"""Kernels are joined where that takes at most this share of their time: both times are estimates."""
WINDOW_SHARE = 0.45
"""Share of the peak that a depthwise convolution reaches, of which each product needs a load; measured on `host`."""


class PairTraffic(NamedTuple):
    """Bytes of a pair as one kernel: `kept` between them at a time, and `again`, read more often than apart."""

    kept: int
    again: int


@dataclass(frozen=True)
class KernelPair:
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

    def list_traffic(self, device: Device) -> Iterator[PairTraffic]:
        """The ways to run them as one, whose bytes between them fit half of the second cache.

        Both need a map of planes between the kernels, made by a convolution of all channels or a depthwise one.
        """
        producer, shape, size = self.producer, self._shape(self.between), self._bytes(self.between)
        is_dense = _is_convolution(producer) and producer.attributes.get("group", 1) == 1
        if len(shape) != 4 or not (is_dense or self._is_depthwise(producer)):
            return
        ways = []
        if self._is_depthwise(self.consumer):  # all pixels of as many channels as a vector has
            tiles = 1 if self._is_depthwise(producer) else -(-shape[1] // device.lanes)
            again = (tiles - 1) * self._bytes(producer.inputs[0] or 0)  # the source is read for every tile
            ways.append(PairTraffic(size * device.lanes // max(1, shape[1]), again))
        if self._is_pointwise(self.consumer):  # one row of all channels
            ways.append(PairTraffic(size // max(1, shape[2]), 0))
        yield from (way for way in ways if way.kept <= device.second_cache // 2)

    def saving(self, traffic: PairTraffic, device: Device) -> float:
        """Seconds that one kernel saves; 0 where it hardly pays.

        Apart, each kernel takes the longer of its arithmetic and of moving its bytes at the rate of the memory that
        holds them all; as one, the result between them moves at the rate of the cache.
        """
        apart = sum(self._seconds(m, self._moved_bytes(m), device) for m in (self.first, self.second))
        outside = self._moved_bytes(self.members) + traffic.again
        inside = 2 * self._bytes(self.between) / device.bandwidth(traffic.kept)
        together = self._seconds(self.members, outside, device, inside)
        return apart - together if together <= WORTH * apart else 0.0

    def _seconds(self, members: Members, moved: int, device: Device, inside: float = 0.0) -> float:
        """The longer of the arithmetic, at the share of the peak that schedules reach, and of moving bytes."""
        busy = 0.0
        for member in members:
            share = WINDOW_SHARE if self._is_depthwise(self.graph.operators[member]) else 1.0
            busy += flops(self.graph.operations[member]) / device.peak_flops / share
        return max(busy, moved / device.bandwidth(moved) + inside)

    def _moved_bytes(self, members: Members) -> int:
        """Bytes that a kernel reads and writes."""
        return sum(map(self._bytes, (*list_inputs(self.graph, members), *list_outputs(self.graph, members))))

    def _bytes(self, value: int) -> int:
        return self.graph.values[value].extent.bytes

    def _shape(self, value: int | None) -> tuple[int, ...]:
        """The shape of a value that is there; 1 for each unknown extent."""
        assert value is not None
        return self.graph.values[value].extent.dimensions

    def _is_depthwise(self, operator: Operator) -> bool:
        if not _is_convolution(operator):
            return False
        channels, weights = self._shape(operator.outputs[0])[1], self._shape(operator.inputs[1])
        return operator.attributes.get("group", 1) == channels and weights[1] == 1

    def _is_pointwise(self, operator: Operator) -> bool:
        if not _is_convolution(operator) or operator.attributes.get("group", 1) != 1:
            return False
        kernel, source = self._shape(operator.inputs[1])[2:], self._shape(operator.inputs[0])
        return set(kernel) == {1} and source[2:] == self._shape(operator.outputs[0])[2:]


def _is_convolution(operator: Operator) -> bool:
    return is_convolution(operator.op) and not operator.is_opaque


def join_pairs(
    graph: OperatorGraph, kernels: Sequence[Members], device: Device, fits: Callable[[Members], bool]
) -> tuple[Members, ...]:
    """The kernels, in an order in which they can run, with those joined that save time and that `fits` accepts.

    `fits` is asked about the operators of two kernels: whether there is a schedule for them.
    """
    pairs = [(pair.saving(way, device), pair) for pair in _pairs(graph, kernels) for way in pair.list_traffic(device)]
    joined: dict[Members, KernelPair] = {}
    for seconds, pair in sorted(pairs, key=lambda item: -item[0]):
        free = pair.first not in joined and pair.second not in joined
        if seconds > 0.0 and free and fits(pair.members):
            joined[pair.first] = joined[pair.second] = pair
    return tuple(
        joined[kernel].members if kernel in joined else kernel
        for kernel in kernels
        if kernel not in joined or joined[kernel].second == kernel
    )


def list_candidates(graph: OperatorGraph, kernels: Sequence[Members], device: Device) -> Iterator[KernelPair]:
    """Pairs that could run as one, whether or not that is estimated to pay."""
    return (pair for pair in _pairs(graph, kernels) if any(pair.list_traffic(device)))


def _pairs(graph: OperatorGraph, kernels: Sequence[Members]) -> Iterator[KernelPair]:
    kernel_of = {member: kernel for kernel in kernels for member in kernel}
    for first in kernels:
        outputs = list_outputs(graph, first)
        users = {kernel_of[user] for value in outputs for user in graph.consumers[value]}
        if len(outputs) != 1 or len(users) != 1 or graph.values[outputs[0]].is_output:
            continue
        (second,) = users
        anchors = [[graph.operators[m] for m in k if graph.operators[m].op in ANCHORS] for k in (first, second)]
        if all(len(own) == 1 for own in anchors) and anchors[1][0].inputs[0] == outputs[0]:
            yield KernelPair(graph, first, second, outputs[0], anchors[0][0], anchors[1][0])
