"""MetaSchedule, TVM's own search for schedules, as the peer of eqfuse's: ``ONNX model -> library, curve``.

Set up as TVM's pipeline for models of fixed shapes does it, with weights packed ahead, which TVM recommends for
processors (`relax.pipeline.static_shape_tuning_pipeline`): operators are fused by FuseOps, each distinct fused function
is a task, the default rules for processors and the default evolutionary search with XGBoost propose candidates. What
differs:

- The rules are those for any processor that LLVM knows. For processors with VNNI TVM has others, of int8 instructions.
- A round is small enough for all tasks to have a turn within half of the trials; by default it would be 64,
  and a model with many tasks would have most of them without a schedule. A task that had none keeps TVM's plain loops.
- Candidates are timed as eqfuse times them: by CPU time on one thread, the median of several samples. (But weights are
  in the caches then if they fit, where eqfuse measures kernels with weights that others pushed out.)
- `tvm.s_tir.tensor_intrin` is not imported: that takes most of a minute, and no float32 candidate uses it.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean, median
from types import ModuleType
from typing import Any

import onnx
import tvm
from tvm import relax
from tvm.ir.utils import derived_object
from tvm.relax.frontend.onnx import from_onnx

from eqfuse.benchmarks.measuring.contestants import LIBRARY, import_tvm
from eqfuse.benchmarks.searches.results import Point, Search
from eqfuse.lowering.base.target import target_of
from eqfuse.lowering.tuning.runners.sampling import time_calls

KIND = "llvm"
"""Rules, postprocessors and mutators."""
MOST_AT_ONCE = 64
"""Candidates of a round, TVM's default."""
_INTRINSICS = "tvm.s_tir.tensor_intrin"


def tune(model: Path, folder: Path, trials: int, threads: int, seed: int) -> Search:
    """Search, and write the library with the best schedules to `folder`."""
    meta_schedule = _without_intrinsics()
    description = target_of("host", threads).description
    target = tvm.target.Target(description)
    with target:
        module = _prepared(onnx.load(model))
    found = meta_schedule.relax_integration.extract_tasks(module, target)
    weights = [int(task.weight) for task in found]
    observer = _observer(meta_schedule, weights)
    database = meta_schedule.database.MemoryDatabase()
    with tempfile.TemporaryDirectory(prefix="eqfuse-metaschedule-") as logs:
        contexts, shares = meta_schedule.relax_integration.extracted_tasks_to_tune_contexts(
            found, logs, space=_space(meta_schedule), num_threads=os.cpu_count() or 1, seed=seed
        )
        observer.started = time.monotonic()
        meta_schedule.tune.tune_tasks(
            tasks=contexts, task_weights=shares, work_dir=logs, max_trials_global=trials,
            num_trials_per_iter=at_once(trials, len(found)), database=database,
            builder=meta_schedule.builder.LocalBuilder(
                max_workers=os.cpu_count() or 1, f_build=build, f_export=export
            ),
            runner=meta_schedule.runner.LocalRunner(
                alloc_repeat=1, f_run_evaluator=partial(evaluate, threads), initializer=partial(begin, threads)
            ),
            measure_callbacks=[observer, *meta_schedule.measure_callback.MeasureCallback.create("default")],
        )  # fmt: skip
        seconds = time.monotonic() - observer.started
    _compiled(module, database, target).export_library(str(folder / LIBRARY))
    without = sum(not best for best in observer.best)
    note = f"{without} of {len(found)} tasks have no schedule" if without else ""
    return Search(tuple(observer.curve), observer.trials, observer.failed, len(found), seconds, note)


def at_once(trials: int, tasks: int) -> int:
    """Candidates of a round: all tasks have one within half of the trials, if that many trials are allowed."""
    return min(MOST_AT_ONCE, max(1, trials // (2 * tasks)))


def _without_intrinsics() -> Any:
    """The package `meta_schedule`; the import that its contexts make finds an empty module."""
    sys.modules.setdefault(_INTRINSICS, ModuleType(_INTRINSICS))
    from tvm.s_tir import meta_schedule

    return meta_schedule


def _prepared(model: onnx.ModelProto) -> Any:
    """Fused functions, with marks at the weights that a schedule may store as it likes."""
    passes = [
        relax.transform.DecomposeOpsForInference(),
        relax.transform.CanonicalizeBindings(),
        relax.get_pipeline("zero"),
        relax.transform.AttachAttrLayoutFreeBuffers(),
    ]
    return tvm.transform.Sequential(passes)(from_onnx(model))


def _compiled(module: Any, database: Any, target: Any) -> Any:
    """With the best schedules; weights are stored as these want them once and for all."""
    with target, database, tvm.transform.PassContext(opt_level=3):
        passes = [
            relax.transform.MetaScheduleApplyDatabase(),
            relax.transform.SplitLayoutRewritePreproc(),
            relax.transform.FoldConstant(),
        ]
        scheduled = tvm.transform.Sequential(passes)(module)
        return tvm.compile(scheduled, target=target, relax_pipeline="default_build")


def _space(meta_schedule: Any) -> Any:
    return meta_schedule.space_generator.PostOrderApply(sch_rules=KIND, postprocs=KIND, mutator_probs=KIND)


def _observer(meta_schedule: Any, weights: Sequence[int]) -> Any:
    """What draws the curve: a point for each round from when all tasks have run."""

    @derived_object
    class Observer(meta_schedule.measure_callback.PyMeasureCallback):  # type: ignore[misc]
        def __init__(self) -> None:
            self.started = 0.0
            self.trials = self.failed = 0
            self.best: list[float] = [0.0] * len(weights)
            self.curve: list[Point] = []

        def apply(self, scheduler: Any, task: int, candidates: Any, built: Any, results: Any) -> None:
            times = [fmean(map(float, result.run_secs)) for result in results if result.run_secs]
            self.trials += len(results)
            self.failed += len(results) - len(times)
            if times:
                self.best[task] = min(times) if not self.best[task] else min(*times, self.best[task])
            if all(self.best):
                latency = sum(count * best for count, best in zip(weights, self.best, strict=True))
                self.curve.append(Point(self.trials, time.monotonic() - self.started, latency))

    return Observer()


# --- what the processes of builder and runner do


def build(module: Any, target: Any, parameters: Any) -> Any:
    """A candidate compiled as TVM's own builder does it, but for the instructions that it imports."""
    from tvm.s_tir.transform import RemoveWeightLayoutRewriteBlock

    return tvm.compile(RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(module), target=target)


def export(made: Any) -> str:
    """The library of a candidate, in a folder of its own, which TVM removes."""
    library = str(Path(tempfile.mkdtemp(prefix="eqfuse-metaschedule-")) / LIBRARY)
    made.export_library(library)
    return library


def begin(threads: int) -> None:
    """Run on a number of threads."""
    import_tvm(threads)


def evaluate(threads: int, module: Any, device: Any, config: Any, arguments: Sequence[Sequence[Any]]) -> list[float]:
    """Seconds of a call, as eqfuse measures them."""
    clock = time.process_time if threads == 1 else time.perf_counter
    return [median(time_calls(_run(module["main"], given, clock))) for given in arguments]


def _run(function: Callable[..., Any], arguments: Sequence[Any], clock: Callable[[], float]) -> Callable[[int], float]:
    def run(number: int) -> float:
        started = clock()
        for _ in range(number):
            function(*arguments)
        return clock() - started

    return run
