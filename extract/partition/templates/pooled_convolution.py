"""A 3x3 convolution with the pooling behind it as one kernel: intensive fusion (AGO, section III-B).

    {Conv, Relu} {MaxPool, Add}    =>    {Conv, Relu, MaxPool, Add}

Winograd's minimal filters compute tiles of 2x2 or 4x4 elements in registers. If windows touch but do not overlap, each
lies in one tile, which is pooled before anything is stored.
"""

from __future__ import annotations

from ....costmodels.scheduled import is_filtered, moving_seconds
from ....ir.operation import Operation
from ....ir.operators import POOLS
from ....ir.operators.linear import is_convolution
from ....ir.operators.quantization import INTEGER_PRODUCTS
from .anchored import split_at_anchors, why_not_one_anchor
from .operator_set import OperatorSet, roofline
from .template import Template

_TILE = 4
"""Rows and columns of the largest tile."""


def _accepts(operators: OperatorSet) -> str | None:
    graph, anchors = operators.graph, operators.anchors
    names = [graph.operators[m].op for m in anchors]
    if len(anchors) != 2 or not is_convolution(names[0]) or names[0] in INTEGER_PRODUCTS or names[1] not in POOLS:
        return "they are no convolution and a pooling"
    between, second = split_at_anchors(operators)[0].outputs, anchors[1]
    value = graph.operators[second].inputs[0]
    if between != (value,) or value is None or tuple(graph.consumers[value]) != (second,):
        return "the pooling is not all that reads the convolution"
    if graph.values[value].is_output:
        return "the pooling is not all that reads the convolution"
    reasons = map(why_not_one_anchor, split_at_anchors(operators))
    if (reason := next((each for each in reasons if each is not None), None)) is not None:
        return reason
    convolution, pooling = (graph.operations[m] for m in anchors)
    read = [graph.values[v] for v in graph.operators[anchors[0]].inputs if v is not None]
    is_fixed = all(each.free is None and each.type is not None and each.type.is_static for each in read)
    if not is_fixed or any(graph.operators[m].is_opaque for m in anchors):
        return "one of them has sizes that only a call knows"
    if not is_filtered(convolution, operators.device):
        return "no minimal filter computes the convolution"
    return None if _has_windows_in_tiles(pooling) else "windows are not parts of tiles"


def _has_windows_in_tiles(pooling: Operation) -> bool:
    """Whether a tile is made of windows, all of them inside of the map."""
    windows = pooling.integers("kernel_shape")
    touch = windows == (pooling.integers("strides") or (1,) * len(windows))
    is_plain = not any(pooling.integers("pads")) and all(n == 1 for n in pooling.integers("dilations"))
    is_whole = pooling.integer("ceil_mode", 0) == 0
    return touch and is_plain and is_whole and len(windows) == 2 and not any(_TILE % n for n in windows)


def _cost(operators: OperatorSet) -> float:
    """As of the convolution by itself, but instead of its result that of the pooling is written, which takes one
    instruction for a vector of elements in registers."""
    device, (convolution, pooling) = operators.device, split_at_anchors(operators)
    result = operators.graph.operations[operators.anchors[0]].output
    pooled = result.elements / device.lanes / device.fma_ports / device.clock
    behind = pooling.arithmetic - operators.within.compute[operators.anchors[1]]
    work = convolution.arithmetic - convolution.exposed + pooled + behind
    moving = operators.fetching + moving_seconds(operators.border - operators.weights, device)
    busy = roofline(work, moving) + operators.waiting(work)
    return busy + convolution.exposed + convolution.keeping + operators.copying


POOLED_CONVOLUTION = Template("pooled_convolution", _accepts, _cost, rule="pooled_convolution")
