"""Layers as the accelerator runs them: looking rows up in a table is DMA's work, so it is a layer of its own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ....ir.graph import OperatorGraph
from ..network.subgraphs import Layer
from .core_parts import is_lookup


def with_lookups_apart(graph: OperatorGraph, layers: Iterable[Layer]) -> tuple[Layer, ...]:
    """The layers, each cut around the look-ups in it."""
    return tuple(piece for layer in layers for piece in _pieces(graph, sorted(layer)))


def _pieces(graph: OperatorGraph, layer: list[int]) -> Iterator[Layer]:
    """What a look-up needs, itself, and then the rest."""
    for index in (each for each in layer if is_lookup(graph, each)):
        before = _before(graph, index, layer)
        if before:
            yield tuple(before)
        yield (index,)
        layer = [each for each in layer if each not in before and each != index]
    if layer:
        yield tuple(layer)


def _before(graph: OperatorGraph, index: int, layer: list[int]) -> list[int]:
    found: set[int] = set()
    queue = [index]
    while queue:
        sources = set(graph.predecessors[queue.pop()]) & set(layer) - found
        found |= sources
        queue += sources
    return sorted(found)
