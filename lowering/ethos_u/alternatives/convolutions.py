"""Convolutions in other forms: columns as channels, maps of other widths, wider windows, several as one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from ..tosa.graph import Array, Graph, Operator
from .edit import Alternative, Chain, Edit, chain_of, data_of, integers_of

_MOST_CHANNELS = 32
"""The most channels that columns become, of maps with fewer than half of them."""
_FACTORS = (2, 4, 8, 10, 16)
"""Columns that are read as one."""


def folded_columns(graph: Graph) -> Iterator[Alternative]:
    """Each convolution of a map with few channels, those of inputs first, with each factor."""
    for operator in sorted(graph.operators, key=lambda each: each.inputs[0] not in graph.inputs):
        if operator.op == "CONV2D":
            for factor in _FACTORS:
                label = f"{factor} columns of {operator.inputs[0]} as channels"
                if _is_foldable(graph, operator, factor):
                    yield Alternative(label, operator.output, partial(_fold, graph, operator, factor))


def _is_foldable(graph: Graph, operator: Operator, by: int) -> bool:
    stride = integers_of(operator.attributes, "stride")[1]
    _, _, width, channels = graph.tensors[operator.inputs[0]].shape
    return (
        chain_of(graph, operator) is not None and by % stride == width % by == 0 and by * channels <= _MOST_CHANNELS
        and width > 1 and integers_of(operator.attributes, "dilation")[1] == 1
        and graph.tensors[operator.output].shape[2] % (by // stride) == 0
    )  # fmt: skip


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
    assert chain is not None, "the convolution can be folded"
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


def wider_windows(graph: Graph) -> Iterator[Alternative]:
    """Each convolution of a map that is cut behind what its windows read: with zeros for the rest, the whole is read.

    Vela keeps a map that is cut row by row, and reads it slowly from outside.
    """
    for operator in graph.operators:
        cut = graph.producers.get(operator.inputs[0])
        if operator.op != "CONV2D" or cut is None or cut.op != "SLICE" or data_of(graph, cut.inputs[1]).any():
            continue
        pad, dilation = (integers_of(operator.attributes, name) for name in ("pad", "dilation"))
        if any(pad[1::2]) or dilation != (1, 1):
            continue
        whole, part = (graph.tensors[each.inputs[0]].shape for each in (cut, operator))
        if whole[0] == part[0] and whole[3] == part[3]:
            more = (whole[1] - part[1], whole[2] - part[2])
            label = f"all of {cut.inputs[0]} read for {operator.output}"
            yield Alternative(label, operator.output, partial(_widen, graph, operator, cut.inputs[0], more))


def _widen(graph: Graph, operator: Operator, x: str, more: tuple[int, int]) -> Graph:
    edit = Edit(graph)
    weights = np.pad(data_of(graph, operator.inputs[1]), ((0, 0), (0, more[0]), (0, more[1]), (0, 0)))
    inputs = (x, edit.constant(operator.inputs[1], weights), *operator.inputs[2:])
    edit.put(operator.output, replace(operator, inputs=inputs))
    return edit.finish()


_EXTENTS = (1, 2, 4, 8)
"""Rows or columns of the maps of other shapes that pointwise convolutions read."""


def other_widths(graph: Graph) -> Iterator[Alternative]:
    """Each pointwise convolution on a map with other numbers of rows and columns, of which Vela makes other blocks."""
    for operator in graph.operators:
        if operator.op != "CONV2D" or (chain := chain_of(graph, operator)) is None:
            continue
        attributes = operator.attributes
        _, height, width, _ = graph.tensors[operator.inputs[0]].shape
        if (
            graph.tensors[operator.inputs[1]].shape[1:3] != (1, 1) or any(integers_of(attributes, "pad"))
            or integers_of(attributes, "stride") != (1, 1)
        ):  # fmt: skip
            continue
        count = height * width
        extents = [each for each in _EXTENTS if count % each == 0]
        for rows in dict.fromkeys([*extents, *(count // each for each in extents)]):
            if rows != height:
                label = f"{operator.output} as {rows} rows of {count // rows}"
                make = partial(_reshape, graph, chain, (rows, count // rows))
                yield Alternative(label, operator.output, make)


def _reshape(graph: Graph, chain: Chain, sides: tuple[int, int]) -> Graph:
    edit = Edit(graph)
    x = chain.product.inputs[0]
    batch, _, _, channels = graph.tensors[x].shape
    shape = (batch, *sides, channels)
    view = edit.tensor(x, shape)
    operators = [Operator("RESHAPE", (x, edit.sizes(*shape)), view)]
    for operator in filter(None, (chain.product, chain.rescale, chain.clamp)):
        made = edit.tensor(operator.output, (batch, *sides, graph.tensors[operator.output].shape[3]))
        operators.append(replace(operator, inputs=(view, *operator.inputs[1:]), output=made))
        edit.put(operator.output)
        view = made
    sizes = edit.sizes(*graph.tensors[chain.result].shape)
    edit.put(chain.result, *operators, Operator("RESHAPE", (view, sizes), chain.result))
    return edit.finish()


def merged_products(graph: Graph) -> Iterator[Alternative]:
    groups: dict[tuple[object, ...], list[Chain]] = {}
    for operator in graph.operators:
        if operator.op == "CONV2D" and (chain := chain_of(graph, operator)) is not None:
            groups.setdefault(_shared(graph, chain), []).append(chain)
    for chains in groups.values():
        if len(chains) > 1:
            label = f"{len(chains)} convolutions of {chains[0].product.inputs[0]} as one"
            yield Alternative(label, chains[0].product.output, partial(_merge, graph, chains))


def _shared(graph: Graph, chain: Chain) -> tuple[object, ...]:
    """The parts in which products have to agree."""
    x, weights, _, *zeros = chain.product.inputs
    return (
        x, graph.tensors[weights].shape[1:], *zeros, *chain.product.attributes.items(), chain.rescale.inputs[3:],
        *((name, value) for name, value in chain.rescale.attributes.items() if name != "per_channel"),
        *(chain.clamp.attributes.items() if chain.clamp else ()),
    )  # fmt: skip


def _merge(graph: Graph, chains: Sequence[Chain]) -> Graph:
    edit, first = Edit(graph), chains[0]
    depths = [graph.tensors[each.result].shape[-1] for each in chains]
    shape = (*graph.tensors[first.result].shape[:-1], sum(depths))
    x, weights, bias, *zeros = first.product.inputs
    kernel = edit.constant(weights, np.concatenate([data_of(graph, each.product.inputs[1]) for each in chains]))
    biases = edit.constant(bias, _by_channel(graph, [each.product.inputs[2] for each in chains], depths))
    scales = [
        edit.constant(names[0], _by_channel(graph, names, depths))
        for names in ([chain.rescale.inputs[place] for chain in chains] for place in (1, 2))
    ]
    sums, rounded = (edit.tensor(each, shape) for each in (first.product.output, first.rescale.output))
    merged = [
        replace(first.product, inputs=(x, kernel, biases, *zeros), output=sums),
        replace(
            first.rescale, inputs=(sums, *scales, *first.rescale.inputs[3:]), output=rounded,
            attributes={**first.rescale.attributes, "per_channel": True},
        ),
    ]  # fmt: skip
    if first.clamp is not None:
        clamped = edit.tensor(first.clamp.output, shape)
        merged.append(replace(first.clamp, inputs=(rounded,), output=clamped))
        rounded = clamped
    start = 0
    for chain, depth in zip(chains, depths, strict=True):
        begin = edit.sizes(*(0 for _ in shape[:-1]), start)
        size = edit.sizes(*shape[:-1], depth)
        merged.append(Operator("SLICE", (rounded, begin, size), chain.result))
        start += depth
    for chain in chains:
        for operator in (chain.product, chain.rescale, *((chain.clamp,) if chain.clamp else ())):
            edit.put(operator.output)
    edit.put(first.product.output, *merged)
    for reader in graph.readers[first.result]:
        if reader.op == "CONCAT" and reader.attributes["axis"] == len(shape) - 1:
            joined = _with_whole(reader.inputs, tuple(each.result for each in chains), rounded)
            edit.put(reader.output, _concat(reader, joined))
    return edit.finish()


def _by_channel(graph: Graph, names: Iterable[str], depths: Iterable[int]) -> Array:
    return np.concatenate([
        np.broadcast_to(data_of(graph, name).reshape(-1), (depth,)) for name, depth in zip(names, depths, strict=True)
    ])  # fmt: skip


def _with_whole(operands: tuple[str, ...], parts: tuple[str, ...], whole: str) -> tuple[str, ...]:
    """The operands with one in place of its parts, if these stand beside each other."""
    for place in range(len(operands) - len(parts) + 1):
        if operands[place : place + len(parts)] == parts:
            return (*operands[:place], whole, *operands[place + len(parts) :])
    return operands


def _concat(operator: Operator, operands: tuple[str, ...]) -> Operator:
    return replace(operator, inputs=operands) if len(operands) > 1 else Operator("IDENTITY", operands, operator.output)
