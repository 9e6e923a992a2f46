"""Tuning a compilation: search for its schedules, compile with them, and keep the faster bundle of the two."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from .compilation import Compiled, Cut, Work, kernels_of
from .costmodels.profile import ProfileDatabase
from .errors import VerificationError
from .lowering import bundle
from .lowering.emulated_model import opened
from .lowering.interface import random_inputs
from .lowering.kernel_functions import Fitting, KernelFunctions
from .lowering.runner import CompiledModel
from .lowering.tuning.cost_model import can_learn
from .lowering.tuning.settings import Settings, Summary
from .lowering.turns import interleaved, ratios
from .lowering.weights import Weights

if TYPE_CHECKING:
    from .lowering.manifest import Manifest
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
    with tempfile.TemporaryDirectory(prefix="eqfuse-tuned-") as scratch:
        candidate = Path(scratch) / "bundle"
        candidate.mkdir()
        better, ratio = _compiled(work, made, found, folder, candidate)
        if better is not None:
            shutil.rmtree(folder)
            shutil.copytree(candidate, folder)
    summary = Summary(
        trials=found.trials, failed=found.failed, tasks=found.tasks, changed=len(found.decisions), joined=found.joined,
        seconds=time.monotonic() - started, runner=settings.runner_for(is_host=work.target.is_host), ratio=ratio,
        kept="untuned" if better is None else "tuned", learned=can_learn(),
    )  # fmt: skip
    manifest = replace(better or made.manifest, tuning=summary.as_dict())
    bundle.write_manifest(folder, manifest)
    return replace(made, manifest=manifest, phases=work.clock.phases, curve=found.curve)


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
    with laboratory(work.target, settings, os.cpu_count() or 1) as equipment:
        tuner = Tuner(table, kernels, equipment, settings, lambda line: work.clock.tell("tune", line))
        found = tuner.run()
        ProfileDatabase.open().add(*measurements(tuner.kernels, table, equipment))
    return found


def _compiled(work: Work, made: Compiled, found: Tuned, untuned: Path, folder: Path) -> tuple[Manifest | None, float]:
    """The manifest of the tuned bundle where that is faster, and how many times as fast it is."""
    assert made.result is not None
    try:
        _, manifest = work.bundle(made.result, folder, Cut(found.kernels, found.decisions))
    except VerificationError as wrong:
        work.clock.tell("verify", f"the tuned model is not kept: {wrong}")
        return None, 0.0
    with work.clock.phase("confirm"):
        ratio = _speed_up(work, untuned, folder)
    return (manifest if ratio > NOTICEABLE else None), ratio


def _speed_up(work: Work, untuned: Path, candidate: Path) -> float:
    """How many times as fast the candidate is: both in turns on this machine, or by the emulated board's counts."""
    if not work.target.is_host:
        before, after = (_cycles(folder) for folder in (untuned, candidate))
        return before / after
    inputs, threads = random_inputs(work.ports, 0), work.target.threads
    folders = {"untuned": untuned, "tuned": candidate}
    runs = interleaved({n: CompiledModel(folder, threads).prepared(inputs) for n, folder in folders.items()}, ROUNDS)
    return ratios(runs, "tuned", "untuned", threads).median


def _cycles(folder: Path) -> float:
    from .lowering.arm.counts import estimate_cycles

    with opened(folder) as model:
        counted = model.count(random_inputs(model.inputs, 0))
        return estimate_cycles(counted.inference, model.target.device).cycles
