"""Random graphs stay what they are under the whole catalogue."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from eqfuse.engine.constant_conflicts import find_conflict
from eqfuse.rules.vocabulary import RuleSelection

from .random_graphs.builder import Graph
from .random_graphs.class_values import Evaluation, saturate_graph
from .random_graphs.generate import random_graph
from .random_graphs.rounding import compare

_SEEDS = 300
_UNSOUND = """\
; a + b = a - b
; @property strength
; @sound real
; @example (Add a b) => (Sub a b)
(rewrite (Add a b) (Sub a b) :ruleset explore :name "unsound")
"""


def check(graph: Graph) -> None:
    """Every e-class has one value, no constants conflict, and the chosen graph computes what the original does."""
    saturation = saturate_graph(graph)
    disagreements = [str(d) for d in Evaluation(saturation).disagreements()]
    assert not disagreements, "\n".join(disagreements)
    assert find_conflict(saturation.model, saturation.knowledge, saturation.egraph) is None
    verdict = compare(graph, saturation.cheapest())
    assert not verdict.differences, "\n".join(verdict.differences)


@pytest.mark.representatives(2)
@pytest.mark.parametrize("seed", range(_SEEDS))
def test_random_graphs_keep_their_values(seed: int) -> None:
    check(random_graph(Random(seed)))


def test_an_unsound_rule_is_seen(tmp_path: Path) -> None:
    own = tmp_path / "own.egg"
    own.write_text(_UNSOUND, encoding="utf-8")
    saturation = saturate_graph(random_graph(Random(1)), RuleSelection(rules=(own,)))
    assert list(Evaluation(saturation).disagreements())


@pytest.mark.parametrize("seed", range(10))
def test_outputs_depend_on_inputs(seed: int) -> None:
    graph = random_graph(Random(seed))
    dependent = {i.name for i in graph.model.graph.input}
    for node in graph.model.graph.node:
        dependent.update(node.output if dependent.intersection(node.input) else ())
    assert dependent.issuperset(o.name for o in graph.model.graph.output)
