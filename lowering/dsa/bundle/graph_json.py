"""Operator graphs as plain data for JSON and back: of a network, and of its tiles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ....ir.graph import Operator, OperatorGraph, Value
from ....ir.types import TensorType


def graph_data(graph: OperatorGraph) -> dict[str, Any]:
    """Lists, numbers and texts; `graph_of` reads them back."""
    return {
        "operators": [
            [o.name, o.op, dict(o.attributes), list(o.inputs), list(o.outputs), o.is_opaque] for o in graph.operators
        ],
        "values": [[v.name, _type_data(v.type), v.producer, v.is_constant, v.is_output] for v in graph.values],
    }


def graph_of(data: Mapping[str, Any]) -> OperatorGraph:
    """The graph that `graph_data` wrote. Raises TypeError, ValueError or KeyError for other data."""
    return OperatorGraph(
        tuple(
            Operator(name, op, {key: _plain(value) for key, value in attributes.items()}, tuple(inputs),
                     tuple(outputs), is_opaque)
            for name, op, attributes, inputs, outputs, is_opaque in data["operators"]
        ),
        tuple(
            Value(name, _type_of(known), producer, is_constant, is_output)
            for name, known, producer, is_constant, is_output in data["values"]
        ),
    )  # fmt: skip


def _type_data(known: TensorType | None) -> list[Any] | None:
    return None if known is None else [known.dtype, None if known.shape is None else list(known.shape)]


def _type_of(data: Sequence[Any] | None) -> TensorType | None:
    if data is None:
        return None
    dtype, shape = data
    return TensorType(dtype, None if shape is None else tuple(shape))


def _plain(value: Any) -> Any:
    """Attributes hold tuples where JSON has lists."""
    return tuple(map(_plain, value)) if isinstance(value, list) else value
