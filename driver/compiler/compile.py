"""Compiling a model: optimise it, build a bundle, search for better schedules, and only then publish it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...engine.onnx.model import read
from ...lowering.base.target import check_linker, check_target, is_accelerator, target_of
from ...lowering.base.threads import check_threads
from ...lowering.bundle import bundle, cache
from ...lowering.plan.names import DEFAULT_PREFIX, check_prefix
from ...support.custom_operators import custom_operators
from ...support.options import OptionError, part_of
from ..clock import Clock, Observer
from ..optimize import Result
from ..options import Options
from ..refused_shapes import blame_input_shapes
from .compilation import BackEnd, Built, Compilation, Compiled
from .cross_project import CrossProject
from .options import AcceleratorOptions, CompileOptions
from .processor import Processor

if TYPE_CHECKING:
    from ...lowering.tuning.settings import Settings


def compile_model(source: Any, output: Path, wanted: CompileOptions, observer: Observer | None = None) -> Compiled:
    """Compile a model to the bundle `output`; an earlier bundle there is replaced once the new one is verified.

    The result of `tuning` is the bundle with the schedules that were found or the one without, whichever is faster.
    Raises EqfuseError with one clear line, among them VerificationError where the compiled model differs from the
    original: then nothing is written.
    """
    bundle.check_destination(output)
    target = wanted.target
    check_target(target)
    options, batch, tuning = part_of(Options, wanted), tuple(dict.fromkeys(wanted.batch)), wanted.tuning
    backend: BackEnd
    if is_accelerator(target):
        from .accelerator import accelerator_for

        backend = accelerator_for(target, options, _with_batch(wanted.accelerator or AcceleratorOptions(), batch))
        if (wanted.format, wanted.prefix) != (None, None):
            raise OptionError("format", f"is for processors, and the target is {target}")
        if tuning is not None:
            raise OptionError("tuning", f"schedules are searched for processors, and the target is {target}")
        options, batch = replace(options, intensive=False), ()  # an instance of a layer has one anchor op
    else:
        backend = _processor_for(wanted)
        if wanted.accelerator is not None:
            raise OptionError("accelerator", f"is for accelerators, and the target is {target}")
        options = replace(options, device=target)
    clock = Clock(observer, options.time_limit)
    with clock.phase("read"), custom_operators(options.custom_ops):
        compilation = Compilation.of(read(source), options, clock, batch)
    backend.check(compilation)
    if isinstance(backend, Processor) and tuning is not None:
        backend.check_search(tuning)
    with (
        custom_operators(options.custom_ops),
        blame_input_shapes(source, options),
        bundle.stage_bundle(output) as folder,
    ):
        result, built = _fill(folder, compilation, backend, tuning)
        if isinstance(backend, Processor):
            built = replace(built, manifest=backend.finish(built.manifest, folder))
        bundle.publish(folder, output)
    return Compiled(output, built.manifest, clock.phases, result, built.kernel_seconds, built.curve)


def _fill(
    folder: Path, compilation: Compilation, backend: BackEnd, tuning: Settings | None
) -> tuple[Result | None, Built]:
    """Put a bundle into a folder: the one of the cache, without a result, or a new one, with schedules searched for."""
    key = compilation.key(backend)
    is_kept = compilation.options.cost != "profile"  # which measurements there were is not in the key
    if tuning is None and is_kept and cache.fetch(key, folder):
        manifest = compilation.relabel(bundle.read_manifest(folder))
        bundle.write_manifest(folder, manifest)
        return None, Built(manifest)
    backend.prepare(compilation.options)
    result = compilation.optimize(backend)
    built = backend.build(compilation, result, folder)
    if is_kept and not built.manifest.provenance.replaced:  # another attempt may do better
        cache.keep(key, folder)
    if isinstance(backend, Processor) and tuning is not None:
        from .tune import tune_bundle

        built = tune_bundle(compilation, backend, result, built, folder, tuning)
    return result, built


def _with_batch(accelerator: AcceleratorOptions, batch: Sequence[int]) -> AcceleratorOptions:
    """Raises OptionError for several batches."""
    if len(batch) > 1:
        raise OptionError("batch", "a program for an accelerator is for one batch; give one number")
    return replace(accelerator, batch=batch[0]) if batch else accelerator


def _processor_for(wanted: CompileOptions) -> Processor:
    """The back end of a target; it writes a C project if asked to, or where this machine cannot load a library for it.

    Raises UsageError for a number of threads that cannot be had, a linker that is missing, or a format that the target
    does not have; DeviceError for figures.
    """
    check_threads(wanted.threads)
    processor, prefix = target_of(wanted.target, wanted.threads), wanted.prefix
    chosen = wanted.format or ("bundle" if processor.is_library else "c")
    if chosen == "bundle" and not processor.is_library:
        raise OptionError("format", f"a bundle runs on this machine; for {wanted.target} there are C projects")
    if chosen == "bundle" and prefix is not None:
        raise OptionError("prefix", "is for C projects; add format c")
    if prefix is not None:
        check_prefix(prefix)
    if not processor.is_library:
        return CrossProject(processor, prefix=prefix or DEFAULT_PREFIX)
    check_linker()
    if chosen == "bundle":
        return Processor(processor, wanted.measure)
    return Processor(replace(processor, is_alone=True), wanted.measure, prefix or DEFAULT_PREFIX)
