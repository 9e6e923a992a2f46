"""Operands in other orders, and integers that are copied or scaled in other ways."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import permutations
from math import prod

import numpy as np

from ..tosa.evaluation import evaluate_operator
from ..tosa.graph import Array, Attribute, Graph, Operator
from .convolutions import folded_columns
from .edit import Alternative, Edit, data_of

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
            if order != tuple(places):
                label = f"operands of {operator.output} in the order {', '.join(map(str, order))}"
                yield Alternative(label, operator.output, partial(_reordered, graph, operator, order))


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
        what = chosen[0].output if len(chosen) == 1 else f"{len(chosen)} sums"
        yield Alternative(f"operands of {what} swapped", what, partial(_swap, graph, chosen))


def _swap(graph: Graph, sums: Sequence[Operator]) -> Graph:
    edit = Edit(graph)
    for operator in sums:
        edit.put(operator.output, replace(operator, inputs=operator.inputs[::-1]))
    return edit.finish()


COPIES: Mapping[str, Mapping[str, Attribute]] = {
    "CLAMP": {"min_val": -128, "max_val": 127, "nan_mode": "PROPAGATE"},
    "MAX_POOL2D": {"kernel": (1, 1), "stride": (1, 1), "pad": (0, 0, 0, 0), "nan_mode": "PROPAGATE"},
}
"""Operators that change nothing. Vela runs a pooling row by row with the convolution behind it, but not of a view."""
_VIEWS = frozenset({"RESHAPE", "SLICE", "IDENTITY"})
"""Operators whose results are views of their operands, if Vela can help it."""
_DEPTHS = (16, 32, 64, 128)
"""Channels of the maps as which inputs are copied; others if none of these divides the number of elements."""


def copied_inputs(graph: Graph) -> Iterator[Alternative]:
    """Each input copied as a map of some depth, and convolutions of the copy with columns as channels."""
    for name in graph.inputs:
        shape, readers = graph.tensors[name].shape, graph.readers[name]
        count = prod(shape)
        if not readers or graph.tensors[name].dtype != "int8" or any(_is_copy(graph, each) for each in readers):
            continue
        depths = [each for each in _DEPTHS if count % each == 0]
        depths = depths or [max(each for each in range(1, _DEPTHS[-1]) if count % each == 0)]
        row = prod(shape[2:]) if len(shape) == 4 else 1
        views = [(*shape[:2], row // each, each) if row % each == 0 else (1, 1, count // each, each) for each in depths]
        ways = [("MAX_POOL2D", shape)] if len(shape) == 4 else []
        for op, view in dict.fromkeys([*ways, *(("CLAMP", view) for view in (shape, *views))]):
            label = f"{name} copied by {op} as {' x '.join(map(str, view))}"
            copied = _copy(graph, name, op, view)
            yield Alternative(label, readers[0].output, lambda copied=copied: copied)  # type: ignore[misc]
            for folded in folded_columns(copied):
                if folded.place in {each.output for each in readers}:
                    yield replace(folded, label=f"{label}, {folded.label}")


def copied_maps(graph: Graph) -> Iterator[Alternative]:
    """Each map between operators copied for all that read it, or for one of several.

    A copy of a map in slow memory may lie in fast memory, and its layout need not be the one that other readers want.
    """
    for operator in graph.operators:
        name, readers = operator.output, graph.readers[operator.output]
        if graph.tensors[name].dtype != "int8" or not readers or operator.op in _VIEWS:
            continue
        for chosen in ([readers] if len(readers) > 1 else []) + [[each] for each in readers]:
            if any(dict(each.attributes) == COPIES.get(each.op) for each in (operator, *chosen)):
                continue
            whom = chosen[0].output if len(chosen) == 1 else f"{len(chosen)} readers"
            yield Alternative(f"{name} copied for {whom}", chosen[0].output, partial(_copy_map, graph, name, chosen))


def _copy_map(graph: Graph, name: str, readers: Sequence[Operator]) -> Graph:
    edit = Edit(graph)
    copied = edit.tensor(name, graph.tensors[name].shape)
    return _read_instead(edit, readers, name, copied, [Operator("CLAMP", (name,), copied, COPIES["CLAMP"])])


def _read_instead(
    edit: Edit, readers: Sequence[Operator], name: str, copied: str, operators: Sequence[Operator]
) -> Graph:
    """The graph with operators in front of the first reader that make a copy, which all of these read."""
    for reader in readers:
        inputs = tuple(copied if each == name else each for each in reader.inputs)
        edit.put(reader.output, *operators, replace(reader, inputs=inputs))
        operators = ()
    return edit.finish()


def _is_copy(graph: Graph, reader: Operator) -> bool:
    """Whether an input is copied already, by an operator behind a view."""
    return any(dict(each.attributes) == COPIES.get(each.op) for each in graph.readers[reader.output])


def _copy(graph: Graph, name: str, op: str, view: Sequence[int]) -> Graph:
    edit = Edit(graph)
    shape = graph.tensors[name].shape
    source, copied, whole = (edit.tensor(name, each) for each in (view, view, shape))
    operators = [
        Operator("RESHAPE", (name, edit.sizes(*view)), source),
        Operator(op, (source,), copied, COPIES[op]),
        Operator("RESHAPE", (copied, edit.sizes(*shape)), whole),
    ]
    return _read_instead(edit, graph.readers[name], name, whole, operators)


def tables_for_scales(graph: Graph) -> Iterator[Alternative]:
    """Each RESCALE of integers of 8 bits to others as a TABLE."""
    for operator in graph.operators:
        dtypes = [graph.tensors[name].dtype for name in (operator.inputs[0], operator.output)]
        if operator.op == "RESCALE" and dtypes == ["int8", "int8"] and not operator.attributes["per_channel"]:
            yield Alternative(f"{operator.output} by a table", operator.output, partial(_by_table, graph, operator))


def _by_table(graph: Graph, operator: Operator) -> Graph:
    edit = Edit(graph)
    integers = np.arange(-128, 128, dtype=np.int8)
    table = evaluate_operator(operator, [integers, *(data_of(graph, name) for name in operator.inputs[1:])])
    edit.put(operator.output, Operator("TABLE", (operator.inputs[0], edit.new("int8", table)), operator.output))
    return edit.finish()
