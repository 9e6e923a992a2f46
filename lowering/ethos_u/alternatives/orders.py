"""Operands in another order: Vela runs first what makes the first one.

The channels of a concatenation then lie in another order, and its readers expect them there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import permutations

import numpy as np

from ..tosa.graph import Array, Graph, Operator
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
