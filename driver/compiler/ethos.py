"""The back end for Arm's Ethos-U: TOSA for Vela, verified by Arm's reference model.

What the NPU does not take, in front of it and behind it, a processor computes: C projects in the bundle.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ...costmodels.ethos_device import EthosDevice
from ...engine.onnx.model import Model, read, write
from ...engine.preparation.overrides import keep_outputs
from ...engine.shapes.inference import infer
from ...engine.summary import knowledge_of_result
from ...lowering.base.errors import LoweringError
from ...lowering.base.interface import inputs_of, require_fixed
from ...lowering.base.ports import Port
from ...lowering.base.target import ethos_device_of, target_of
from ...lowering.bundle import bundle
from ...lowering.ethos_u.back_end import (
    FRONT_MODEL,
    PROCESSOR_MODEL,
    Border,
    ProcessorPart,
    Translation,
    border_of,
    make_program,
    refused_nodes,
    require_vela,
    translate,
    vela_version,
)
from ...support.options import OptionError
from ..optimize import Result
from ..options import VERIFICATION_SECONDS, Options
from ..parts import Front, cut_out, front_of, with_known_values
from .accelerator import AcceleratorKernels
from .compilation import Built, Compilation
from .processor import CrossProject

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
        clock, options = compilation.clock, compilation.options
        parts: Parts | None = None
        with clock.phase("schedule"):
            seconds = options.time_limit or _SEARCH_SECONDS
            try:
                forms = self._forms(compilation, result)
            except LoweringError as error:
                parts = parts_of(compilation, self.device.processor, error)
                clock.tell("schedule", f"{error}; {_behind(self.device)}")
                forms = [parts.form]
            try:
                made = make_program(forms, self.device, seconds, lambda line: clock.tell("schedule", line))
            except LoweringError as error:  # of the model as exported
                avoided = refused_nodes(forms[0], self.device)
                if not avoided or parts is not None:
                    raise
                parts = parts_of(compilation, self.device.processor, error, avoided)
                reason = parts.behind_summary.reason if parts.behind_summary is not None else error
                clock.tell("schedule", f"{reason}; {_behind(self.device)}")
                made = make_program([parts.form], self.device, seconds, lambda line: clock.tell("schedule", line))
        verdict = ""
        if options.verify:
            with clock.phase("verify"):
                original = compilation.model if parts is None else parts.form.model
                limit = options.verify_limit or VERIFICATION_SECONDS
                verdict = made.verify(original, options.seed, limit, lambda line: clock.tell("verify", line))
        with clock.phase("write"):
            made.write(folder, compilation.model.label)
        outputs = made.form.outputs
        if parts is not None:
            outputs, verdicts = parts.build(compilation, folder)
            verdict = "; ".join((verdict, *verdicts)) if verdict else ""
        operators = made.outcome.program.estimate.npu_operators
        provenance = compilation.provenance(result, kernels=operators, distinct=operators)
        provenance = replace(provenance, verification=verdict)
        manifest = made.manifest(
            folder, options.precision, provenance, compilation.ports, outputs,
            *(() if parts is None else (parts.behind_summary, parts.front_summary)),
        )  # fmt: skip
        bundle.write_manifest(folder, manifest)
        return Built(manifest)

    def _forms(self, compilation: Compilation, result: Result) -> list[Translation]:
        """The model as exported and as the rules rewrote it, as far as the NPU takes them.

        Raises LoweringError, which names the node as exported, if it takes neither.
        """
        model, rewritten = compilation.model, result.rewritten.model
        forms, problems = [], []
        for label, form, knowledge in (
            ("as exported", model, infer(model)),
            ("as rewritten", rewritten, knowledge_of_result(rewritten, result.rewritten.knowledge)),
        ):
            try:
                forms.append(translate(label, form, knowledge, compilation.ports))
            except LoweringError as error:
                problems.append(error)
                compilation.clock.tell("schedule", f"the model {label}: {error}")
        if not forms:
            raise problems[0]
        return forms


def _behind(device: EthosDevice) -> str:
    return f"this part goes to a processor, as a C project for {device.processor}"


# --- a model in parts


@dataclass(frozen=True)
class Parts:
    """A `whole` model in parts: `form` is what the NPU computes, `front` and `border` say what the `processor` computes
    before and after it."""

    whole: Model
    processor: str
    form: Translation
    front: Front | None
    border: Border | None

    @property
    def front_summary(self) -> ProcessorPart | None:
        """What the manifest says of the part in front."""
        if self.front is None:
            return None
        reason = "the model computes with floats there, in front of the first QuantizeLinear"
        return ProcessorPart(self.processor, self.front.operators, self.front.read, self.front.made, reason)

    @property
    def behind_summary(self) -> ProcessorPart | None:
        """What the manifest says of the part behind."""
        if self.border is None:
            return None
        border = self.border
        return ProcessorPart(self.processor, border.operators, border.read, border.left, border.reason)

    def build(self, compilation: Compilation, folder: Path) -> tuple[tuple[Port, ...], tuple[str, ...]]:
        """Write the parts and their C projects; the outputs of the whole model, and the verdicts on the projects."""
        made, verdicts = [*self.form.outputs], []
        rest = self.whole if self.front is None else self.front.model
        for model, part, file, name, title in (
            (self.whole, self.front_summary, FRONT_MODEL, "front", "in front"),
            (rest, self.behind_summary, PROCESSOR_MODEL, "cpu", "processor"),
        ):
            if part is not None:
                ports, verdict = _build_project(compilation, model, part, folder / file, name)
                made += ports
                verdicts.append(f"{title}: {verdict or 'not verified'}")
        by_name = {port.name: port for port in made}
        names = [output.name for output in compilation.model.graph.outputs]
        return tuple(by_name[name] for name in names if name), tuple(verdicts)


def parts_of(
    compilation: Compilation, processor: str, refusal: LoweringError, avoided: Mapping[str, str] | None = None
) -> Parts:
    """The parts of a model that the NPU does not take whole, without nodes that are `avoided`, each for a reason.

    Raises the refusal if the NPU computes nothing.
    """
    whole = with_known_values(compilation.model)
    front = front_of(whole)
    model = whole if front is None else front.model
    ports = compilation.ports if front is None else inputs_of(model)
    if front is not None and not avoided:
        try:
            label = f"as exported, from {', '.join(front.made)}"
            return Parts(whole, processor, translate(label, model, infer(model), ports), front, None)
        except LoweringError as error:
            refusal = error
    border = border_of(model, infer(model), ports, avoided or {})
    if border is None:
        raise refusal
    middle = keep_outputs(model, border.outputs)
    label = f"as exported, up to {', '.join(border.outputs)}"
    return Parts(whole, processor, translate(label, middle, infer(middle), inputs_of(middle)), front, border)


def _build_project(
    compilation: Compilation, model: Model, part: ProcessorPart, path: Path, name: str
) -> tuple[tuple[Port, ...], str]:
    """Write a part of a model, and its C project to a folder beside it: its outputs, and the verdict on the project."""
    write(cut_out(model, part.read, part.outputs), path)
    options = replace(compilation.options, device=part.target, input_shapes={}, outputs=(), dim=(), skip=())
    own = Compilation.of(read(path), options, compilation.clock)
    backend = CrossProject(target_of(part.target), measure=False, prefix=name)
    project = path.parent / name
    project.mkdir()
    built = backend.build(own, own.optimize(backend), project)
    return built.manifest.outputs, built.manifest.provenance.verification
