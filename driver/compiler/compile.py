"""Compiling a model: optimise it, build a bundle, search for better schedules, and only then publish it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...engine.onnx.model import read
from ...engine.preparation.overrides import blame_input_shapes
from ...lowering.base.target import check_linker, check_target, is_accelerator, is_ethos, target_of
from ...lowering.base.threads import check_threads
from ...lowering.bundle import bundle, cache
from ...lowering.plan.names import DEFAULT_PREFIX, check_prefix
from ...support.custom_operators import custom_operators
from ...support.options import OptionError, part_of
from ..clock import Clock, Observer
from ..options import Options
from .compilation import BackEnd, Compilation, Compiled
from .options import AcceleratorOptions, CompileOptions
from .processor import CrossProject, Processor


def compile_model(source: Any, output: Path, wanted: CompileOptions, observer: Observer | None = None) -> Compiled:
    """Compile a model to the bundle `output`; an earlier bundle there is replaced once the new one is verified.

    The result of `tuning` is the bundle with the schedules that were found or the one without, whichever is faster.
    Raises EqfuseError with one clear line, among them VerificationError if the compiled model differs from the
    original: then nothing is written.
    """
    bundle.check_destination(output)
    backend, options, batch = _choose_back_end(wanted)
    clock, tuning = Clock(observer, options.time_limit), wanted.tuning
    with custom_operators(options.custom_ops):
        with clock.phase("read"):
            is_processor = isinstance(backend, Processor)
            compilation = Compilation.of(read(source), options, clock, batch, widens=is_processor)
            if not is_processor:
                compilation = compilation.with_fixed_sizes()
        backend.check(compilation)
        if isinstance(backend, Processor) and tuning is not None:
            backend.check_search(tuning)
        with (
            blame_input_shapes(
                compilation.original,
                options.input_shapes,
                verifies=options.verify,
                seed=options.seed,
                limit=options.verification_seconds,
            ),
            bundle.stage_bundle(output) as folder,
        ):
            key = compilation.key(backend)
            is_kept = options.cost != "profile"  # the key does not have the measurements
            if tuning is None and is_kept and cache.fetch(key, folder):
                result, built = None, compilation.relabel(folder)
            else:
                backend.prepare(options)
                result = compilation.optimize(backend)
                built = backend.build(compilation, result, folder)
                if is_kept and not built.manifest.provenance.replaced:  # another attempt may do better
                    cache.keep(key, folder)
                if isinstance(backend, Processor) and tuning is not None:
                    from .tune import tune_bundle

                    built = tune_bundle(compilation, backend, result, built, folder, tuning)
            if isinstance(backend, Processor):
                built = replace(built, manifest=backend.finish(built.manifest, folder))
            bundle.publish(folder, output)
    return Compiled(output, built.manifest, clock.phases, result, built.kernel_seconds)


def _choose_back_end(wanted: CompileOptions) -> tuple[BackEnd, Options, tuple[int, ...]]:
    """The back end of the target, the options for optimising the model, and the sizes of the batch that it gets."""
    target = wanted.target
    check_target(target)
    options, batch = part_of(Options, wanted), tuple(dict.fromkeys(wanted.batch))
    if is_ethos(target):
        return _ethos_for(wanted, options, batch)
    if not is_accelerator(target):
        processor = _processor_for(wanted)
        if wanted.accelerator is not None:
            raise OptionError("accelerator", f"is for accelerators, and the target is {target}")
        return processor, replace(options, device=target), batch
    from .accelerator import accelerator_for

    accelerator = accelerator_for(target, options, _with_batch(wanted.accelerator or AcceleratorOptions(), batch))
    if (wanted.format, wanted.prefix) != (None, None):
        raise OptionError("format", f"is for processors, and the target is {target}")
    if wanted.tuning is not None:
        raise OptionError("tuning", f"only schedules of processors are tuned, and the target is {target}")
    return accelerator, replace(options, device=target, intensive=False), ()  # an instance of a layer has one anchor op


def _ethos_for(
    wanted: CompileOptions, options: Options, batch: Sequence[int]
) -> tuple[BackEnd, Options, tuple[int, ...]]:
    """Raises OptionError for options of processors and of simulated accelerators."""
    from .ethos import QUANTIZATION, ethos_for

    for name in ("accelerator", "format", "prefix", "tuning", "threads"):
        if getattr(wanted, name) is not None:
            raise OptionError(name, f"is not for {wanted.target}: Vela compiles for it")
    if batch:
        raise OptionError("batch", f"is not for {wanted.target}; the NPU runs the batch of the model")
    skip = tuple(dict.fromkeys((*options.skip, QUANTIZATION)))
    return ethos_for(wanted.target, options), replace(options, skip=skip, partition="none", intensive=False), ()


def _with_batch(accelerator: AcceleratorOptions, batch: Sequence[int]) -> AcceleratorOptions:
    """Raises OptionError for several batches."""
    if len(batch) > 1:
        raise OptionError("batch", "a program for an accelerator is for one batch; give one number")
    return replace(accelerator, batch=batch[0]) if batch else accelerator


def _processor_for(wanted: CompileOptions) -> Processor:
    """The back end of a target; it writes a C project if asked to, or if this machine cannot load a library for it.

    Raises UsageError for a number of threads that the target does not have, a missing linker, or a format that the
    target does not have; DeviceError for figures.
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
