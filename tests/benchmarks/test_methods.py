"""Methods of one program share their time and their rank, and what noise cannot tell apart is in no order."""

from __future__ import annotations

import pytest

from eqfuse.benchmarks.latency import REFERENCE
from eqfuse.benchmarks.methods import Compiled, Outcome, group_equal


def compiled(predicted: float, program: str) -> Compiled:
    """A bundle of one kernel."""
    return Compiled(1, predicted, (program, "weights"), 1.0, None)


def outcome(*slower: float, noise: float = 1.0) -> Outcome:
    """A model of which `joint` and `fuseops` are one program, and the others take so many times as long."""
    others = ("ago", "dnnfusion", "none")
    programs = {"joint": compiled(1.0, "a"), "fuseops": compiled(1.0, "a")}
    programs |= {name: compiled(2.0 + n, name) for n, name in enumerate(others)}
    rounds = {"joint": [[1.0, 3.0, 2.0], [noise * 1.0, noise * 3.0, noise * 2.0]], REFERENCE: [[2.0, 6.0, 4.0]]}
    rounds |= {name: [[factor, 3.0 * factor, 2.0 * factor]] for name, factor in zip(others, slower, strict=True)}
    return Outcome("model", 10, programs, rounds)


def test_equal_programs_have_one_time() -> None:
    result = outcome(1.1, 1.2, 1.3)
    assert result.measured_by("fuseops") == "joint"
    assert result.seconds() == pytest.approx({"joint": 2, "fuseops": 2, "ago": 2.2, "dnnfusion": 2.4, "none": 2.6})
    assert result.gain("fuseops") == 2.0


def test_the_order_is_that_of_the_predictions() -> None:
    assert outcome(1.1, 1.2, 1.3).correlation(0.0) == pytest.approx(1.0)
    assert outcome(0.9, 0.8, 0.7).correlation(0.0) == pytest.approx(-1.0)


def test_the_noise_is_that_between_sessions_of_a_program() -> None:
    assert outcome(1.1, 1.2, 1.3, noise=1.05).noise == pytest.approx(0.05)


def test_nothing_is_said_of_an_order_within_the_noise() -> None:
    assert outcome(1.01, 1.02, 1.03).correlation(0.02) is None
    assert group_equal({"a": 1.0, "b": 1.01, "c": 1.2}, 0.02) == [["a", "b"], ["c"]]
