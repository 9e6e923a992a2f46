"""Post-dominators of a forward graph: of each node, the nearest node that every path onwards goes through.

The graph has no cycles, so one pass from its end suffices: the immediate post-dominator of a node is the lowest common
ancestor of its readers in the tree of those found so far (TVM's ``DominatorTree::PostDom``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from .forward_graph import Edge, ForwardGraph
from .pattern_kinds import PatternKind


@dataclass(frozen=True)
class PostDominatorTree:
    """Per node: its immediate post-dominator, its depth in the tree, and the kinds on the way there combined.

    `parent` is None, and `kind` OPAQUE, for what the caller reads; `parent` is None as well where paths never meet
    again. Roots have depth 1.
    """

    parent: tuple[int | None, ...]
    depth: tuple[int, ...]
    kind: tuple[PatternKind, ...]


def post_dominator_tree(graph: ForwardGraph) -> PostDominatorTree:
    """The tree of `graph`; `kind` is the largest of all edges on all paths to the post-dominator."""
    builder = _Builder([None] * len(graph), [1] * len(graph), [PatternKind.OPAQUE] * len(graph))
    for node in reversed(range(len(graph))):
        if not graph.is_external[node]:
            builder.add(node, graph.edges[node])
    return PostDominatorTree(tuple(builder.parent), tuple(builder.depth), tuple(builder.kind))


@dataclass
class _Builder:
    parent: list[int | None] = field(default_factory=list)
    depth: list[int] = field(default_factory=list)
    kind: list[PatternKind] = field(default_factory=list)

    def add(self, node: int, edges: Sequence[Edge]) -> None:
        """Hangs `node` below the common ancestor of its readers, which are in the tree already."""
        kind = PatternKind.ELEMENTWISE
        ancestor: int | None = edges[0].target if edges else None
        for edge in edges:
            ancestor, met = self._common_ancestor(ancestor, edge.target)
            kind = max(kind, edge.kind, met)
        self.parent[node] = ancestor
        self.depth[node] = 1 if ancestor is None else self.depth[ancestor] + 1
        self.kind[node] = kind

    def _common_ancestor(self, left: int | None, right: int | None) -> tuple[int | None, PatternKind]:
        """The lowest common ancestor, None where there is none, and the kinds met on the two ways to it combined."""
        kind = PatternKind.ELEMENTWISE
        while left is not None and right is not None and left != right:
            steps = (self.depth[left] >= self.depth[right], self.depth[right] >= self.depth[left])
            if steps[0]:
                kind = max(kind, self.kind[left])
                left = self.parent[left]
            if steps[1]:
                kind = max(kind, self.kind[right])
                right = self.parent[right]
        return (left if left == right else None), kind
