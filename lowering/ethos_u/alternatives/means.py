"""Means over whole maps in other ways than by a depthwise convolution with ones: the sums are the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from ..tosa.graph import Attribute, Graph, Operator
from .edit import Alternative, Edit, data_of, integers_of

_Sum = Callable[[Graph, Edit, Operator], Sequence[Operator]]


def other_means(graph: Graph) -> Iterator[Alternative]:
    """Each sum over a whole map, by reductions and by a matrix product with ones."""
    ways: tuple[tuple[str, _Sum], ...] = (("reductions", _by_reductions), ("a matrix product", _by_product))
    for operator in graph.operators:
        if _is_sum(graph, operator):
            for name, way in ways:
                edit = Edit(graph)
                edit.put(operator.output, *way(graph, edit, operator))
                yield Alternative(f"{operator.output} by {name}", edit.finish())


def _is_sum(graph: Graph, operator: Operator) -> bool:
    """Whether an operator sums a whole map of one sample, each channel by itself."""
    if operator.op != "DEPTHWISE_CONV2D" or any(integers_of(operator.attributes, "pad")):
        return False
    shape = graph.tensors[operator.inputs[0]].shape
    ones, bias = (data_of(graph, name) for name in operator.inputs[1:3])
    return shape[0] == 1 and ones.shape == (*shape[1:], 1) and bool((ones == 1).all()) and not bias.any()


def _by_reductions(graph: Graph, edit: Edit, operator: Operator) -> Sequence[Operator]:
    x, _, _, zero, _ = operator.inputs
    _, _, width, channels = shape = graph.tensors[x].shape
    wide = edit.tensor(operator.output, shape)
    row = edit.tensor(operator.output, (1, 1, width, channels))
    multiplier, shift, no_zero = (
        edit.new("int32", [1 << 30]), edit.new("int8", [30]), edit.new("int32", [0])
    )  # fmt: skip
    attributes: dict[str, Attribute] = {
        "scale32": True, "rounding_mode": "SINGLE_ROUND", "per_channel": False, "input_unsigned": False,
        "output_unsigned": False,
    }  # fmt: skip
    return (
        Operator("RESCALE", (x, multiplier, shift, zero, no_zero), wide, attributes),
        Operator("REDUCE_SUM", (wide,), row, {"axis": 1}),
        Operator("REDUCE_SUM", (row,), operator.output, {"axis": 2}),
    )


def _by_product(graph: Graph, edit: Edit, operator: Operator) -> Sequence[Operator]:
    x, _, _, zero, weight_zero = operator.inputs
    _, height, width, channels = graph.tensors[x].shape
    flat, sums = edit.tensor(x, (1, height * width, channels)), edit.tensor(operator.output, (1, 1, channels))
    ones = edit.new("int8", np.ones((1, 1, height * width)))
    return (
        Operator("RESHAPE", (x, edit.sizes(1, height * width, channels)), flat),
        Operator("MATMUL", (ones, flat, weight_zero, zero), sums),
        Operator("RESHAPE", (sums, edit.sizes(1, 1, 1, channels)), operator.output),
    )
