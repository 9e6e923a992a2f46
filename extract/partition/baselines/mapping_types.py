"""How the elements of an operator's output come from those of its operands: DNNFusion's mapping types.

DNNFusion (Niu et al., PLDI 2021), section 3.1 and Table 2. The type is decided per pair of operand and output, from the
index map of the operand (ir/index_maps.py), and that of the operator is the most complex one. A constant operand does
not count: it is never fused as a producer. So some calls are simpler than Table 2 says of the operator (an Expand that
changes nothing), and a Resize that interpolates is Many-to-Many: each output element needs several of the input.
"""

from __future__ import annotations

from enum import IntEnum
from itertools import pairwise
from math import prod

from ....ir.graph import Operator, OperatorGraph
from ....ir.index_maps import (
    Index,
    IndexMaps,
    OperandMap,
    Reduction,
    Remainder,
    Resized,
    Shape,
    Unknown,
    loops_of,
)
from ....ir.operators import SCHEMAS
from ....ir.operators.graph_maps import index_maps_of


class MappingType(IntEnum):
    """In DNNFusion's order of complexity (its footnote 1)."""

    ONE_TO_ONE = 0
    REORGANIZE = 1
    SHUFFLE = 2
    ONE_TO_MANY = 3
    MANY_TO_MANY = 4


def mapping_type(operator: Operator, graph: OperatorGraph) -> MappingType | None:
    """The type of an operator of `graph`; None if it is opaque or unknown, so that nothing may be fused with it."""
    types = _operand_types(operator, graph)
    if types is None:
        return None
    varying = [p for p in types if (value := operator.inputs[p]) is not None and not graph.values[value].is_constant]
    return max((types[p] for p in varying or types), default=MappingType.ONE_TO_ONE)


def mapping_types(graph: OperatorGraph) -> tuple[MappingType | None, ...]:
    """The type of each operator."""
    return tuple(mapping_type(operator, graph) for operator in graph.operators)


def edge_mapping_type(graph: OperatorGraph, value: int, consumer: int) -> MappingType | None:
    """How operator number `consumer` maps the elements of value number `value`; None as for `mapping_type`.

    Raises ValueError if the operator does not read the value.
    """
    operator = graph.operators[consumer]
    if value not in operator.inputs:
        raise ValueError(f"{operator.name} does not read {graph.values[value].name}")
    types = _operand_types(operator, graph)
    if types is None:
        return None
    return max((t for p, t in types.items() if operator.inputs[p] == value), default=MappingType.ONE_TO_ONE)


def _operand_types(operator: Operator, graph: OperatorGraph) -> dict[int, MappingType] | None:
    """The type of each operand of which elements are read, by position; None if there is none, or nothing is known.

    If shapes are unknown, operators that are element-wise or only move data may copy elements, others combine them.
    """
    schema = SCHEMAS.get(operator.op)
    if schema is None or schema.index_maps is None or operator.is_opaque:
        return None
    maps = index_maps_of(graph, operator)
    given = [position for position, value in enumerate(operator.inputs) if value is not None]
    if maps is None:
        moved = schema.is_elementwise or schema.category == "layout"
        worst = MappingType.ONE_TO_MANY if moved else MappingType.MANY_TO_MANY
        return dict.fromkeys(given, MappingType.ONE_TO_ONE if schema.category == "elementwise.unary" else worst)
    types: dict[int, MappingType] = {}
    for position in given:
        own = maps.operands[position] if position < len(maps.operands) else None
        if own is None:
            continue
        type_ = _map_type(own, maps.shapes[position] or (), maps)
        computes = schema.category not in ("layout", "reduction")
        types[position] = MappingType.ONE_TO_ONE if computes and type_ is MappingType.REORGANIZE else type_
        others = (maps.operands[p] for p in given if operator.inputs[p] == operator.inputs[position])
        if any(other is not None and other != own for other in others):  # a value that is joined to itself
            types[position] = max(types[position], MappingType.ONE_TO_MANY)
    return types or None


def _map_type(operand: OperandMap, shape: Shape, maps: IndexMaps) -> MappingType:
    loops = {loop for index in operand for loop in loops_of(index) if loop.extent > 1}
    if any(isinstance(loop, Reduction) for loop in loops) or any(_taps(index) > 1 for index in operand):
        return MappingType.MANY_TO_MANY
    numbers = {loop.number for loop in loops}
    is_repeated = any(axis.extent > 1 and axis.number not in numbers for axis in maps.result)
    result = tuple(axis.extent for axis in maps.result)
    is_tiled = prod(shape) < prod(result) and any(isinstance(index, Remainder) for index in operand)
    if is_repeated or is_tiled or any(_repeats(index) for index in operand):
        return MappingType.ONE_TO_MANY
    if any(isinstance(index, Unknown) and not index.repeats for index in operand):
        return MappingType.SHUFFLE
    if prod(shape) != prod(result):  # some elements are left out or added, the others keep their places
        return MappingType.ONE_TO_ONE
    if not _keeps_order(operand):
        return MappingType.SHUFFLE
    return MappingType.ONE_TO_ONE if shape == result else MappingType.REORGANIZE


def _taps(index: Index) -> int:
    return index.taps if isinstance(index, Resized) else 1


def _repeats(index: Index) -> bool:
    """Whether several elements of the result read one position: a nearest Resize, indices that are data."""
    if isinstance(index, Unknown):
        return index.repeats and any(axis.extent > 1 for axis in index.axes)
    return isinstance(index, Resized)


def _keeps_order(operand: OperandMap) -> bool:
    """Whether the elements are read in row-major order: each axis by axes of the result behind those of the one before,
    or by another digit of the same ones."""
    sets = [{loop.number for loop in loops_of(index) if loop.extent > 1} for index in operand]
    used = [numbers for numbers in sets if numbers]
    return all(first == second or max(first) < min(second) for first, second in pairwise(used))
