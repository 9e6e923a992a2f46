"""The search for the schedules of a model: trials for the task that promises most, and the reformer around it.

The reformer (AGO, section V) tunes mini-sub-graphs first: kernels of one anchor op, the SPLIT. When all parts of a join
are stable, or half of the trials or of the time is used, the joined kernel becomes a task too, which begins with the
schedules of its parts, composed (JOIN). What is faster as measured, joined or apart, is what the model gets.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from random import Random

from ..base.decisions import Decisions, DecisionSite
from ..plan.manifest import Point
from .cost_model import Learner
from .evolution import TaskSearch
from .joins import SCHEDULED_APART, Join, best_joins, compose_schedules, other_joins, split_kernels, with_joins
from .measurement_setup import MeasurementSetup, Trial
from .settings import FIRST_SHARE, Settings, trials_for
from .space import decisions_of
from .tasks import Members, Task, TaskTable

Observer = Callable[[str], None]
BATCH = 16
"""Candidates that are built at once."""
SPLIT_SHARE = 0.5
"""Share of the trials, or of the time, after which kernels are joined even if their parts still get better."""
LEADERS = 3
"""The fastest candidates of a task, which are measured again beside the analytic one."""
HOPELESS, FIRST_TRIALS = 1.15, 3
"""A joined kernel that is slower than its parts by this factor after this many trials gets no more of them."""
MINOR = 0.25
"""The weight of a task that the best partition so far does not use: it might, if it got better."""


@dataclass(frozen=True)
class Tuned:
    """The kernels to make of a graph, and what their schedules decide, by task; those that are not there stay analytic.

    `partitions` of the graph are the one that measured fastest kernel by kernel, the kernels that it began with, and
    those that the device model would have: each once. `joined` are the tasks of kernels that replace several. `curve`
    has a point for each batch; `trials` and `failed` count the records of these tasks in the database.
    """

    partitions: tuple[tuple[Members, ...], ...]
    decisions: Mapping[str, Decisions]
    curve: tuple[Point, ...]
    trials: int
    failed: int
    tasks: int
    joined: Mapping[Members, str]

    def count_joined(self, kernels: Iterable[Members]) -> int:
        """How many distinct ones of these kernels replace several."""
        return len({self.joined[kernel] for kernel in kernels if kernel in self.joined})


@dataclass
class Tuner:
    """One search. `table` makes the tasks of kernels, `whole` are the kernels of the partition."""

    table: TaskTable
    whole: tuple[Members, ...]
    setup: MeasurementSetup
    settings: Settings
    observer: Observer = lambda line: None
    searches: dict[str, TaskSearch] = field(default_factory=dict)
    traces: dict[str, dict[tuple[tuple[str, str], ...], tuple[DecisionSite, ...]]] = field(default_factory=dict)
    joins: tuple[Join, ...] = ()
    curve: list[Point] = field(default_factory=list)
    _random: Random = field(init=False)
    _learner: Learner = field(init=False)
    _base: tuple[Members, ...] = field(init=False)
    _waiting: list[Join] = field(init=False)
    _joined_starts: dict[str, tuple[Join, tuple[DecisionSite, ...]]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        setup = self.setup
        self._random = Random(self.settings.seed)
        self._learner = Learner.open(setup.database, setup.device, setup.runner.name)
        self._base, self._waiting = self._first_kernels()
        setup.between = self.table.constant_bytes(self._base)

    def run(self) -> Tuned:
        """Search until the trials or the time are used up, or nothing is left to try."""
        started = time.monotonic()
        self._begin(self.table.calls(self._base))
        self._release([join for join in self._waiting if self._has_records(join)])
        before = self._count_trials()
        trials, kernels = self.settings.trials, len(self.searches)
        if trials < trials_for(kernels):
            self.observer(f"{trials} trials are for the largest of {kernels} kernels; {trials_for(kernels)} reach all")
        while not self._is_over(started):
            self._join_stable_parts(started)
            wanted = self._next()
            if not wanted:
                if not self._waiting:
                    break
                self._release(self._waiting)
                continue
            self._observe(self.setup.try_out(wanted))
            self._report(started, before)
        return self._result()

    # --- tasks

    def _first_kernels(self) -> tuple[tuple[Members, ...], list[Join]]:
        """The kernels to begin with, and the joins to come."""
        apart, joins = split_kernels(self.table.fits, self.whole)
        if not self.settings.intensive:
            return apart, []
        if not self.settings.reformer:
            return self.whole, []
        return apart, [*joins, *other_joins(self.table.fits, apart, joins)]

    def _begin(self, keys: Iterable[str]) -> None:
        for key in keys:
            if key not in self.searches:
                task = self.table.tasks[key]
                self.searches[key] = TaskSearch(task.features, self.setup.records(task))
                self.traces[key] = {}
        self._retrace()

    def _retrace(self) -> None:
        """Build candidates, without measuring them, whose traces are needed to go on with tasks of earlier runs."""
        while True:
            lost = {key: w for key, s in self.searches.items() if (w := s.wanted_trace) is not None}
            if not lost:
                return
            for candidate in self.setup.build([(self.table.tasks[key], wanted) for key, wanted in lost.items()]):
                key = candidate.task.key
                trace = candidate.trace if candidate.kernel is not None else None
                self.searches[key].observe_trace(lost[key], trace)
                self._keep_trace(key, trace)

    def _keep_trace(self, key: str, trace: Sequence[DecisionSite] | None) -> None:
        if trace is not None:
            self.traces[key][tuple(sorted(decisions_of(trace).items()))] = tuple(trace)

    def _seconds(self, kernel: Members) -> float:
        """The best seconds of a kernel so far; infinite before it ran."""
        key = self.table.key(kernel)
        if key is None:
            return 0.0
        best = self.searches[key].best if key in self.searches else None
        return inf if best is None else best[1]

    # --- the reformer

    def _join_stable_parts(self, started: float) -> None:
        """JOIN the kernels whose parts are stable, or all when half of the trials or of the time are used."""
        limit, seconds = self.settings.time_limit or inf, time.monotonic() - started
        late = self._count_trials() >= SPLIT_SHARE * self.settings.trials or seconds >= SPLIT_SHARE * limit
        ready = [join for join in self._waiting if late or all(map(self._is_stable, join.apart))]
        if ready:
            self._release(ready)
        for key in self._joined_starts:
            self._compose(key)

    def _has_records(self, join: Join) -> bool:
        """Whether an earlier run had joined it: its trials count, and what they found holds."""
        key = self.table.key(join.whole)
        return key is not None and bool(self.setup.records(self.table.tasks[key]))

    def _is_stable(self, kernel: Members) -> bool:
        key = self.table.key(kernel)
        return key is None or self.searches[key].is_stable()

    def _release(self, ready: Sequence[Join]) -> None:
        self._waiting = [join for join in self._waiting if join not in ready]
        self.joins += tuple(ready)
        new = {key: join for join in ready for kernel in join.together if (key := self.table.key(kernel)) is not None}
        fresh = {key: join for key, join in new.items() if key not in self.searches}
        self._begin(fresh)
        whole = {key: join for key, join in fresh.items() if key == self.table.key(join.whole)}
        for candidate in self.setup.build([(self.table.tasks[key], {}) for key in whole]):
            key = candidate.task.key
            self.searches[key].observe_trace({}, candidate.trace if candidate.kernel is not None else None)
            self._joined_starts[key] = (whole[key], candidate.trace)

    def _compose(self, key: str) -> None:
        """Suggest what the parts of a joined kernel decide by now: they may get better after it was begun."""
        join, trace = self._joined_starts[key]
        start = compose_schedules(trace, self._parts(join))
        if start:
            self.searches[key].suggest(start)

    def _parts(self, join: Join) -> list[Decisions]:
        """The decisions of the products and windows of the parts, site by site."""
        parts: list[Decisions] = []
        for kernel in join.apart:
            key = self.table.key(kernel)
            best = self.searches[key].best if key is not None else None
            if key is None:
                continue
            trace = self.traces[key].get(tuple(sorted(best[0].items())), ()) if best is not None else ()
            if best is None or any(site.name == SCHEDULED_APART for site in trace):
                parts.append({site.name: site.option.label for site in trace})
        return parts

    # --- trials

    def _next(self) -> list[tuple[Task, Decisions]]:
        """A batch of candidates, of the tasks that promise most."""
        wanted: list[tuple[Task, Decisions]] = []
        if not self.searches:
            return wanted
        progress = self._progress()
        left = self.settings.trials - self._count_trials()
        while len(wanted) < min(BATCH, left):
            turn = next_turn(list(progress.values()), left - len(wanted))
            if turn is None:
                break
            if progress[turn.key].history and not self.searches[turn.key].history:
                break  # its first trial is in this batch, and decides what to try next
            proposed = self.searches[turn.key].propose(turn.trials, self._learner.model, self._random)
            wanted += [(self.table.tasks[turn.key], decisions) for decisions in proposed]
            now = progress[turn.key]
            history = now.history + (now.latency,) * len(proposed)
            is_finished = now.is_finished or len(proposed) < turn.trials
            progress[turn.key] = replace(now, history=history, is_finished=is_finished)
        return wanted[:left]

    def _progress(self) -> dict[str, Progress]:
        used = self.table.calls(with_joins(self.table.fits, self._base, best_joins(self.joins, self._seconds)))
        possible = self.table.calls(self.kernels)
        hopeless = self._hopeless()
        each_weight = self.settings.trials / sum(map(self.table.weight, self.searches))
        return {
            key: Progress(
                key, max(used.get(key, 0), MINOR * possible.get(key, 0)), search.history, self.table.roofline(key),
                is_finished=search.exhausted or key in hopeless, budget=each_weight * self.table.weight(key),
            )
            for key, search in self.searches.items()
        }  # fmt: skip

    def _hopeless(self) -> set[str]:
        """Joined kernels that their parts beat clearly, everywhere."""
        hopes: dict[str, bool] = {}
        for join in self.joins:
            key = self.table.key(join.whole)
            if key is not None and len(self.searches[key].history) >= FIRST_TRIALS:
                apart, together = (sum(map(self._seconds, kernels)) for kernels in (join.apart, join.together))
                hopes[key] = hopes.get(key, False) or together <= HOPELESS * apart
        return {key for key, hope in hopes.items() if not hope}

    def _observe(self, trials: Sequence[Trial]) -> None:
        for trial in trials:
            key = trial.candidate.task.key
            trace = trial.candidate.trace if trial.candidate.kernel is not None else None
            self.searches[key].observe(trial.wanted, trace, trial.latency)
            self._keep_trace(key, trace)
        self._learner.learn(trial.record for trial in trials)

    def _count_trials(self) -> int:
        return sum(len(search.history) for search in self.searches.values())

    def _is_over(self, started: float) -> bool:
        limit = self.settings.time_limit
        is_late = limit is not None and time.monotonic() - started >= limit
        return is_late or self._count_trials() >= self.settings.trials

    # --- results

    def _latency(self) -> float | None:
        """Seconds of all kernels of the best partition; None while one of them has not run yet."""
        kernels = with_joins(self.table.fits, self._base, best_joins(self.joins, self._seconds))
        calls = self.table.calls(kernels)
        bests = [(count, self.searches[key].best) for key, count in calls.items()]
        seconds = [count * best[1] for count, best in bests if best is not None]
        return sum(seconds) if len(seconds) == len(bests) else None

    def _report(self, started: float, before: int) -> None:
        """Say how far the search is after the trials `before` it, and note it once all kernels have run."""
        trials, seconds, latency = self._count_trials(), time.monotonic() - started, self._latency()
        if latency is not None:
            self.curve.append(Point(trials, seconds, latency))
        left = (self.settings.trials - trials) * seconds / max(trials - before, 1)
        left = min(left, max(0.0, (self.settings.time_limit or inf) - seconds))
        ran = sum(search.best is not None for search in self.searches.values())
        missing = f"{ran} of {len(self.searches)} kernels ran"
        state = missing if latency is None else f"kernels take {1e3 * latency:.3f} ms"
        self.observer(f"{trials} of {self.settings.trials} trials: {state}, {left:.0f} s to go")

    @property
    def kernels(self) -> tuple[Members, ...]:
        """All kernels that were tuned, apart and joined."""
        return (*self._base, *(kernel for join in self.joins for kernel in join.together))

    def _result(self) -> Tuned:
        fastest = with_joins(self.table.fits, self._base, best_joins(self.joins, self._seconds))
        partitions = tuple(dict.fromkeys((fastest, self._base, self.whole if self.settings.intensive else self._base)))
        changed = {}
        for key in self.table.calls({kernel for partition in partitions for kernel in partition}):
            leaders = [each for each in self.searches[key].leaders(LEADERS) if each] if key in self.searches else []
            if leaders:
                self.observer(f"confirming {self.table.tasks[key].name}")
                changed[key] = self.setup.choose_fastest(self.table.tasks[key], leaders)
        failed = sum(search.failed for search in self.searches.values())
        joined = {join.whole: task for join in self.joins if (task := self.table.key(join.whole)) is not None}
        decisions = {key: decisions for key, decisions in changed.items() if decisions}
        return Tuned(partitions, decisions, tuple(self.curve), self._count_trials(), failed, len(self.searches), joined)


# Which task gets the next trials: the one that promises to make the model faster by most per trial.
#
# After Ansor (OSDI 2020, section 6): a model's latency is the sum of its tasks' best latencies, each times the task's
# calls, so its gradient by the trials of a task is that of the task's latency times its calls. The gradient is
# estimated from the gains of the last trials of the task and from an optimistic guess of those of the next ones.

TURN = 8
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


def next_turn(tasks: Sequence[Progress], remaining: int, batch: int = TURN, warm_up: int = WARM_UP) -> Turn | None:
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
