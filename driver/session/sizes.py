"""The calls of one set of input sizes: in ONNX Runtime, until compiled code may take over."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .forks import hold_forks
from .model_code import ModelCode
from .takeover import Feeds, GivenUpError, Runtime, Takeover
from .verdicts import Array, Job, Verdict, Verdicts


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

    def run(self, runtime: Runtime, names: Sequence[str], feeds: Feeds, all_calls: int) -> list[Any]:
        """The outputs of these names; `all_calls` counts those of the session. Raises what ONNX Runtime raises.

        The runtime is given for each call: a group that kept it would keep its session from being freed.
        """
        self._calls += 1
        takeover = self._takeover
        if takeover is not None:
            try:
                return takeover.run(runtime, names, feeds)
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
            takeover = Takeover(self._code.load(verdicts.bundle(job.key)), verdict.speed)
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
