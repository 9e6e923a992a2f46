"""``eqfuse compile``."""

from __future__ import annotations

import argparse
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ..errors import UsageError
from . import render
from .compile_parser import FOR_ACCELERATORS
from .optimize import BUDGET_HIT
from .progress import Progress
from .terminal import write

if TYPE_CHECKING:
    from ..driver.compilation import Compiled
    from ..lowering.bundle.manifest import Manifest
    from ..lowering.tuning.settings import Settings

FOR_TUNING = ("trials", "tuning_limit", "no_reformer", "runner", "tracker", "device_key", "cluster")
"""What is said about a search for schedules alone."""
_BY_ESTIMATES = "the search went by estimates alone; pip install xgboost-cpu lets it learn from what it measures"


def compile_(arguments: argparse.Namespace) -> int:
    """Compile, report, and say by the exit code whether a budget was hit."""
    from ..driver.compile import compile_model
    from ..lowering.target import check_target, is_accelerator
    from .options import options_of

    os.environ.setdefault("TVM_THREAD_POOL_SPIN_COUNT", "0")  # idle threads that spin keep a busy machine from ending
    check_target(arguments.target)
    options = options_of(arguments, verify=arguments.verify)
    asked = _accelerator_options(arguments) if is_accelerator(arguments.target) else _processor_options(arguments)
    with Progress(arguments) as progress:
        made = compile_model(
            arguments.model, arguments.output, options, target=arguments.target, observer=progress, **asked
        )
    if arguments.json:
        render.print_json(_as_dict(made))
    elif not arguments.quiet:
        _print(arguments, made)
    return BUDGET_HIT if made.manifest.provenance.budget_hit else 0


def tune(arguments: argparse.Namespace) -> int:
    """Compile with a search for schedules. Raises UsageError for accelerators, which have none."""
    from ..lowering.target import is_accelerator

    if is_accelerator(arguments.target):
        raise UsageError(f"--target {arguments.target}: schedules are searched for processors; use `eqfuse compile`")
    return compile_(arguments)


def _tuning(arguments: argparse.Namespace) -> Settings | None:
    """The search that is asked for, if one is. Raises UsageError for options that say nothing without one."""
    from ..lowering.target import is_library
    from ..lowering.tuning.settings import Settings

    if arguments.trials is None:
        _refuse(arguments, FOR_TUNING, "a search for schedules; say how many candidates to measure by --trials")
        return None
    settings = Settings(
        arguments.trials, arguments.tuning_limit, reformer=not arguments.no_reformer, runner=arguments.runner,
        tracker=arguments.tracker, device_key=arguments.device_key, cluster=arguments.cluster, seed=arguments.seed,
    )  # fmt: skip
    settings.runner_for(is_library=is_library(arguments.target))  # raises for what does not fit, before the work
    return settings


def _processor_options(arguments: argparse.Namespace) -> dict[str, Any]:
    _refuse(arguments, FOR_ACCELERATORS, "accelerators (--target dsa-NAME)")
    return {"threads": arguments.threads, "tuning": _tuning(arguments)}


def _accelerator_options(arguments: argparse.Namespace) -> dict[str, Any]:
    from ..driver.accelerator import AcceleratorOptions

    _refuse(arguments, ("threads", *FOR_TUNING), "processors")
    given = {name: value for name in FOR_ACCELERATORS if (value := getattr(arguments, name)) is not None}
    return {"accelerator": AcceleratorOptions(**given)}


def _refuse(arguments: argparse.Namespace, names: tuple[str, ...], meant: str) -> None:
    """Raise UsageError for an option that says nothing about the target."""
    for name in names:
        if getattr(arguments, name) is not None:
            raise UsageError(f"--{name.replace('_', '-')}: is for {meant}")


def _as_dict(made: Compiled) -> dict[str, Any]:
    return {
        "bundle": str(made.path),
        "from_cache": made.from_cache,
        "phases": dict(made.phases),
        "kernel_seconds": dict(made.kernel_seconds),
        "manifest": asdict(made.manifest),
        "curve": [asdict(point) for point in made.curve],
    }


def _print(arguments: argparse.Namespace, made: Compiled) -> None:
    manifest, origin = made.manifest, made.manifest.provenance
    rows: list[tuple[str, ...]] = [
        *(_processor(manifest) if manifest.dsa is None else _accelerator(arguments, manifest)),
        ("operators", str(origin.operators)),
        ("kernels" if manifest.dsa is None else "tiles", f"{origin.kernels}, {origin.distinct_kernels} distinct"),
        ("inputs", ", ".join(map(str, manifest.inputs)) or "none"),
        ("outputs", ", ".join(map(str, manifest.outputs))),
    ]
    render.table(str(arguments.model), ("", ""), rows, left=1)
    if arguments.verbose and made.kernel_seconds:
        slowest = sorted(made.kernel_seconds.items(), key=lambda item: -item[1])[:10]
        render.table("kernels that took longest to compile", ("kernel", "time"), _times(slowest), left=1)
    if manifest.dsa is None:
        write(fallback_line(manifest))
    for text in origin.replaced:
        write(f"replaced by a plain schedule: {text}")
    for line in render.trusted_lines(origin.trusted_rules):
        write(line)
    write(f"verification: {origin.verification or 'none (--no-verify)'}")
    if manifest.tuning is not None:
        write(tuning_line(manifest.tuning))
    taken = ", ".join(f"{name} {render.seconds(seconds)}" for name, seconds in made.phases.items() if seconds >= 0.05)
    write(f"time: {'compiled before, taken from the cache' if made.from_cache else taken}")
    write(f"written: {made.path}")


def tuning_line(content: Mapping[str, Any]) -> str:
    """``tuning: 200 trials (3 failed) of 34 kernels, 21 changed; 1.12x as fast as untuned``."""
    from ..lowering.tuning.settings import summary_of, trials_for

    found = summary_of(content)
    failed = f" ({found.failed} failed)" if found.failed else ""
    outcome = found.problem or f"{found.ratio:.2f}x as fast as untuned"
    if found.kept == "untuned":
        outcome += ", so the untuned one is kept"
    line = f"tuning: {found.trials} trials{failed} of {found.tasks} kernels, {found.changed} changed; {outcome}"
    if found.trials < trials_for(found.tasks):
        line += f"\nnote: so few trials reach the largest kernels only; --trials {trials_for(found.tasks)} reaches all"
    return line if found.learned else f"{line}\nnote: {_BY_ESTIMATES}"


def _processor(manifest: Manifest) -> list[tuple[str, ...]]:
    return [("target", f"{manifest.platform.name}: {manifest.platform.cpu}, {manifest.threads} thread(s)")]


def _accelerator(arguments: argparse.Namespace, manifest: Manifest) -> list[tuple[str, ...]]:
    from ..lowering.dsa.bundle.section import section_of
    from .bench.bench_dsa import summary_rows

    section = section_of(manifest.dsa, str(arguments.output))
    return [("target", manifest.platform.name), *summary_rows(section)]


def _times(items: list[tuple[str, float]]) -> list[tuple[str, ...]]:
    return [(name, render.seconds(seconds)) for name, seconds in items]


def fallback_line(manifest: Manifest) -> str:
    """``fallback: 2 ops (TopK, Loop) run in ONNX Runtime``."""
    operators = Counter(operator for entry in manifest.fallbacks for operator in entry.operators)
    if not operators:
        return "fallback: none, every kernel is compiled"
    count = operators.total()
    names = ", ".join(name if n == 1 else f"{n} {name}" for name, n in operators.most_common())
    return f"fallback: {count} op{'s' if count > 1 else ''} ({names}) run in ONNX Runtime"
