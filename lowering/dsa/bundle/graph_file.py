"""Operator graphs as JSON data and back: of a network, and of its tiles. Operators and values are JSON arrays."""

from __future__ import annotations

from typing import Any

import msgspec

from ....ir.graph import Operator, OperatorGraph, Value
from ....ir.types import TensorType


class _OperatorRow(msgspec.Struct, array_like=True):
    name: str
    op: str
    attributes: dict[str, Any]
    inputs: tuple[int | None, ...]
    outputs: tuple[int, ...]
    is_opaque: bool


class _ValueRow(msgspec.Struct, array_like=True):
    name: str
    type: tuple[str, tuple[int | str, ...] | None] | None
    producer: int | None
    is_constant: bool
    is_output: bool


class GraphFile(msgspec.Struct):
    """An operator graph as a file holds it."""

    operators: list[_OperatorRow]
    values: list[_ValueRow]


def graph_data(graph: OperatorGraph) -> dict[str, Any]:
    """Lists, numbers and texts; `graph_of` reads them back."""
    return {
        "operators": [
            [o.name, o.op, dict(o.attributes), list(o.inputs), list(o.outputs), o.is_opaque] for o in graph.operators
        ],
        "values": [
            [v.name, v.type and [v.type.dtype, v.type.shape], v.producer, v.is_constant, v.is_output]
            for v in graph.values
        ],
    }


def graph_of(data: GraphFile | dict[str, Any]) -> OperatorGraph:
    """The graph that `graph_data` wrote. Raises msgspec.ValidationError, which names the place, for other data."""
    file = data if isinstance(data, GraphFile) else msgspec.convert(data, GraphFile)
    operators = (
        Operator(
            row.name, row.op, {name: _tuples(each) for name, each in row.attributes.items()}, row.inputs, row.outputs,
            row.is_opaque,
        )
        for row in file.operators
    )  # fmt: skip
    values = (
        Value(row.name, TensorType(*row.type) if row.type else None, row.producer, row.is_constant, row.is_output)
        for row in file.values
    )
    return OperatorGraph(tuple(operators), tuple(values))


def _tuples(attribute: Any) -> Any:
    """An attribute with tuples where JSON has lists."""
    return tuple(map(_tuples, attribute)) if isinstance(attribute, list) else attribute
