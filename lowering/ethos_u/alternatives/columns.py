"""Convolutions that read several columns as channels: a view of a map whose channels lie last.

The NPU computes with 8 or 16 channels at once, and reads pixels of few channels one by one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from ..tosa.graph import Array, Graph, Operator
from .edit import Alternative, Edit, chain_of, data_of, integers_of

_MOST_CHANNELS = 32
"""The most channels that columns become, of maps with fewer than half of them."""
_FACTORS = (2, 4, 8, 10, 16)
"""Columns that are read as one."""


def folded_columns(graph: Graph) -> Iterator[Alternative]:
    """Each convolution of a map with few channels, those of inputs first, with each factor."""
    for operator in sorted(graph.operators, key=lambda each: each.inputs[0] not in graph.inputs):
        if operator.op == "CONV2D":
            for factor in _FACTORS:
                if (folded := _fold(graph, operator, factor)) is not None:
                    yield Alternative(f"{factor} columns of {operator.inputs[0]} as channels", folded)


def _fold(graph: Graph, operator: Operator, by: int) -> Graph | None:
    """A convolution with stride s on columns of `by` = m * s old ones, which makes m old columns at once.

    Part t of the new column q is the old column m * q + t, whose window begins at s * (m * q + t) - left. Position k of
    it is part (s * t + k - left) mod `by` of the column q + floor((s * t + k - left) / by).
    """
    top, bottom, left, _ = integers_of(operator.attributes, "pad")
    rows_apart, stride = integers_of(operator.attributes, "stride")
    batch, height, width, channels = graph.tensors[operator.inputs[0]].shape
    wide = graph.tensors[operator.output].shape[2]
    chain = chain_of(graph, operator)
    if (
        chain is None or by % stride or width % by or by * channels > _MOST_CHANNELS or width == 1
        or integers_of(operator.attributes, "dilation")[1] != 1 or wide % (by // stride)
    ):  # fmt: skip
        return None
    made = by // stride
    weights = data_of(graph, operator.inputs[1])
    outputs, rows, columns, _ = weights.shape
    before = -(-left // by)
    window = before + (stride * (made - 1) + columns - 1 - left) // by + 1
    after = wide // made - 1 + window - before - width // by
    if after < 0:
        return None
    folded = np.zeros((made, outputs, rows, window, by, channels), weights.dtype)
    for t in range(made):
        for k in range(columns):
            place = stride * t + k - left
            folded[t, :, :, before + place // by, place % by] = weights[:, :, k]
    edit = Edit(graph)
    shape = (batch, height, width // by, by * channels)
    view = edit.tensor(operator.inputs[0], shape)
    reshape = Operator("RESHAPE", (operator.inputs[0], edit.sizes(*shape)), view)
    kernel = edit.constant(operator.inputs[1], folded.reshape(made * outputs, rows, window, by * channels))
    attributes = {**operator.attributes, "pad": (top, bottom, before, after), "stride": (rows_apart, 1)}
    inputs = (view, kernel, *operator.inputs[2:])
    if made == 1:
        edit.put(operator.output, reshape, replace(operator, inputs=inputs, attributes=attributes))
        return edit.finish()
    bias, *scales = (
        edit.constant(name, _repeated(data_of(graph, name), made))
        for name in (operator.inputs[2], *chain.rescale.inputs[1:3])
    )
    shape = (batch, graph.tensors[operator.output].shape[1], wide // made, made * outputs)
    sums, rounded = (edit.tensor(each, shape) for each in (operator.output, chain.rescale.output))
    edit.put(
        operator.output, reshape,
        replace(operator, inputs=(*inputs[:2], bias, *inputs[3:]), output=sums, attributes=attributes),
    )  # fmt: skip
    last = [replace(chain.rescale, inputs=(sums, *scales, *chain.rescale.inputs[3:]), output=rounded)]
    if chain.clamp is not None:
        edit.put(chain.rescale.output)
        clamped = edit.tensor(chain.clamp.output, shape)
        last.append(replace(chain.clamp, inputs=(rounded,), output=clamped))
        rounded = clamped
    sizes = edit.sizes(*graph.tensors[chain.result].shape)
    edit.put(chain.result, *last, Operator("RESHAPE", (rounded, sizes), chain.result))
    return edit.finish()


def _repeated(numbers: Array, count: int) -> Array:
    """Numbers of channels for each part of a column; one number is for all anyway."""
    return numbers if numbers.size == 1 else np.tile(numbers, count)
