"""Chosen terms as ONNX nodes again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from onnx import helper

from eqfuse.costmodels.choices import DEFAULT_DEVICE
from eqfuse.costmodels.device import load_device
from eqfuse.costmodels.model import cost_model
from eqfuse.driver.optimize import optimize_model
from eqfuse.driver.options import Options
from eqfuse.engine.egraph.decode import decode
from eqfuse.engine.egraph.encode import encode
from eqfuse.engine.egraph.plan import locate_origins
from eqfuse.engine.egraph.saturate import Budget, saturate
from eqfuse.engine.egraph.worker import Worker
from eqfuse.engine.onnx.model import read
from eqfuse.engine.shapes.inference import infer
from eqfuse.extract.extraction.select import Criteria, select
from eqfuse.rules.vocabulary import RuleSelection

from ..models import model, normal, value

RULE = """\
; the first part of a split is a slice
; @property layout
; @sound real
(rewrite (Out (Split x s k) 0) (Slice x (vec-of 0) (vec-of 2) (vec-of 1) (vec-of 1))
         :ruleset explore :name "split-by-slice")
"""


def test_a_replaced_output_of_a_kept_node_gives_up_its_name(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Split", ["x", "sizes"], ["first", "second"], axis=1),
        helper.make_node("Relu", ["first"], ["r"]),
        helper.make_node("Exp", ["second"], ["e"]),
        helper.make_node("Mul", ["r", "e"], ["y"]),
    ]
    source = read(model(nodes, [value("x", [2, 4])], ["y"], {"sizes": np.array([2, 2])}))
    (tmp_path / "own.egg").write_text(RULE, encoding="utf-8")
    knowledge = infer(source)
    encoding = encode(source, knowledge)
    with Worker(RuleSelection((tmp_path / "own.egg",), only=("split-by-slice",))) as worker:
        egraph = saturate(encoding, worker, Budget())
    origin = locate_origins(source.graph, encoding, egraph)
    criteria = Criteria.of(cost_model("flops", load_device(DEFAULT_DEVICE)))
    selection = select(egraph, encoding, origin, source.opset, criteria, time_limit=5)
    owner = egraph.terms[encoding.values["first"]]
    sliced = next(n for n in egraph.classes[owner].nodes if n.op == "Slice")
    chosen = replace(selection, choice={**selection.choice, owner: sliced})
    result = decode(source, knowledge, encoding, egraph, chosen)
    names = [o.name for n in result.graph for o in n.outputs]
    assert len(set(names)) == len(names)
    assert "first" in names


def test_states_that_nothing_reads_any_more_are_left_out() -> None:
    nodes = [
        helper.make_node("LSTM", ["x", "w", "r"], ["states", "", ""], hidden_size=2),
        helper.make_node("Slice", ["states", "two", "three", "zero"], ["last"]),
        helper.make_node("Relu", ["last"], ["y"]),
    ]
    stored = {name: np.array([number]) for number, name in enumerate(["zero", "one", "two", "three"]) if number != 1}
    stored |= {"w": normal(1, 8, 4), "r": normal(1, 8, 2)}
    source = read(model(nodes, [value("x", [3, "N", 4])], ["y"], stored))
    result = optimize_model(source, None, Options(verify=False)).model
    (lstm,) = (node for node in result.graph if node.op_type == "LSTM")
    assert [bool(output.name) for output in lstm.outputs[:2]] == [False, True]


def test_a_list_that_is_doubled_over_and_over_stays_short() -> None:
    doublings = [helper.make_node("Concat", [f"x{i}"] * 2, [f"x{i + 1}"], axis=0) for i in range(16)]
    source = model(doublings, [value("x0", [1, 2])], ["x16"])
    result = optimize_model(source, None, Options(verify=False)).model
    assert max(len(node.inputs) for node in result.graph) <= 4


def test_a_part_of_a_split_that_nothing_reads_is_there() -> None:
    """ONNX Runtime crashes on a Split without a name for one of its parts, of which none is optional."""
    nodes = [
        helper.make_node("Split", ["x", "sizes"], ["first", "second"], axis=1),
        helper.make_node("Relu", ["second"], ["y"]),
    ]
    source = read(model(nodes, [value("x", [2, 4])], ["y"], {"sizes": np.array([2, 2])}))
    result = optimize_model(source, None, Options(verify=False)).model
    (split,) = (node for node in result.graph if node.op_type == "Split")
    assert all(output.name for output in split.outputs)
