"""Two convolutions as one kernel: intensive fusion (AGO, section III-B).

The second is depthwise, and tiles channels, or pointwise, and tiles rows of pixels; the first is of all channels or
depthwise. Nothing is computed twice, and of the map between them the kernel keeps a tile.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ....ir.operators.linear import is_convolution
from .anchored import is_depthwise, why_not_one_anchor
from .operator_set import OperatorSet, roofline
from .template import Template

WORTH = 0.95
"""The share of the speed of two kernels that one reaches: it has fewer registers and cache for each convolution."""


class _Way(NamedTuple):
    """Bytes of a pair as one kernel: `kept` between them at a time, and `again`, read more often than apart."""

    kept: int
    again: int


def _accepts(operators: OperatorSet) -> str | None:
    anchors = operators.anchors
    if len(anchors) != 2 or not all(is_convolution(operators.graph.operators[m].op) for m in anchors):
        return "they are not two convolutions"
    parts = _parts(operators)
    between = operators.graph.operators[anchors[1]].inputs[0]
    if parts[0].outputs != (between,) or between is None or operators.leaves(between):
        return "the second convolution is not all that reads the first"
    reasons = [reason for part in parts if (reason := why_not_one_anchor(part)) is not None]
    if reasons:
        return reasons[0]
    return None if any(_ways(operators)) else "the map between them does not fit the second cache"


def _parts(operators: OperatorSet) -> tuple[OperatorSet, OperatorSet]:
    """What is in front of the second convolution, and the others."""
    behind = {operators.anchors[1]}
    for member in operators.members:
        if not behind.isdisjoint(operators.graph.predecessors[member]):
            behind.add(member)
    return operators.part(operators.inside - behind), operators.part(behind)


def _ways(operators: OperatorSet) -> Iterator[_Way]:
    """The ways to run the pair whose bytes between them fit half of the second cache."""
    within, device = operators.within, operators.device
    first, second = operators.anchors
    producer, between = operators.graph.operators[first], operators.graph.operators[second].inputs[0]
    assert between is not None
    shape, size = within.shape(between), within.sizes[between]
    is_dense = producer.attributes.get("group", 1) == 1 and not producer.is_opaque
    is_own = shape == within.shape(producer.outputs[0])
    if len(shape) != 4 or not is_own or not (is_dense or is_depthwise(operators, first)):
        return
    ways = []
    if is_depthwise(operators, second):  # all pixels of as many channels as a vector has
        tiles = 1 if is_depthwise(operators, first) else -(-shape[1] // device.lanes)
        again = (tiles - 1) * within.sizes[producer.inputs[0] or 0]  # the source is read for every tile
        ways.append(_Way(size * device.lanes // max(1, shape[1]), again))
    if _is_pointwise(operators, second):  # one row of all channels
        ways.append(_Way(size // max(1, shape[2]), 0))
    yield from (way for way in ways if way.kept <= device.second_cache // 2)


def _is_pointwise(operators: OperatorSet, member: int) -> bool:
    operator, shape = operators.graph.operators[member], operators.within.shape
    if operator.is_opaque or operator.attributes.get("group", 1) != 1:
        return False
    return set(shape(operator.inputs[1])[2:]) == {1} and shape(operator.inputs[0])[2:] == shape(operator.outputs[0])[2:]


def _price(operators: OperatorSet) -> float:
    """The longer of arithmetic and moving: what crosses the border, and the map between them at the cache's rate.

    Its second convolution begins like a kernel, so that no launch is saved.
    """
    device = operators.device
    size = operators.within.sizes[operators.graph.operators[operators.anchors[1]].inputs[0] or 0]
    first = _parts(operators)[0]

    def seconds(way: _Way) -> float:
        outside = operators.border + way.again
        moving = outside / device.bandwidth(outside) + 2 * size / device.bandwidth(way.kept)
        hidden = roofline(operators.arithmetic - first.exposed, moving) / WORTH
        return hidden + first.exposed + first.keeping + operators.copying

    return min(map(seconds, _ways(operators))) + device.launch_overhead


CONVOLUTION_PAIR = Template("convolution_pair", _accepts, _price, rule="convolution_pair")
