"""The back end for Arm's Ethos-U: TOSA for Vela, verified by Arm's reference model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import onnx_ir as ir

from ...costmodels.ethos_device import EthosDevice
from ...engine.onnx.model import Model
from ...engine.operator_graph import operator_graph
from ...engine.shapes.inference import Knowledge, infer
from ...engine.summary import knowledge_of_result
from ...lowering.base.errors import LoweringError
from ...lowering.base.interface import outputs_of, require_fixed
from ...lowering.base.target import ethos_device_of
from ...lowering.base.weights import Weights
from ...lowering.bundle import bundle
from ...lowering.ethos_u.back_end import EthosProgram, make_program, require_vela, vela_version
from ...support.options import OptionError
from ..optimize import Result
from ..options import Options
from .accelerator import AcceleratorKernels
from .compilation import Built, Compilation

_SEARCH_SECONDS = 20.0
"""Seconds for Vela to make programs with other settings, without a limit of the user's."""
QUANTIZATION = "quantization"
"""The topic of rules that make products of integers for processors; the NPU reads the conversions themselves."""


def ethos_for(target: str, options: Options) -> Ethos:
    """The back end of an Ethos-U. Raises UsageError for a target that is none, and if Vela is missing."""
    if options.domains:
        raise OptionError("domains", "the NPU has operators of ONNX only")
    if options.inputs:
        raise OptionError("inputs", "a program for an Ethos-U is verified on drawn inputs")
    require_vela()
    return Ethos(ethos_device_of(target))


_DYNAMIC = frozenset({"DynamicQuantizeLinear", "DynamicQuantizeMatMul", "DynamicQuantizeLSTM", "MatMulIntegerToFloat"})


@dataclass(frozen=True)
class Ethos:
    """Compiles programs for an Ethos-U."""

    device: EthosDevice

    @property
    def lowering(self) -> AcceleratorKernels:
        """Nothing is partitioned: Vela decides which operators run together."""
        return AcceleratorKernels()

    def identity(self, options: Options) -> Mapping[str, Any]:
        """The device, and the version of Vela."""
        return {**asdict(self.device), "vela": vela_version()}

    def check(self, compilation: Compilation) -> None:
        """Raises LoweringError for dynamic dimensions of inputs, and scales that are computed in the run."""
        require_fixed(compilation.ports)
        for node in compilation.original.graph:
            if node.op_type in _DYNAMIC:
                raise LoweringError(
                    f"node {node.name!r} ({node.op_type}): is quantised dynamically, and the NPU needs scales that are "
                    "known; quantise the model statically: onnxruntime.quantization.quantize_static with calibration "
                    "data (docs/ethos-u.md)"
                )

    def prepare(self, options: Options) -> None:
        """Do nothing: Vela starts fast."""

    def build(self, compilation: Compilation, result: Result, folder: Path) -> Built:
        """Write a program to an empty folder, verified unless the options say no."""
        clock, options, model = compilation.clock, compilation.options, result.rewritten.model
        with clock.phase("schedule"):
            try:
                made = self._program(model, knowledge_of_result(model, result.rewritten.knowledge), compilation)
            except LoweringError:  # for a node that a rule made, or for the user's own, which the second try names
                model = compilation.model
                made = self._program(model, infer(model), compilation)
        verdict = ""
        if options.verify:
            with clock.phase("verify"):
                verdict = made.verify(
                    ir.to_proto(compilation.model.ir), ir.to_proto(model.ir), options.seed,
                    options.verification_seconds, lambda line: clock.tell("verify", line),
                )  # fmt: skip
        with clock.phase("write"):
            made.write(folder, compilation.model.label)
        operators = made.outcome.program.estimate.npu_operators
        provenance = compilation.provenance(result, kernels=operators, distinct=operators)
        provenance = replace(provenance, verification=verdict)
        manifest = made.manifest(folder, options.precision, provenance)
        bundle.write_manifest(folder, manifest)
        return Built(manifest)

    def _program(self, model: Model, knowledge: Knowledge, compilation: Compilation) -> EthosProgram:
        """The best program that Vela makes of a model. Raises LoweringError for what the NPU cannot compute."""
        weights = Weights(model)
        graph = operator_graph(model, knowledge, for_kernels=True)
        seconds = compilation.options.time_limit or _SEARCH_SECONDS
        return make_program(graph, weights, compilation.ports, outputs_of(weights, graph), self.device, seconds)
