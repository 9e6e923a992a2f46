"""Intensive fusion (AGO, section III-B) of convolutions: several in a row, or one and a pooling, as one kernel.

    {Conv, Relu} {Conv, Relu} {Conv, Add}    =>    {Conv, Relu, Conv, Relu, Conv, Add}
    {Conv, Relu} {MaxPool, Add}              =>    {Conv, Relu, MaxPool, Add}

Of each feature map between two of them the kernel keeps some rows, and makes each row once: so the second may be
pointwise, depthwise, or have windows over all channels. A feature map with other readers is no part of a chain.

The pooling: Winograd's minimal filters compute tiles of 2x2 or 4x4 elements of a 3x3 convolution in registers. If
windows touch but do not overlap, each lies in one tile, which is pooled before anything is stored.
"""

from __future__ import annotations

from typing import NamedTuple

from ....costmodels.scheduled import border_seconds, is_filtered, is_window, may_be_filtered, moving_seconds
from ....ir.operation import Operation
from ....ir.operators import POOLS
from ....ir.operators.linear import is_convolution
from ....ir.operators.quantization import INTEGER_PRODUCTS
from .anchored import is_depthwise, split_at_anchors, why_not_one_anchor
from .operator_set import OperatorSet, roofline
from .template import Template

MOST = 3
"""The most convolutions of one kernel, as in an inverted residual: more save little, and no two blocks are equal
then."""
LEAST_COLUMNS = 12
"""With fewer pixels in a row the kernel makes all rows at once."""
_BY_ROWS = 1.05
"""How many times as long arithmetic takes row by row. Chains that save nothing else were measured at 0.97 to 1.2 of
their parts, in the mean 1.03 with AVX-512 and 1.08 with AVX2 (AMD Zen 5)."""
_FILTERED_TILE = 4
"""Rows and columns of the largest tile of a minimal filter."""


class _Link(NamedTuple):
    """A feature map between two convolutions: its bytes, those of the rows that are kept, and the rows that two threads
    make at the border of their parts, as a share of all."""

    size: int
    kept: int
    shared: float


def _accepts(operators: OperatorSet) -> str | None:
    anchors = operators.anchors
    if not 2 <= len(anchors) <= MOST or not all(is_convolution(operators.graph.operators[m].op) for m in anchors):
        return f"they are not 2 to {MOST} convolutions"
    parts = split_at_anchors(operators)
    if not all(_is_only_reader(operators, part, second) for part, second in zip(parts, anchors[1:], strict=False)):
        return "a convolution is not all that reads the one before"
    reasons = [reason for part in parts if (reason := why_not_one_anchor(part)) is not None]
    if reasons:
        return reasons[0]
    if not all(_has_rows(operators, member) for member in anchors):
        return "one has no maps of rows, or is faster by minimal filters"
    constants = (v for v in operators.inputs if operators.graph.values[v].is_constant)
    if sum(operators.within.sizes[v] for v in constants) > operators.device.second_cache // 2:
        return "their weights are streamed from memory, which a kernel by itself does ahead"
    kept = sum(link.kept for link in _links(operators))
    return None if kept <= operators.device.second_cache // 2 else "rows between them do not fit the second cache"


def _is_only_reader(operators: OperatorSet, part: OperatorSet, second: int) -> bool:
    """Whether the part has one result, which is no output of the graph, and an operator takes it as its first operand
    and is all that reads it."""
    between = operators.graph.operators[second].inputs[0]
    if part.outputs != (between,) or between is None or operators.graph.values[between].is_output:
        return False
    return tuple(operators.graph.consumers[between]) == (second,)


def _has_rows(operators: OperatorSet, member: int) -> bool:
    """Whether a convolution works row by row, and would not be faster with the whole feature map."""
    operator = operators.graph.operators[member]
    types = [operators.graph.values[v].type for v in (*operator.inputs[:1], *operator.outputs) if v is not None]
    if operator.is_opaque or not all(t is not None and t.is_static and len(t.shape or ()) == 4 for t in types):
        return False
    if operator.op in INTEGER_PRODUCTS:
        return False
    if is_depthwise(operators, member):
        return True
    is_dense = operator.attributes.get("group", 1) == 1
    return is_dense and not may_be_filtered(operators.graph.operations[member])


def _links(operators: OperatorSet) -> list[_Link]:
    """The feature maps between the convolutions."""
    links = []
    shapes = [operators.within.shape(operators.graph.operators[m].outputs[0]) for m in operators.anchors]
    is_narrow = any(shape[-1] < LEAST_COLUMNS for shape in shapes)
    for second in operators.anchors[1:]:
        operator = operators.graph.operators[second]
        between = operator.inputs[0]
        assert between is not None
        images, _, height, _ = operators.within.shape(between)
        window = operators.within.shape(operator.inputs[1])[2]
        strides = operator.attributes.get("strides")
        stride = int(strides[0]) if isinstance(strides, tuple) else 1
        size = operators.within.sizes[between]
        threads = operators.within.threads
        parts = 1 if images % threads == 0 else threads
        shared = (parts - 1) * max(0, window - stride) / height
        rows = height if is_narrow else min(height, window + stride)
        links.append(_Link(size, size * rows // max(1, images * height), shared))
    return links


def _cost(operators: OperatorSet) -> float:
    """The cost of its parts, each by itself, but the feature maps between them move at the rate of the cache that keeps
    their rows, which are written with a border around them; nothing fetches weights ahead, and a window in front copies
    its operand. Work by rows takes a little longer."""
    device, links, parts = operators.device, _links(operators), split_at_anchors(operators)
    total = operators.copying
    for number, part in enumerate(parts):
        around = links[max(0, number - 1) : number + 1]
        between = sum(link.size / device.bandwidth(link.kept) for link in around)
        others = part.border - part.weights - sum(link.size for link in around)
        moving = part.fetching + between + moving_seconds(others, device)
        again = part.arithmetic * links[number].shared if number < len(links) else 0.0
        work = _BY_ROWS * part.arithmetic + again - part.exposed
        first = operators.graph.operations[part.anchors[0]]
        if number == 0 and is_window(first):
            busy = work + moving + border_seconds(first, device)
        else:
            busy = roofline(work, moving) + min(work, part.fetching)
        total += busy + part.exposed + part.keeping
    return total


CONVOLUTION_CHAIN = Template("convolution_chain", _accepts, _cost, rule="convolution_chain")


# --- a pooling behind a convolution


def _accepts_pooled(operators: OperatorSet) -> str | None:
    graph, anchors = operators.graph, operators.anchors
    names = [graph.operators[m].op for m in anchors]
    if len(anchors) != 2 or not is_convolution(names[0]) or names[0] in INTEGER_PRODUCTS or names[1] not in POOLS:
        return "they are no convolution and a pooling"
    parts = split_at_anchors(operators)
    if not _is_only_reader(operators, parts[0], anchors[1]):
        return "the pooling is not all that reads the convolution"
    reasons = map(why_not_one_anchor, parts)
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
    return touch and is_plain and is_whole and len(windows) == 2 and not any(_FILTERED_TILE % n for n in windows)


def _pooled_cost(operators: OperatorSet) -> float:
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


POOLED_CONVOLUTION = Template("pooled_convolution", _accepts_pooled, _pooled_cost, rule="pooled_convolution")
