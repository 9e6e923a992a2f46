"""Other graphs of TOSA with the same results, bit for bit, among which Vela's estimate chooses.

Each differs in one place:

- Convolutions read several columns as channels, through a view of a map whose channels lie last: the NPU computes with
  8 or 16 channels at once, and reads pixels of few channels one by one.
- Sums, means and largest numbers are taken in other ways, with the same integers as results.
- Convolutions of one map with the same window are one, whose result is sliced, or was joined anyway.
- Operands come in another order: Vela runs first what makes the first one. The channels of a concatenation then lie in
  another order, and its readers expect them there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Any

import numpy as np

from .tosa.graph import Array, Attribute, ElementType, Graph, Operator, Tensor


@dataclass(frozen=True)
class Alternative:
    """Another graph, and in words how it differs."""

    label: str
    graph: Graph


class Edit:
    """A graph with new tensors, and with operators in place of others."""

    def __init__(self, graph: Graph) -> None:
        self._graph, self._tensors = graph, dict(graph.tensors)
        self._instead: dict[str, tuple[Operator, ...]] = {}

    def tensor(self, like: str, shape: Sequence[int], data: Array | None = None) -> str:
        """The name of a new tensor of the type of another."""
        number, name = 2, f"{like}.2"
        while name in self._tensors:
            number += 1
            name = f"{like}.{number}"
        dtype = self._graph.tensors[like].dtype
        made = None if data is None else np.ascontiguousarray(data, np.int64 if dtype == "shape" else np.dtype(dtype))
        self._tensors[name] = Tensor(name, dtype, tuple(shape), made)
        return name

    def constant(self, like: str, data: Array) -> str:
        """The name of a new constant of the type of another."""
        return self.tensor(like, data.shape, data)

    def new(self, dtype: ElementType, data: Any) -> str:
        """The name of a new constant of a type."""
        number = len(self._tensors)
        while (name := f"constant.{number}") in self._tensors:
            number += 1
        array = np.ascontiguousarray(data, np.int64 if dtype == "shape" else np.dtype(dtype))
        self._tensors[name] = Tensor(name, dtype, array.shape, array)
        return name

    def wide(self, shape: Sequence[int]) -> str:
        """The name of a new tensor of 32 bits."""
        number = len(self._tensors)
        while (name := f"wide.{number}") in self._tensors:
            number += 1
        self._tensors[name] = Tensor(name, "int32", tuple(shape))
        return name

    def sizes(self, *sizes: int) -> str:
        """The name of a new list of sizes."""
        return self.new("shape", sizes)

    def put(self, instead_of: str, *operators: Operator) -> None:
        """Operators in place of the one that makes a tensor."""
        self._instead[instead_of] = operators

    def finish(self) -> Graph:
        """The whole graph."""
        operators = [
            each for operator in self._graph.operators for each in self._instead.get(operator.output, (operator,))
        ]
        return replace(self._graph, operators=tuple(operators), tensors=self._tensors).without_unread()


def data_of(graph: Graph, name: str) -> Array:
    """The elements of a constant."""
    data = graph.tensors[name].data
    assert data is not None, "the operand is a constant"
    return data


def integers_of(attributes: Mapping[str, Attribute], name: str) -> tuple[int, ...]:
    """An attribute that is a list of integers."""
    value = attributes[name]
    assert isinstance(value, tuple)
    return value


@dataclass(frozen=True)
class Chain:
    """A convolution, its RESCALE and, if it has one, its CLAMP, each read by the next one alone."""

    product: Operator
    rescale: Operator
    clamp: Operator | None

    @property
    def result(self) -> str:
        """The tensor at its end."""
        return (self.clamp or self.rescale).output


def chain_of(graph: Graph, product: Operator) -> Chain | None:
    """The chain that begins with a convolution; None if its sums are read by anything but one RESCALE."""
    rescale = only_reader(graph, product.output)
    if rescale is None or rescale.op != "RESCALE":
        return None
    clamp = only_reader(graph, rescale.output)
    return Chain(product, rescale, clamp if clamp is not None and clamp.op == "CLAMP" else None)


def only_reader(graph: Graph, name: str) -> Operator | None:
    """The one operator that reads a tensor; None for several, and for a result of the graph."""
    readers = graph.readers[name]
    return readers[0] if len(readers) == 1 and name not in graph.outputs else None


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


_MOST_ORDERS = 6
"""Orders of one concatenation that are tried: all orders of three operands, the one that is there among them."""
_CHANNELWISE = frozenset({"MAX_POOL2D", "AVG_POOL2D", "CLAMP", "TABLE", "RESCALE"})
"""Operators that compute each channel by itself, besides those whose constants have channels."""


def other_orders(graph: Graph) -> Iterator[Alternative]:
    for operator in graph.operators:
        rank = len(graph.tensors[operator.output].shape)
        if operator.op != "CONCAT" or operator.attributes["axis"] != rank - 1:
            continue
        places = range(len(operator.inputs))
        orders = [tuple(places)[::-1], *permutations(places)] if len(places) <= 3 else [
            tuple(places)[::-1], *((*places[n:], *places[:n]) for n in places[1:])
        ]  # fmt: skip
        for order in dict.fromkeys(orders[:_MOST_ORDERS]):
            if order != tuple(places) and (made := _reordered(graph, operator, order)) is not None:
                yield Alternative(f"operands of {operator.output} in the order {', '.join(map(str, order))}", made)


def _reordered(graph: Graph, operator: Operator, order: Sequence[int]) -> Graph | None:
    """With the operands of a concatenation in another order; None if a reader of its channels cannot follow."""
    depths = [graph.tensors[name].shape[-1] for name in operator.inputs]
    starts = np.cumsum([0, *depths])
    channels = np.concatenate([np.arange(starts[place], starts[place + 1]) for place in order])
    edit = Edit(graph)
    edit.put(operator.output, replace(operator, inputs=tuple(operator.inputs[place] for place in order)))
    waiting, seen = [operator.output], set()
    while waiting:
        name = waiting.pop()
        if name in graph.outputs:
            return None
        for reader in graph.readers[name]:
            changed = _follow(graph, edit, reader, name, channels)
            if changed is None or reader.output in seen:
                return None
            seen.add(reader.output)
            edit.put(reader.output, changed)
            if reader.op not in ("CONV2D",):
                waiting.append(reader.output)
    return edit.finish()


def _follow(graph: Graph, edit: Edit, reader: Operator, name: str, channels: Array) -> Operator | None:
    """A reader of channels that lie in another order; None if it cannot."""
    if reader.inputs[0] != name or name in reader.inputs[1:]:
        return None
    if reader.op == "CONV2D":
        weights = edit.constant(reader.inputs[1], data_of(graph, reader.inputs[1])[..., channels])
        return replace(reader, inputs=(name, weights, *reader.inputs[2:]))
    if reader.op == "RESCALE" and reader.attributes["per_channel"]:
        scales = (edit.constant(each, data_of(graph, each)[channels]) for each in reader.inputs[1:3])
        return replace(reader, inputs=(name, *scales, *reader.inputs[3:]))
    return reader if reader.op in _CHANNELWISE else None


def swapped_sums(graph: Graph) -> Iterator[Alternative]:
    sums = [operator for operator in graph.operators if operator.op == "ADD"]
    for chosen in ([sums] if len(sums) > 1 else []) + [[each] for each in sums]:
        edit = Edit(graph)
        for operator in chosen:
            edit.put(operator.output, replace(operator, inputs=operator.inputs[::-1]))
        what = chosen[0].output if len(chosen) == 1 else f"{len(chosen)} sums"
        yield Alternative(f"operands of {what} swapped", edit.finish())


def merged_products(graph: Graph) -> Iterator[Alternative]:
    groups: dict[tuple[object, ...], list[Chain]] = {}
    for operator in graph.operators:
        if operator.op == "CONV2D" and (chain := chain_of(graph, operator)) is not None:
            groups.setdefault(_shared(graph, chain), []).append(chain)
    for chains in groups.values():
        if len(chains) > 1:
            label = f"{len(chains)} convolutions of {chains[0].product.inputs[0]} as one"
            yield Alternative(label, _merge(graph, chains))


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


def alternatives(graph: Graph) -> Iterator[Alternative]:
    """Graphs that differ from this one in one place each, those that helped most networks first."""
    for kind in (folded_columns, other_sums, merged_products, other_orders, swapped_sums):
        yield from kind(graph)
