"""Several convolutions in a row as one kernel: intensive fusion (AGO, section III-B).

    {Conv, Relu} {Conv, Relu} {Conv, Add}    =>    {Conv, Relu, Conv, Relu, Conv, Add}

Of each feature map between two of them the kernel keeps some rows, and makes each row once: so the second may be
pointwise, depthwise, or have windows over all channels. A feature map with other readers is no part of a chain.
"""

from __future__ import annotations

from typing import NamedTuple

from ....costmodels.scheduled import border_seconds, is_window, may_be_filtered, moving_seconds
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
    for part, second in zip(parts, anchors[1:], strict=False):
        between = operators.graph.operators[second].inputs[0]
        if part.outputs != (between,) or between is None or operators.graph.values[between].is_output:
            return "a convolution is not all that reads the one before"
        if tuple(operators.graph.consumers[between]) != (second,):
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
