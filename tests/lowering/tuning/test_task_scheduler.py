"""Which task gets the next trials, on made-up curves."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eqfuse.lowering.tuning.settings import FIRST_SHARE, trials_for
from eqfuse.lowering.tuning.tuner import Progress, Turn, gain, next_turn


@dataclass(frozen=True)
class Curve:
    """Seconds after t trials: from `start` down to `end`, halfway after `pace`."""

    calls: float
    start: float
    end: float
    pace: float = 20.0

    def at(self, trials: int) -> float:
        return self.end + (self.start - self.end) * math.exp2(-(trials - 1) / self.pace)


def play(curves: Mapping[str, Curve], budget: int, batch: int = 8) -> Counter[str]:
    """How many trials each gets."""
    spent: Counter[str] = Counter()
    while True:
        tasks = [
            Progress(key, curve.calls, tuple(curve.at(t) for t in range(1, spent[key] + 1)))
            for key, curve in curves.items()
        ]
        turn = next_turn(tasks, budget - spent.total(), batch)
        if turn is None:
            return spent
        spent[turn.key] += turn.trials


def test_the_heavy_improving_task_gets_most() -> None:
    spent = play({"flat": Curve(1, 1.0, 1.0), "improving": Curve(1, 1.0, 0.2), "light": Curve(1, 0.01, 0.001)}, 200)
    assert spent["improving"] > spent["flat"] > spent["light"]


def test_a_heavy_task_that_has_reached_its_best_leaves_trials_to_others() -> None:
    spent = play({"flat": Curve(1, 1.0, 1.0), "slow": Curve(1, 0.2, 0.02, pace=100.0)}, 400)
    assert spent["slow"] > 150


def test_calls_make_a_task_heavy() -> None:
    spent = play({"often": Curve(20, 0.1, 0.05), "once": Curve(1, 0.1, 0.05)}, 160)
    assert spent["often"] > 3 * spent["once"]


def test_everyone_gets_the_analytic_trial_the_larger_first() -> None:
    tasks = [Progress("small", 1, bound=1e-6), Progress("large", 1, bound=1e-3), Progress("measured", 1, (1.0,))]
    assert next_turn(tasks, 10) == Turn("large", 1)


def test_too_few_trials_are_for_the_largest_tasks() -> None:
    """A first trial of each would use them all up, and make nothing faster."""
    curves = {str(number): Curve(1, 1.0 / (1 + number), 0.0) for number in range(76)}
    spent = play(curves, 30)
    assert set(spent) == {str(number) for number in range(15)}
    assert spent["0"] > 1
    assert len(play(curves, trials_for(76))) == 76


def test_a_negligible_task_gets_no_more_than_the_analytic_trial() -> None:
    curves = {str(number): Curve(1, 1.0 if number < 5 else 1e-5, 0.0) for number in range(60)}
    spent = play(curves, 200)
    assert {spent[str(number)] for number in range(5, 60)} == {1}
    assert min(spent[str(number)] for number in range(5)) > 10


def test_what_has_a_share_is_warmed_up() -> None:
    tasks = [Progress("one", 1, (1.0,) * 40), Progress("two", 1, (0.1,))]
    assert next_turn(tasks, 100, batch=8, warm_up=4) == Turn("two", 3)


def test_the_bound_says_what_cannot_be_gained() -> None:
    near, far = Progress("near", 1, (1.0,) * 9, bound=0.9), Progress("far", 1, (0.8,) * 9, bound=0.1)
    assert next_turn([near, far], 8, warm_up=0) == Turn("far", 8)


def test_what_gained_lately_is_expected_to_gain() -> None:
    flat, falling = Progress("flat", 1, (1.0,) * 9), Progress("falling", 1, (2.0,) * 5 + (1.0,) * 4)
    assert gain(falling) > gain(flat)


@pytest.mark.parametrize("history", [(), (math.inf,), (math.inf, math.inf)])
def test_what_did_not_run_promises_nothing(history: tuple[float, ...]) -> None:
    assert gain(Progress("task", 1, history)) == 0.0


def test_the_finished_get_nothing() -> None:
    task = Progress("task", 1, is_finished=True)
    assert next_turn([task], 100) is None
    assert next_turn([task, replace(task, key="other", is_finished=False)], 100) == Turn("other", 1)


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 30), st.floats(1e-6, 1.0), st.floats(0.0, 1.0)), min_size=1, max_size=12),
    st.integers(0, 150),
    st.integers(1, 32),
)
def test_the_budget_is_used_up_and_no_more(sizes: list[tuple[int, float, float]], budget: int, batch: int) -> None:
    curves = {str(i): Curve(calls, start, start * left) for i, (calls, start, left) in enumerate(sizes)}
    spent = play(curves, budget, batch)
    assert spent.total() == budget
    assert len(spent) == min(len(curves), math.ceil(budget * FIRST_SHARE))


def test_a_task_gets_what_others_leave_of_their_budgets_last() -> None:
    steep = Progress("steep", 1.0, (2.0, 1.5, 1.0, 0.6), budget=4)
    flat = Progress("flat", 0.1, (1.0, 1.0, 1.0, 1.0), budget=9)
    assert next_turn([steep, flat], 10) == Turn("flat", 8)
    assert next_turn([steep, replace(flat, budget=4)], 10) == Turn("steep", 8)
