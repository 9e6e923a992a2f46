"""A tile as a graph of its own: the operators of a layer at the size of the parts that they make.

Evaluated on the tile's operands the graph gives exactly the elements that the layer gives there. What an operator
reads beyond its tensor's border stays padding; where the part at hand ends inside, there is none.
"""

from __future__ import annotations

from dataclasses import dataclass

from ....ir.graph import OperatorGraph
from ..network.boxes import Box, shape_of
from ..network.graph import Network
from .local_builder import LocalBuilder, LocalPart
from .local_rules import local_parts
from .local_site import LocalSite


@dataclass(frozen=True)
class Tile:
    """Operators of one layer, ascending, with the parts of values at hand and those that they make.

    The parts at hand are the operands in order, constants too; they may be larger than the operators need.
    """

    members: tuple[int, ...]
    inputs: tuple[tuple[int, Box], ...]
    outputs: tuple[tuple[int, Box], ...]


def local_graph(network: Network, tile: Tile) -> OperatorGraph:
    """The operators of a tile on its parts of values.

    Values come in this order: the tile's inputs (``i0``, ...), its outputs (``o0``, ...), others. Raises DsaError where
    an input of the tile is less than is needed.
    """
    builder = LocalBuilder()
    parts: dict[int, LocalPart] = {}
    for value, box in tile.inputs:
        operand = network.graph.values[value]
        dtype = operand.type.dtype if operand.type is not None else "float32"
        parts[value] = LocalPart(builder.input(shape_of(box), dtype, is_constant=operand.is_constant), box)
    needed = network.needs(tile.members, dict(tile.outputs), at_hand=parts)
    for index in tile.members:
        for number, result in enumerate(network.graph.operators[index].outputs):
            if result not in needed or result in parts:
                continue
            boxes = network.operands(index, result, needed[result])
            new = local_parts(LocalSite(network, builder, parts, index, number, needed[result], boxes))
            for value, part in new.items():
                if value in needed and value not in parts:
                    parts[value] = LocalPart(builder.take(part, needed[value]), needed[value])
    results = [builder.take(parts[value], box) for value, box in tile.outputs]
    return builder.graph(len(tile.inputs), results)
