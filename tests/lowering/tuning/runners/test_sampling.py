"""Sampling, by a clock that the kernel itself advances."""

from __future__ import annotations

import pytest

from eqfuse.lowering.tuning.runners.sampling import (
    ENOUGH,
    FEWEST,
    LONG,
    MOST,
    PAIRS,
    SAMPLE,
    SAMPLES,
    Run,
    compare_calls,
    time_calls,
)


def taking(seconds: float, calls: list[int] | None = None) -> Run:
    def run(number: int) -> float:
        if calls is not None:
            calls.append(number)
        return seconds * number

    return run


@pytest.mark.parametrize("seconds", [1e-9, 1e-7, 1e-4, 5e-3, 0.2, 5.0])
def test_what_a_call_takes_is_found(seconds: float) -> None:
    assert time_calls(taking(seconds)) == pytest.approx([seconds] * len(time_calls(taking(seconds))))


@pytest.mark.parametrize("seconds", [1e-9, 1e-7, 1e-4])
def test_a_sample_is_of_enough_calls(seconds: float) -> None:
    calls: list[int] = []
    samples = time_calls(taking(seconds, calls))
    assert calls[-1] * seconds >= SAMPLE
    assert len(samples) >= SAMPLES
    assert sum(samples) * calls[-1] >= ENOUGH


def test_a_clock_that_stands_still_at_first_is_outrun() -> None:
    assert time_calls(lambda number: max(0.0, number * 1e-6 - 1e-4))[0] < 1e-6


def test_a_slow_kernel_is_run_for_no_longer_than_it_takes_to_show() -> None:
    calls: list[int] = []
    time_calls(taking(0.1, calls))
    assert 0.1 * len(calls) <= MOST + 3 * 0.1


def test_a_very_slow_kernel_is_run_once() -> None:
    calls: list[int] = []
    assert time_calls(taking(2 * MOST, calls)) == [2 * MOST]
    assert calls == [1]


@pytest.mark.parametrize("seconds", [0.2, 1.0, 10.0])
def test_slow_kernels_are_compared_for_no_longer_than_they_have_to(seconds: float) -> None:
    calls: list[int] = []
    rounds = compare_calls([taking(seconds, calls), taking(seconds)])
    assert FEWEST <= len(rounds) <= max(FEWEST, LONG / seconds + 1)


def test_what_is_compared_takes_turns_in_being_first() -> None:
    order: list[str] = []

    def name_runs(name: str, seconds: float) -> Run:
        def run(number: int) -> float:
            order.append(name)
            return number * seconds

        return run

    assert compare_calls([name_runs("a", 0.01), name_runs("b", 0.02)]) == [pytest.approx([0.01, 0.02])] * PAIRS
    assert order[-8:] in (list("abbaabba"), list("baabbaab"))


def test_each_sample_of_a_comparison_is_long_enough() -> None:
    calls: list[int] = []
    compare_calls([taking(1e-6, calls), taking(0.01)])
    assert calls[-1] * 1e-6 >= SAMPLE
