"""The files of a bundle that a board needs: Vela's command stream and weights, a C header, and Vela's report."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ...costmodels.ethos_device import EthosDevice
from .emission.emit import Wire
from .search import Outcome
from .vela import Program, TensorPlace, vela_version

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
