"""ONNX Runtime as its users run it: models timed beside an original, in a process of its own, which may crash."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from math import ceil
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from ...support.custom_operators import register
from ...support.errors import EqfuseError
from ...support.processes.worker_process import WorkerDiedError, WorkerFailedError, WorkerProcess
from .turns import Estimate, take_turns

if TYPE_CHECKING:
    import onnxruntime

    from ...engine.verification.inputs.given import Sample

_TURN = 2e-3
"""Seconds that a turn takes at least, of several runs if one is shorter: clocks and interrupts weigh less."""
_MOST_RUNS = 200
"""Runs of a turn at most."""
_MOST_PAIRS = 400
"""Pairs of turns at most."""
_LOOK = 8
"""Pairs between two looks at whether they are enough."""
_NARROW = 0.008
"""Width of the limits of a ratio that is known well enough: two sessions of one model differ by as much."""
_PROFILED_RUNS = 15
"""Runs that are profiled at most."""
_HALF_TICK = 0.5e-6
"""Seconds. A profile has whole microseconds, rounded down, which takes half of one away on average."""
_LEAST_SECONDS = 1e-7
"""Seconds of an operator for which a profile has less than what profiling itself takes."""
_WITH_BODIES = frozenset({"If", "Loop", "Scan"})
"""Operators whose times are those of the kernels in their bodies, which a profile has too."""
_OVERTIME = 120.0
"""Seconds that loading two models and one pair of runs may take beyond the time for the pairs."""

OperatorSeconds = Mapping[str, tuple[float, ...]]
"""The seconds of each run of a node, by its name."""


def bind_onnx_runtime(path: Path, threads: int, inputs: Mapping[str, Any]) -> Callable[[], Any]:
    """A function that runs a model on these inputs with all of the runtime's optimisations. Its threads do not spin
    while something else runs."""
    return _bind(_session(path, _session_options(threads)), inputs)


def _bind(session: onnxruntime.InferenceSession, inputs: Mapping[str, Any]) -> Callable[[], Any]:
    from ...engine.onnx.runtime_values import bind_arrays  # imports onnx, which loading a bundle does without

    return bind_arrays(session, {value.name: inputs[value.name] for value in session.get_inputs()})


def _session_options(threads: int) -> onnxruntime.SessionOptions:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 4
    options.add_session_config_entry("session.force_spinning_stop", "1")
    register(options)
    return options


def _session(path: Path, options: onnxruntime.SessionOptions) -> onnxruntime.InferenceSession:
    import onnxruntime

    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


class RuntimeContest:
    """Times models beside an original, all on the same inputs: the first sample, else drawn ones, of the
    sizes that are optimised for.

    A context, whose process ends with it.
    """

    def __init__(self, original: Path, samples: Sequence[Sample], seed: int, threads: int) -> None:
        setup = original.absolute(), tuple(samples), seed, threads
        self._process = WorkerProcess(f"{__name__}:answer_requests", setup=setup)

    def __enter__(self) -> RuntimeContest:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.close()

    def input_shapes(self, seconds: float) -> dict[str, tuple[int, ...]]:
        """The shapes of the inputs. Raises EqfuseError if the original does not run on any, or not in `seconds`."""
        shapes: dict[str, tuple[int, ...]] = self._ask(seconds, "input_shapes")
        return shapes

    def time_pairs(self, model: Path, seconds: float, limit: float) -> tuple[float, ...]:
        """How many times as long as the original a model takes, pair by pair: by CPU time on one thread, by the wall
        clock on several.

        It ends after `seconds`, or once the median is known well, or known to be above `limit`. Raises EqfuseError
        if the model does not run, or ends the process.
        """
        ratios: tuple[float, ...] = self._ask(seconds + _OVERTIME, "time_pairs", model.absolute(), seconds, limit)
        return ratios

    def profile(self, model: Path, seconds: float) -> OperatorSeconds:
        """The times of the nodes of a model, without the runtime's optimisations, which fuse some and rename others.

        It ends after `seconds`. Raises EqfuseError if the model does not run.
        """
        times: OperatorSeconds = self._ask(seconds + _OVERTIME, "profile", model.absolute(), seconds)
        return times

    def _ask(self, seconds: float, name: str, *arguments: object) -> Any:
        try:
            return self._process.ask((name, arguments), seconds)
        except (WorkerDiedError, WorkerFailedError) as error:
            raise EqfuseError(f"ONNX Runtime: {' '.join(str(error).split())[-200:]}") from None


# --- in the other process


def answer_requests(
    original: Path, samples: Sequence[Sample], seed: int, threads: int
) -> Callable[[tuple[str, tuple[Any, ...]]], Any]:
    """Draw the inputs, and return what answers a request: the name of a method, and its arguments."""
    from ...engine.verification.baseline import draw_typical
    from ...engine.verification.runs.values import RunError

    try:
        contest = _Contest(original, draw_typical(original, samples, seed), threads)
    except RunError as error:
        raise EqfuseError(str(error)) from None
    return lambda request: getattr(contest, request[0])(*request[1])


class _Contest:
    def __init__(self, original: Path, feeds: Mapping[str, Any], threads: int) -> None:
        self.original, self.feeds, self.threads = original, feeds, threads

    def input_shapes(self) -> dict[str, tuple[int, ...]]:
        return {name: value.shape for name, value in self.feeds.items() if hasattr(value, "shape")}

    def time_pairs(self, model: Path, seconds: float, limit: float) -> tuple[float, ...]:
        """Load both anew each time: the place of their memory makes a difference of a percent."""
        original, other = (bind_onnx_runtime(path, self.threads, self.feeds) for path in (self.original, model))
        original()
        other()
        started = time.perf_counter()
        original()
        taken = time.perf_counter() - started
        runs = min(_MOST_RUNS, ceil(_TURN / max(taken, 1e-6)))
        clock = 1 if self.threads == 1 else 0
        ratios: list[float] = []
        contestants = {"original": _repeat(original, runs), "other": _repeat(other, runs)}
        for turn in take_turns(contestants, warm_up=1):
            ratios.append(turn["other"][clock] / max(turn["original"][clock], 1e-9))
            is_over = time.perf_counter() - started > seconds or len(ratios) == _MOST_PAIRS
            if is_over or (len(ratios) % _LOOK == 0 and are_enough(ratios, limit)):
                break
        return tuple(ratios)

    def profile(self, model: Path, seconds: float) -> OperatorSeconds:
        import onnxruntime

        with TemporaryDirectory() as folder:
            options = _session_options(self.threads)
            options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
            whole = self._time_runs(_session(model, options), seconds / 2)
            options.enable_profiling = True
            options.profile_file_prefix = f"{folder}/profile"
            session = _session(model, options)
            runs = len(self._time_runs(session, seconds / 2)) + 1
            times = read_profile(Path(session.end_profiling()).read_text(encoding="utf-8"))
        return subtract_profiling(times, runs, median(whole))

    def _time_runs(self, session: onnxruntime.InferenceSession, seconds: float) -> list[float]:
        """CPU seconds of each run, for about `seconds` in all, after a first run that does not count."""
        run = _bind(session, self.feeds)
        run()
        end = time.perf_counter() + seconds
        taken: list[float] = []
        while not taken or (len(taken) < _PROFILED_RUNS and time.perf_counter() < end):
            started = time.process_time()
            run()
            taken.append(time.process_time() - started)
        return taken


def _repeat(call: Callable[[], Any], runs: int) -> Callable[[], None]:
    def repeat() -> None:
        for _ in range(runs):
            call()

    return repeat


def are_enough(ratios: Sequence[float], limit: float) -> bool:
    """Whether more pairs would change nothing: the median is known well, or it is above the limit."""
    estimate = Estimate.of(ratios)
    return estimate.upper - estimate.lower <= _NARROW or estimate.lower > limit


def read_profile(text: str) -> OperatorSeconds:
    """The kernels in a profile of ONNX Runtime."""
    times: dict[str, list[float]] = defaultdict(list)
    suffix = "_kernel_time"
    for event in json.loads(text):
        if event["cat"] == "Node" and event["name"].endswith(suffix) and event["args"]["op_name"] not in _WITH_BODIES:
            times[event["name"].removesuffix(suffix)].append(event["dur"] * 1e-6 + _HALF_TICK)
    return {name: tuple(seconds) for name, seconds in times.items()}


def subtract_profiling(times: OperatorSeconds, runs: int, whole: float) -> OperatorSeconds:
    """The times without what profiling adds to each, about 2 us: so much that those of a run add up to the `whole` of a
    run that is not profiled. They include what the runtime does between kernels, and not the first run of each."""
    kernels = sum(map(len, times.values())) / runs
    added = sum(median(seconds) * len(seconds) for seconds in times.values()) / runs - whole
    each = max(0.0, added / kernels) if kernels else 0.0
    return {
        name: tuple(max(taken - each, _LEAST_SECONDS) for taken in seconds[1:])
        for name, seconds in times.items()
        if len(seconds) > 1
    }
