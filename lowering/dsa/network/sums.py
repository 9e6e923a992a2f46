"""Layers around one product, which a core can sum up piece by piece of the reduction.

The small buffer that LB has for weights holds a tile of them: some columns, each as long as the reduction is deep. If
it is too deep, so few columns fit that most of the matrix unit's stand idle. So the reduction is cut: tiles follow each
other that each take a piece of the data and of the weights, and add to what the ones before made, in place. As in
SCALE-Sim's folds along the reduction, the array's accumulators do that; floats are rounded to their type in between.
A product of two maps, as attention has, can be cut like that, too: then its second operand is what is called weights
here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import prod

from ....ir.graph import Operator, OperatorGraph
from ....ir.operators import ELEMENTWISE, MATRIX_PRODUCTS
from ....ir.operators.linear import is_convolution
from ....ir.operators.quantization import INTEGER_PRODUCTS
from .boxes import Box
from .graph import Network
from .operand_boxes import whole_axes
from .subgraphs import Layer

_MATRIX_RANK = 2


@dataclass(frozen=True)
class Reduction:
    """The axis along which operator number `product` sums, of its data and of its weights.

    The weights have `columns` outputs, and `width` elements for each of them and each index of the reduction: a
    convolution's window. What comes behind them is a bias, or zero points of a product of integers. `of_maps`: the
    weights are no constants, but come as the data does.
    """

    product: int
    depth: int
    data_axis: int
    weight_axis: int
    columns: int
    width: int
    has_zero_points: bool = False
    of_maps: bool = False


def reduction_of(graph: OperatorGraph, index: int) -> Reduction | None:
    """The reduction of a product with constant weights; None for any other operator."""
    operator = graph.operators[index]
    if operator.is_opaque or len(operator.inputs) < 2 or operator.inputs[1] is None or operator.inputs[0] is None:
        return None
    of_integers = operator.op in INTEGER_PRODUCTS
    weights, data = graph.values[operator.inputs[1]], graph.values[operator.inputs[0]]
    if not weights.is_constant or data.is_constant:
        return None
    shape, rank = weights.extent.dimensions, len(data.extent.dimensions)
    attributes = operator.attributes
    if is_convolution(operator.op) and attributes.get("group", 1) == 1 and shape[1] > 1:
        return Reduction(index, shape[1], 1, 1, shape[0], prod(shape[2:]), of_integers)
    if operator.op == "ConvTranspose" and attributes.get("group", 1) == 1:
        return Reduction(index, shape[0], 1, 0, shape[1], prod(shape[2:]))
    is_plain = attributes.get("alpha", 1.0) == 1.0 and attributes.get("beta", 1.0) == 1.0
    is_of_matrices = operator.op in MATRIX_PRODUCTS and len(shape) == 2 and rank >= 2
    if not is_of_matrices or attributes.get("transA") or not is_plain:
        return None
    axis = 1 if attributes.get("transB") else 0
    return Reduction(index, shape[axis], rank - 1, axis, shape[1 - axis], 1, of_integers)


def reduction_of_maps(graph: OperatorGraph, index: int) -> Reduction | None:
    """The reduction of a product of two maps of floats; None for any other operator."""
    operator = graph.operators[index]
    if operator.op != "MatMul" or operator.is_opaque or None in operator.inputs:
        return None
    data, weights = (graph.values[value] for value in operator.inputs if value is not None)
    ranks = [len(value.extent.dimensions) for value in (data, weights)]
    if data is weights or data.is_constant or weights.is_constant or min(ranks) < _MATRIX_RANK:
        return None
    depth, columns = weights.extent.dimensions[-2:]
    return Reduction(index, depth, ranks[0] - 1, ranks[1] - 2, columns, 1, of_maps=True)


@dataclass(frozen=True)
class PieceOfSum:
    """Indices `start` to `stop` of a reduction, of `depth` in all."""

    reduction: Reduction
    start: int
    stop: int
    adds: bool
    is_last: bool

    def restrict(self, box: Box, axis: int) -> Box:
        """The part of an operand's box that the piece reads."""
        return (*box[:axis], (self.start, self.stop), *box[axis + 1 :])

    def operands(self, boxes: tuple[Box | None, ...]) -> tuple[Box | None, ...]:
        """What the piece needs of each operand of the product: only the last one adds a bias."""
        data, weights, *others = boxes
        assert data is not None
        assert weights is not None
        rest = others if self.is_last or self.reduction.has_zero_points else [None] * len(others)
        cut = self.restrict(data, self.reduction.data_axis), self.restrict(weights, self.reduction.weight_axis)
        return (*cut, *rest)


def starts_of(reduction: Reduction, count: int) -> range:
    """The starts of `count` pieces of a reduction, of the same length but for the last."""
    return range(0, reduction.depth, -(-reduction.depth // count))


@lru_cache(1 << 12)
def pieces_of(reduction: Reduction, count: int) -> tuple[PieceOfSum, ...]:
    """A reduction in `count` pieces."""
    starts = starts_of(reduction, count)
    ends = (min(start + starts.step, reduction.depth) for start in starts)
    return tuple(PieceOfSum(reduction, a, b, a > 0, b == reduction.depth) for a, b in zip(starts, ends, strict=True))


def sum_of_layer(network: Network, layer: Layer) -> Reduction | None:
    """The reduction of a layer that may be summed up in place; None if it has none, or several.

    All other operators follow the product, and the one value that the layer hands on has its shape and place in memory.
    """
    graph = network.graph
    first, *others = layer
    reduction = reduction_of(graph, first) or reduction_of_maps(graph, first)
    if reduction is None or not follow_in_place(network, first, tuple(others)):
        return None
    operands = set(graph.operators[first].inputs)
    if reduction.of_maps and any(not operands.isdisjoint(graph.operators[index].inputs) for index in others):
        return None
    return reduction


def follow_in_place(network: Network, product: int, others: Layer) -> bool:
    """Whether operators that follow a product compute element by element in its place, and one result is handed on."""
    graph = network.graph
    layer = {product, *others}
    (sum_,) = graph.operators[product].outputs
    if not all(_is_alike(network, graph.operators[index], sum_) for index in others):
        return False
    handed_on = [v for index in layer for v in graph.operators[index].outputs if _is_handed_on(graph, v, layer)]
    return len(handed_on) == 1


def _is_alike(network: Network, operator: Operator, value: int) -> bool:
    """Whether an operator computes element by element, and makes what lies in memory as a value does."""
    if operator.is_opaque or operator.op not in ELEMENTWISE or len(operator.outputs) != 1:
        return False
    (result,) = operator.outputs
    same_shape = network.shapes[result] == network.shapes[value] and network.axes[result] == network.axes[value]
    return same_shape and network.dtype(result) == network.dtype(value)


def _is_handed_on(graph: OperatorGraph, value: int, layer: set[int]) -> bool:
    readers = graph.consumers[value]
    return graph.values[value].is_output or not readers or not layer >= set(readers)


def with_products_first(network: Network, layers: Iterable[Layer], room: int, columns: int) -> Iterator[Layer]:
    """Layers cut such that each product that is too deep begins one that can be summed up in place.

    It is too deep if weights of `columns` columns of it take more than `room` bytes; of all columns, if what follows in
    its layer has to see all of them, as a normalisation does.
    """
    for layer in layers:
        rest = tuple(sorted(layer))
        while deep := [index for index in rest if _weight_bytes(network, rest, index, columns) > room]:
            product = deep[0]
            before, after = (tuple(i for i in rest if i < product), tuple(i for i in rest if i > product))
            kept = next(n for n in range(len(after), -1, -1) if not n or follow_in_place(network, product, after[:n]))
            if before:
                yield before
            yield (product, *after[:kept])
            rest = after[kept:]
        if rest:
            yield rest


def _weight_bytes(network: Network, layer: Layer, index: int, columns: int) -> int:
    """Bytes of the weights of the columns of a product that a tile needs; 0 for any other operator."""
    reduction = reduction_of(network.graph, index)
    weights = network.graph.operators[index].inputs[1] if reduction is not None else None
    if reduction is None or weights is None:
        return 0
    rank = len(network.shapes[network.graph.operators[index].outputs[0]])
    axis = 1 if is_convolution(network.graph.operators[index].op) else rank - 1
    followers = (network.graph.operators[other] for other in layer if other > index)
    if any(axis in whole_axes(each, len(network.shapes[each.outputs[0]])) for each in followers):
        columns = reduction.columns
    return network.bytes(weights) // reduction.columns * min(columns, reduction.columns)
