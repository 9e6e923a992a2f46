"""The graph on which operator fusion is decided: nodes with a pattern kind, edges from producers to consumers.

Besides the operators it has a node for each tuple, as Relay does: one that gathers the operands of a Concat (TUPLE),
and one that takes each output of an operator that has several (INJECTIVE).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ....ir.graph import Operator, OperatorGraph
from .pattern_kinds import PatternKind, edge_kind, pattern_kind


@dataclass(frozen=True, slots=True)
class Edge:
    """To the node that reads, and how it reads."""

    target: int
    kind: PatternKind


@dataclass(frozen=True)
class ForwardGraph:
    """Nodes in a topological order. Per node: its kind, the edges to its readers, and whether the caller reads it.

    `node_of` holds the node of each operator of the graph that this one was made from.
    """

    kinds: tuple[PatternKind, ...]
    edges: tuple[tuple[Edge, ...], ...]
    is_external: tuple[bool, ...]
    node_of: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.kinds)


def forward_graph(graph: OperatorGraph) -> ForwardGraph:
    """The forward graph of `graph`. Inputs and constants, which are never fused, have no nodes in it."""
    builder = _Builder(graph)
    for operator in graph.operators:
        builder.add(operator)
    edges = tuple(map(tuple, builder.edges))
    return ForwardGraph(tuple(builder.kinds), edges, tuple(builder.is_external), tuple(builder.node_of))


@dataclass
class _Builder:
    graph: OperatorGraph
    kinds: list[PatternKind] = field(default_factory=list)
    edges: list[list[Edge]] = field(default_factory=list)
    is_external: list[bool] = field(default_factory=list)
    node_of: list[int] = field(default_factory=list)
    maker: dict[int, int] = field(default_factory=dict)

    def add(self, operator: Operator) -> None:
        kind = pattern_kind(self.graph, operator)
        read = [value for value in operator.inputs if value is not None]
        if operator.op == "Concat" and kind is PatternKind.INJECTIVE:
            node = self._concatenation(read)
        else:
            kinds = [self._edge_kind(kind, value, operator) for value in read]
            node = self._node(kind, [(self.maker.get(v), k) for v, k in zip(read, kinds, strict=True)])
        self.node_of.append(node)
        self._make(node, operator.outputs)

    def _concatenation(self, read: Sequence[int]) -> int:
        fields = self._node(PatternKind.TUPLE, [(self.maker.get(value), PatternKind.INJECTIVE) for value in read])
        return self._node(PatternKind.INJECTIVE, [(fields, PatternKind.INJECTIVE)])

    def _edge_kind(self, kind: PatternKind, value: int, operator: Operator) -> PatternKind:
        if not operator.outputs:
            return kind
        return edge_kind(kind, self.graph.values[value], self.graph.values[operator.outputs[0]])

    def _make(self, node: int, outputs: Sequence[int]) -> None:
        """Names the node that stands for each output: the operator's, or one that takes it from the operator's tuple.

        An output that nobody reads gets none: it would keep the operator from having a post-dominator.
        """
        for value in outputs:
            is_output = self.graph.values[value].is_output
            if len(outputs) > 1 and (is_output or self.graph.consumers[value]):
                self.maker[value] = self._node(PatternKind.INJECTIVE, [(node, PatternKind.INJECTIVE)])
            else:
                self.maker[value] = node
            self.is_external[self.maker[value]] |= is_output

    def _node(self, kind: PatternKind, sources: Sequence[tuple[int | None, PatternKind]]) -> int:
        node = len(self.kinds)
        self.kinds.append(kind)
        self.edges.append([])
        self.is_external.append(False)
        for source, edge in sources:
            if source is not None:
                self.edges[source].append(Edge(node, edge))
        return node
