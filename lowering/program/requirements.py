"""The relations of sizes that a call checks before it runs, so that no kernel reads beyond its tensors."""

from __future__ import annotations

from ...ir.graph import OperatorGraph
from ...ir.operators.graph_relations import find_relations
from ...ir.size_relations import Relation
from ..kernels.branches import Guard, operator_guards
from ..plan.plan import Requirement


def list_requirements(graph: OperatorGraph) -> tuple[tuple[Requirement, frozenset[Guard]], ...]:
    """The requirements of all operators of dynamic sizes, each once, and the conditions that the operators run
    under."""
    guards_of = operator_guards(graph)
    different: dict[tuple[Relation, frozenset[Guard]], Requirement] = {}
    for operator, relation in find_relations(graph):
        guards = frozenset() if operator is None else guards_of[operator]
        name = "the model" if operator is None else graph.operators[operator].name
        different.setdefault((relation, guards), Requirement(relation, name))
    return tuple((requirement, guards) for (_, guards), requirement in different.items())
