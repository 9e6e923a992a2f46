"""Which part of each operand an operator needs to compute a part of one of its results.

It follows from the operator's index maps (ir/index_maps.py): along each axis of an operand, the interval of positions
that a box of the result reads. What nothing is known of needs more than it reads, never less.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ....ir.graph import Operator
from ....ir.index_maps import Axis, IndexMaps, OperandMap, OperatorCall, index_maps, interval_of
from ....ir.operators import ELEMENTWISE, GLOBAL_POOLS, MATRIX_PRODUCTS, OPERATORS, POOLS, PRODUCTS, REDUCTIONS, SCHEMAS
from .boxes import Box, Interval, Shape, whole

_WHOLE_FROM = {"DepthToSpace": 1, "SpaceToDepth": 1}
"""Operators that a tile computes whole from some axis of the result on (local_graph.py), though they could be cut."""

_MOVING = """
Reshape Flatten Squeeze Unsqueeze Transpose Expand Slice Gather Pad DepthToSpace SpaceToDepth Concat Resize Split
Identity Dropout
"""
_NORMALIZATIONS = frozenset(o.name for o in OPERATORS.values() if o.category == "normalization")
_COMPUTING = ELEMENTWISE | PRODUCTS | POOLS | GLOBAL_POOLS | REDUCTIONS | _NORMALIZATIONS
_PARTIAL = _COMPUTING | {"Sum", "Mean", *_MOVING.split()}
"""Operators that a tile computes from parts of their operands (local_graph.py), all others from whole ones."""


BoxRule = Callable[[Box], tuple[Box | None, ...]]
"""Per operand, the box that a box of the result needs; None if it needs nothing, or the operand is absent."""


def box_rule(operator: Operator, call: OperatorCall) -> BoxRule:
    """How the boxes of an operator's operands follow from a box of its result."""
    maps = partial_maps(operator, call)
    if maps is not None and operator.op == "ConvTranspose":
        return partial(_transposed_boxes, operator, call)
    if maps is None:
        everything = tuple(None if shape is None else whole(shape) for shape in call.operands)
        return lambda box: everything
    widened = {loop.beside.number for loop in maps.reductions if loop.beside is not None}
    widened |= set(range(_WHOLE_FROM.get(operator.op, len(maps.result)), len(maps.result)))
    limits = {axis.number: (0, axis.extent) for axis in maps.result if axis.number in widened}
    is_joined = operator.op == "Concat"
    operands = [
        _operand_rule(operand, shape, is_joined) for operand, shape in zip(maps.operands, call.operands, strict=True)
    ]

    def boxes(box: Box) -> tuple[Box | None, ...]:
        if limits:
            box = tuple([limits.get(axis, interval) for axis, interval in enumerate(box)])
        return tuple([operand(box) for operand in operands])

    return boxes


def _operand_rule(operand: OperandMap | None, shape: Shape | None, is_joined: bool) -> Callable[[Box], Box | None]:
    """How the box of one operand follows from that of the result; if it `is_joined` with others, it may be empty."""
    if operand is None or shape is None:
        everything = None if shape is None else whole(shape)
        return lambda box: everything
    same = [isinstance(index, Axis) and index.extent == n for index, n in zip(operand, shape, strict=True)]
    reaches = [interval_of(index) for index in operand]
    if all(same):
        return lambda box: tuple([reach(box) for reach in reaches])
    if is_joined:  # one axis is not the result's
        axis = same.index(False)
        return lambda box: _joined(box, axis, reaches[axis](box), shape[axis])
    axes = list(zip(reaches, shape, strict=True))
    return lambda box: tuple([_inside(*reach(box), extent) for reach, extent in axes])


def _joined(box: Box, axis: int, reached: Interval, extent: int) -> Box | None:
    """The part of one of the operands that are joined along an axis; None if the box lies beside it."""
    start, stop = max(reached[0], 0), min(reached[1], extent)
    return (*box[:axis], (start, stop), *box[axis + 1 :]) if start < stop else None


def are_windows_apart(operator: Operator, kernel: Shape) -> bool:
    """Whether each element of a transposed convolution is of the window of one element of its data, and all windows lie
    side by side: it can be cut anywhere. The windows of others overlap, or reach over its ends, and are made whole."""
    attributes = operator.attributes
    ones, zeros = (1,) * len(kernel), (0,) * len(kernel)
    steps = attributes.get("strides") or ones, attributes.get("dilations") or ones
    around = attributes.get("pads") or 2 * zeros, attributes.get("output_padding") or zeros
    return steps == (kernel, ones) and around == (2 * zeros, zeros)


def _transposed_boxes(operator: Operator, call: OperatorCall, box: Box) -> tuple[Box | None, ...]:
    """A part of the channels needs their weights alone, if there are no groups."""
    data, weights = call.operands[:2]
    assert data is not None
    assert weights is not None
    batch, channels, *spatial = box
    if operator.attributes.get("group", 1) != 1:
        return ((batch, *whole(data[1:])), *(None if shape is None else whole(shape) for shape in call.operands[1:]))
    kernel = weights[2:]
    seen = whole(data[2:])
    if are_windows_apart(operator, kernel):
        seen = tuple((start // side, -(-stop // side)) for (start, stop), side in zip(spatial, kernel, strict=True))
    needed: list[Box | None] = [(batch, *whole(data[1:2]), *seen), (*whole(weights[:1]), channels, *whole(kernel))]
    return (*needed, *(None if shape is None else (channels,) for shape in call.operands[2:]))


def _inside(start: int, stop: int, extent: int) -> Interval:
    """Positions outside of an operand are padding; of a part that lies in the padding alone one element is needed."""
    low = min(max(0, start), extent - 1)
    return low, max(low + 1, min(extent, stop))


def partial_maps(operator: Operator, call: OperatorCall) -> IndexMaps | None:
    """The index maps of an operator that tiles compute from parts of its operands; None for all others."""
    if operator.op not in _PARTIAL or operator.is_opaque:
        return None
    if operator.op in MATRIX_PRODUCTS and any(len(shape) < 2 for shape in call.operands[:2] if shape is not None):
        return None  # a product with a vector is computed whole
    make = SCHEMAS[operator.op].index_maps
    return None if make is None else index_maps(make, call)


def whole_axes(operator: Operator, rank: int) -> frozenset[int]:
    """Axes of the result that cannot be cut without computing something twice, as a Softmax's: what the text calls
    requirements annotated to loop dimensions (section 3.4)."""
    shape = (1,) * rank
    maps = partial_maps(operator, OperatorCall(operator.attributes, (shape,), (shape,)))
    beside = (loop.beside for loop in maps.reductions) if maps is not None else ()
    return frozenset(axis.number for axis in beside if axis is not None)
