"""Ratios and means of benchmarks/latency.py, and the processes it measures in."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from eqfuse.benchmarks import latency
from eqfuse.benchmarks.latency import OURS, REFERENCE, Record
from eqfuse.benchmarks.measuring.busy import Load
from eqfuse.benchmarks.measuring.contestants import Contestant, ContestantError, Sample, Setup

from ..engine.models import model as build
from ..engine.models import value


def record(name: str, family: str, ours: float, theirs: float) -> Record:
    samples = {
        (OURS, 1): [Sample(ours, ours), Sample(2 * ours, 2 * ours)],
        (REFERENCE, 1): [Sample(theirs, theirs), Sample(2 * theirs, 2 * theirs)],
    }
    return Record(name, family, samples)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "small.onnx"
    onnx.save(build([helper.make_node("Relu", ["x"], ["y"])], *([value(name, (2, 3))] for name in "xy")), path)
    return path


def test_ratio_is_taken_round_by_round() -> None:
    found = record("a", "a", 1.0, 3.0).ratio((OURS, 1))
    assert found is not None
    assert (found.median, found.lower, found.upper) == (3.0, 3.0, 3.0)


def test_there_is_no_ratio_of_who_did_not_take_part() -> None:
    assert record("a", "a", 1.0, 3.0).ratio(("TVM Relax", 1)) is None


def test_one_thread_counts_cpu_time_and_several_wall_clock() -> None:
    found = Record("a", "a", {(OURS, n): [Sample(wall=7.0, cpu=5.0)] for n in (1, 2)})
    assert found.times((OURS, 1)) == [5.0]
    assert found.times((OURS, 2)) == [7.0]


def test_scaling_compares_wall_clock_times() -> None:
    found = Record("a", "a", {(OURS, 1): [Sample(8.0, 1.0)], (OURS, 2): [Sample(5.0, 1.0)]}).scaling(OURS, 2)
    assert found is not None
    assert found.median == 1.6


def test_each_family_counts_once_in_the_mean() -> None:
    records = [record("a_56", "a", 1.0, 4.0), record("a_112", "a", 1.0, 4.0), record("b", "b", 1.0, 1.0)]
    assert latency.mean_ratio(records, (OURS, 1)) == pytest.approx(2.0)


def test_own_work_is_not_that_of_others() -> None:
    before, after = Load(clock=10.0, busy=100.0, own=5.0), Load(clock=20.0, busy=112.0, own=12.0)
    assert before.others(after) == pytest.approx(0.5)


def test_load_counts_a_process_that_works(model: Path) -> None:
    with Contestant(Setup(REFERENCE, model, 1)) as contestant:
        alone, both = Load.now([]), Load.now([contestant.process])
    assert both.own > alone.own


def test_unknown_network_is_named() -> None:
    with pytest.raises(SystemExit, match="no network called vgg"):
        latency.sources(argparse.Namespace(models=[], only=["vgg"]))


def test_contestant_runs_the_model(model: Path) -> None:
    with Contestant(Setup(REFERENCE, model, 1)) as contestant:
        first, again, other = (contestant.outputs(seed)[0] for seed in (0, 0, 1))
    assert first.min() == 0
    assert first.max() > 0
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_contestant_is_stopped_while_it_is_not_its_turn(model: Path) -> None:
    with Contestant(Setup(REFERENCE, model, 1)) as contestant:
        contestant.sample(0.0)
        assert contestant.is_stopped


def test_contestant_that_cannot_load_says_why(tmp_path: Path) -> None:
    with pytest.raises(ContestantError, match=r"ONNX Runtime: .*absent\.onnx"):
        Contestant(Setup(REFERENCE, tmp_path / "absent.onnx", 1))
