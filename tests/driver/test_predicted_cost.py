"""A result is never predicted to be dearer than the original, whatever ends the search for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import onnx
import pytest
from onnx import helper

from eqfuse.costmodels.model import CostModel
from eqfuse.driver.clock import Clock
from eqfuse.driver.extract import extract_model
from eqfuse.driver.options import Options
from eqfuse.driver.saturate import Saturated, saturate_model
from eqfuse.engine.egraph.worker import Worker
from eqfuse.extract.extraction.select import Criteria
from eqfuse.ir.operation import Operation

from ..engine.models import model, normal, value

RECORD = "; left = right\n; @property associative\n; @sound real\n"


@dataclass(frozen=True)
class PriceList(CostModel):
    """A price for each operator; those that are not listed cost nothing."""

    prices: Mapping[str, float]
    name = "list"
    unit = "s"

    def cost(self, operation: Operation) -> float:
        return self.prices.get(operation.op, 0.0)


def saturated(source: onnx.ModelProto, rules: list[tuple[str, str]], folder: Path) -> tuple[Saturated, Options]:
    """A model to which only these rules apply, with options under which the choice is cut short after greedy ones."""
    path = folder / "made_up.egg"
    texts = (
        f'{RECORD}(rewrite {left} {right} :ruleset explore :name "made-up-{number}")\n'
        for number, (left, right) in enumerate(rules)
    )
    path.write_text("\n".join(texts))
    options = Options(rules=(path,), trust_rules=True, extraction="greedy")
    with Worker(options.selection) as worker:
        return saturate_model(source, None, options, worker, Clock(None)), options


@pytest.fixture
def shared(tmp_path: Path) -> tuple[Saturated, Options]:
    """Three operators that read a dear one. Without it each costs less, but the three together cost more."""
    readers = {"Cos": "Atan", "Erf": "Asin", "Tanh": "Acos"}
    nodes = [helper.make_node("Sin", ["x"], ["s"]), *(helper.make_node(reader, ["s"], [reader]) for reader in readers)]
    rules = [(f"({reader} (Sin x))", f"({other} x)") for reader, other in readers.items()]
    return saturated(model(nodes, [value("x", [2])], [*readers]), rules, tmp_path)


@pytest.mark.parametrize("order", [1, -1])
def test_a_choice_that_is_not_proven_costs_at_most_what_the_original_does(
    shared: tuple[Saturated, Options], order: int
) -> None:
    known, options = shared
    reordered = tuple(replace(each, nodes=each.nodes[::order]) for each in known.egraph.classes)
    known = replace(known, egraph=replace(known.egraph, classes=reordered))
    prices = {"Sin": 10.0, "Cos": 1.0, "Erf": 1.0, "Tanh": 1.0, "Atan": 10.5, "Asin": 10.5, "Acos": 10.5}
    selection = known.select(Criteria(PriceList(prices), 0.0), options)
    assert (selection.status, selection.cost) == ("feasible", 13.0)
    assert {node.op for node in selection.choice.values()} == {"Var", "Sin", "Cos", "Erf", "Tanh"}
    assert selection.lower_bound == 3.0


@pytest.mark.parametrize(("price", "expected"), [(0.4, ["Sin", "Cos"]), (0.6, ["Add"])])
def test_a_smaller_file_is_not_bought_by_a_dearer_graph(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, price: float, expected: list[str]
) -> None:
    """Its bytes are priced higher and higher while the file is too large; the original is compared without that."""
    monkeypatch.setattr("eqfuse.driver.extract.GROWTH", 0.0)
    monkeypatch.setattr("eqfuse.driver.extract.SMALL_GROWTH", -1000)
    nodes = [helper.make_node("Add", ["x", "w"], ["y"])]
    source = model(nodes, [value("x", [2000])], ["y"], {"w": normal(2000)})
    known, options = saturated(source, [("(Add x w)", "(Cos (Sin x))")], tmp_path)
    criteria = Criteria(PriceList({"Add": 1.0, "Sin": price, "Cos": price}), 1e-10)
    choice = extract_model(known, criteria, options, Clock(None))
    assert [node.op_type for node in choice.model.graph] == expected
