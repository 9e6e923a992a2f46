"""The order of nodes: none reads a value that a later one makes.

ONNX demands it, but ONNX Runtime takes models whose nodes are in any order, and tools beside it write them.
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from ...support.errors import ModelError
from .wellformed import node_title


def body_graphs(node: ir.Node) -> Iterator[ir.Graph]:
    """The node's own subgraphs, not those nested in them."""
    for attribute in node.attributes.values():
        if attribute.type == ir.AttributeType.GRAPH:
            yield attribute.as_graph()
        elif attribute.type == ir.AttributeType.GRAPHS:
            yield from attribute.as_graphs()


def sort_nodes(model: ir.Model, label: str) -> bool:
    """Sort the nodes of all graphs and functions of a model, in place; returns whether any was in the wrong place.

    Raises ModelError for nodes that read each other's results in a circle.
    """
    scopes: list[ir.Graph | ir.Function] = [model.graph, *model.functions.values()]
    unsorted = [scope for scope in scopes if not _is_sorted(scope, set())]
    for scope in unsorted:
        try:
            scope.sort()
        except ValueError:
            raise ModelError(f"{label}: {_describe_circle(scope)}; mend the model or export it again") from None
    return bool(unsorted)


def _is_sorted(scope: ir.Graph | ir.Function, made: set[ir.Node]) -> bool:
    """Whether each node, in bodies too, reads only results of nodes in front of it: those in `made`, which grows."""
    for node in scope:
        if any(producer not in made for producer in _read_from(node)):
            return False
        if not all(_is_sorted(body, made) for body in body_graphs(node)):
            return False
        made.add(node)
    return True


def _read_from(node: ir.Node) -> Iterator[ir.Node]:
    """The nodes whose results a node reads by itself, not in its bodies."""
    producers = (value.producer() for value in node.inputs if value is not None)
    return (producer for producer in producers if producer is not None)


def _describe_circle(scope: ir.Graph | ir.Function) -> str:
    """The nodes of a circle of a scope that has one; reads in bodies count as reads of the node itself."""
    needed: dict[ir.Node, set[ir.Node]] = {}
    for node in scope.all_nodes():
        inner = (n for body in body_graphs(node) for n in body.all_nodes())
        needed[node] = {producer for reader in (node, *inner) for producer in _read_from(reader)}
    left = dict(needed)
    while ready := [node for node, read in left.items() if not read & left.keys()]:
        for node in ready:
            del left[node]
    path = [next(iter(left))]
    while path[-1] not in path[:-1]:
        path.append(next(iter(needed[path[-1]] & left.keys())))
    circle = path[path.index(path[-1]) :][::-1]
    titles = [node_title(node.name, node.op_type, [output.name for output in node.outputs]) for node in circle]
    if len(circle) == 2:
        return f"{titles[0]} reads its own result"
    return f"nodes read each other's results in a circle: {' -> '.join(titles)}"
