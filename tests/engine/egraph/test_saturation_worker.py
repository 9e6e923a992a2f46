"""The process that runs egglog, in this process."""

from __future__ import annotations

import gc
from pathlib import Path
from random import Random
from unittest.mock import Mock

import pytest

from eqfuse.engine.egraph import saturation_worker
from eqfuse.engine.egraph.encode import Encoding, encode
from eqfuse.engine.egraph.facts import write_facts
from eqfuse.engine.egraph.graph import EGraph, Saturation
from eqfuse.engine.egraph.messages import Job, Progress
from eqfuse.engine.egraph.saturate import EXPLORATION, SIMPLIFICATION, Budget, number_classes, saturate
from eqfuse.engine.egraph.saturation_worker import SaturationRun, rule_seconds
from eqfuse.engine.onnx.model import read
from eqfuse.engine.shapes.inference import infer
from eqfuse.rules.egglog_bindings import execute, load
from eqfuse.rules.program import rule_program, split_ready
from eqfuse.rules.vocabulary import RuleSelection
from eqfuse.support.errors import EqfuseError
from eqfuse.support.processes.worker_process import WorkerFailedError

from ...rules.random_graphs.generate import random_graph

STATISTICS = Saturation("saturated", 2, (), 0.0, ())


def encode_random_graph(seed: int) -> Encoding:
    model = read(random_graph(Random(seed)).model)
    return encode(model, infer(model))


def saturate_here(encoding: Encoding, folder: Path) -> tuple[EGraph, Progress]:
    """The e-graph after two iterations."""
    run = SaturationRun(str(folder))
    gc.enable()
    facts, labels = write_facts(encoding, folder)
    messages = dict([*run(RuleSelection()), *run(Job(facts, SIMPLIFICATION, EXPLORATION, 5_000, 60.0, 2))])
    return number_classes(messages["snapshot"], encoding, labels.originals, STATISTICS), messages["done"]


def rewriting_rules(progress: Progress) -> set[str]:
    """The rules that matched and rewrite terms: which ones a fact is derived by depends on the order of analyses."""
    return {rule for rule, matches in progress.matches.items() if matches and not rule.startswith("analysis.")}


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.conformance) for seed in range(1, 100))])
def test_rules_that_cannot_match_change_nothing(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule that is loaded once its operators have come up sees all terms but those that another rule has replaced by
    then, so it may be credited with fewer matches; the e-graph is the same."""
    encoding = encode_random_graph(seed)
    some = saturate_here(encoding, tmp_path)
    monkeypatch.setattr(saturation_worker, "split_ready", lambda commands, _: (commands, ()))
    every = saturate_here(encoding, tmp_path)
    assert some[0] == every[0]
    assert some[1].growth == every[1].growth
    assert rewriting_rules(some[1]) <= rewriting_rules(every[1])


def test_most_rules_cannot_match_a_small_graph() -> None:
    commands = rule_program(RuleSelection()).commands
    ready, waiting = split_ready(commands, {"term", "Relu"})
    assert 0 < len(ready) < len(waiting) / 3


def test_a_full_disk_is_no_fault_of_the_rules(tmp_path: Path) -> None:
    worker = Mock(folder=tmp_path)
    full = WorkerFailedError("OSError", "[Errno 28] No space left on device")
    worker.receive.side_effect = [("stage", "rules"), full]
    with pytest.raises(EqfuseError, match="No space left on device; TMPDIR") as failure:
        saturate(encode_random_graph(0), worker, Budget())
    assert type(failure.value) is EqfuseError


REPORT = (
    'RunReport { iterations: [], updated: true, search_and_apply_time_per_rule: {"a": 1.5ms, "b~1": 35.115µs, '
    '"c<=": 885ns, "d": 2s}, num_matches_per_rule: {"a": 3}, merge_time_per_ruleset: {"e": 4.5s} }'
)


def test_every_unit() -> None:
    assert rule_seconds(REPORT) == pytest.approx({"a": 1.5e-3, "b~1": 35.115e-6, "c<=": 885e-9, "d": 2.0})


def test_a_report_of_egglog_has_a_time_for_every_rule() -> None:
    egraph = load().EGraph()
    program = '(datatype T (A i64) (B T))\n(ruleset r)\n(rewrite (A x) (B (A x)) :ruleset r :name "wrap")\n(A 1)'
    execute(egraph, program)
    times = rule_seconds(execute(egraph, "(run-schedule r)")[0].report)
    assert list(times) == ["wrap"]
    assert 0 < times["wrap"] < 1
