"""The process that runs egglog, in this process."""

from __future__ import annotations

import gc
from pathlib import Path
from random import Random
from typing import Any

import pytest

from eqfuse.engine.egraph.encode import Encoding, encode
from eqfuse.engine.egraph.facts import write_facts
from eqfuse.engine.egraph.messages import Job
from eqfuse.engine.egraph.saturate import CLOSING, ITERATION
from eqfuse.engine.egraph.saturation_worker import SaturationRun
from eqfuse.engine.onnx.inference import infer
from eqfuse.engine.onnx.model import read
from eqfuse.rules.program import Program, rule_program
from eqfuse.rules.vocabulary import RuleSelection

from ...rules.random_graphs.generate import random_graph


def encode_random_graph(seed: int) -> Encoding:
    model = read(random_graph(Random(seed)).model)
    return encode(model, infer(model))


def saturate_here(encoding: Encoding, folder: Path) -> dict[str, Any]:
    """The last message of each kind, after two iterations."""
    run = SaturationRun(str(folder))
    gc.enable()
    facts, _ = write_facts(encoding, folder)
    messages = [*run(RuleSelection()), *run(Job(facts, ITERATION, CLOSING, 5_000, 60.0, 2))]
    return dict(messages)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.conformance) for seed in range(1, 100))])
def test_rules_that_cannot_match_change_nothing(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoding = encode_random_graph(seed)
    some = saturate_here(encoding, tmp_path)
    monkeypatch.setattr(Program, "text_for", lambda program, _: program.text)
    every = saturate_here(encoding, tmp_path)
    assert some["snapshot"] == every["snapshot"]
    assert some["done"].growth == every["done"].growth
    first, second = ({rule: n for rule, n in each["done"].matches.items() if n} for each in (some, every))
    assert first == second


def test_most_rules_cannot_match_a_small_graph() -> None:
    program = rule_program(RuleSelection())
    assert 0 < len(program.text_for("(union (term 0) (Relu (term 1)))")) < len(program.text) / 4
