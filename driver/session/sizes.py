"""The calls of one set of input sizes: in ONNX Runtime, until compiled code takes over and is compared again and again.

After the takeover, calls number 1, 4, 8, 16, ... and every thousandth run in both: the caller gets ONNX Runtime's
results, and compiled code that differs, or that takes longer in most of the last trials, is given up.
"""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

from ...lowering.running.turns import time_warm_calls
from ...support.errors import EqfuseError
from .model_code import ModelCode
from .verdicts import Array, Job, Verdict, Verdicts, require_equal

if TYPE_CHECKING:
    from ...lowering.bundle.loaded import LoadedModel


Feeds = Mapping[str, Any]
Runtime = Callable[[Sequence[str], Feeds], list[Any]]
"""Runs in ONNX Runtime: names of outputs and inputs to outputs."""
Find = Callable[[Feeds], object]
"""Finds the sizes of a call, as a session does before each: a timed call does so, too."""
_SOON = 2
"""The least power of two that is no number of a trial: the first inputs were compared before."""
_EVERY = 1000
"""Calls between two trials, in the long run."""
_TRIALS, _ENOUGH = 9, 5
"""The number of last trials that count for the speed, and the fewest of them for a verdict."""
_LONG_SECONDS = 0.01
"""Seconds of a call that is timed as it comes: waking threads and filling caches takes a small part of it."""
_BLOCKS = 2
"""Blocks of warm calls by which shorter calls are timed: two bound the time that a trial costs its caller."""


class GivenUpError(Exception):
    """Compiled code should not run any more; the text says why. `results` are those of ONNX Runtime for this call.

    `is_wrong`: its results differ, here and wherever else it runs.
    """

    def __init__(self, reason: str, results: list[Any], *, is_wrong: bool) -> None:
        super().__init__(reason)
        self.results = results
        self.is_wrong = is_wrong


class Takeover:
    """A bundle that takes calls of one set of input sizes. Several threads may call at once."""

    def __init__(self, model: LoadedModel, speed: float, steps: Mapping[str, float]) -> None:
        """`steps` are those of the verdict."""
        self._steps = steps
        self.calls = self.trials = 0
        self._model = model
        self._outputs = [port.name for port in model.outputs]
        self._integers = [port.name for port in model.inputs if port.dtype.startswith(("int", "uint"))]
        self._ranges: dict[str, tuple[int, int]] = {}
        self._numbers = itertools.count(1)
        self._speeds: deque[float] = deque([speed], _TRIALS)
        self._clock = time.thread_time if model.threads == 1 else time.perf_counter
        self._lock = threading.Lock()

    @property
    def speed(self) -> float:
        """How many times as long ONNX Runtime takes, in the median of the last trials."""
        return median(self._speeds)

    def check(self, runtime: Runtime, feeds: Feeds) -> None:
        """Run a first time, while no caller waits. Raises GivenUpError."""
        self._try(runtime, self._outputs, feeds)

    def run(self, runtime: Runtime, names: Sequence[str], feeds: Feeds, find: Find) -> list[Any]:
        """The outputs of these names. Raises GivenUpError, and what ONNX Runtime raises for inputs that it refuses."""
        self.calls = number = next(self._numbers)
        is_due = number == 1 or (number & (number - 1) == 0 and number != _SOON) or number % _EVERY == 0
        if is_due or not self._is_within_ranges(feeds):
            return self._try(runtime, names, feeds, find)
        try:
            results = self._model.run(feeds)
        except (EqfuseError, MemoryError) as error:
            raise GivenUpError(f"failed: {error}", runtime(names, feeds), is_wrong=False) from None
        return [results[name] for name in names]

    def _try(self, runtime: Runtime, names: Sequence[str], feeds: Feeds, find: Find | None = None) -> list[Any]:
        """Run in both and compare; with `find`, also time them, compiled code with all that the session does for it."""
        begin = self._clock()
        expected = dict(zip(self._outputs, runtime(self._outputs, feeds), strict=True))
        middle = self._clock()
        results = [expected[name] for name in names]
        try:
            computed = self._model.run(feeds)
            seconds = middle - begin, self._clock() - middle
            require_equal(expected, computed, self._steps)
            if find and max(seconds) < _LONG_SECONDS:
                calls = (
                    lambda: runtime(self._outputs, feeds),
                    lambda: (find(feeds), self._is_within_ranges(feeds), self._model.run(feeds)),
                )
                seconds = time_warm_calls(*calls, clock=self._clock, blocks=_BLOCKS)
        except (EqfuseError, MemoryError) as error:
            raise GivenUpError(str(error), results, is_wrong=not isinstance(error, MemoryError)) from None
        self._extend_ranges(feeds)
        with self._lock:
            if find:
                self.trials += 1
                self._speeds.append(seconds[0] / max(seconds[1], 1e-9))
        if len(self._speeds) >= _ENOUGH and self.speed < 1.0:
            raise GivenUpError("slower here", results, is_wrong=False)
        return results

    def _is_within_ranges(self, feeds: Feeds) -> bool:
        """Whether integers are between those that were compared: others might be indices of no element, which ONNX
        Runtime refuses."""
        for name in self._integers:
            array = feeds[name]
            low, high = self._ranges.get(name, (0, -1))
            if array.size and not (low <= array.min() and array.max() <= high):
                return False
        return True

    def _extend_ranges(self, feeds: Feeds) -> None:
        for name in self._integers:
            array = feeds[name]
            if array.size:
                low, high = self._ranges.get(name, (array.min(), array.max()))
                self._ranges[name] = (min(low, int(array.min())), max(high, int(array.max())))


@dataclass(frozen=True)
class SizeReport:
    """The calls of one set of input sizes. `runs_in` is "compiled code" or "ONNX Runtime"; `reason` says why.

    `compiled_calls` ran in compiled code alone, `trials` in both. `speed`: how many times as long ONNX Runtime takes;
    0 if nothing was measured.
    """

    inputs: str
    runs_in: str
    reason: str
    calls: int
    compiled_calls: int
    trials: int
    speed: float

    def __str__(self) -> str:
        speed = f", {self.speed:.2f} times ONNX Runtime's speed" if self.speed else ""
        counts = f"{self.calls} call(s), {self.compiled_calls} compiled, {self.trials} in both"
        return f"{self.inputs}: {self.runs_in} ({self.reason}{speed}); {counts}"


class SizeGroup:
    """The calls of one set of input sizes. Several threads may call at once; none ever waits for the compiler."""

    def __init__(self, inputs: str, code: ModelCode) -> None:
        self._inputs = inputs
        self._code = code
        self._calls = self._earlier_calls = self._earlier_trials = 0
        self._reason = "waits for more calls"
        self._speed = 0.0
        self._has_begun = False
        self._lock = threading.Lock()
        self._takeover: Takeover | None = None
        self._key = ""

    def run(self, runtime: Runtime, names: Sequence[str], feeds: Feeds, find: Find, all_calls: int) -> list[Any]:
        """The outputs of these names; `all_calls` counts those of the session. Raises what ONNX Runtime raises.

        The session's functions are given for each call: a group that kept them would keep it from being freed.
        """
        self._calls += 1
        takeover = self._takeover
        if takeover is not None:
            try:
                return takeover.run(runtime, names, feeds, find)
            except GivenUpError as error:
                self._give_up(error)
                return error.results
        results = runtime(names, feeds)
        if not self._has_begun and self._code.may_begin(self._calls, all_calls):
            self._begin(runtime, feeds)
        return results

    def report(self) -> SizeReport:
        """Whether these sizes run in compiled code or in ONNX Runtime, and why."""
        takeover = self._takeover
        return SizeReport(
            self._inputs,
            "compiled code" if takeover is not None else "ONNX Runtime",
            self._reason,
            self._calls,
            self._earlier_calls + (takeover.calls - takeover.trials if takeover is not None else 0),
            self._earlier_trials + (takeover.trials if takeover is not None else 0),
            takeover.speed if takeover is not None else self._speed,
        )

    def after_fork(self) -> None:
        """Begin again the work of threads that this forked process does not have."""
        self._lock = threading.Lock()
        if self._takeover is None and self._has_begun and not self._key:
            self._has_begun = False

    def _begin(self, runtime: Runtime, feeds: Feeds) -> None:
        with self._lock:
            if self._has_begun:
                return
            self._has_begun = True
        try:
            copies = {name: array.copy() for name, array in feeds.items()}
            self._reason = "being compiled"
            threading.Thread(target=self._prepare, args=(runtime, copies), name="eqfuse-session", daemon=True).start()
        except (MemoryError, RuntimeError) as error:  # no memory, no more threads
            self._reason = f"no compiled code: {error}"

    def _prepare(self, runtime: Runtime, feeds: dict[str, Array]) -> None:
        """Find a verdict, and take over if it says so. Errors never reach the callers."""
        try:
            verdicts = Verdicts()
            with hold_forks():
                self._code.identify()
            for job in self._code.list_jobs(feeds):
                verdict = verdicts.ask(job)
                if verdict.takes_over:
                    self._take_over(runtime, job, verdict, verdicts)
                self._reason, self._speed = verdict.reason, verdict.speed
                if verdict.takes_over:
                    break
        except GivenUpError as error:
            self._give_up(error)
        except Exception as error:
            self._reason = f"no compiled code: {' '.join(str(error).split()) or type(error).__name__}"
        finally:
            self._key = self._key or "none"

    def _take_over(self, runtime: Runtime, job: Job, verdict: Verdict, verdicts: Verdicts) -> None:
        with hold_forks():
            self._key = job.key
            takeover = Takeover(self._code.load(verdicts.bundle(job.key)), verdict.speed, verdict.steps)
            takeover.check(runtime, job.inputs)
            self._takeover = takeover

    def _give_up(self, error: GivenUpError) -> None:
        takeover, self._takeover = self._takeover, None
        self._reason = str(error)
        if takeover is not None:
            self._speed = takeover.speed
            self._earlier_calls += takeover.calls - takeover.trials
            self._earlier_trials += takeover.trials
        if error.is_wrong:
            Verdicts().keep(self._key, Verdict(False, str(error)))


_LONGEST = 10.0
"""Seconds that a fork waits at most: the thread might itself wait for a lock of the forking one."""

_lock = threading.Lock()
_fork = threading.local()


@contextmanager
def hold_forks() -> Iterator[None]:
    """Let no other thread fork meanwhile."""
    with _lock:
        yield


def _before_fork() -> None:
    _fork.has_lock = _lock.acquire(timeout=_LONGEST)


def _in_parent() -> None:
    if _fork.has_lock:
        _lock.release()


def _in_child() -> None:
    global _lock
    _lock = threading.Lock()


os.register_at_fork(before=_before_fork, after_in_parent=_in_parent, after_in_child=_in_child)
