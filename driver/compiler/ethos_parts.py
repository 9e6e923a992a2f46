"""What a processor computes in front of an Ethos-U and behind it: parts of a model, as C projects in the bundle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from ...engine.onnx.model import Model, read, write
from ...engine.preparation.overrides import keep_outputs
from ...engine.shapes.inference import infer
from ...lowering.base.errors import LoweringError
from ...lowering.base.interface import inputs_of
from ...lowering.base.ports import Port
from ...lowering.base.target import target_of
from ...lowering.ethos_u.back_end import (
    FRONT_MODEL,
    PROCESSOR_MODEL,
    Border,
    ProcessorPart,
    Translation,
    border_of,
    translate,
)
from ..parts import Front, cut_out, front_of
from .compilation import Compilation
from .processor import CrossProject


@dataclass(frozen=True)
class Parts:
    """A model in parts: `form` is what the NPU computes, `front` and `border` say what the `processor` computes before
    and after it."""

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
        for model, part, file, name, title in (
            (compilation.model, self.front_summary, FRONT_MODEL, "front", "in front"),
            (self._rest(compilation), self.behind_summary, PROCESSOR_MODEL, "cpu", "processor"),
        ):
            if part is not None:
                ports, verdict = _build_project(compilation, model, part, folder / file, name)
                made += ports
                verdicts.append(f"{title}: {verdict or 'not verified'}")
        by_name = {port.name: port for port in made}
        names = [output.name for output in compilation.model.graph.outputs]
        return tuple(by_name[name] for name in names if name), tuple(verdicts)

    def _rest(self, compilation: Compilation) -> Model:
        return compilation.model if self.front is None else self.front.model


def parts_of(
    compilation: Compilation, processor: str, refusal: LoweringError, avoided: Mapping[str, str] | None = None
) -> Parts:
    """The parts of a model that the NPU does not take whole, without nodes that are `avoided`, each for a reason.

    Raises the refusal if the NPU computes nothing.
    """
    front = front_of(compilation.model)
    model = compilation.model if front is None else front.model
    ports = compilation.ports if front is None else inputs_of(model)
    if front is not None and not avoided:
        try:
            label = f"as exported, from {', '.join(front.made)}"
            return Parts(processor, translate(label, model, infer(model), ports), front, None)
        except LoweringError as error:
            refusal = error
    border = border_of(model, infer(model), ports, avoided or {})
    if border is None:
        raise refusal
    middle = keep_outputs(model, border.outputs)
    label = f"as exported, up to {', '.join(border.outputs)}"
    return Parts(processor, translate(label, middle, infer(middle), inputs_of(middle)), front, border)


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
