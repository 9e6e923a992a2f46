"""Compiling a model for an accelerator: optimise it, schedule it, verify the program, and only then publish it."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from .api import Result, run
from .compilation import Compiled, fingerprint, kernels_of, outputs_of
from .costmodels.dsa_device import DsaDevice
from .engine.model import Model, read
from .engine.shapes import override_shapes
from .errors import UsageError, VerificationError
from .extract.partition.graph import OperatorGraph
from .extract.partition.local_functions import inlined
from .lowering import bundle, cache
from .lowering.dsa.compiler import (
    AcceleratorNetwork,
    Choices,
    DsaProgram,
    accelerator_network,
    batch_axes,
    compile_network,
)
from .lowering.dsa.constants import constant_contents, network_of
from .lowering.dsa.program import Compute
from .lowering.dsa.report_page import report_page
from .lowering.dsa.scheduler import OrderName
from .lowering.dsa.section import Section, Wire
from .lowering.dsa.stored_program import REPORT, store_kernels, store_program
from .lowering.dsa.variants import FULL, VARIANTS
from .lowering.errors import LoweringError
from .lowering.interface import Port, inputs_of
from .lowering.manifest import PROGRAM, Manifest, Platform, Provenance
from .lowering.target import accelerator_of, check_linker
from .lowering.weights import Weights
from .pipeline import Clock, Observer, Options
from .rules.loader import rule_paths
from .support.options import OptionError, PositiveInteger, check_options

Floats = Literal["float16", "float32", "float64"]
WIDTHS: dict[Floats, int] = {"float16": 2, "float32": 4, "float64": 8}
"""Bytes of the types that floats may be stored in."""
_SIMULATION_SECONDS = 3600.0
"""How long a simulation may take that verifies a program; beyond that what computes a tile is taken to hang."""
_STORED_AS = {"float16": 2, "bfloat16": 4, "float32": 4, "float64": 8}


@dataclass(frozen=True)
class Demands:
    """What to make for an accelerator: `batch` and `floats` are the model's own where None."""

    device: DsaDevice
    batch: int | None = None
    floats: Floats | None = None
    choices: Choices = field(default_factory=Choices)


@dataclass(frozen=True)
class AcceleratorOptions:
    """What may be asked of a compilation for an accelerator: options of the command line. Raises OptionError."""

    batch: PositiveInteger | None = None
    floats: Floats | None = None
    variant: str = FULL.name
    order: OrderName | None = None
    per_cluster: PositiveInteger | None = None

    def __post_init__(self) -> None:
        check_options(self)
        if self.variant not in VARIANTS:
            raise OptionError("variant", f"{self.variant!r} is not one of {', '.join(VARIANTS)}")


def demands_of(target: str, options: AcceleratorOptions) -> Demands:
    """What is asked for. Raises UsageError for a target that is none, DeviceError for its figures."""
    choices = Choices(VARIANTS[options.variant], options.order, options.per_cluster)
    return Demands(accelerator_of(target), options.batch, options.floats, choices)


def compile_for_accelerator(
    source: Any, output: Path, options: Options, demands: Demands, observer: Observer | None = None
) -> Compiled:
    """Compile a model to the bundle `output`; an earlier bundle there is replaced once the new one is verified.

    Raises EqfuseError with one clear line, as `compile_model` does.
    """
    bundle.check_destination(output)
    if options.inputs:
        raise OptionError("inputs", "a program for an accelerator has its own batch; it is verified on drawn inputs")
    if options.verify:
        check_linker()
    clock = Clock(observer)
    with clock.phase("read"):
        model = override_shapes(inlined(read(source)), options.input_shapes)
        ports = inputs_of(model)  # raises for what cannot be compiled, before the work
    work = _Work(source, model, ports, options, demands, clock)
    with bundle.staged(output) as folder:
        if cache.fetch(work.key, folder):
            manifest = work.labelled(bundle.read_manifest(folder))
            bundle.write_manifest(folder, manifest)
            bundle.publish(folder, output)
            return Compiled(output, manifest, clock.phases)
        result, manifest = work.fill(folder)
        cache.keep(work.key, folder)
        bundle.publish(folder, output)
    return Compiled(output, manifest, clock.phases, result)


@dataclass(frozen=True)
class _Work:
    """One compilation."""

    source: Any
    model: Model
    ports: tuple[Port, ...]
    options: Options
    demands: Demands
    clock: Clock

    @property
    def key(self) -> str:
        """What decides about the bundle."""
        chosen = {**asdict(self.options), **asdict(self.demands), "versions": bundle.versions()}
        machine = platform.machine()  # of the kernels that simulate tiles
        return cache.key_of({**chosen, "model": self.fingerprint, "machine": machine}, rule_paths(self.options.rules))

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the model as it was read, its weights with it."""
        return fingerprint(read(self.source))

    @property
    def label(self) -> str:
        """Where the model is, or its name."""
        return str(self.model.path.absolute()) if self.model.path else self.model.label

    def labelled(self, manifest: Manifest) -> Manifest:
        """The manifest of an equal model, with this one's path."""
        return replace(manifest, provenance=replace(manifest.provenance, model=self.label))

    def fill(self, folder: Path) -> tuple[Result, Manifest]:
        """Compile into a folder, and verify what is in it."""
        result = run(self.source, None, replace(self.options, verify=False), self.clock.observer)
        self.clock.phases.update(result.phases)
        with self.clock.phase("schedule"):
            graph, layers = kernels_of(result)
            graph = self._with_defaults(graph)
            size = WIDTHS[self.demands.floats] if self.demands.floats else _own_width(graph)
            network = accelerator_network(graph, layers, self.demands.device, size)
            made = self._scheduled(network)
        with self.clock.phase("write"):
            self._store(folder, result, network, made)
        manifest = self._manifest(result, network, made, folder)
        if self.options.verify:
            with self.clock.phase("kernels"):
                store_kernels(folder, lambda line: self.clock.tell("kernels", line))
            manifest = replace(manifest, files=bundle.digests(folder))
            bundle.write_manifest(folder, manifest)
            with self.clock.phase("verify"):
                verdict = self._verdict(folder, network)
            manifest = replace(manifest, provenance=replace(manifest.provenance, verification=verdict))
        bundle.write_manifest(folder, manifest)
        return result, manifest

    def _scheduled(self, network: AcceleratorNetwork) -> DsaProgram:
        return compile_network(
            network, self.demands.device, self.demands.batch, self.demands.choices, self.model.path.stem
            if self.model.path else self.model.label, lambda line: self.clock.tell("schedule", line),
        )  # fmt: skip

    def _with_defaults(self, graph: OperatorGraph) -> OperatorGraph:
        """The graph whose inputs are the ports: an input with a default is a constant."""
        names = {port.name for port in self.ports}
        return OperatorGraph(
            graph.operators,
            tuple(
                replace(v, is_constant=True) if v.producer is None and v.name not in names else v for v in graph.values
            ),
        )

    def _store(self, folder: Path, result: Result, network: AcceleratorNetwork, made: DsaProgram) -> None:
        weights = Weights(result.rewritten.model)
        contents = constant_contents(made.generated, made.device.alignment, weights.__getitem__, network.slices)
        store_program(folder, made, network, contents)
        (folder / REPORT).write_text(report_page(self.model.label, made), encoding="utf-8")

    def _verdict(self, folder: Path, network: AcceleratorNetwork) -> str:
        """What verification says, in one line that says how much was verified."""
        from .engine.verification import require_comparison, verdict_required
        from .engine.verification.source import model_file
        from .lowering.check import apart
        from .lowering.dsa.simulated_model import IsolatedSimulation
        from .lowering.dsa.verification import Demand, Original, samples_to_verify, verify_program

        options, loaded = self.options, IsolatedSimulation(folder, _SIMULATION_SECONDS)
        model = self.model.ir if options.input_shapes or self.model.path is None else self.model.path
        coarser = "float16" if network.element_size < _own_width(network.graph) else None
        demand = Demand(options.atol, options.rtol, options.seed, coarser)
        with model_file(model) as path:
            original = Original(path.absolute(), self.ports, network.batch)
            self.clock.tell("verify", f"{samples_to_verify(loaded, original)} samples in the functional simulator")
            with verdict_required(self.model.label):
                found = require_comparison(apart(options.verify_limit, verify_program, original, loaded, demand))
        if found.status == "failed":
            raise VerificationError(
                f"{self.model.label}: the program differs from the original: {found.summary}; nothing was written"
            )
        batch = loaded.section.allocation.batch
        count = min(samples_to_verify(loaded, original), batch)
        return f"{found.summary} ({count} of {batch} sample(s), simulated)"

    def _manifest(self, result: Result, network: AcceleratorNetwork, made: DsaProgram, folder: Path) -> Manifest:
        device, batch = self.demands.device, made.allocation.batch
        section = _section(result, network, made, self.demands)
        outputs = outputs_of(result.rewritten.model, network.graph)
        _check_outputs(outputs, section, self.ports)
        axes = {wire.port: wire.axis for wire in (*section.inputs, *section.outputs)}
        return Manifest(
            inputs=tuple(_scaled(port, axes.get(port.name, 0), network.batch, batch) for port in self.ports),
            outputs=tuple(_scaled(port, axes.get(port.name, 0), network.batch, batch) for port in outputs),
            platform=Platform(f"dsa-{device.name}", "simulated", "", device.name, ()),
            precision=self.options.precision,
            threads=1,
            provenance=self._provenance(result, made),
            fallbacks=(),
            versions=bundle.versions(),
            files=bundle.digests(folder),
            library=PROGRAM,
            dsa=section.as_dict(),
        )

    def _provenance(self, result: Result, made: DsaProgram) -> Provenance:
        return Provenance(
            model=self.label,
            sha256=self.fingerprint,
            input_shapes=dict(self.options.input_shapes),
            rules=len(result.saturation.matched),
            partition=self.options.partition,
            operators=result.after.layers,
            kernels=sum(isinstance(instruction, Compute) for instruction in made.generated.program.instructions),
            distinct_kernels=len(made.kernels),
            verification="",
            replaced=(),
            budget_hit=result.budget_hit,
            trusted_rules=result.trusted,
        )


def _own_width(graph: OperatorGraph) -> int:
    """Bytes of the widest float type of a graph; of float32 where it has none."""
    found = (_STORED_AS.get(value.type.dtype or "") for value in graph.values if value.type is not None)
    return max((width for width in found if width is not None), default=4)


def _section(result: Result, network: AcceleratorNetwork, made: DsaProgram, demands: Demands) -> Section:
    generated, values, orders = made.generated, network.graph.values, network_of(made.generated).axes
    axes = batch_axes(network, generated.outputs.values(), made.allocation.batch != made.allocation.per_cluster)
    names = {width: name for name, width in WIDTHS.items()}
    return Section(
        device=made.device,
        allocation=made.allocation,
        variant=demands.choices.variant.name,
        order=demands.choices.order,
        floats=names[network.element_size],
        inputs=tuple(_input_wires(generated.inputs, network, orders)),
        outputs=tuple(Wire(name, values[v].name, axes[v], orders[v]) for name, v in generated.outputs.items()),
        figures=made.figures(),
        opset=result.rewritten.model.opset,
    )


def _input_wires(
    inputs: Mapping[str, int], network: AcceleratorNetwork, orders: Sequence[tuple[int, ...]]
) -> Iterator[Wire]:
    for name, number in inputs.items():
        value = network.graph.values[number]
        axis = 0 if value.extent.dimensions and network.batch is not None else None
        yield Wire(name, value.name, axis, orders[number])


def _scaled(port: Port, axis: int | None, own: int | None, batch: int) -> Port:
    """A port of the whole batch."""
    if own is None or own == batch or axis is None or not port.shape or port.shape[axis] % own:
        return port
    shape = list(port.shape)
    shape[axis] = shape[axis] * batch // own
    return replace(port, shape=tuple(shape))


def _check_outputs(outputs: tuple[Port, ...], section: Section, inputs: tuple[Port, ...]) -> None:
    """Each output is made by the program, or is an input."""
    if not outputs:
        raise UsageError("the model has no outputs")
    known = {wire.port for wire in section.outputs} | {port.name for port in inputs}
    for port in outputs:
        if port.name not in known:
            raise LoweringError(f"output {port.name!r} is a constant; an accelerator has nothing to compute for it")
