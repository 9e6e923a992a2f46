"""Which task gets the next trials: the one that promises to make the model faster by most per trial.

After Ansor (OSDI 2020, section 6): a model's latency is the sum of its tasks' best latencies, each times the task's
calls, so its gradient by the trials of a task is that of the task's latency times its calls. The gradient is
estimated from the gains of the last trials of the task and from an optimistic guess of those of the next ones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from .settings import FIRST_SHARE

BATCH = 8
"""Trials of a task in one turn."""
WARM_UP = 4
"""Trials of a task before it is compared with others by what they gained."""
PAST = 0.2
"""The share of the gradient that the gains of the last trials have; the rest is what the next ones may gain (Ansor's
alpha)."""
WINDOW = 16
"""The last trials, whose gains count as the recent ones; after as many without any gain, half as much is expected."""
NOTICEABLE = 0.01
"""An improvement by a smaller share counts as none."""


@dataclass(frozen=True)
class Progress:
    """A task so far. `calls`: how often a run of the model calls it.

    `history`: the best latency in seconds after each trial, earlier runs' included; infinite before one ran. `bound`: a
    latency that cannot be beaten, such as a roofline; 0 if none is known. `is_finished`: it
    takes no more trials. `budget`: the trials that it gets before others have had theirs.
    """

    key: str
    calls: float
    history: tuple[float, ...] = ()
    bound: float = 0.0
    is_finished: bool = False
    budget: float = math.inf

    @property
    def latency(self) -> float:
        """The best latency so far; infinite if there is none."""
        return self.history[-1] if self.history else math.inf

    @property
    def share(self) -> float:
        """Its seconds of a run of the model, by its bound before one was measured."""
        return self.calls * (self.latency if math.isfinite(self.latency) else self.bound)


@dataclass(frozen=True)
class Turn:
    """The next trials of a task."""

    key: str
    trials: int


def next_turn(tasks: Sequence[Progress], remaining: int, batch: int = BATCH, warm_up: int = WARM_UP) -> Turn | None:
    """Who gets the next trials of `remaining` ones; None when there are none left, or nobody takes any.

    Every task first gets one trial, its analytic schedule, the larger ones first: as many tasks as half of the trials
    reach, for a first trial alone makes nothing faster. Then a warm-up for those whose share
    of the model's time is worth at least one of all trials, the larger ones first, while less than half of them are
    used. From then on, a batch for the task of the steepest gradient, of those within their budget as long as there are
    any.
    """
    open_ones = [task for task in tasks if not task.is_finished]
    if remaining <= 0 or not open_ones:
        return None
    by_share = sorted(open_ones, key=lambda task: -task.share)
    begun, total = sum(bool(task.history) for task in tasks), remaining + sum(len(task.history) for task in tasks)
    fresh = next((task for task in by_share if not task.history), None)
    if fresh is not None and begun < FIRST_SHARE * total:
        return Turn(fresh.key, 1)
    used, total_share = total - remaining, sum(task.share for task in tasks)
    worthy = (task for task in by_share if math.isfinite(task.latency) and task.share * total >= total_share)
    cold = next((task for task in worthy if len(task.history) < warm_up), None) if used < remaining else None
    if cold is not None:
        return Turn(cold.key, min(warm_up - len(cold.history), batch, remaining))
    within = [task for task in by_share if len(task.history) < task.budget] or by_share
    return Turn(max(within, key=gain).key, min(batch, remaining))


def gain(task: Progress) -> float:
    """The seconds of a run of the model that a trial of the task is expected to save.

    What may still be gained is taken to shrink with the trials made, as the best of t samples does, and with those
    since the last improvement: Ansor's estimate lacks the latter, and spends most trials on heavy tasks that have long
    reached their best. Its comparison with tasks of the same kind is left out: here each has a roofline of its own.
    """
    trials = len(task.history)
    if not trials or not math.isfinite(task.latency):
        return 0.0
    possible = max(task.latency - task.bound, 0.0) / trials / (1.0 + _idle(task.history) / WINDOW)
    return task.calls * (PAST * _past_gain(task.history) + (1.0 - PAST) * possible)


def _idle(history: Sequence[float]) -> int:
    """The trials since the one that came near to the best for the first time."""
    near = history[-1] * (1.0 + NOTICEABLE)
    return len(history) - 1 - next(index for index, seconds in enumerate(history) if seconds <= near)


def _past_gain(history: Sequence[float]) -> float:
    """Seconds that a trial of the last ones saved, from the first that ran."""
    ran = [seconds for seconds in history if math.isfinite(seconds)][-WINDOW - 1 :]
    return (ran[0] - ran[-1]) / (len(ran) - 1) if len(ran) > 1 else 0.0
