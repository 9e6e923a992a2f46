"""The calls of one set of input sizes: in ONNX Runtime, until compiled code may take over."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .takeover import Feeds, GivenUpError, Runtime, Takeover
from .verdicts import Array, Job, Verdict, Verdicts

if TYPE_CHECKING:
    from ...lowering.bundle.loaded import LoadedModel

MayBegin = Callable[[int], bool]
"""Whether to look for compiled code after so many calls."""
ListJobs = Callable[[dict[str, Array]], Iterator[Job]]
"""The jobs to compile for some inputs, the best first; it may take long. Raises EqfuseError where nothing can be."""
Load = Callable[[Path, Job], "LoadedModel"]
"""The bundle in a folder, which several groups may share."""


@dataclass(frozen=True)
class SizeReport:
    """The calls of one set of input sizes. `runs_in` is "compiled code" or "ONNX Runtime"; `reason` says why.

    `compiled_calls` ran in compiled code alone, `trials` in both. `speed`: how many times as long ONNX Runtime takes;
    0 where nothing was measured.
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

    def __init__(self, inputs: str, runtime: Runtime, may_begin: MayBegin, list_jobs: ListJobs, load: Load) -> None:
        self._inputs = inputs
        self._may_begin = may_begin
        self._runtime = runtime
        self._list_jobs = list_jobs
        self._load = load
        self._calls = self._earlier_calls = self._earlier_trials = 0
        self._reason = "waits for more calls"
        self._speed = 0.0
        self._has_begun = False
        self._lock = threading.Lock()
        self._takeover: Takeover | None = None
        self._key = ""

    def run(self, names: Sequence[str], feeds: Feeds) -> list[Any]:
        """The outputs of these names. Raises what ONNX Runtime raises."""
        self._calls += 1
        takeover = self._takeover
        if takeover is not None:
            try:
                return takeover.run(names, feeds)
            except GivenUpError as error:
                self._give_up(error)
                return error.results
        results = self._runtime(names, feeds)
        if not self._has_begun and self._may_begin(self._calls):
            self._begin({name: array.copy() for name, array in feeds.items()})
        return results

    def report(self) -> SizeReport:
        """What runs where, and why."""
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
        """Begin again what threads were at that this copy of the process does not have."""
        self._lock = threading.Lock()
        if self._takeover is None and self._has_begun and not self._key:
            self._has_begun = False

    def _begin(self, feeds: dict[str, Array]) -> None:
        with self._lock:
            if self._has_begun:
                return
            self._has_begun = True
            self._reason = "being compiled"
        threading.Thread(target=self._prepare, args=(feeds,), name="eqfuse-session", daemon=True).start()

    def _prepare(self, feeds: dict[str, Array]) -> None:
        """Find a verdict, and take over where it says so. Nothing that goes wrong concerns the callers."""
        try:
            verdicts = Verdicts()
            for job in self._list_jobs(feeds):
                verdict = verdicts.ask(job)
                if verdict.takes_over:
                    self._take_over(job, verdict, verdicts)
                self._reason, self._speed = verdict.reason, verdict.speed
                if verdict.takes_over:
                    break
        except GivenUpError as error:
            self._give_up(error)
        except Exception as error:
            self._reason = f"no compiled code: {' '.join(str(error).split()) or type(error).__name__}"
        finally:
            self._key = self._key or "none"

    def _take_over(self, job: Job, verdict: Verdict, verdicts: Verdicts) -> None:
        self._key = job.key
        model = self._load(verdicts.bundle(job.key), job)
        takeover = Takeover(model, self._runtime, verdict.differences, verdict.speed)
        takeover.check(job.inputs)
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
