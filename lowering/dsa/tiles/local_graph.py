"""A tile as a graph of its own: the operators of a layer at the size of the parts that they make.

Evaluated on the tile's operands the graph gives exactly the elements that the layer gives there. What an operator
reads beyond its tensor's border stays padding; where the part at hand ends inside, there is none.
"""

from __future__ import annotations

from dataclasses import dataclass

from ....ir.graph import OperatorGraph
from ..network.boxes import Box
from ..network.graph import Network
from .local_builder import LocalBuilder, Part
from .local_rules import local_parts
from .local_site import LocalSite


@dataclass(frozen=True)
class Tile:
    """Operators of one layer (ascending), the parts of values at hand (operands in order, constants too; each contains
    what is needed, may be larger), and the parts of values made."""

    members: tuple[int, ...]
    inputs: tuple[tuple[int, Box], ...]
    outputs: tuple[tuple[int, Box], ...]


def local_graph(network: Network, tile: Tile) -> OperatorGraph:
    """The operators of a tile on its parts of values.

    Values come in this order: the tile's inputs (``i0``, ...), its outputs (``o0``, ...), others. Raises DsaError where
    an input of the tile is less than is needed.
    """
    builder = LocalBuilder()
    parts: dict[int, Part] = {}
    for value, box in tile.inputs:
        found = network.graph.values[value]
        dtype = found.type.dtype if found.type is not None else "float32"
        shape = tuple(stop - start for start, stop in box)
        parts[value] = Part(builder.input(shape, dtype, is_constant=found.is_constant), box)
    needed = network.needs(tile.members, dict(tile.outputs), at_hand=parts)
    for index in tile.members:
        _add(network, builder, parts, index, needed)
    results = [builder.take(parts[value], box) for value, box in tile.outputs]
    return builder.graph(len(tile.inputs), results)


def _add(network: Network, builder: LocalBuilder, parts: dict[int, Part], index: int, needed: dict[int, Box]) -> None:
    """An operator of the layer, for each of its results that is needed and not at hand."""
    operator = network.graph.operators[index]
    for number, result in enumerate(operator.outputs):
        if result not in needed or result in parts:
            continue
        boxes = network.operands(index, result, needed[result])
        made = local_parts(LocalSite(network, builder, parts, index, number, needed[result], boxes))
        for value, part in made.items():
            if value in needed and value not in parts:
                parts[value] = Part(builder.take(part, needed[value]), needed[value])
