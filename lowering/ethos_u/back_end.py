"""The door of this folder, for what compiles and loads bundles: no other folder imports a module behind it."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import onnx_ir as ir

from ...costmodels.ethos_device import EthosDevice
from ...engine.onnx.model import Model
from ...engine.operator_graph import operator_graph
from ...engine.shapes.inference import Knowledge
from ...support.errors import UsageError, VerificationError
from ..base.errors import CrashError, LoweringError
from ..base.interface import outputs_of
from ..base.ports import Port
from ..base.toolchain import versions
from ..base.weights import Weights
from ..bundle import bundle
from ..plan.manifest import Manifest, Platform, Provenance
from .emission.constants import ConstantReader
from .emission.emit import Border, Emitted, Wire, emit, find_border
from .model import (
    FRONT_MODEL,
    PROCESSOR_MODEL,
    TOSA,
    Figures,
    ProcessorPart,
    Section,
    TosaModel,
    section_of,
    write_graph,
)
from .neighbourhood import alone
from .search import Outcome, search
from .tosa.flatbuffer import to_bytes
from .vela import Program, Setting, TensorPlace, compile_by_vela, require_vela, vela_version
from .verification import compare_whole, verify_bits, verify_operators

__all__ = [
    "FRONT_MODEL", "PROCESSOR_MODEL", "REPORT", "Border", "EthosProgram", "Figures", "ProcessorPart", "Section",
    "Translation", "border_of", "estimate_plain", "load", "make_program", "refused_nodes", "require_vela",
    "section_of", "translate", "vela_version",
]  # fmt: skip


REPORT = "vela.json"
"""The file of Vela's estimates in a bundle."""


@dataclass(frozen=True)
class Translation:
    """A form of a model, what it is in words, and its graph of TOSA; `ports` and `outputs` are those of the model."""

    label: str
    model: Model
    emitted: Emitted
    ports: tuple[Port, ...]
    outputs: tuple[Port, ...]


def translate(label: str, model: Model, knowledge: Knowledge, ports: Sequence[Port]) -> Translation:
    """A model as TOSA. Raises LoweringError for what the NPU cannot compute."""
    weights = Weights(model)
    graph = operator_graph(model, knowledge, for_kernels=True)
    outputs = outputs_of(weights, graph)
    if not outputs:
        raise UsageError("the model has no outputs")
    emitted = emit(graph, ConstantReader(weights), ports, outputs)
    return Translation(label, model, emitted, tuple(ports), outputs)


def border_of(
    model: Model, knowledge: Knowledge, ports: Sequence[Port], avoided: Mapping[str, str]
) -> Border | None:
    """Where a model leaves the NPU; None if the NPU computes nothing of it. `avoided` are nodes that Vela refuses."""
    weights = Weights(model)
    graph = operator_graph(model, knowledge, for_kernels=True)
    return find_border(graph, ConstantReader(weights), ports, outputs_of(weights, graph), avoided)


def refused_nodes(form: Translation, device: EthosDevice) -> dict[str, str]:
    """Reasons of Vela's for what it refuses for a device, or crashes on, by the names of nodes.

    Results of operators have the names of their nodes, with a number behind it if these are taken.
    """
    refused: dict[str, str] = {}
    known: dict[str, str | None] = {}
    graph = form.emitted.graph
    for operator in graph.operators:
        part = alone(graph, operator)
        if part.form not in known:
            try:
                compile_by_vela(to_bytes(part), device, Setting())
                known[part.form] = None
            except LoweringError as error:
                known[part.form] = str(error)
        if (reason := known[part.form]) is not None:
            refused |= dict.fromkeys((operator.output, re.sub(r"\.\d+$", "", operator.output)), reason)
    return refused


@dataclass(frozen=True)
class EthosProgram:
    """Vela's program for a form of a model; `content` is its graph of TOSA, as a file."""

    device: EthosDevice
    form: Translation
    content: bytes
    outcome: Outcome

    @property
    def emitted(self) -> Emitted:
        """The graph that was chosen."""
        return replace(self.form.emitted, graph=self.outcome.choice.graph)

    def write(self, folder: Path, label: str) -> None:
        """Write everything but the manifest."""
        (folder / TOSA).write_bytes(self.content)
        write_graph(folder, self.emitted.graph)
        write_files(folder, self.outcome, self.device, self.emitted.inputs, self.emitted.outputs, label)

    def manifest(
        self, folder: Path, precision: str, provenance: Provenance, ports: tuple[Port, ...],
        outputs: tuple[Port, ...], processor: ProcessorPart | None = None, front: ProcessorPart | None = None,
    ) -> Manifest:  # fmt: skip
        """The manifest of the files in a folder, for a model with these inputs and outputs."""
        outcome, device = self.outcome, self.device
        section = Section(
            device.name, vela_version(), device.system, device.memory_mode, self.emitted.inputs, self.emitted.outputs,
            _figures(str(outcome.choice), outcome.program), _figures(str(outcome.first), outcome.plain),
            outcome.candidates, outcome.refused, processor, front,
        )  # fmt: skip
        return Manifest(
            inputs=ports,
            outputs=outputs,
            platform=Platform(device.name, "ethos-u", "", device.name, ()),
            precision=precision,
            threads=1,
            provenance=provenance,
            fallbacks=(),
            versions={**versions(), "ethos-u-vela": vela_version()},
            files=bundle.digests(folder),
            library=TOSA,
            ethos_u=section.as_dict(),
        )

    def verify(self, original: Model, seed: int, seconds: float, observer: Callable[[str], None]) -> str:
        """The verdict in one line. Raises VerificationError if the program computes something else than the model, and
        if a run of ONNX Runtime or of the reference model is not done within `seconds` of all."""
        form, emitted = self.form, self.emitted
        deadline = time.monotonic() + seconds

        def left() -> float:
            return max(1.0, deadline - time.monotonic())

        try:
            observer("each operator in ONNX Runtime")
            operators = verify_operators(ir.to_proto(form.model.ir), form.emitted, form.ports, seed, left())
            whole = compare_whole(ir.to_proto(original.ir), emitted, form.ports, form.outputs, seed, left())
            observer("Arm's reference model")
            bits = verify_bits(self.content, emitted, form.emitted.graph, form.ports, seed, left())
        except CrashError as error:
            if not error.timed_out:
                raise
            raise VerificationError(
                f"no verdict within {seconds:g} s; nothing was written; give more by --verify-limit SECONDS, or write "
                "the program unverified with --no-verify"
            ) from None
        return f"passed, {bits}; {operators}; {whole}"


def make_program(
    forms: Sequence[Translation], device: EthosDevice, seconds: float, observer: Callable[[str], None]
) -> EthosProgram:
    """The best program that Vela makes within `seconds` of forms of one model, the one as exported first.

    Raises LoweringError if Vela refuses that one.
    """
    outcome = search([(form.label, form.emitted.graph) for form in forms], device, seconds, observer)
    return EthosProgram(device, forms[outcome.choice.form], to_bytes(outcome.choice.graph), outcome)


def estimate_plain(form: Translation, device: EthosDevice) -> Figures:
    """Vela's estimate with its defaults. Raises LoweringError if Vela refuses the graph."""
    return _figures(f"{form.label}; {Setting()}", compile_by_vela(to_bytes(form.emitted.graph), device, Setting()))


def load(folder: Path) -> TosaModel:
    """A bundle, to be run as TOSA. Raises BundleError if it is damaged."""
    return TosaModel(folder)


def _figures(choice: str, program: Program) -> Figures:
    estimate = program.estimate
    return Figures(
        choice, estimate.cycles, estimate.sram, estimate.memory, estimate.npu_operators, estimate.cpu_operators
    )


COMMANDS, WEIGHTS, HEADER = "commands.bin", "weights.bin", "model.h"


def write_files(
    folder: Path, outcome: Outcome, device: EthosDevice, inputs: Sequence[Wire], outputs: Sequence[Wire], label: str
) -> None:
    """Write the files of a program."""
    program = outcome.program
    (folder / COMMANDS).write_bytes(program.commands.tobytes())
    (folder / WEIGHTS).write_bytes(program.weights.tobytes())
    (folder / HEADER).write_text(_header(program, device, inputs, outputs, label), encoding="utf-8")
    (folder / REPORT).write_text(json.dumps(_report(outcome, device), indent=1) + "\n", encoding="utf-8")


def _report(outcome: Outcome, device: EthosDevice) -> dict[str, Any]:
    return {
        "estimated_by": f"Vela {vela_version()}",
        "device": asdict(device),
        "choice": str(outcome.choice),
        "chosen": asdict(outcome.program.estimate),
        "plain": asdict(outcome.plain.estimate),
        "candidates": outcome.candidates,
        "refused": outcome.refused,
        "layers": outcome.program.layers.get("perf", {}),
        "tensors": outcome.program.layers.get("tensors", {}),
    }


def _header(
    program: Program, device: EthosDevice, inputs: Sequence[Wire], outputs: Sequence[Wire], label: str
) -> str:
    estimate = program.estimate
    lines = [
        f"/* {_comment(label)} for {device.name} ({device.system}, {device.memory_mode}), by Vela {vela_version()}.",
        f" * Estimated by Vela: {estimate.cycles} cycles, {estimate.sram} bytes of SRAM at most.",
        " *",
        " * ethosu_invoke of the Ethos-U core driver takes the content of commands.bin, and base addresses and sizes",
        " * of the regions by their numbers: weights (weights.bin), arena and, if it has a size, the fast arena.",
        " * An integer q of a tensor stands for (q - ZERO) * SCALE. Feature maps are NHWC. */",
        "#ifndef MODEL_H",
        "#define MODEL_H",
        "",
        f"#define MODEL_COMMANDS_SIZE {program.commands.size}",
        f"#define MODEL_WEIGHTS_SIZE {program.weights.size}",
        f"#define MODEL_WEIGHTS_REGION {program.weights_region}",
        f"#define MODEL_ARENA_SIZE {program.scratch}",
        f"#define MODEL_ARENA_REGION {program.scratch_region}",
        f"#define MODEL_FAST_ARENA_SIZE {program.fast_scratch}",
        f"#define MODEL_FAST_ARENA_REGION {program.fast_scratch_region}",
    ]
    for kind, wires, places in (("INPUT", inputs, program.inputs), ("OUTPUT", outputs, program.outputs)):
        for number, (wire, place) in enumerate(zip(wires, places, strict=True)):
            lines += ["", *_port_lines(f"MODEL_{kind}_{number}", wire, place)]
    return "\n".join([*lines, "", "#endif", ""])


def _port_lines(name: str, wire: Wire, place: TensorPlace) -> list[str]:
    note = f", the axes of the model in the order {', '.join(map(str, wire.order))}"
    shift = f"; add {wire.offset} to its integers" if wire.offset else ""
    return [
        f"/* {_comment(wire.port)}{note}{shift} */",
        f"#define {name}_REGION {place.region}",
        f"#define {name}_OFFSET {place.address}",
        f"#define {name}_SIZE {place.size}",
        f"#define {name}_SCALE {wire.scale!r}f",
        f"#define {name}_ZERO ({wire.zero})",
    ]


def _comment(text: str) -> str:
    return re.sub(r"[^\x20-\x7e]|\*/|\\", "_", text)
