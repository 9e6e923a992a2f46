"""The door of this folder, for what compiles, loads and times bundles: no other folder imports a module behind it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from ...costmodels.dsa_device import DsaDevice
from ...engine.onnx.model import Model
from ...ir.graph import OperatorGraph
from ...support.errors import UsageError, VerificationError
from ..base.choices import Floats
from ..base.errors import LoweringError
from ..base.interface import outputs_of
from ..base.ports import Port
from ..base.toolchain import versions
from ..base.weights import Weights
from ..bundle import bundle
from ..plan.manifest import PROGRAM, Manifest, Platform, Provenance
from .bundle.constants import Array, constant_contents
from .bundle.files import REPORT, TRACE, Observer, read_network, store_kernels, store_programs
from .bundle.section import ClusterSection, Section, Wire, section_of
from .bundle.simulated_model import IsolatedSimulation, SimulatedModel
from .clusters.compiler import DsaProgram, MadeProgram, batch_axes, compile_network, program_for
from .codegen.compiler import AcceleratorNetwork, Choices, accelerator_network, collecting_seldom
from .network.subgraphs import Layer
from .program.instructions import Compute
from .report.run import EngineRow, Filling, RunPicture, picture_of
from .schedule.variants import VARIANTS
from .simulate.time_report import TimeReport

__all__ = [
    "REPORT", "TRACE", "VARIANTS", "WIDTHS", "Choices", "CompiledNetwork", "Demands", "EngineRow", "Filling",
    "RunPicture", "Section", "TimeReport", "load", "make_program", "schedule_again", "section_of", "store_kernels",
]  # fmt: skip

WIDTHS: dict[Floats, int] = {"float16": 2, "float32": 4, "float64": 8}
"""Bytes of the types that floats may be stored in."""
_SIMULATION_SECONDS = 3600.0
"""Seconds that a simulation may take which verifies a program; beyond that a tile's computation is taken to hang."""
_STORED_AS = {"float16": 2, "bfloat16": 4, "float32": 4, "float64": 8}


@dataclass(frozen=True)
class Demands:
    """The settings of a program for an accelerator: `batch` and `floats` are the model's own if None, `batch_axis` is
    the outermost one of inputs, if that can be followed."""

    device: DsaDevice
    batch: int | None = None
    batch_axis: int | None = None
    floats: Floats | None = None
    choices: Choices = field(default_factory=Choices)


@dataclass(frozen=True)
class CompiledNetwork:
    """A model's network and the program that was made of it; `ports` are the inputs of the model."""

    demands: Demands
    ports: tuple[Port, ...]
    network: AcceleratorNetwork
    program: DsaProgram

    @property
    def tiles(self) -> int:
        """How many tiles the first cluster computes in a run of its program."""
        return sum(isinstance(each, Compute) for each in self.program.first.program.instructions)

    @cached_property
    def picture(self) -> RunPicture:
        """The simulated run, for a report."""
        return picture_of(self.program)

    def write(self, folder: Path, weights: Weights) -> None:
        """Write everything but the compiled kernels, which `store_kernels` adds, the report and the manifest."""
        contents = [self._constants(made, weights) for made in self.program.programs]
        with collecting_seldom():
            store_programs(folder, self.program, self.network, contents)

    def _constants(self, made: MadeProgram, weights: Weights) -> dict[str, Array]:
        """The contents of the buffers of a program's constants."""
        alignment, contents = self.program.device.alignment, dict[str, Array]()
        for part in made.parts:
            slices = {**self.network.slices, **part.slices}
            own = constant_contents(part.generated, alignment, weights.__getitem__, slices)
            contents |= {part.constants[name]: content for name, content in own.items()}
        return contents

    def manifest(self, folder: Path, weights: Weights, precision: str, provenance: Provenance) -> Manifest:
        """The manifest of the files in a folder. Raises UsageError and LoweringError for outputs that nothing
        computes."""
        section, batch = self._section(weights.model.opset), self.program.allocation.batch
        outputs = outputs_of(weights, self.network.graph)
        if not outputs:
            raise UsageError("the model has no outputs")
        computed = {wire.port for wire in section.outputs} | {port.name for port in self.ports}
        for port in outputs:
            if port.name not in computed:
                raise LoweringError(f"output {port.name!r} is a constant; an accelerator has nothing to compute for it")
        axes = {wire.port: wire.axis for wire in (*section.inputs, *section.outputs)}

        def with_batch(ports: Sequence[Port]) -> tuple[Port, ...]:
            return tuple(_with_batch(port, axes.get(port.name, 0), self.network.batch, batch) for port in ports)

        return Manifest(
            inputs=with_batch(self.ports),
            outputs=with_batch(outputs),
            platform=Platform(f"dsa-{self.demands.device.name}", "simulated", "", self.demands.device.name, ()),
            precision=precision,
            threads=1,
            provenance=provenance,
            fallbacks=(),
            versions=versions(),
            files=bundle.digests(folder),
            library=PROGRAM,
            dsa=section.as_dict(),
        )

    def _section(self, opset: int) -> Section:
        allocation, choices = self.program.allocation, self.demands.choices
        names = {width: name for name, width in WIDTHS.items()}
        return Section(
            device=self.program.device,
            allocation=allocation,
            programs=tuple(self._cluster_section(made) for made in self.program.programs),
            numbers=tuple(run.numbers for run in self.program.runs),
            variant=choices.variant.name,
            order=choices.order,
            floats=names[self.network.element_size],
            figures=self.program.figures(),
            opset=opset,
        )

    def _cluster_section(self, made: MadeProgram) -> ClusterSection:
        samples, values, orders = made.program.batch, self.network.graph.values, made.network.axes
        axes = batch_axes(self.network, made.outputs.values(), self.program.allocation.batch != samples)
        axis = self.network.batch_axis
        input_axes = {v: axis if values[v].extent.dimensions else None for v in made.inputs.values()}
        return ClusterSection(
            samples,
            tuple(Wire(name, values[v].name, input_axes[v], orders[v]) for name, v in made.inputs.items()),
            tuple(Wire(name, values[v].name, axes[v], orders[v]) for name, v in made.outputs.items()),
        )

    def verify(
        self,
        folder: Path,
        model: Model,
        tolerances: tuple[float | None, float | None],
        seed: int,
        seconds: float,
        observer: Observer,
    ) -> str:
        """Compare the program in a folder with the original model; the verdict in one line.

        `tolerances` are absolute and relative, None for those of the type. Raises VerificationError if the two differ,
        cannot be compared within the limit in seconds, or if no output changes with the inputs.
        """
        from ...engine.verification import require_comparison, require_verdict
        from ...engine.verification.runs.source import model_file
        from ..bundle.check import call_for_verdict
        from .bundle.verification import Demand, Original, samples_to_verify, verify_program

        loaded = IsolatedSimulation(folder, _SIMULATION_SECONDS)
        coarser = "float16" if self.network.element_size < _own_width(self.network.graph) else None
        demand = Demand(*tolerances, seed, coarser)
        with model_file(model.source) as file:
            original = Original(file.absolute(), self.ports, self.network.batch)
            samples = samples_to_verify(loaded, original)
            observer(f"{samples} samples in the functional simulator")
            with require_verdict(model.label):
                answer = call_for_verdict(seconds, verify_program, original, loaded, demand)
                verification = require_comparison(answer)
                if verification.status == "not verifiable":  # other inputs, smaller and larger ones, were tried
                    raise VerificationError(f"no input shows whether the program is right: {verification.reason}")
        if verification.status == "failed":
            raise VerificationError(
                f"{model.label}: the program differs from the original: {verification.summary}; nothing was written"
            )
        batch = loaded.section.allocation.batch
        return f"{verification.summary} ({min(samples, batch)} of {batch} sample(s), simulated)"


def make_program(
    graph: OperatorGraph,
    layers: Sequence[Layer],
    ports: tuple[Port, ...],
    demands: Demands,
    name: str,
    observer: Observer,
) -> CompiledNetwork:
    """The fastest program for a graph that is partitioned into layers; `ports` are the inputs of the model.

    Raises LoweringError for what the accelerator cannot run.
    """
    graph = _with_defaults(graph, ports)
    size = WIDTHS[demands.floats] if demands.floats else _own_width(graph)
    network = accelerator_network(graph, layers, demands.device, size, demands.batch_axis)
    with collecting_seldom():
        program = compile_network(network, demands.device, demands.batch, demands.choices, name, observer)
    return CompiledNetwork(demands, ports, network, program)


def load(folder: Path) -> SimulatedModel:
    """A bundle, to be run in the functional simulator. Raises BundleError if it is damaged."""
    return SimulatedModel(folder)


def schedule_again(folder: Path, section: Section, variant: str) -> Mapping[str, Any]:
    """The time report of another variant of the program in a bundle. Raises LoweringError if it has none."""
    return program_for(read_network(folder), section.device, section.allocation, Choices(VARIANTS[variant])).figures()


def _with_defaults(graph: OperatorGraph, ports: Sequence[Port]) -> OperatorGraph:
    """The graph whose inputs are the ports: an input with a default is a constant."""
    names = {port.name for port in ports}
    return OperatorGraph(
        graph.operators,
        tuple(replace(v, is_constant=True) if v.producer is None and v.name not in names else v for v in graph.values),
    )


def _own_width(graph: OperatorGraph) -> int:
    """Bytes of the widest float type of a graph; of float32 if it has none."""
    widths = (_STORED_AS.get(value.type.dtype or "", 0) for value in graph.values if value.type is not None)
    return max(widths, default=0) or 4


def _with_batch(port: Port, axis: int | None, own: int | None, batch: int) -> Port:
    """A port of `batch` samples in place of its `own`."""
    shape = list(port.static_shape)
    if own is None or own == batch or axis is None or not shape or shape[axis] % own:
        return port
    shape[axis] = shape[axis] * batch // own
    return replace(port, shape=tuple(shape))
