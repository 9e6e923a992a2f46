"""Measuring a bundle: its time beside ONNX Runtime's, the time of each kernel, the instructions that an emulated Arm
board counts, the simulated cycles of a program for an accelerator, or Vela's estimate of one for an Ethos-U."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..costmodels.device import Device
from ..engine.onnx.model import Model, read
from ..engine.preparation.texts import number_texts
from ..engine.shapes.inference import infer
from ..ir.sizes import NO_SIZES
from ..lowering.arm.counts import SINGLES, Counts, KernelCounts, ModelCounts, by_kernel, estimate_cycles, total
from ..lowering.base.errors import BundleError
from ..lowering.base.interface import inputs_of, read_samples
from ..lowering.base.ports import Port, random_inputs
from ..lowering.base.target import ethos_device_of
from ..lowering.bundle.bundle import read_manifest, read_whole_bundle
from ..lowering.bundle.cache import fingerprint
from ..lowering.bundle.isolation import NO_LIMIT, call_isolated
from ..lowering.plan.manifest import KernelTrials, Manifest
from ..lowering.running.isolated_model import IsolatedModel, name_crashes, serve_models, time_models
from ..lowering.running.kernel_times import Breakdown, KernelTime, kernel_times
from ..lowering.running.throughput import SLICE, Throughput
from ..lowering.running.turns import Middle, Runs, quantile
from ..support.errors import EqfuseError, UsageError
from ..support.files import check_destination, staged_file
from .options import BenchOptions
from .parts import front_of, with_known_values
from .preparation import prepare_model

if TYPE_CHECKING:
    from ..lowering.dsa.back_end import Section
    from ..lowering.ethos_u.back_end import Figures
    from ..lowering.ethos_u.back_end import Section as EthosSection

__all__ = [  # with the types of the reports' fields, for those who show them
    "Breakdown", "Counts", "Emulation", "Estimation", "KernelLatency", "KernelTime", "Latency", "Middle",
    "ServiceReport", "Simulation", "bench_model", "breakdown_as_dict", "read_inputs",
]  # fmt: skip

_REPEAT, KERNEL_REPEAT, _SLICES = 50, 30, 12
"""Runs of the model, of the model kernel by kernel, and slices of serving, unless the options say otherwise."""


@dataclass(frozen=True)
class Timing:
    """Wall-clock and CPU seconds of one run; of a speed-up, how many times as long the other takes."""

    wall: Middle
    cpu: Middle
    p99: float | None = None
    """Wall-clock seconds that 99 of 100 runs did not exceed; None for a speed-up."""


@dataclass(frozen=True)
class Latency:
    """The time of a compiled model, by name: "eqfuse", and if both were measured "ONNX Runtime" and "speed-up"."""

    threads: int
    repeat: int
    timings: Mapping[str, Timing]

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {"threads": self.threads, "repeat": self.repeat, **{n: asdict(t) for n, t in self.timings.items()}}


@dataclass(frozen=True)
class ServiceReport:
    """Calls that `clients` get answered by a compiled model when they call at once, each call on `threads`.

    By name: "eqfuse", and if both were measured "ONNX Runtime"; then `gain` is how many times as many calls a second
    eqfuse answers, slice by slice.
    """

    clients: int
    threads: int
    slices: int
    throughputs: Mapping[str, Throughput]
    gain: Middle | None

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {**asdict(self), "slice_seconds": SLICE}


@dataclass(frozen=True)
class KernelLatency:
    """The time of each kernel: CPU time on one thread; wall-clock time on several, whose CPU time includes waiting."""

    threads: int
    repeat: int
    breakdown: Breakdown
    trials: tuple[KernelTrials, ...] = ()
    """The slow kernels of the compilation, with the variants that were tried."""

    @property
    def clock(self) -> str:
        """``cpu`` or ``wall``."""
        return "cpu" if self.threads == 1 else "wall"

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON; all times in seconds."""
        head = {"threads": self.threads, "repeat": self.repeat, "clock": self.clock}
        return {**head, **breakdown_as_dict(self.breakdown)}


def breakdown_as_dict(breakdown: Breakdown) -> dict[str, Any]:
    """Plain data for JSON; all times in seconds."""
    kernels = [
        {**asdict(kernel.facts), "seconds": kernel.seconds, "seconds_per_call": kernel.per_call}
        for kernel in breakdown.kernels
    ]
    return {
        **{name: getattr(breakdown, name) for name in ("whole", "loops", "fallbacks", "between", "correlation")},
        "kernels": kernels,
    }


@dataclass(frozen=True)
class EmulatedRuntime:
    """ONNX Runtime of a version on the same board: the counts of one inference."""

    version: str
    counts: Counts


@dataclass(frozen=True)
class Emulation:
    """One inference of a compiled model on the emulated board of a device, beside ONNX Runtime's if asked for."""

    target: str
    device: Device
    counts: ModelCounts
    kernels: tuple[KernelCounts, ...]
    runtime: EmulatedRuntime | None

    @cached_property
    def cycles(self) -> float:
        """The estimate for kernels and for the code between them."""
        return sum(kernel.cycles for kernel in self.kernels) + self.cycles_between

    @cached_property
    def cycles_between(self) -> float:
        """The estimate for the code between kernels."""
        return estimate_cycles(self.counts.outside, self.device).cycles

    def counts_of(self, kernels: Iterable[KernelCounts]) -> Counts:
        """The counts of some of the kernels together."""
        return total(kernel.counts for kernel in kernels)

    @cached_property
    def levels(self) -> tuple[str, ...]:
        """The simulated caches by name: L1D, L2, ..."""
        return tuple("L1D" if cache.level == 1 else f"L{cache.level}" for cache in self.device.caches)

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        content: dict[str, Any] = {
            "target": self.target,
            "inference": self._counts_as_dict(self.counts.inference),
            "between_kernels": self._counts_as_dict(self.counts.outside),
            "estimated_cycles": self.cycles,
            "estimated_seconds": self.cycles / self.device.clock,
            "kernels": [
                {
                    **{name: getattr(kernel, name) for name in ("kernel", "operators", "calls")},
                    **self._counts_as_dict(kernel.counts),
                    "estimated_cycles": kernel.cycles,
                }
                for kernel in self.kernels
            ],
        }
        if self.runtime is not None:
            inference = self._counts_as_dict(self.runtime.counts)
            content["onnxruntime"] = {"version": self.runtime.version, "inference": inference}
        return content

    def _counts_as_dict(self, counts: Counts) -> dict[str, Any]:
        misses = dict(zip(self.levels, counts.misses, strict=False))
        return {**{name: getattr(counts, name) for name in SINGLES}, "misses": misses}


@dataclass(frozen=True)
class Simulation:
    """The time report of a program for an accelerator, by variant: its own first, then the one it is compared with."""

    section: Section
    variants: Mapping[str, Mapping[str, Any]]

    def speed_ups(self) -> dict[str, float]:
        """The cycles of each other variant over its own, by name."""
        own, *others = self.variants.items()
        return {name: figures["cycles"] / own[1]["cycles"] for name, figures in others}

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        allocation = self.section.allocation
        content: dict[str, Any] = {
            "device": self.section.device.name,
            "batch": allocation.batch,
            "allocation": {
                **{name: getattr(allocation, name) for name in ("iterations", "clusters", "per_cluster")},
                "rounds": [
                    {"iterations": each.times, "samples": each.shares, "split": each.split}
                    for each in allocation.rounds
                ],
            },
            "variants": self.variants,
        }
        for speed_up in self.speed_ups().values():
            content["speed-up"] = speed_up
        return content


@dataclass(frozen=True)
class Estimation:
    """Vela's estimate of a program for an Ethos-U: "eqfuse", and if asked for "vela", its defaults on the original."""

    section: EthosSection
    variants: Mapping[str, Figures]

    @property
    def speed_up(self) -> float | None:
        """The cycles of Vela's defaults over those of the program; None if they were not asked for."""
        other = self.variants.get("vela")
        return None if other is None else other.cycles / self.variants["eqfuse"].cycles

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON; memory in bytes."""
        section = self.section
        content: dict[str, Any] = {
            "device": section.device, "estimated_by": f"Vela {section.vela}", "system": section.system,
            "memory_mode": section.memory_mode, "variants": {n: asdict(each) for n, each in self.variants.items()},
        }  # fmt: skip
        return content if self.speed_up is None else {**content, "speed-up": self.speed_up}


def bench_model(
    bundle: Path, options: BenchOptions
) -> Latency | ServiceReport | KernelLatency | Emulation | Simulation | Estimation:
    """Measure a bundle in the way that its target and the options ask for.

    Raises UsageError for options that do not fit together or do not fit the bundle, BundleError for no bundle.
    """
    is_for_devices = options.trace is not None or options.against not in (None, "ort")
    try:
        manifest = read_manifest(bundle)
    except BundleError:
        if is_for_devices:
            raise  # whether this program has that is not known
        manifest = None  # loading it for a processor raises the error again
    if manifest is not None and manifest.dsa is not None:
        return _simulate(bundle, options)
    if manifest is not None and manifest.ethos_u is not None:
        return _estimate(bundle, options, manifest)
    if is_for_devices:
        option = "--trace" if options.trace is not None else f"--against {options.against}"
        other = "an Ethos-U (--target ethos-u" if options.against == "vela" else "an accelerator (--target dsa-NAME"
        raise UsageError(f"{option}: is for programs of {other})")
    if options.throughput is not None and (options.kernels or options.emulate):
        other = "--kernels" if options.kernels else "--emulate"
        raise UsageError(f"--throughput: cannot be used with {other}, which looks into one run")
    if options.kernels:
        return _time_kernels(bundle, options)
    if options.emulate:
        return _emulate(bundle, options)
    if options.arm64_root is not None:
        raise UsageError("--arm64-root: is for --emulate --against ort")
    return _time_model(bundle, options) if options.throughput is None else _serve_model(bundle, options)


# --- the inputs and the original


def read_inputs(paths: Sequence[Path], ports: Sequence[Port], sizes: Mapping[str, int] = NO_SIZES) -> Mapping[str, Any]:
    """The inputs to measure on: the given ones, else random ones of these sizes of dynamic dimensions.

    Raises UsageError for more than one set.
    """
    if not paths:
        return random_inputs(ports, 0, sizes)
    samples = read_samples(paths, ports)
    if len(samples) > 1:
        raise UsageError(f"--inputs: {len(samples)} sets of inputs are given, and one is measured on; name one file")
    return samples[0].values


def choose_inputs(options: BenchOptions, manifest: Manifest) -> Mapping[str, Any]:
    """The given inputs, else random ones of the sizes that are optimised for, with the batch of the options.

    Raises UsageError for a batch that the bundle does not have.
    """
    if options.batch is None:
        return read_inputs(options.inputs, manifest.inputs, manifest.typical_sizes)
    if options.inputs or manifest.sizes is None or not manifest.sizes.batch:
        ports = ", ".join(f"{port.name}: {port.dtype}[{', '.join(map(str, port.shape))}]" for port in manifest.inputs)
        own = f"no dimension of the bundle's inputs ({ports}) is a batch of any size; give inputs by --inputs FILE"
        raise UsageError(f"--batch: {'the inputs have a batch of their own' if options.inputs else own}")
    sizes = {**manifest.typical_sizes, **dict.fromkeys(manifest.sizes.batch, options.batch)}
    return read_inputs((), manifest.inputs, sizes)


def _find_original(bundle: Path, options: BenchOptions, manifest: Manifest) -> tuple[Path, Model]:
    """The model that the bundle was compiled from. Raises UsageError if it is gone or changed."""
    path = options.model or Path(manifest.provenance.model)
    if not path.is_file():
        raise UsageError(f"{path}: the original model is not there; say where it is by --model FILE")
    model = read(path)
    if fingerprint(model) != manifest.provenance.sha256:
        raise UsageError(f"{path}: is not the model that {bundle} was compiled from, or was changed since")
    return path, model


def _find_rival(bundle: Path, options: BenchOptions, manifest: Manifest, inputs: Mapping[str, Any]) -> Path:
    """The original, for ONNX Runtime. Raises UsageError also if it does not take inputs of these sizes: a bundle may
    have another batch."""
    path, model = _find_original(bundle, options, manifest)
    for port in inputs_of(number_texts(model)):
        given = np.shape(inputs[port.name]) if port.name in inputs else port.shape
        if any(isinstance(own, int) and own != size for own, size in zip(port.shape, given, strict=False)):
            sizes = "x".join(map(str, given))
            raise UsageError(
                f"--against ort: {path} takes {port.name} as {'x'.join(map(str, port.shape))} alone, and {sizes} is "
                "measured; leave --against out, or measure on such inputs"
            )
    return path


# --- on this machine


def _time_model(bundle: Path, options: BenchOptions) -> Latency:
    repeat = options.repeat or _REPEAT
    with name_crashes(bundle):
        model = IsolatedModel(bundle, options.threads)
        inputs = choose_inputs(options, model.manifest)
        original = _find_rival(bundle, options, model.manifest, inputs) if options.against is not None else None
        model.run(inputs)  # an error names the kernel that crashes
        runs = time_models({"eqfuse": model}, inputs, repeat, original)
    timings = {
        name: Timing(Middle.of(each.wall), Middle.of(each.cpu), quantile(each.wall, 0.99))
        for name, each in runs.items()
    }
    if len(runs) == 2:
        timings["speed-up"] = _compare(*runs.values())
    return Latency(model.threads, repeat, timings)


def _compare(own: Runs, other: Runs) -> Timing:
    """How many times as long the other takes, pair by pair."""
    wall = [b / a for a, b in zip(own.wall, other.wall, strict=True)]
    cpu = [b / max(a, 1e-9) for a, b in zip(own.cpu, other.cpu, strict=True)]
    return Timing(Middle.of(wall), Middle.of(cpu))


def _serve_model(bundle: Path, options: BenchOptions) -> ServiceReport:
    clients, slices = options.throughput or 1, options.repeat or _SLICES
    with name_crashes(bundle):
        model = IsolatedModel(bundle, options.threads)
        inputs = choose_inputs(options, model.manifest)
        original = _find_rival(bundle, options, model.manifest, inputs) if options.against is not None else None
        model.run(inputs)  # an error names the kernel that crashes
        services = serve_models({"eqfuse": model}, inputs, clients, slices, original)
    gain = None
    if len(services) == 2:
        gain = Middle.of([a.rate / b.rate for a, b in zip(*services.values(), strict=True)])
    throughputs = {name: Throughput.of(each) for name, each in services.items()}
    return ServiceReport(clients, model.threads, slices, throughputs, gain)


def _time_kernels(bundle: Path, options: BenchOptions) -> KernelLatency:
    if options.emulate:
        raise UsageError("--kernels: has no meaning with --emulate, which shows every kernel anyway")
    if options.against is not None:
        raise UsageError("--kernels: cannot be used with --against, for ONNX Runtime has kernels of its own")
    if options.arm64_root is not None:
        raise UsageError("--arm64-root: is for --emulate --against ort")
    repeat = options.repeat or KERNEL_REPEAT
    with name_crashes(bundle):
        model = IsolatedModel(bundle, options.threads)
        inputs = choose_inputs(options, model.manifest)
        model.run(inputs)  # an error names the kernel that crashes
        breakdown = call_isolated(NO_LIMIT, kernel_times, bundle, inputs, model.threads, repeat)
    measurement = model.manifest.measurement
    return KernelLatency(model.threads, repeat, breakdown, measurement.kernels if measurement is not None else ())


# --- on an emulated board


def _emulate(bundle: Path, options: BenchOptions) -> Emulation:
    from ..lowering.arm.emulate import Arm64Root
    from ..lowering.running.emulated_model import open_emulated

    for name in ("repeat", "threads"):
        if getattr(options, name) is not None:
            raise UsageError(f"--{name}: has no meaning with --emulate, which counts one inference on one core")
    if options.against is not None and options.arm64_root is None:
        raise UsageError(
            "--against ort: with --emulate it needs ONNX Runtime for arm64; "
            "`benchmarks/arm64_root.sh FOLDER` gets it, then add --arm64-root FOLDER"
        )
    if options.arm64_root is not None and options.against is None:
        raise UsageError("--arm64-root: is for --against ort, which was not asked for")
    root = Arm64Root.at(options.arm64_root) if options.arm64_root is not None else None
    with open_emulated(bundle) as model:
        target, inputs = model.target, choose_inputs(options, model.manifest)
        original = _find_rival(bundle, options, model.manifest, inputs) if root is not None else None
        counts = model.count(inputs)
        kernels = by_kernel(counts, model.plan, target.device)
        runtime = None
        if root is not None and original is not None:
            runtime = EmulatedRuntime(root.version, root.count(original, inputs, target.device))
    return Emulation(target.name, target.device, counts, kernels, runtime)


# --- in the simulator of an accelerator


def _simulate(bundle: Path, options: BenchOptions) -> Simulation:
    from ..lowering.dsa.back_end import TRACE, schedule_again, section_of

    for name in ("kernels", "emulate", "threads", "throughput", "batch", "repeat", "arm64_root", "model"):
        if getattr(options, name):
            flag = name.replace("_", "-")
            raise UsageError(f"--{flag}: {bundle} is a program for an accelerator, whose time is simulated")
    if options.against == "ort":
        raise UsageError(f"--against ort: the time of {bundle} is simulated; name a variant to compare with")
    if options.trace is not None:
        check_destination(options.trace)
    section = section_of(read_whole_bundle(bundle).dsa, str(bundle))
    variants = {section.variant: section.figures}
    if options.against is not None:
        again = f"{options.against} (again)" if options.against == section.variant else options.against
        try:
            variants[again] = schedule_again(bundle, section, options.against)
        except EqfuseError as error:
            raise EqfuseError(f"--against {options.against}: {error}") from error
    if options.trace is not None:
        with staged_file(options.trace) as staged:
            shutil.copyfile(bundle / TRACE, staged)
    return Simulation(section, variants)


# --- by Vela


def _estimate(bundle: Path, options: BenchOptions, manifest: Manifest) -> Estimation:
    from ..lowering.ethos_u.back_end import estimate_plain, require_vela, section_of, translate, vela_version

    for name in ("kernels", "emulate", "threads", "throughput", "batch", "repeat", "arm64_root", "inputs", "trace"):
        if getattr(options, name):
            flag = name.replace("_", "-")
            raise UsageError(f"--{flag}: {bundle} is a program for an Ethos-U, whose cycles Vela estimates")
    if options.against not in (None, "vela"):
        raise UsageError(f"--against {options.against}: nothing here runs {bundle} in its time; add --against vela")
    section = section_of(read_whole_bundle(bundle).ethos_u, str(bundle))
    variants = {"eqfuse": section.chosen}
    if options.against is not None:
        require_vela()
        if vela_version() != section.vela:
            raise UsageError(
                f"--against vela: {bundle} was made by Vela {section.vela}, and {vela_version()} is installed; their "
                "estimates differ: compile the model again"
            )
        shapes = {port.name: port.shape for port in manifest.inputs}
        outputs = [wire.port for wire in section.outputs]  # without those of a processor behind the NPU
        _, original = _find_original(bundle, options, manifest)
        model = prepare_model(number_texts(original), (), shapes, outputs)
        front = front_of(with_known_values(model)) if section.front is not None else None
        model = model if front is None else front.model
        form = translate("as exported", model, infer(model), inputs_of(model))
        variants["vela"] = estimate_plain(form, ethos_device_of(section.device))
    return Estimation(section, variants)
