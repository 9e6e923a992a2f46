"""Lookups of rows in constant tables: DMA does that work, so each lookup is a layer of its own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ....ir.graph import OperatorGraph
from .boxes import Shape
from .graph import Network
from .subgraphs import Layer


def is_lookup(graph: OperatorGraph, index: int) -> bool:
    """Whether an operator looks rows up in a constant table, by indices that are not constant."""
    operator = graph.operators[index]
    if operator.op != "Gather" or operator.is_opaque or operator.attributes.get("axis", 0) != 0:
        return False
    table, indices = operator.inputs[:2]
    if table is None or indices is None:
        return False
    return graph.values[table].is_constant and not graph.values[indices].is_constant


def indexed_table(network: Network, layer: Layer) -> tuple[int, Shape] | None:
    """The constant table, and its shape, that a layer looks rows up in: DMA's work."""
    if len(layer) != 1 or not is_lookup(network.graph, layer[0]):
        return None
    table = network.graph.operators[layer[0]].inputs[0]
    assert table is not None
    return table, network.shapes[table]


def looked_up(network: Network, layers: Iterable[Layer]) -> frozenset[int]:
    """The constant tables that layers look rows up in: a few of their rows are read."""
    found = (indexed_table(network, layer) for layer in layers)
    return frozenset(table[0] for table in found if table is not None)


def with_lookups_apart(graph: OperatorGraph, layers: Iterable[Layer]) -> tuple[Layer, ...]:
    """The layers, each cut around the look-ups in it."""
    return tuple(piece for layer in layers for piece in _pieces(graph, sorted(layer)))


def _pieces(graph: OperatorGraph, layer: list[int]) -> Iterator[Layer]:
    """The operators that a look-up needs, itself, and then the rest."""
    for index in (each for each in layer if is_lookup(graph, each)):
        before = _before(graph, index, layer)
        if before:
            yield tuple(before)
        yield (index,)
        layer = [each for each in layer if each not in before and each != index]
    if layer:
        yield tuple(layer)


def _before(graph: OperatorGraph, index: int, layer: list[int]) -> list[int]:
    """The operators of a layer that one of them waits for."""
    before: set[int] = set()
    queue = [index]
    while queue:
        sources = set(graph.predecessors[queue.pop()]) & set(layer) - before
        before |= sources
        queue += sources
    return sorted(before)
