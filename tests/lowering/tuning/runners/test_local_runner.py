"""Measuring on this machine, in a process that kernels may take down."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from eqfuse.ir.types import TensorType
from eqfuse.lowering.tuning.runners.local_runner import LocalRunner, stay
from eqfuse.lowering.tuning.runners.measuring import KernelObject
from eqfuse.lowering.tuning.runners.sampling import PAIRS

from ..compiled import CRASH, HANG, in_c

SHORT = 3.0


@pytest.fixture(scope="module")
def runner() -> Iterator[LocalRunner]:
    runner = LocalRunner(1, SHORT)
    yield runner
    runner.close()


def test_a_kernel_has_a_latency(runner: LocalRunner, small: KernelObject) -> None:
    (timing,) = runner.measure([small])
    assert timing.problem is None
    assert timing.latency > 0


@pytest.mark.conformance
def test_more_threads_are_measured_by_the_wall_clock(small: KernelObject) -> None:
    runner = LocalRunner(2)
    (timing,) = runner.measure([small])
    runner.close()
    assert timing.problem is None


@pytest.mark.representatives(1)
@pytest.mark.parametrize(("body", "problem"), [(CRASH, "crashed (SIGSEGV)"), (HANG, "took longer than 3 s")])
def test_a_kernel_that_fails_costs_itself_alone(
    runner: LocalRunner, small: KernelObject, tmp_path: Path, body: str, problem: str
) -> None:
    bad, good = runner.measure([in_c(tmp_path, "bad", body), small])
    assert good.problem is None
    assert bad.problem == problem


def test_what_is_not_as_described_is_a_problem(runner: LocalRunner, small: KernelObject, tmp_path: Path) -> None:
    wrong = [
        replace(small, symbol="other"),
        replace(small, object_file=tmp_path / "absent.o"),
        replace(small, parameters=(TensorType("float32", (1,)),) * 2),
        replace(small, parameters=(TensorType("float32", ("n",)),) * 2),
    ]
    timings = runner.measure([*wrong, small])
    assert [timing.problem is None for timing in timings] == [False, False, False, False, True]
    assert all("\n" not in (timing.problem or "") for timing in timings)


def test_every_pair_has_a_time_of_both(runner: LocalRunner, small: KernelObject) -> None:
    (pairs,) = runner.compare(small, [small])
    assert len(pairs) >= PAIRS
    assert all(mine > 0 and theirs > 0 for mine, theirs in pairs)


def test_a_challenger_that_crashes_has_no_pairs(runner: LocalRunner, small: KernelObject, tmp_path: Path) -> None:
    crashed, good = runner.compare(small, [in_c(tmp_path, "bad", CRASH), small])
    assert crashed == []
    assert good


def test_a_process_stays_where_it_is() -> None:
    allowed = os.sched_getaffinity(0)
    try:
        stay(1)
        assert os.sched_getaffinity(0) == {min(allowed)}
        stay(2)
        assert os.sched_getaffinity(0) == {min(allowed)}
    finally:
        os.sched_setaffinity(0, allowed)
