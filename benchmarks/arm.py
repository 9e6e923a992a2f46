"""What one inference executes on an emulated Arm processor: eqfuse beside ONNX Runtime's aarch64 build.

Both run under QEMU with the counting plugin and the caches of the device file, on one core, with the same inputs, once
they are warm. Printed are executed instructions and misses of the simulated data caches, which are the same in every
run, and the cycles that they may take, an estimate by one formula for both; wall time under QEMU would mean nothing.
The models are AGO's (networks/), at the sizes that it measures, or files; they are verified on the way:

    eqfuse    --partition joint
    unfused   --partition none: a kernel for each operator (with --unfused)

ONNX Runtime comes from a folder that benchmarks/arm64_root.sh makes (190 MB); without one, only eqfuse is counted.

    benchmarks/arm64_root.sh /tmp/arm64-root
    python benchmarks/arm.py --root /tmp/arm64-root                             # AGO's Figs. 10 to 12: an hour or two
    python benchmarks/arm.py --root /tmp/arm64-root --target arm-cortex-a57 --only mobilenet_v2_56 bert_tiny
    python benchmarks/arm.py --root /tmp/arm64-root --unfused model.onnx
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import eqfuse
from eqfuse.benchmarks.latency import sources
from eqfuse.benchmarks.networks import AGO
from eqfuse.cli import render
from eqfuse.costmodels.device import Device, load_device
from eqfuse.engine.onnx.model import read
from eqfuse.lowering.arm.counts import Counts, estimate_cycles
from eqfuse.lowering.arm.emulate import Arm64Root
from eqfuse.lowering.base.interface import inputs_of
from eqfuse.lowering.base.ports import random_inputs
from eqfuse.lowering.running.emulated_model import open_emulated
from eqfuse.support import units
from eqfuse.support.errors import EqfuseError

OWN = "eqfuse"
VARIANTS: Mapping[str, Mapping[str, Any]] = {OWN: {}, "unfused": {"partition": "none"}}
"""Ways to compile, by what they are called here: options of `eqfuse.compile`."""
_LABELS = {
    "instructions": "instructions", "fused": "of these fmla", "l1d_misses": "L1D misses", "l2_misses": "L2 misses",
    "cycles": "cycles (estimate)",
}  # fmt: skip


@dataclass(frozen=True)
class Figures:
    """Of one inference."""

    instructions: int
    fused: int
    l1d_misses: int
    l2_misses: int
    cycles: float

    @staticmethod
    def of(counts: Counts, device: Device) -> Figures:
        """The first two cache levels are L1D and L2 on every device."""
        cycles = estimate_cycles(counts, device).cycles
        first, second = counts.misses[:2]
        return Figures(counts.instructions, counts.fused, first, second, cycles)


@dataclass(frozen=True)
class Record:
    """One model: the figures of each contestant by its name."""

    model: str
    figures: Mapping[str, Figures]

    def rows(self, peer: str) -> list[tuple[str, ...]]:
        """The table's, one for each figure."""
        return [self._row(field.name, peer) for field in fields(Figures)]

    def _row(self, name: str, peer: str) -> tuple[str, ...]:
        numbers = {who: getattr(found, name) for who, found in self.figures.items()}
        label = self.model if name == "instructions" else ""
        row = (label, _LABELS[name], *(units.figure(number) for number in numbers.values()))
        return (*row, f"{numbers[OWN] / numbers[peer]:.2f}x") if peer else row


@dataclass(frozen=True)
class Settings:
    """What all models are measured with."""

    target: str
    root: Arm64Root | None
    opset: int | None
    variants: Sequence[str] = (OWN,)
    verify_limit: float | None = None

    @property
    def peer(self) -> str:
        """What ONNX Runtime is called here; "" if there is none."""
        return f"ONNX Runtime {self.root.version}" if self.root else ""

    def measure(self, name: str, path: Path) -> Record:
        """All contestants on one model. Raises EqfuseError."""
        inputs = random_inputs(inputs_of(read(path)), 0)
        figures = {variant: self.own(path, inputs, **VARIANTS[variant]) for variant in self.variants}
        if self.root is not None:
            device = load_device(self.target)
            figures[self.peer] = Figures.of(self.root.count(path, inputs, device), device)
        return Record(name, figures)

    def own(self, path: Path, inputs: Mapping[str, Any], **options: Any) -> Figures:
        """Of a bundle that is compiled with these options of `eqfuse.compile`. Raises EqfuseError."""
        with tempfile.TemporaryDirectory(prefix="eqfuse-arm-") as scratch:
            bundle = Path(scratch) / "build"
            settings = {**options, "opset": self.opset, "verify_limit": self.verify_limit}
            eqfuse.compile(path, bundle, target=self.target, threads=1, **settings)
            return counted(bundle, inputs)


def counted(bundle: Path, inputs: Mapping[str, Any]) -> Figures:
    """One inference of a bundle. Raises EqfuseError."""
    with open_emulated(bundle) as compiled:
        return Figures.of(compiled.count(inputs).inference, compiled.target.device)


def main() -> int:
    """Measure model by model; those that cannot be compiled or run are named, and the others measured all the same."""
    arguments = _arguments()
    root = Arm64Root.at(arguments.root) if arguments.root else None
    variants = tuple(VARIANTS) if arguments.unfused else (OWN,)
    settings = Settings(arguments.target, root, arguments.opset, variants, arguments.verify_limit)
    models = sources(arguments)
    records: list[Record] = []
    for name, (_, get) in models.items():
        print(name, file=sys.stderr, flush=True)
        try:
            with tempfile.TemporaryDirectory(prefix="eqfuse-arm-") as folder:
                records.append(settings.measure(name, get(Path(folder))))
        except EqfuseError as error:
            print(f"{name}: {error}", file=sys.stderr, flush=True)
    if arguments.json:
        print(json.dumps([asdict(record) for record in records], indent=1))
    elif records:
        _print(settings, records)
    return len(records) != len(models)


def _print(settings: Settings, records: list[Record]) -> None:
    compared = (f"{OWN} / ONNX Runtime",) if settings.peer else ()
    columns = ("model", "one inference", *records[0].figures, *compared)
    rows = [row for record in records for row in record.rows(settings.peer)]
    render.table(f"emulated {settings.target}, one core", columns, rows, left=2)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=Path, nargs="*", metavar="MODEL.onnx")
    parser.add_argument("--only", nargs="+", default=list(AGO), metavar="NAME", help="of networks/ (default AGO's)")
    parser.add_argument("--root", type=Path, metavar="FOLDER", help="made by benchmarks/arm64_root.sh")
    parser.add_argument("--target", default="arm-cortex-a76", help="a device (default arm-cortex-a76)")
    parser.add_argument("--opset", type=int, help="let eqfuse raise the models to this opset")
    parser.add_argument("--verify-limit", type=float, metavar="SECONDS", help="for comparing outputs (default 300)")
    parser.add_argument("--unfused", action="store_true", help="count a kernel for each operator, too")
    parser.add_argument("--json", action="store_true", help="print figures as JSON")
    return parser.parse_args()


if __name__ == "__main__":
    try:
        sys.exit(main())
    except EqfuseError as error:
        sys.exit(f"arm.py: error: {error}")
