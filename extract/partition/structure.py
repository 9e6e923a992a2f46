"""Everything about some operators of a graph on which their costs depend."""

from __future__ import annotations

from collections.abc import Hashable

from ...ir.graph import OperatorGraph


def structure(graph: OperatorGraph, operators: tuple[int, ...]) -> Hashable:
    """Everything about operators, in the order given, but their names: equal if costs of any of their subsets are.

    Per operator its type, attributes, operands and results, values by their first appearance in the list. An opaque
    operator stands for itself alone, for its function is not known. Unlike the canonical key this keeps positions, so
    an answer for one list of operators can be carried over to another.
    """
    inside = set(operators)
    place: dict[int, int] = {}
    rows = []
    for index in operators:
        operator = graph.operators[index]
        values = [*operator.inputs, *operator.outputs]
        used = tuple(None if value is None else place.setdefault(value, len(place)) for value in values)
        attributes = tuple(sorted(operator.attributes.items()))
        alone = index if operator.is_opaque else None
        rows.append((operator.op, alone, attributes, len(operator.inputs), used))
    return tuple(rows), tuple(_outside(graph, value, inside) for value in place)


def _outside(graph: OperatorGraph, index: int, inside: set[int]) -> Hashable:
    """For a value: its type, whether it is constant, made outside, and read outside."""
    value = graph.values[index]
    read = value.is_output or not inside.issuperset(graph.consumers[index])
    return value.type, value.is_constant, value.producer in inside, read
