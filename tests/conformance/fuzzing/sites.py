"""The places in a model that are damaged, and the values put there."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto

NAMES = (
    "", " ", "x" * 70_000, "\x1b[31mred\x1b[0m\x1b]0;title\x07", "\u202egnp.exe\u202c", "a\nb", "a\0b",
    "../../etc/passwd", "%s%n{0}", '"quoted\'', "(Add a b)", "🦆\u200b", "-o", "y", "x", "w", "NaN", "::", "\u0001",
)  # fmt: skip
INTEGERS = (-(2**63), -(2**31) - 1, -2, -1, 0, 1, 2, 3, 7, 1000, 2**31 - 1, 2**31, 2**40, 2**62, 2**63 - 1)
FLOATS = (math.nan, math.inf, -math.inf, 0.0, -0.0, 1e-45, -1.0, 1e38, 3.5)
SIZES = (0, 1, 2, 3, 5, 1000, 2**16, 2**31, 2**40, 2**62)
TYPES = tuple(TensorProto.DataType.values())


def graphs_of(graph: GraphProto) -> Iterator[GraphProto]:
    """The graph and all those inside it."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            for body in (attribute.g, *attribute.graphs):
                if body.node:
                    yield from graphs_of(body)


def nodes_of(model: ModelProto) -> list[NodeProto]:
    inner = [node for graph in graphs_of(model.graph) for node in graph.node]
    return inner + [node for function in model.functions for node in function.node]


def attributes_of(model: ModelProto) -> list[AttributeProto]:
    return [attribute for node in nodes_of(model) for attribute in node.attribute]


def tensors_of(model: ModelProto) -> list[TensorProto]:
    found = [tensor for graph in graphs_of(model.graph) for tensor in graph.initializer]
    found += [part for sparse in model.graph.sparse_initializer for part in (sparse.values, sparse.indices)]
    return found + [a.t for a in attributes_of(model) if a.type == AttributeProto.TENSOR]


def values_of(model: ModelProto) -> list[ValueInfoProto]:
    return [v for graph in graphs_of(model.graph) for v in (*graph.input, *graph.output, *graph.value_info)]


def chosen(items: Sequence[Any], random: Random) -> Any:
    """One of the items; a throw-away node where there are none, so that nothing changes."""
    return random.choice(items) if items else None
