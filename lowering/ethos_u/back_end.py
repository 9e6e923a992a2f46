"""The door of this folder, for what compiles and loads bundles: no other folder imports a module behind it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import onnx

from ...costmodels.ethos_device import EthosDevice
from ...ir.graph import OperatorGraph
from ...support.errors import UsageError
from ..base.ports import Port
from ..base.weights import Weights
from ..bundle import bundle
from ..plan.manifest import Manifest, Platform, Provenance
from .emission.constants import ConstantReader
from .emission.emit import Emitted, Wire, emit
from .model import TOSA, Figures, Section, TosaModel, section_of, write_graph
from .tosa.flatbuffer import to_bytes
from .vela import Outcome, Program, Setting, TensorPlace, compile_by_vela, require_vela, search, vela_version
from .verification import compare_whole, verify_bits, verify_operators

__all__ = ["EthosProgram", "Section", "load", "make_program", "require_vela", "section_of", "vela_version"]


@dataclass(frozen=True)
class EthosProgram:
    """A model as TOSA and as Vela's program; `ports` and `outputs` are those of the model."""

    device: EthosDevice
    emitted: Emitted
    content: bytes
    outcome: Outcome
    ports: tuple[Port, ...]
    outputs: tuple[Port, ...]

    def write(self, folder: Path, label: str) -> None:
        """Write everything but the manifest."""
        (folder / TOSA).write_bytes(self.content)
        write_graph(folder, self.emitted.graph)
        write_files(folder, self.outcome, self.device, self.emitted.inputs, self.emitted.outputs, label)

    def manifest(self, folder: Path, precision: str, provenance: Provenance) -> Manifest:
        """The manifest of the files in a folder."""
        outcome, device = self.outcome, self.device
        section = Section(
            device.name, vela_version(), device.system, device.memory_mode, self.emitted.inputs, self.emitted.outputs,
            _figures(outcome.setting, outcome.program), _figures(Setting(), outcome.plain), outcome.candidates,
        )  # fmt: skip
        return Manifest(
            inputs=self.ports,
            outputs=self.outputs,
            platform=Platform(device.name, "ethos-u", "", device.name, ()),
            precision=precision,
            threads=1,
            provenance=provenance,
            fallbacks=(),
            versions={**bundle.versions(), "ethos-u-vela": vela_version()},
            files=bundle.digests(folder),
            library=TOSA,
            ethos_u=section.as_dict(),
        )

    def verify(
        self, original: onnx.ModelProto, rewritten: onnx.ModelProto, seed: int, seconds: float,
        observer: Callable[[str], None],
    ) -> str:  # fmt: skip
        """The verdict in one line. Raises VerificationError if the program computes something else than the model."""
        observer("each operator in ONNX Runtime")
        operators = verify_operators(rewritten, self.emitted, self.ports, seed, seconds)
        whole = compare_whole(original, self.emitted, self.ports, self.outputs, seed, seconds)
        observer("Arm's reference model")
        bits = verify_bits(self.content, self.emitted, self.ports, seed)
        return f"passed, {bits}; {operators}; {whole}"


def make_program(
    graph: OperatorGraph, weights: Weights, ports: tuple[Port, ...], outputs: Sequence[Port], device: EthosDevice,
    seconds: float,
) -> EthosProgram:  # fmt: skip
    """The best program that Vela makes of a graph within `seconds`. Raises LoweringError for what the NPU cannot
    compute."""
    if not outputs:
        raise UsageError("the model has no outputs")
    emitted = emit(graph, ConstantReader(weights), ports, outputs)
    content = to_bytes(emitted.graph)
    outcome = search(content, device, seconds)
    reported = compile_by_vela(content, device, outcome.setting, reports_layers=True)
    outcome = Outcome(outcome.setting, reported, outcome.plain, outcome.candidates)
    return EthosProgram(device, emitted, content, outcome, tuple(ports), tuple(outputs))


def load(folder: Path) -> TosaModel:
    """A bundle, to be run as TOSA. Raises BundleError if it is damaged."""
    return TosaModel(folder)


def _figures(setting: Setting, program: Program) -> Figures:
    estimate = program.estimate
    return Figures(
        str(setting), estimate.cycles, estimate.sram, estimate.memory, estimate.npu_operators, estimate.cpu_operators
    )


COMMANDS, WEIGHTS, HEADER, REPORT = "commands.bin", "weights.bin", "model.h", "vela.json"


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
        "setting": str(outcome.setting),
        "chosen": asdict(outcome.program.estimate),
        "plain": asdict(outcome.plain.estimate),
        "candidates": outcome.candidates,
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
