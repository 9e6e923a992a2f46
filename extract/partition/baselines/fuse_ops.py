"""Fusion by pattern kinds along post-dominators, TVM's FuseOps: ``OperatorGraph -> Partition``.

Source: Chen et al., "TVM: An Automated End-to-End Optimizing Compiler for Deep Learning" (OSDI 2018), section 3, and
the pass ``FuseOps`` of Relay. A node is merged with its immediate post-dominator, and with all nodes between the two,
where the kinds of the groups in between and at the end allow it. Three passes over the nodes:

0. an OUT_ELEMENTWISE_FUSABLE group (Conv, MatMul, ...) takes in what follows element by element; element-wise and
   broadcast nodes join any group but an opaque one, reductions included;
1. the same for element-wise and broadcast nodes; injective nodes and tuples join injective groups, late, so that they
   do not keep a Conv from growing;
2. what feeds a tuple (of a Concat) joins it, if that was merged with its reader.

All readers of a node that is not the last of its group are in the group. So a group has one last operator, whose
results alone are read from outside. Hence groups are convex, and the graph of groups has no cycle: the last operators
of the groups along it would each come before the next. No group has two OUT_ELEMENTWISE_FUSABLE operators.

Relax, which replaced Relay (checked against TVM 0.27), runs the same three passes on a different graph:

- edges: each has the kind of the operator that reads, which is element-wise as soon as *one* operand has the output's
  shape. So the Conv of a squeeze-and-excitation gate is fused into the product that broadcasts its result. Here, as in
  Relay, the edge of an operand that is broadcast is BROADCAST, and a Conv stops before it;
- tuples: the operands of a Concat are its direct operands and TUPLE never occurs. So element-wise nodes join a Concat
  in pass 0, also across paths that pass through it, where a tuple would stop them;
- constants: OPAQUE, as those that are not scalars are in Relay; scalars are ELEMENTWISE in Relay, and count towards the
  depth of what they join. Constants are no nodes here;
- kinds: see pattern_kinds.py.

The order of the operators decides between two Convs that feed one Add: the first takes it. That order is the model's;
TVM's front ends may write the same model down in another.
"""

from __future__ import annotations

from dataclasses import dataclass

from ....ir.graph import OperatorGraph
from ..groups import Partition, partition_of
from .forward_graph import ForwardGraph, forward_graph
from .pattern_kinds import PatternKind
from .post_dominators import PostDominatorTree, post_dominator_tree

MAX_FUSE_DEPTH = 256
_PASSES = 3


def fuse_ops(graph: OperatorGraph, max_fuse_depth: int = MAX_FUSE_DEPTH) -> Partition:
    """The groups that TVM's FuseOps makes of `graph`, none of more than `max_fuse_depth` operators."""
    nodes = forward_graph(graph)
    labels = node_groups(nodes, max_fuse_depth)
    return partition_of(graph, [labels[node] for node in nodes.node_of], "fuseops")


def node_groups(graph: ForwardGraph, max_fuse_depth: int = MAX_FUSE_DEPTH) -> list[int]:
    """Per node of a forward graph, the last node of its group."""
    groups = _Groups.singletons(graph)
    partitioner = _Partitioner(graph, post_dominator_tree(graph), groups, max_fuse_depth)
    for number in range(_PASSES):
        for node in range(len(graph)):
            partitioner.visit(node, number)
    return [groups.find(node) for node in range(len(graph))]


@dataclass(frozen=True, slots=True)
class _Limits:
    """The largest kinds that groups may have for a merge: those between a node and its post-dominator, and its own."""

    between: PatternKind
    sink: PatternKind


_ANCHOR = _Limits(PatternKind.BROADCAST, PatternKind.BROADCAST)
_ELEMENTWISE = _Limits(PatternKind.INJECTIVE, PatternKind.OUT_ELEMENTWISE_FUSABLE)
_INJECTIVE = _Limits(PatternKind.INJECTIVE, PatternKind.INJECTIVE)


@dataclass
class _Groups:
    """Disjoint sets of nodes. `kind`, `size` and `has_anchor` of a root describe its group."""

    parent: list[int]
    kind: list[PatternKind]
    size: list[int]
    has_anchor: list[bool]

    @classmethod
    def singletons(cls, graph: ForwardGraph) -> _Groups:
        anchors = [kind is PatternKind.OUT_ELEMENTWISE_FUSABLE for kind in graph.kinds]
        return cls(list(range(len(graph))), list(graph.kinds), [1] * len(graph), anchors)

    def find(self, node: int) -> int:
        while self.parent[node] != node:
            self.parent[node] = self.parent[self.parent[node]]
            node = self.parent[node]
        return node

    def merge(self, child: int, target: int) -> None:
        """Puts the group of `child` into that of `target`, whose kind only an anchor changes."""
        child, target = self.find(child), self.find(target)
        if child == target:
            return
        self.parent[child] = target
        self.size[target] += self.size[child]
        if self.has_anchor[child]:
            self.has_anchor[target] = True
            self.kind[target] = max(self.kind[target], self.kind[child])


@dataclass(frozen=True)
class _Partitioner:
    graph: ForwardGraph
    tree: PostDominatorTree
    groups: _Groups
    max_fuse_depth: int

    def visit(self, node: int, number: int) -> None:
        """Merges `node` with its post-dominator where pass `number` does so."""
        sink = self.tree.parent[node]
        if sink is None:
            return
        limits = self._limits_into_tuple(node, sink) if number == 2 else self._limits(node, sink, number)
        for member in self._region(node, sink, limits) if limits else ():
            self.groups.merge(member, sink)

    def _limits(self, node: int, sink: int, number: int) -> _Limits | None:
        """What a merge in pass 0 or 1 asks for; None where it is out of the question."""
        kind, way = self.groups.kind[node], self.tree.kind[node]
        if self.groups.kind[sink] is PatternKind.TUPLE or self.groups.find(node) == self.groups.find(sink):
            return None
        if kind is PatternKind.OUT_ELEMENTWISE_FUSABLE:
            return _ANCHOR if number == 0 and way is PatternKind.ELEMENTWISE else None
        if kind <= PatternKind.BROADCAST:
            return _ELEMENTWISE if way <= PatternKind.COMM_REDUCE else None
        if kind in (PatternKind.INJECTIVE, PatternKind.TUPLE):
            return _INJECTIVE if number == 1 else None
        return None

    def _limits_into_tuple(self, node: int, sink: int) -> _Limits | None:
        """What a merge in pass 2 asks for: that `sink` is a tuple, merged with its reader before."""
        if self.groups.kind[node] > PatternKind.INJECTIVE or self.groups.kind[sink] is not PatternKind.TUPLE:
            return None
        return _INJECTIVE if self.groups.kind[self.groups.find(sink)] <= PatternKind.INJECTIVE else None

    def _region(self, node: int, sink: int, limits: _Limits) -> list[int]:
        """`node` and the nodes between it and `sink`; nothing where a group breaks the limits or it gets too deep.

        Nodes already merged count with what they have taken in, as in TVM, so the depth errs on the safe side.
        """
        if self._group_kind(sink) > limits.sink:
            return []
        depth = self.groups.size[self.groups.find(sink)]
        found = {node: None, sink: None}
        stack = [node]
        while stack:
            member = stack.pop()
            depth += self.groups.size[member]
            if depth > self.max_fuse_depth or (member != node and self._group_kind(member) > limits.between):
                return []
            new = {edge.target: None for edge in self.graph.edges[member] if edge.target not in found}
            found.update(new)
            stack += new
        return [member for member in found if member != sink]

    def _group_kind(self, node: int) -> PatternKind:
        return self.groups.kind[self.groups.find(node)]
