"""The time limit: one budget for all phases, and a valid result whenever it ends."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import eqfuse
from eqfuse.cli import main
from eqfuse.driver.clock import Clock
from eqfuse.driver.extract import Choice, extract_model
from eqfuse.driver.options import Options
from eqfuse.driver.saturate import Saturated, saturate_model
from eqfuse.driver.usage import cost_model_for
from eqfuse.engine import verification
from eqfuse.engine.egraph.encode import encode
from eqfuse.engine.egraph.messages import Job, Progress
from eqfuse.engine.egraph.saturate import Budget, saturate
from eqfuse.engine.egraph.saturation_worker import SaturationRun
from eqfuse.engine.egraph.worker import Worker
from eqfuse.engine.onnx.model import read
from eqfuse.engine.shapes.inference import infer
from eqfuse.engine.verification import Verification, verify
from eqfuse.extract.extraction.select import Criteria
from eqfuse.support.deadlines import start_command
from eqfuse.support.errors import EqfuseError, VerificationError
from eqfuse.support.processes.worker_process import WorkerDiedError

from ..engine.models import model, value

OPERATORS = ["Neg", "Neg", "Identity", "Relu"]


def chain(folder: Path) -> Path:
    """A model that rules and the encoding alone would both make smaller."""
    names = ["x", "a", "b", "c", "y"]
    nodes = [helper.make_node(op, [names[i]], [names[i + 1]]) for i, op in enumerate(OPERATORS)]
    path = folder / "in.onnx"
    onnx.save(model(nodes, [value("x", [2, 3])], [value("y", [2, 3])]), path)
    return path


def operators(path: Path) -> list[str]:
    return [node.op_type for node in onnx.load(path).graph.node]


@pytest.fixture
def no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Saturation is out of time as soon as its time begins."""
    monkeypatch.setattr("eqfuse.engine.egraph.saturate._GRACE", -1e9)


class Silent(Worker):
    """A worker that says what it is told to say, and then no more."""

    def __init__(self, folder: Path, *said: tuple[str, Any] | WorkerDiedError) -> None:
        self.folder, self.said = folder, iter(said)

    def begin(self, job: Job) -> None:
        pass

    def receive(self, seconds: float = inf) -> tuple[str, Any]:
        message = next(self.said, WorkerDiedError("took too long", timed_out=True))
        if isinstance(message, WorkerDiedError):
            raise message
        return message


@pytest.mark.usefixtures("no_time")
def test_a_limit_that_ends_before_the_first_iteration_gives_the_original(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["optimize", str(chain(tmp_path)), str(tmp_path / "out.onnx")])
    report = capsys.readouterr().out
    assert code == 5
    assert operators(tmp_path / "out.onnx") == OPERATORS
    assert "time limit: ended saturation;" in report
    assert "verification: passed" in report


@pytest.mark.usefixtures("no_time")
@pytest.mark.parametrize("method", ["fuseops", "joint"])
def test_the_original_can_be_cut_too(tmp_path: Path, method: Any) -> None:
    result = eqfuse.optimize(chain(tmp_path), tmp_path / "out.onnx", partition=method)
    assert operators(tmp_path / "out.onnx") == OPERATORS
    assert result.partition is not None
    assert len(result.partition.partition.graph) == len(OPERATORS)
    assert result.budget_hit


def test_an_extraction_of_a_later_round_that_is_out_of_time_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds = []

    def extract(*arguments: Any, **options: Any) -> Choice:
        choice = extract_model(*arguments, **options)
        rounds.append(choice)
        return replace(choice, selection=replace(choice.selection, out_of_time=len(rounds) == 2))

    monkeypatch.setattr("eqfuse.driver.partition.extract_model", extract)
    result = eqfuse.optimize(chain(tmp_path), partition="joint")
    assert len(rounds) >= 2
    assert result.cut_short == ("partition",)


@pytest.mark.parametrize("sign", ["memory allocation of 96 bytes failed", "Traceback ... MemoryError"])
def test_a_worker_without_memory_gives_the_original(tmp_path: Path, sign: str) -> None:
    model = read(chain(tmp_path))
    encoding = encode(model, infer(model))
    died = WorkerDiedError("crashed (SIGABRT)", output=sign)
    worker = Silent(tmp_path, ("stage", "facts"), ("stage", "saturation"), died)
    egraph = saturate(encoding, worker, Budget())
    assert egraph.saturation.stop_reason == "memory limit"
    assert egraph.saturation.is_void
    assert egraph.enodes == len(encoding.terms)


def test_the_time_of_an_iteration_that_is_lost_does_not_count_as_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eqfuse.engine.egraph.saturate._GRACE", 0.05)
    model = read(chain(tmp_path))
    worker = Silent(tmp_path, ("stage", "facts"), ("progress", Progress(iterations=1, growth=[9], matches={"r": 3})))
    egraph = saturate(encode(model, infer(model)), worker, Budget(seconds=0.0))
    assert (egraph.saturation.iterations, egraph.saturation.growth, egraph.saturation.rules) == (0, (), ())


@pytest.mark.parametrize(
    ("size", "earlier", "expected"),
    [(2**20, True, "time limit"), (100, True, "node limit"), (2**20, False, "node limit")],
)
def test_an_e_graph_that_cannot_be_read_in_time_is_not_read(
    monkeypatch: pytest.MonkeyPatch, size: int, earlier: bool, expected: str
) -> None:
    """Where an earlier snapshot is there, that is the result."""

    class Exploded(SaturationRun):
        def __init__(self) -> None:
            self.egraph, self.progress, self.waiting = None, Progress(), ()
            self.next_snapshot = 1.0 if earlier else 0.0

        def loop(self) -> Iterator[tuple[str, Any]]:
            yield from ()
            self.progress.growth.append(size)
            self.progress.stop_reason = "node limit"

        def simplify(self) -> bool:
            return False

        def load_ready(self) -> bool:
            return False

        def snapshot(self) -> Any:
            return "whole"

    monkeypatch.setattr("eqfuse.engine.egraph.saturation_worker.execute", lambda egraph, program: None)
    sent = dict(Exploded().saturate(Job("", "", "", node_limit=50, time_limit=10.0, iteration_limit=5)))
    assert sent["done"].stop_reason == expected
    assert ("snapshot" in sent) == (expected == "node limit")


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Saturated:
    """The small model, saturated."""
    options = Options()
    with Worker(options.selection) as worker:
        return saturate_model(chain(tmp_path_factory.mktemp("known")), None, options, worker, Clock(None))


def test_extraction_has_a_share_of_the_limit_and_no_more_than_is_left(
    known: Saturated, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits: list[float] = []

    def select(*arguments: Any, time_limit: float, **options: Any) -> None:
        limits.append(time_limit)

    monkeypatch.setattr("eqfuse.driver.saturate.select", select)
    criteria = Criteria.of(cost_model_for(Options()))
    replace(known, deadline=float("inf")).select(criteria, Options(time_limit=1000.0))
    replace(known, deadline=0.0).select(criteria, Options(time_limit=1000.0))
    assert limits == [300.0, 0.0]


@pytest.mark.parametrize(("deadline", "attempts", "expected"), [(0.0, 1, OPERATORS), (float("inf"), 5, ["Relu"])])
def test_out_of_time_a_graph_that_grows_is_not_chosen_again(
    known: Saturated, monkeypatch: pytest.MonkeyPatch, deadline: float, attempts: int, expected: list[str]
) -> None:
    monkeypatch.setattr("eqfuse.driver.extract.GROWTH", 0.0)
    monkeypatch.setattr("eqfuse.driver.extract.SMALL_GROWTH", -float("inf"))
    tries: list[str] = []
    clock = Clock(lambda phase, _: tries.append(phase))
    options = Options()
    choice = extract_model(replace(known, deadline=deadline), Criteria.of(cost_model_for(options)), options, clock)
    assert tries.count("extract") == attempts
    assert [node.op_type for node in choice.model.graph] == expected


@pytest.mark.parametrize(
    ("limits", "bound"), [({"time_limit": 50.0}, 50.0), ({"time_limit": 50.0, "verify_limit": 70.0}, 70.0), ({}, 300.0)]
)
def test_verification_has_what_is_left_of_a_time_limit_or_a_limit_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limits: dict[str, Any], bound: float
) -> None:
    given: list[float] = []

    def verify_within(*models: Any, limit: float, **options: Any) -> Verification:
        given.append(limit)
        return verify(*models, limit=limit, **options)

    monkeypatch.setattr(verification, "verify", verify_within)
    eqfuse.optimize(chain(tmp_path), **limits)
    assert 0 < given[0] <= bound
    assert (given[0] == bound) is ("time_limit" not in limits or "verify_limit" in limits)


def test_the_time_limit_of_a_command_begins_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter((100.0, 150.0, 200.0))
    monkeypatch.setattr("eqfuse.support.deadlines.time.monotonic", lambda: next(now))
    start_command()
    assert Clock(None, 5.0).deadline == 105.0  # what was imported meanwhile counts
    assert [Clock(None, 5.0).deadline for _ in range(2)] == [155.0, 205.0]  # those of later attempts do not


def test_a_command_starts_its_clock_before_it_imports_anything(tmp_path: Path) -> None:
    program = (
        "import sys, eqfuse.support.deadlines as deadlines\n"
        "deadlines.start_command = lambda: print('numpy' in sys.modules, 'onnx' in sys.modules)\n"
        "from eqfuse.cli import main\n"
        "sys.argv = ['eqfuse', 'optimize', 'none.onnx']\n"
        "main()"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[:1] == ["False False"]


def test_a_time_limit_that_ends_before_verification_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eqfuse.driver.optimize.seconds_left", lambda deadline: 0.0)
    with pytest.raises(VerificationError) as raised:
        eqfuse.optimize(chain(tmp_path), time_limit=50.0)
    assert str(raised.value) == (
        f"{tmp_path / 'in.onnx'}: --time-limit 50 ended before the result was verified; --verify-limit gives "
        "verification seconds of its own; nothing was written; --no-verify does without"
    )


@pytest.mark.parametrize(("verify", "kept"), [(True, 2.0), (False, 0.0)])
def test_the_search_leaves_time_for_verification(tmp_path: Path, verify: bool, kept: float) -> None:
    options = Options(time_limit=100.0, verify=verify)
    with Worker(options.selection) as worker:
        clock = Clock(None, options.time_limit)
        saturated = saturate_model(chain(tmp_path), None, options, worker, clock)
    assert clock.deadline - saturated.deadline == pytest.approx(kept, abs=1.0)  # the e-graph is loaded meanwhile


def test_a_time_limit_that_ends_while_the_model_is_read_is_said(tmp_path: Path) -> None:
    options = Options(time_limit=1e-6)
    path = chain(tmp_path)
    with Worker(options.selection) as worker, pytest.raises(EqfuseError) as raised:
        saturate_model(path, None, options, worker, Clock(None, options.time_limit))
    assert str(raised.value) == f"{path}: --time-limit 1e-06 ended while the model was read; give it more seconds"


def test_constants_that_are_not_computed_in_time_give_the_original(known: Saturated) -> None:
    options, clock = Options(), Clock(None)
    clock.deadline = 0.0
    choice = extract_model(replace(known, deadline=inf), Criteria.of(cost_model_for(options)), options, clock)
    assert [node.op_type for node in choice.model.graph] == ["Relu"]  # it has no constants
    weights = {"a": np.ones(3, np.float32), "b": np.ones(3, np.float32)}
    nodes = [helper.make_node("Tanh", ["a"], ["c"]), helper.make_node("Add", ["x", "c"], ["y"])]
    folded = model(nodes, [value("x", [3])], [value("y", [3])], weights)
    with Worker(options.selection) as worker:
        saturated = saturate_model(folded, None, options, worker, Clock(None))
    choice = extract_model(saturated, Criteria.of(cost_model_for(options)), options, clock)
    assert choice.selection.out_of_time
    assert [node.op_type for node in choice.model.graph] == ["Tanh", "Add"]


def test_what_the_time_limit_ended_is_said(tmp_path: Path) -> None:
    whole = eqfuse.optimize(chain(tmp_path))
    assert (whole.cut_short, whole.budget_hit) == ((), False)
    unchecked = replace(whole, checked=False)
    assert (unchecked.cut_short, unchecked.budget_hit) == (("check of constants",), True)
    rough = replace(whole, extraction=replace(whole.extraction, status="feasible", out_of_time=True))
    assert (rough.cut_short, rough.budget_hit) == (("extraction",), True)
