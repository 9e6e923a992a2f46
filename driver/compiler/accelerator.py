"""The back end for accelerators: a scheduled program, verified in a functional simulator."""

from __future__ import annotations

import platform
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from ...costmodels.dsa_device import DsaDevice
from ...engine.onnx.model import Model
from ...extract.partition.search.confirmation import Confirm
from ...ir.graph import OperatorGraph
from ...lowering.base.errors import LoweringError
from ...lowering.base.interface import outputs_of, require_fixed
from ...lowering.base.ports import Port
from ...lowering.base.target import accelerator_of, check_linker
from ...lowering.base.weights import Weights
from ...lowering.bundle import bundle
from ...lowering.dsa.bundle.constants import constant_contents
from ...lowering.dsa.bundle.files import REPORT, store_kernels, store_program
from ...lowering.dsa.bundle.section import Section, Wire
from ...lowering.dsa.codegen.compiler import (
    AcceleratorNetwork,
    Choices,
    DsaProgram,
    accelerator_network,
    batch_axes,
    compile_network,
)
from ...lowering.dsa.program.instructions import Compute
from ...lowering.dsa.report.page import report_page
from ...lowering.dsa.schedule.scheduler import OrderName
from ...lowering.dsa.schedule.variants import FULL, VARIANTS
from ...lowering.plan.manifest import PROGRAM, Manifest, Platform
from ...support.errors import UsageError, VerificationError
from ...support.options import OptionError, PositiveInteger, check_options
from ..optimize import Result
from ..options import Options
from .compilation import Built, Compilation, kernels_of

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
    """The options of a compilation for an accelerator, as the command line has them. Raises OptionError."""

    batch: PositiveInteger | None = None
    floats: Floats | None = None
    variant: str = FULL.name
    order: OrderName | None = None
    per_cluster: PositiveInteger | None = None

    def __post_init__(self) -> None:
        check_options(self)
        if self.variant not in VARIANTS:
            raise OptionError("variant", f"{self.variant!r} is not one of {', '.join(VARIANTS)}")


def accelerator_for(target: str, options: Options, wanted: AcceleratorOptions) -> Accelerator:
    """The back end of an accelerator. Raises UsageError for a target that is none, DeviceError for its figures."""
    if options.inputs:
        raise OptionError("inputs", "a program for an accelerator has its own batch; it is verified on drawn inputs")
    if options.domains:
        raise OptionError("domains", "a program for an accelerator has operators of ONNX only")
    if options.verify:
        check_linker()
    choices = Choices(VARIANTS[wanted.variant], wanted.order, wanted.per_cluster)
    return Accelerator(Demands(accelerator_of(target), wanted.batch, wanted.floats, choices))


@dataclass(frozen=True)
class AcceleratorKernels:
    """The lowering for accelerators: a layer is one kernel for each instance, with the views in it."""

    threads: int = 1
    views_apart: bool = False

    def list_alone(self, graph: OperatorGraph) -> Collection[int]:
        """None: what has no tile is an error."""
        return ()

    def confirm(self, model: Model) -> Confirm:
        """Nothing is refused: no kernel has several anchor ops."""
        return lambda partition, kernels: ()


@dataclass(frozen=True)
class Accelerator:
    """Compiles programs that a simulator executes."""

    demands: Demands

    @property
    def lowering(self) -> AcceleratorKernels:
        """Its answers to the partition: which kernels it can make, and which operators stay alone."""
        return AcceleratorKernels()

    def identity(self, options: Options) -> Mapping[str, Any]:
        """The demands, and the machine, whose kernels simulate tiles."""
        return {**asdict(self.demands), "machine": platform.machine()}

    def check(self, compilation: Compilation) -> None:
        """Raises LoweringError for free dimensions of inputs; `accelerator_for` checked the options."""
        require_fixed(compilation.ports)

    def prepare(self, options: Options) -> None:
        """Do nothing: the process that verifies starts fast, compared with its work."""

    def build(self, compilation: Compilation, result: Result, folder: Path) -> Built:
        """Write a program to an empty folder and verify it in the functional simulator."""
        clock, demands, model = compilation.clock, self.demands, compilation.model
        with clock.phase("schedule"):
            graph, layers = kernels_of(result)
            graph = _with_defaults(graph, compilation.ports)
            size = WIDTHS[demands.floats] if demands.floats else _own_width(graph)
            network = accelerator_network(graph, layers, demands.device, size)
            program = compile_network(
                network, demands.device, demands.batch, demands.choices, model.path.stem if model.path else model.label,
                lambda line: clock.tell("schedule", line),
            )  # fmt: skip
        with clock.phase("write"):
            weights = Weights(result.rewritten.model)
            contents = constant_contents(
                program.generated, program.device.alignment, weights.__getitem__, network.slices
            )
            store_program(folder, program, network, contents)
            (folder / REPORT).write_text(report_page(model.label, program), encoding="utf-8")
        manifest = self._manifest(compilation, result, network, program, folder)
        if compilation.options.verify:
            with clock.phase("kernels"):
                store_kernels(folder, lambda line: clock.tell("kernels", line))
            manifest = replace(manifest, files=bundle.digests(folder))
            bundle.write_manifest(folder, manifest)
            with clock.phase("verify"):
                verdict = self._verify(compilation, folder, network)
            manifest = replace(manifest, provenance=replace(manifest.provenance, verification=verdict))
        bundle.write_manifest(folder, manifest)
        return Built(manifest)

    def _verify(self, compilation: Compilation, folder: Path, network: AcceleratorNetwork) -> str:
        """The verdict of verification, in one line that says how much was verified."""
        from ...engine.verification import require_comparison, require_verdict
        from ...engine.verification.runs.source import model_file
        from ...lowering.bundle.check import call_for_verdict
        from ...lowering.dsa.bundle.simulated_model import IsolatedSimulation
        from ...lowering.dsa.bundle.verification import Demand, Original, samples_to_verify, verify_program

        options, loaded = compilation.options, IsolatedSimulation(folder, _SIMULATION_SECONDS)
        model = compilation.model
        coarser = "float16" if network.element_size < _own_width(network.graph) else None
        demand = Demand(options.atol, options.rtol, options.seed, coarser)
        with model_file(model.source) as file:
            original = Original(file.absolute(), compilation.ports, network.batch)
            samples = samples_to_verify(loaded, original)
            compilation.clock.tell("verify", f"{samples} samples in the functional simulator")
            with require_verdict(model.label):
                answer = call_for_verdict(options.verification_seconds, verify_program, original, loaded, demand)
                verification = require_comparison(answer)
        if verification.status == "failed":
            raise VerificationError(
                f"{model.label}: the program differs from the original: {verification.summary}; nothing was written"
            )
        batch = loaded.section.allocation.batch
        return f"{verification.summary} ({min(samples, batch)} of {batch} sample(s), simulated)"

    def _manifest(
        self, compilation: Compilation, result: Result, network: AcceleratorNetwork, program: DsaProgram, folder: Path
    ) -> Manifest:
        device, batch, ports = self.demands.device, program.allocation.batch, compilation.ports
        section = _section(result, network, program, self.demands)
        outputs = outputs_of(Weights(result.rewritten.model), network.graph)
        if not outputs:
            raise UsageError("the model has no outputs")
        computed = {wire.port for wire in section.outputs} | {port.name for port in ports}
        for port in outputs:
            if port.name not in computed:
                raise LoweringError(f"output {port.name!r} is a constant; an accelerator has nothing to compute for it")
        axes = {wire.port: wire.axis for wire in (*section.inputs, *section.outputs)}
        return Manifest(
            inputs=tuple(_with_batch(port, axes.get(port.name, 0), network.batch, batch) for port in ports),
            outputs=tuple(_with_batch(port, axes.get(port.name, 0), network.batch, batch) for port in outputs),
            platform=Platform(f"dsa-{device.name}", "simulated", "", device.name, ()),
            precision=compilation.options.precision,
            threads=1,
            provenance=compilation.provenance(
                result,
                kernels=sum(isinstance(i, Compute) for i in program.generated.program.instructions),
                distinct=len(program.kernels),
            ),
            fallbacks=(),
            versions=bundle.versions(),
            files=bundle.digests(folder),
            library=PROGRAM,
            dsa=section.as_dict(),
        )


def _with_defaults(graph: OperatorGraph, ports: Sequence[Port]) -> OperatorGraph:
    """The graph whose inputs are the ports: an input with a default is a constant."""
    names = {port.name for port in ports}
    return OperatorGraph(
        graph.operators,
        tuple(replace(v, is_constant=True) if v.producer is None and v.name not in names else v for v in graph.values),
    )


def _own_width(graph: OperatorGraph) -> int:
    """Bytes of the widest float type of a graph; of float32 where it has none."""
    widths = (_STORED_AS.get(value.type.dtype or "", 0) for value in graph.values if value.type is not None)
    return max(widths, default=0) or 4


def _section(result: Result, network: AcceleratorNetwork, program: DsaProgram, demands: Demands) -> Section:
    generated, values, orders = program.generated, network.graph.values, program.generated.network.axes
    allocation = program.allocation
    axes = batch_axes(network, generated.outputs.values(), allocation.batch != allocation.per_cluster)
    names = {width: name for name, width in WIDTHS.items()}
    has_batch = network.batch is not None
    input_axes = {v: 0 if has_batch and values[v].extent.dimensions else None for v in generated.inputs.values()}
    return Section(
        device=program.device,
        allocation=allocation,
        variant=demands.choices.variant.name,
        order=demands.choices.order,
        floats=names[network.element_size],
        inputs=tuple(Wire(name, values[v].name, input_axes[v], orders[v]) for name, v in generated.inputs.items()),
        outputs=tuple(Wire(name, values[v].name, axes[v], orders[v]) for name, v in generated.outputs.items()),
        figures=program.figures(),
        opset=result.rewritten.model.opset,
    )


def _with_batch(port: Port, axis: int | None, own: int | None, batch: int) -> Port:
    """A port of `batch` samples in place of its `own`."""
    shape = list(port.static_shape)
    if own is None or own == batch or axis is None or not shape or shape[axis] % own:
        return port
    shape[axis] = shape[axis] * batch // own
    return replace(port, shape=tuple(shape))
