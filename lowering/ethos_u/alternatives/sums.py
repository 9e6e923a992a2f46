"""Sums, means and largest numbers in other ways, with the same integers as results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from ..tosa.graph import Attribute, Graph, Operator
from .edit import Alternative, Edit, data_of, integers_of

_Way = Callable[[Graph, Edit, Operator], Sequence[Operator]]
_Test = Callable[[Graph, Operator], bool]


def other_sums(graph: Graph) -> Iterator[Alternative]:
    """Each kind of reduction in each other way: all of the kind at once, then one by one."""
    for test, name, way in _WAYS:
        found = [operator for operator in graph.operators if test(graph, operator)]
        for chosen in ([found] if len(found) > 1 else []) + [[each] for each in found]:
            edit = Edit(graph)
            for operator in chosen:
                edit.put(operator.output, *way(graph, edit, operator))
            what = chosen[0].output if len(chosen) == 1 else f"{len(chosen)} of {chosen[0].op}"
            yield Alternative(f"{what} by {name}", edit.finish())


def _is_map_sum(graph: Graph, operator: Operator) -> bool:
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
    return (
        _widened(edit, x, zero, wide),
        Operator("REDUCE_SUM", (wide,), row, {"axis": 1}),
        Operator("REDUCE_SUM", (row,), operator.output, {"axis": 2}),
    )


def _widened(edit: Edit, x: str, zero: str, result: str) -> Operator:
    """Integers of 8 bits without their zero point, as 32 bits."""
    return _unscaled(edit, x, zero, edit.new("int32", [0]), result)


def _unscaled(edit: Edit, x: str, zero: str, result_zero: str, result: str) -> Operator:
    attributes: dict[str, Attribute] = {
        "scale32": True, "rounding_mode": "SINGLE_ROUND", "per_channel": False, "input_unsigned": False,
        "output_unsigned": False,
    }  # fmt: skip
    factor = (edit.new("int32", [1 << 30]), edit.new("int8", [30]))
    return Operator("RESCALE", (x, *factor, zero, result_zero), result, attributes)


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


def _is_row_sum(graph: Graph, operator: Operator) -> bool:
    """Whether an operator sums rows of integers of 8 bits that were only widened."""
    if operator.op != "REDUCE_SUM" or operator.attributes["axis"] != 3:
        return False
    widening = graph.producers.get(operator.inputs[0])
    if widening is None or widening.op != "RESCALE" or graph.tensors[widening.inputs[0]].dtype != "int8":
        return False
    multiplier, shift = (data_of(graph, name) for name in widening.inputs[1:3])
    is_one = multiplier.size == 1 and int(multiplier[0]) == 1 << int(shift[0])
    return is_one and len(graph.tensors[widening.output].shape) == 4


def _by_convolution(graph: Graph, edit: Edit, operator: Operator) -> Sequence[Operator]:
    x, _, _, zero, _ = graph.producers[operator.inputs[0]].inputs
    ones = edit.new("int8", np.ones((1, 1, 1, graph.tensors[x].shape[-1])))
    attributes: dict[str, Attribute] = {
        "pad": (0, 0, 0, 0), "stride": (1, 1), "dilation": (1, 1), "local_bound": False, "acc_type": "int32",
    }  # fmt: skip
    inputs = (x, ones, edit.new("int32", [0]), zero, edit.new("int8", [0]))
    return (Operator("CONV2D", inputs, operator.output, attributes),)


def _is_row_maximum(graph: Graph, operator: Operator) -> bool:
    shape = graph.tensors[operator.inputs[0]].shape
    return operator.op == "REDUCE_MAX" and operator.attributes["axis"] == len(shape) - 1 and shape[-1] > 1


def _by_halves(graph: Graph, edit: Edit, operator: Operator) -> Sequence[Operator]:
    x = operator.inputs[0]
    *rest, columns = graph.tensors[x].shape
    zero = edit.new("int8", [0])
    wide = edit.wide((*rest, columns))
    made = [_widened(edit, x, zero, wide)]
    while columns > 1:
        half = (columns + 1) // 2  # of an odd number both halves have the one in the middle
        parts = []
        for start in (0, columns - half):
            part = edit.wide((*rest, half))
            sizes = (edit.sizes(*(0 for _ in rest), start), edit.sizes(*rest, half))
            made.append(Operator("SLICE", (wide, *sizes), part))
            parts.append(part)
        wide, columns = edit.wide((*rest, half)), half
        made.append(Operator("MAXIMUM", tuple(parts), wide, {"nan_mode": "PROPAGATE"}))
    return (*made, _unscaled(edit, wide, edit.new("int32", [0]), zero, operator.output))


_WAYS: tuple[tuple[_Test, str, _Way], ...] = (
    (_is_map_sum, "reductions", _by_reductions),
    (_is_map_sum, "a matrix product", _by_product),
    (_is_row_sum, "a convolution", _by_convolution),
    (_is_row_maximum, "halves", _by_halves),
)
