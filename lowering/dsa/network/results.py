"""Layers with several results of different shapes, which one loop nest cannot make piece by piece."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from .graph import Network
from .subgraphs import Layer, sub_graph


def with_results_apart(network: Network, layers: Iterable[Layer], room: int) -> Iterator[Layer]:
    """The layers, those with large results of other axes than the primary one cut: what these share first, then a layer
    for each.

    Tiles are pieces of the primary result. The first one of a core makes all of a result of other axes, which leaves
    little for the other tiles if it takes more than `room` bytes.
    """
    for layer in layers:
        results = sub_graph(network, [layer]).outputs
        shapes = {value: network.shapes[value] for value in results}
        others = [value for value in results if shapes[value] != shapes[results[-1]]]
        if sum(map(network.bytes, others)) <= room:
            yield layer
            continue
        makers = {value: _needed(network, value, layer) for value in results}
        shared = {each for each in layer if sum(each in maker for maker in makers.values()) > 1}
        for piece in (shared, *(maker - shared for maker in makers.values())):
            if piece:
                yield tuple(sorted(piece))


def _needed(network: Network, value: int, layer: Layer) -> set[int]:
    """The operators of a layer that a value of it needs."""
    needed: set[int] = set()
    queue = [network.graph.values[value].producer]
    while queue:
        index = queue.pop()
        if index is not None and index in layer and index not in needed:
            needed.add(index)
            queue += network.graph.predecessors[index]
    return needed
