"""Tuning a compilation: search for its schedules, compile with them, and keep the faster bundle of the two."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from .compilation import RUN_SECONDS, Compiled, Cut, Work, kernels_of
from .costmodels.measurement import ProfileError
from .costmodels.profile import ProfileDatabase
from .errors import EqfuseError, VerificationError
from .lowering import bundle
from .lowering.emulated_model import opened
from .lowering.interface import random_inputs
from .lowering.isolated_model import IsolatedModel, times
from .lowering.kernel_functions import Fitting, KernelFunctions
from .lowering.tuning.cost_model import can_learn
from .lowering.tuning.settings import Settings, Summary
from .lowering.turns import ratios
from .lowering.weights import Weights
from .support.processor import available_cores
from .support.scratch import scratch_folder

if TYPE_CHECKING:
    from .costmodels.measurement import Measurement
    from .lowering.tuning.tuner import Tuned

NOTICEABLE = 1.01
"""How many times as fast a tuned bundle has to be at least: equal ones differ by noise."""
ROUNDS = 31
"""Pairs of runs, the untuned bundle and the tuned one, that decide which is kept."""


def tuned(work: Work, made: Compiled, folder: Path, settings: Settings) -> Compiled:
    """The bundle in `folder`, which is `made` without a search, or in its place the tuned one where that is faster.

    What is measured stays in the tuning database, so the same command goes on where an earlier one was stopped.
    """
    started = time.monotonic()
    with work.clock.phase("tune"):
        found = _search(work, made, settings)
    with scratch_folder("tuned") as scratch:
        candidate = Path(scratch) / "bundle"
        candidate.mkdir()
        other = _compared(work, made, found, folder, candidate, settings)
        if other.is_faster:
            shutil.rmtree(folder)
            shutil.copytree(candidate, folder)
    summary = Summary(
        trials=found.trials, failed=found.failed, tasks=found.tasks, changed=len(found.decisions), joined=found.joined,
        seconds=time.monotonic() - started, ratio=other.ratio,
        runner=settings.runner_for(is_library=work.target.is_library),
        kept="tuned" if other.is_faster else "untuned", learned=can_learn(), problem=other.problem,
    )  # fmt: skip
    kept = other.made if other.is_faster and other.made is not None else made
    kept = replace(kept, manifest=replace(kept.manifest, tuning=summary.as_dict()), curve=found.curve)
    bundle.write_manifest(folder, kept.manifest)
    return kept


@dataclass(frozen=True)
class Contender:
    """The tuned bundle, which is `ratio` times as fast as the untuned one; or the `problem` with it."""

    made: Compiled | None = None
    ratio: float = 0.0
    problem: str = ""

    @property
    def is_faster(self) -> bool:
        """Whether it is kept."""
        return self.ratio > NOTICEABLE


def _search(work: Work, made: Compiled, settings: Settings) -> Tuned:
    from .lowering.tuning.equipment import laboratory
    from .lowering.tuning.measurements import measurements
    from .lowering.tuning.tasks import TaskTable
    from .lowering.tuning.tuner import Tuner

    assert made.result is not None
    graph, kernels = kernels_of(made.result)
    functions = KernelFunctions.of(graph, kernels, Weights(made.result.rewritten.model))
    table = TaskTable(Fitting(functions, work.target))
    settings = replace(settings, intensive=settings.intensive and work.options.intensive)
    with laboratory(work.target, settings, available_cores()) as equipment:
        tuner = Tuner(table, kernels, equipment, settings, lambda line: work.clock.tell("tune", line))
        found = tuner.run()
        _keep_prices(work, measurements(tuner.kernels, table, equipment))
    return found


def _keep_prices(work: Work, found: Iterable[Measurement]) -> None:
    """For `--cost profile`. What was searched for is worth more than these."""
    try:
        ProfileDatabase.open().add(*found)
    except ProfileError as error:
        work.clock.tell("tune", f"latencies are not kept: {error}")


def _compared(work: Work, made: Compiled, found: Tuned, untuned: Path, folder: Path, settings: Settings) -> Contender:
    """Compile the tuned bundle to the folder, and see how it runs. Whatever fails, there is the untuned one."""
    assert made.result is not None
    try:
        better = work.bundle(made.result, folder, made.path, Cut(found.kernels, found.decisions))
        with work.clock.phase("confirm"):
            return Contender(better, _speed_up(work, untuned, folder, settings))
    except VerificationError as wrong:
        work.clock.tell("verify", str(wrong))
        return Contender(problem="the tuned model failed verification")
    except EqfuseError as error:
        return Contender(problem=f"the tuned model was not compared: {error}")


def _speed_up(work: Work, untuned: Path, candidate: Path, settings: Settings) -> float:
    """How many times as fast the candidate is: both in turns, on this machine or on a device of the tracker; or by the
    emulated board's counts."""
    if work.target.is_library:
        return _speed_up_here(work, untuned, candidate)
    if settings.tracker is not None and settings.device_key is not None:
        from .lowering.tuning.whole_model import speed_up

        return speed_up(settings.tracker, settings.device_key, work.target, untuned, candidate)
    before, after = (_cycles(folder) for folder in (untuned, candidate))
    return before / after


def _speed_up_here(work: Work, untuned: Path, candidate: Path) -> float:
    inputs, threads = random_inputs(work.ports, 0), work.target.threads
    models = {"untuned": IsolatedModel(untuned, threads), "tuned": IsolatedModel(candidate, threads)}
    runs = times(models, inputs, ROUNDS, seconds=RUN_SECONDS * ROUNDS)
    return ratios(runs, "tuned", "untuned", threads).median


def _cycles(folder: Path) -> float:
    from .lowering.arm.counts import estimate_cycles

    with opened(folder) as model:
        counted = model.count(random_inputs(model.inputs, 0))
        return estimate_cycles(counted.inference, model.target.device).cycles
