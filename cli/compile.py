"""``eqfuse compile`` and ``eqfuse tune``."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..lowering.plan.manifest import PLAN
from ..support import units
from ..support.errors import BUDGET_HIT, UsageError
from . import render
from .progress import Progress
from .terminal import write

if TYPE_CHECKING:
    from ..driver.compiler.compilation import Compiled
    from ..lowering.plan.manifest import Manifest, MeasurementSummary, TuningSummary
    from ..lowering.tuning.settings import Settings

FOR_TUNING = ("trials", "tuning_limit", "no_reformer", "runner", "tracker", "device_key", "cluster")
"""Options that only concern a search for schedules."""
FOR_ACCELERATORS = ("floats", "variant", "order", "per_cluster")
"""Options that only concern accelerators."""
_BY_ESTIMATES = "the search went by estimates alone; pip install xgboost-cpu lets it learn from what it measures"


def compile_(arguments: argparse.Namespace) -> int:
    """Compile, report, and say by the exit code whether a budget was hit."""
    from ..driver.compiler.compile import compile_model
    from ..driver.options import Options
    from ..lowering.base.target import check_target, is_accelerator
    from .options import options_of

    check_target(arguments.target)
    options = options_of(Options, arguments)
    accelerator, tuning = None, None
    if is_accelerator(arguments.target):
        from ..driver.compiler.accelerator import AcceleratorOptions

        _refuse(arguments, ("threads", "format", "prefix", *FOR_TUNING), "processors")
        accelerator = options_of(AcceleratorOptions, arguments, batch=None)
    else:
        _refuse(arguments, FOR_ACCELERATORS, "accelerators (--target dsa-NAME)")
        tuning = _tuning_settings(arguments, options.seed)
    with Progress(arguments) as progress:
        compiled = compile_model(
            arguments.model, arguments.output, options, target=arguments.target, threads=arguments.threads,
            measure=arguments.measure, batch=arguments.batch or (), format=arguments.format, prefix=arguments.prefix,
            tuning=tuning, accelerator=accelerator, observer=progress,
        )  # fmt: skip
    if arguments.json:
        render.print_json(_as_dict(compiled))
    elif not arguments.quiet:
        _print(arguments, compiled)
    return BUDGET_HIT if compiled.manifest.provenance.budget_hit else 0


def tune(arguments: argparse.Namespace) -> int:
    """Compile with a search for schedules. Raises UsageError for accelerators, which have none."""
    from ..lowering.base.target import is_accelerator

    if is_accelerator(arguments.target):
        raise UsageError(f"--target {arguments.target}: schedules are searched for processors; use `eqfuse compile`")
    return compile_(arguments)


def _tuning_settings(arguments: argparse.Namespace, seed: int) -> Settings | None:
    """The settings of the search if one is asked for. Raises UsageError for options that need one."""
    from ..lowering.base.target import is_library
    from ..lowering.tuning.settings import Settings

    if arguments.trials is None:
        _refuse(arguments, FOR_TUNING, "a search for schedules; say how many candidates to measure by --trials")
        return None
    settings = Settings(
        arguments.trials, arguments.tuning_limit, reformer=not arguments.no_reformer, runner=arguments.runner,
        tracker=arguments.tracker, device_key=arguments.device_key, cluster=arguments.cluster, seed=seed,
    )  # fmt: skip
    settings.runner_for(is_library=is_library(arguments.target))  # raises for what does not fit, before the work
    return settings


def _refuse(arguments: argparse.Namespace, names: tuple[str, ...], meant: str) -> None:
    """Raise UsageError for an option that does not concern the target."""
    for name in names:
        if vars(arguments).get(name) is not None:
            raise UsageError(f"--{name.replace('_', '-')}: is for {meant}")


def _as_dict(compiled: Compiled) -> dict[str, Any]:
    return {
        "bundle": str(compiled.path),
        "from_cache": compiled.from_cache,
        "phases": dict(compiled.phases),
        "kernel_seconds": dict(compiled.kernel_seconds),
        "manifest": asdict(compiled.manifest),
        "curve": [asdict(point) for point in compiled.curve],
    }


def _print(arguments: argparse.Namespace, compiled: Compiled) -> None:
    manifest, origin = compiled.manifest, compiled.manifest.provenance
    if manifest.dsa is None:
        target = f"{manifest.platform.name}: {manifest.platform.cpu}, {manifest.threads} thread(s)"
        rows: list[tuple[str, ...]] = [("target", target)]
    else:
        from ..lowering.dsa.bundle.section import section_of
        from .bench import program_rows

        section = section_of(manifest.dsa, str(arguments.output))
        rows = [("target", manifest.platform.name), *program_rows(section)]
    kernels = f"{origin.kernels}, {origin.distinct_kernels} distinct"
    kernels += f", and {origin.copies} that copy maps" if origin.copies else ""
    drawn = f"{origin.as_drawn} of {origin.groups}, by {origin.partition}"
    rows += [
        ("operators", str(origin.operators)),
        ("kernels" if manifest.dsa is None else "tiles", kernels),
        *([("groups as drawn", drawn)] if origin.groups else []),
        ("inputs", ", ".join(map(str, manifest.inputs)) or "none"),
        ("outputs", ", ".join(map(str, manifest.outputs))),
    ]
    if manifest.sizes is not None and manifest.sizes.special:
        special = (", ".join(f"{name}={size}" for name, size in each.items()) for each in manifest.sizes.special)
        rows.append(("own kernels for", "; ".join(special)))
    render.table(str(arguments.model), ("", ""), rows, left=1)
    if arguments.verbose and compiled.kernel_seconds:
        slowest = sorted(compiled.kernel_seconds.items(), key=lambda item: -item[1])[:10]
        times: list[tuple[str, ...]] = [(name, units.seconds(seconds)) for name, seconds in slowest]
        render.table("kernels that took longest to compile", ("kernel", "time"), times, left=1)
    if manifest.dsa is None:
        write(fallback_line(manifest))
    for text in origin.replaced:
        write(f"replaced: {text}")
    for line in render.trusted_lines(origin.trusted_rules):
        write(line)
    if origin.certificate:
        write(f"certificate: {origin.certificate}")
    write(f"verification: {origin.verification or 'none (--no-verify)'}")
    if manifest.measurement is not None:
        for line in measurement_lines(manifest.measurement):
            write(line)
    if manifest.tuning is not None:
        write(tuning_line(manifest.tuning))
    if manifest.library == PLAN:
        write(memory_line(compiled.path))
    phases = ", ".join(f"{name} {units.seconds(each)}" for name, each in compiled.phases.items() if each >= 0.05)
    write(f"time: {'compiled before, taken from the cache' if compiled.from_cache else phases}")
    write(f"written: {compiled.path}")


def memory_line(folder: Path) -> str:
    """What a C project needs: ``memory: 4096 bytes for each context, 8192 bytes of weights for all``."""
    from ..lowering.plan.plan import Plan
    from ..lowering.program.c_source import arena_text, weight_bytes

    plan = Plan.from_json((folder / PLAN).read_text(encoding="utf-8"))
    return f"memory: {arena_text(plan)} for each context, {weight_bytes(plan)} bytes of weights for all"


def tuning_line(summary: TuningSummary) -> str:
    """``tuning: 200 trials (3 failed) of 34 kernels, 21 changed; 1.12x as fast as untuned``."""
    from ..lowering.tuning.settings import trials_for

    failed = f" ({summary.failed} failed)" if summary.failed else ""
    outcome = summary.problem or f"{summary.ratio:.2f}x as fast as untuned"
    if summary.kept == "untuned":
        outcome += ", so the untuned one is kept"
    line = f"tuning: {summary.trials} trials{failed} of {summary.tasks} kernels, {summary.changed} changed; {outcome}"
    enough = trials_for(summary.tasks)
    if summary.trials < enough:
        line += f"\nnote: so few trials reach the largest kernels only; --trials {enough} reaches all"
    return line if summary.learned else f"{line}\nnote: {_BY_ESTIMATES}"


def measurement_lines(summary: MeasurementSummary) -> Iterator[str]:
    """``measured: 84 steps; 1 slow kernel(s), 1 replaced; unfused 1.3x; 310 ms``, and a line about each slow kernel.

    Kernels that were wrong are not among them.
    """
    from .bench import trial_lines

    slow = [each for each in summary.kernels if not each.problem]
    replaced = sum(bool(each.chosen) for each in slow)
    outcome = f"{len(slow)} slow kernel(s), {replaced} replaced" if slow else "no slow kernel"
    if summary.timed:
        unfused = f"; unfused {summary.apart / summary.fused:.2f}x" if summary.fused else ""
        yield f"measured: {summary.timed} steps; {outcome}{unfused}; {units.seconds(summary.seconds)}"
    if summary.problem:
        yield f"measured: {'no more' if summary.timed else 'nothing'} ({summary.problem})"
    yield from trial_lines(slow)


def fallback_line(manifest: Manifest) -> str:
    """``fallback: 2 ops (TopK, Loop) run in ONNX Runtime``."""
    operators = Counter(operator for entry in manifest.fallbacks for operator in entry.operators)
    if not operators:
        return "fallback: none, every kernel is compiled"
    count = operators.total()
    names = ", ".join(name if n == 1 else f"{n} {name}" for name, n in operators.most_common())
    return f"fallback: {count} op{'s' if count > 1 else ''} ({names}) run in ONNX Runtime"
