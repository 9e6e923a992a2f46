"""Sums, means, largest numbers and products of two maps, taken in other ways with the same integers as results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from ..tosa.graph import Attribute, Graph, Operator
from .edit import Alternative, Chain, Edit, chain_of, data_of, integers_of

_Way = Callable[[Graph, Edit, Operator], Sequence[Operator]]
_Test = Callable[[Graph, Operator], bool]


def other_sums(graph: Graph) -> Iterator[Alternative]:
    """Each kind of reduction in each other way: all of the kind at once, then one by one."""
    for test, name, way in _WAYS:
        found = [operator for operator in graph.operators if test(graph, operator)]
        for chosen in ([found] if len(found) > 1 else []) + [[each] for each in found]:
            what = chosen[0].output if len(chosen) == 1 else f"{len(chosen)} of {chosen[0].op}"
            yield Alternative(f"{what} by {name}", what, partial(_in_another_way, graph, chosen, way))


def _in_another_way(graph: Graph, operators: Sequence[Operator], way: _Way) -> Graph:
    edit = Edit(graph)
    for operator in operators:
        edit.put(operator.output, *way(graph, edit, operator))
    return edit.finish()


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


_MOST_ROWS = 512
"""Rows of a product of two maps that are computed one by one."""
_TURNED = (0, 2, 1)


def products_by_rows(graph: Graph) -> Iterator[Alternative]:
    """Each product of two maps as products of one row and a map, summed: U55 and U65 do so within, with more overhead.

    With rows of the first operand the other one is read transposed; with columns of the second, the result is."""
    for operator in graph.operators:
        if operator.op != "MATMUL" or chain_of(graph, operator) is None:
            continue
        batch, rows, columns = graph.tensors[operator.output].shape
        for what, count in (("rows", rows), ("columns", columns)):
            if batch * count <= _MOST_ROWS:
                make = partial(_by_rows, graph, operator, what == "columns")
                yield Alternative(f"{operator.output} by {count} {what}", operator.output, make)


def _by_rows(graph: Graph, operator: Operator, is_by_columns: bool) -> Graph:
    chain = chain_of(graph, operator)
    assert chain is not None, "the sums are scaled"
    edit = Edit(graph)
    left, right, *zeros = operator.inputs
    batch, depth, _ = graph.tensors[right].shape
    operators: list[Operator] = []
    turned = edit.tensor(right, [graph.tensors[right].shape[axis] for axis in _TURNED])
    operators.append(Operator("TRANSPOSE", (right,), turned, {"perms": _TURNED}))
    one, other = (turned, left) if is_by_columns else (left, turned)
    zeros = zeros[::-1] if is_by_columns else zeros
    count = graph.tensors[left if not is_by_columns else operator.output].shape[2 if is_by_columns else 1]
    height = graph.tensors[operator.output].shape[1 if is_by_columns else 2]
    parts = []
    for sample in range(batch):
        plane, wide = edit.tensor(other, (1, 1, height, depth)), edit.wide((1, 1, height, depth))
        cut = edit.tensor(other, (1, height, depth))
        begin, size = edit.sizes(sample, 0, 0), edit.sizes(1, height, depth)
        operators.append(Operator("SLICE", (other, begin, size), cut))
        operators.append(Operator("RESHAPE", (cut, edit.sizes(1, 1, height, depth)), plane))
        operators.append(_widened(edit, plane, zeros[1], wide))
        for place in range(count):
            parts.append(_row(edit, operators, (one, wide), (sample, place), (height, depth), zeros[0], chain))
    shape = (batch, count, height)
    made = edit.tensor(chain.result, (1, batch * count, 1, height))
    operators.append(Operator("CONCAT", tuple(parts), made, {"axis": 1}))
    result = edit.tensor(chain.result, shape) if is_by_columns else chain.result
    operators.append(Operator("RESHAPE", (made, edit.sizes(*shape)), result))
    if is_by_columns:
        operators.append(Operator("TRANSPOSE", (result,), chain.result, {"perms": _TURNED}))
    for each in filter(None, (chain.product, chain.rescale, chain.clamp)):
        edit.put(each.output)
    edit.put(chain.result, *operators)
    return edit.finish()


def _row(
    edit: Edit, operators: list[Operator], maps: tuple[str, str], place: tuple[int, int], sides: tuple[int, int],
    zero: str, chain: Chain,
) -> str:  # fmt: skip
    """One row of products, summed and scaled: its tensor of (1, 1, 1, height)."""
    source, wide_plane = maps
    height, depth = sides
    cut, row = edit.tensor(source, (1, 1, depth)), edit.tensor(source, (1, 1, 1, depth))
    operators.append(Operator("SLICE", (source, edit.sizes(*place, 0), edit.sizes(1, 1, depth)), cut))
    operators.append(Operator("RESHAPE", (cut, edit.sizes(1, 1, 1, depth)), row))
    wide_row = edit.wide((1, 1, 1, depth))
    operators.append(_widened(edit, row, zero, wide_row))
    products, sums, flat = edit.wide((1, 1, height, depth)), edit.wide((1, 1, height, 1)), edit.wide((1, 1, 1, height))
    operators.append(Operator("MUL", (wide_plane, wide_row, edit.new("int8", [0])), products))
    operators.append(Operator("REDUCE_SUM", (products,), sums, {"axis": 3}))
    operators.append(Operator("RESHAPE", (sums, edit.sizes(1, 1, 1, height)), flat))
    for operator in filter(None, (chain.rescale, chain.clamp)):
        made = edit.tensor(operator.output, (1, 1, 1, height))
        operators.append(replace(operator, inputs=(flat, *operator.inputs[1:]), output=made))
        flat = made
    return flat
