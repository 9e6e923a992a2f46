"""Random directed acyclic graphs as lists of predecessors, and their stages computed from scratch."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from eqfuse.ir.graph import Operator, OperatorGraph, Value

Edges = list[list[int]]
"""Per node, its predecessors, all of them smaller."""


@st.composite
def edges(draw: st.DrawFn, most: int = 14) -> Edges:
    """0 to `most` nodes; predecessors are mostly near, so that graphs are deep, with a few far ones."""
    found: Edges = []
    for node in range(draw(st.integers(0, most))):
        near = draw(st.sets(st.integers(1, 3), max_size=2))
        far = draw(st.sets(st.integers(0, node - 1), max_size=1)) if node else set()
        found.append(sorted({node - step for step in near if step <= node} | far))
    return found


def graph_of(predecessors: Edges, opaque: frozenset[int] = frozenset(), op: str = "Add") -> OperatorGraph:
    """One operator for each node, with one output of unknown type."""
    operators = [Operator(f"n{i}", op, {}, tuple(p), (i,), i in opaque) for i, p in enumerate(predecessors)]
    return OperatorGraph(tuple(operators), tuple(Value(f"v{i}", None, i) for i in range(len(predecessors))))


def stages(predecessors: Edges, labels: Sequence[int]) -> list[list[int]]:
    """The labels by longest path in the quotient graph, level by level. Raises ValueError if that has a cycle."""
    sources: dict[int, set[int]] = {label: set() for label in labels}
    for node, inputs in enumerate(predecessors):
        sources[labels[node]] |= {labels[i] for i in inputs} - {labels[node]}
    stage: dict[int, int] = {}
    while len(stage) < len(sources):
        ready = [label for label in sources if label not in stage and sources[label] <= stage.keys()]
        if not ready:
            raise ValueError("the quotient graph has a cycle")
        for label in ready:
            stage[label] = 1 + max((stage[s] for s in sources[label]), default=0)
    return [sorted(label for label in stage if stage[label] == i + 1) for i in range(max(stage.values(), default=0))]


def acyclic(predecessors: Edges, labels: Sequence[int]) -> bool:
    """Whether nodes of equal label can be merged without a cycle."""
    try:
        stages(predecessors, labels)
    except ValueError:
        return False
    return True
