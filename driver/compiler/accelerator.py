"""The back end for accelerators: a scheduled program, verified in a functional simulator."""

from __future__ import annotations

import platform
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ...engine.onnx.model import Model
from ...extract.partition.search.confirmation import Confirm
from ...ir.graph import OperatorGraph
from ...lowering.base.interface import require_fixed
from ...lowering.base.target import accelerator_of, check_linker
from ...lowering.base.weights import Weights
from ...lowering.bundle import bundle
from ...lowering.dsa.back_end import REPORT, VARIANTS, Choices, Demands, make_program, store_kernels
from ...support.files import write_text
from ...support.options import OptionError
from ..html_report.accelerator import accelerator_page
from ..optimize import Result
from ..options import Options
from .compilation import Built, Compilation, kernels_of
from .options import AcceleratorOptions


def accelerator_for(target: str, options: Options, wanted: AcceleratorOptions) -> Accelerator:
    """The back end of an accelerator. Raises UsageError for a target that is none, DeviceError for its figures."""
    if options.inputs:
        raise OptionError("inputs", "a program for an accelerator has its own batch; it is verified on drawn inputs")
    if options.domains:
        raise OptionError("domains", "a program for an accelerator has operators of ONNX only")
    if options.verify:
        check_linker()
    choices = Choices(VARIANTS[wanted.variant], wanted.order, wanted.per_cluster, wanted.up_sampling)
    return Accelerator(Demands(accelerator_of(target), wanted.batch, wanted.batch_axis, wanted.floats, choices))


@dataclass(frozen=True)
class AcceleratorKernels:
    """The lowering for accelerators: a layer is one kernel for each instance, with the views in it."""

    threads: int = 1
    views_apart: bool = False

    def list_alone(self, graph: OperatorGraph) -> Collection[int]:
        """None: an operator without a tile is an error."""
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
        """Raises LoweringError for dimensions of inputs that have no name; `accelerator_for` checked the options."""
        require_fixed(compilation.ports)

    def prepare(self, options: Options) -> None:
        """Do nothing: the process that verifies starts fast, compared with its work."""

    def build(self, compilation: Compilation, result: Result, folder: Path) -> Built:
        """Write a program to an empty folder and verify it in the functional simulator."""
        clock, model, options = compilation.clock, compilation.model, compilation.options
        weights = Weights(result.rewritten.model)
        with clock.phase("schedule"):
            graph, layers = kernels_of(result)
            name = model.path.stem if model.path else model.label
            made = make_program(
                graph, layers, compilation.ports, self.demands, name, lambda line: clock.tell("schedule", line)
            )
        with clock.phase("write"):
            made.write(folder, weights)
        provenance = compilation.provenance(result, kernels=made.tiles, distinct=len(made.program.first.kernels))
        manifest = made.manifest(folder, weights, options.precision, provenance)
        if options.verify:
            with clock.phase("kernels"):
                store_kernels(folder, len(made.program.programs), lambda line: clock.tell("kernels", line))
            manifest = replace(manifest, files=bundle.digests(folder))
            bundle.write_manifest(folder, manifest)
            with clock.phase("verify"):
                verdict = made.verify(
                    folder, model, (options.atol, options.rtol), options.seed, options.verification_seconds,
                    lambda line: clock.tell("verify", line),
                )  # fmt: skip
            manifest = replace(manifest, provenance=replace(manifest.provenance, verification=verdict))
        with clock.phase("write"):
            write_text(folder / REPORT, accelerator_page(model.label, manifest, made))
        manifest = replace(manifest, files=bundle.digests(folder))
        bundle.write_manifest(folder, manifest)
        return Built(manifest)
