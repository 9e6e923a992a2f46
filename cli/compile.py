"""``eqfuse compile`` and ``eqfuse tune``."""

from __future__ import annotations

import argparse
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from ..driver.compiler.options import (
    AcceleratorOptions,
    CompileOptions,
    Settings,
    check_search,
    is_for_accelerator,
    require_processor,
)
from ..support import units
from ..support.errors import BUDGET_HIT, UsageError
from . import render
from .arguments import flag_of, given_options
from .progress import Progress
from .terminal import write

if TYPE_CHECKING:
    from ..driver.compiler.compilation import Compiled

SHARED = ("batch", "seed", "intensive")
"""Options of a group whose flags stand for every target."""


def compile_(arguments: argparse.Namespace) -> int:
    """Compile, report, and return the exit code, which says whether a budget was hit."""
    from ..driver.compiler.compile import compile_model
    from .options import options_of

    wanted = options_of(CompileOptions, arguments, device="host")
    if is_for_accelerator(wanted.target):
        _refuse(arguments, CompileOptions, "processors", only=("threads", "format", "prefix"))
        _refuse(arguments, Settings, "processors")
        wanted = replace(wanted, accelerator=options_of(AcceleratorOptions, arguments, batch=None))
    else:
        _refuse(arguments, AcceleratorOptions, "accelerators (--target dsa-NAME)")
        if arguments.trials is None:
            _refuse(arguments, Settings, "a search for schedules; say how many candidates to measure by --trials")
        else:
            settings = options_of(Settings, arguments, seed=wanted.seed, intensive=True)
            check_search(wanted.target, settings)
            wanted = replace(wanted, tuning=settings)
    with Progress(arguments) as progress:
        compiled = compile_model(arguments.model, arguments.output, wanted, progress)
    if arguments.json:
        render.print_json({"model": str(arguments.model), **_as_dict(compiled)})
    elif not arguments.quiet:
        _print(arguments, compiled)
    return BUDGET_HIT if compiled.manifest.provenance.budget_hit else 0


def tune(arguments: argparse.Namespace) -> int:
    """Compile with a search for schedules. Raises UsageError for accelerators, which have none."""
    require_processor(arguments.target or "")
    return compile_(arguments)


def _refuse(arguments: argparse.Namespace, kind: Any, meant: str, only: tuple[str, ...] = ()) -> None:
    """Raise UsageError for an option that does not concern the target."""
    for name in given_options(kind, arguments):
        if name in only or (not only and name not in SHARED):
            raise UsageError(f"{flag_of(kind, name)}: is for {meant}")


def _as_dict(compiled: Compiled) -> dict[str, Any]:
    return {
        "bundle": str(compiled.path),
        "from_cache": compiled.from_cache,
        "phases": dict(compiled.phases),
        "kernel_seconds": dict(compiled.kernel_seconds),
        "manifest": asdict(compiled.manifest),
        "curve": [asdict(point) for point in compiled.manifest.tuning.curve] if compiled.manifest.tuning else [],
    }


def _print(arguments: argparse.Namespace, compiled: Compiled) -> None:
    from ..driver.compiler.outcome import fallback_line, measurement_lines, memory_line, target_rows, tuning_line

    manifest, origin = compiled.manifest, compiled.manifest.provenance
    kernels = f"{origin.kernels}, {origin.distinct_kernels} distinct"
    if origin.copies:
        kernels += f", and {origin.copies} that {'copies' if origin.copies == 1 else 'copy'} feature maps"
    drawn = f"{origin.as_drawn} of {origin.groups}, by {origin.partition}"
    rows = [
        *target_rows(manifest, arguments.output),
        ("operators", str(origin.operators)),
        ("kernels" if manifest.dsa is None else "tiles", kernels),
        *([("groups kept whole", drawn)] if origin.groups else []),
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
    if not manifest.back_end:
        write(fallback_line(manifest))
    for text in origin.stand_ins:
        write(f"output {text}")
    for text in origin.replaced:
        write(f"replaced: {text}")
    for line in render.trusted_lines(origin.trusted_rules):
        write(line)
    if origin.certificate:
        write(f"certificate: {origin.certificate}")
    if origin.unrounded:
        write(f"unrounded: {origin.unrounded}")
    write(f"verification: {origin.verification or 'none (--no-verify)'}")
    if manifest.measurement is not None:
        for line in measurement_lines(manifest.measurement):
            write(line)
    if manifest.tuning is not None:
        write(tuning_line(manifest.tuning))
    if compiled.is_c_project:
        write(memory_line(compiled.path))
    phases = ", ".join(f"{name} {units.seconds(each)}" for name, each in compiled.phases.items() if each >= 0.05)
    write(f"time: {'compiled before, taken from the cache' if compiled.from_cache else phases}")
    write(f"written: {compiled.path}")
