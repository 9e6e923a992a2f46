"""What one inference executes on an emulated Arm processor: eqfuse beside ONNX Runtime's aarch64 build.

Both run under QEMU with the counting plugin and the caches of the device file, on one core, with the same inputs, once
they are warm. Printed are executed instructions and misses of the simulated data caches, which are the same in every
run, and the cycles that they may take, an estimate by one formula for both; wall time under QEMU would mean nothing.
The models are AGO's (networks/), at the sizes that it measures, or files; they are verified on the way:

    eqfuse    --partition joint
    unfused   --partition none: a kernel for each operator (with --unfused)

With --layouts ONNX Runtime is left out, and eqfuse is counted in two layouts of feature maps: with channels last, as it
compiles, and in ONNX's order, both without intensive fusion, whose kernels are made with channels last only.

ONNX Runtime comes from a folder that benchmarks/arm64_root.sh makes (190 MB); without one, only eqfuse is counted.

    benchmarks/arm64_root.sh /tmp/arm64-root
    python benchmarks/arm.py --root /tmp/arm64-root                             # AGO's Figs. 10 to 12: an hour or two
    python benchmarks/arm.py --root /tmp/arm64-root --target arm-cortex-a57 --only mobilenet_v2_56 bert_tiny
    python benchmarks/arm.py --root /tmp/arm64-root --unfused model.onnx
    python benchmarks/arm.py --layouts --only mobilenet_v2_56 squeezenet_56
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any
from unittest import mock

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
from eqfuse.lowering.base.toolchain import EMULATION_SECONDS
from eqfuse.lowering.kernels import prim_funcs
from eqfuse.lowering.running.emulated_model import open_emulated
from eqfuse.support import units
from eqfuse.support.errors import EqfuseError

OWN = "eqfuse"
UNFUSED = "unfused"
LAST, IN_ORDER = "channels last", "ONNX's order"


@dataclass(frozen=True)
class Variant:
    """A way to compile: options of `eqfuse.compile`, and whether feature maps keep ONNX's order."""

    options: Mapping[str, Any] = field(default_factory=dict)
    in_order: bool = False


_APART = {"intensive": False}
VARIANTS = {
    OWN: Variant(), UNFUSED: Variant({"partition": "none"}),
    LAST: Variant(_APART), IN_ORDER: Variant(_APART, in_order=True),
}  # fmt: skip
"""By what they are called here."""
_LABELS = {
    "instructions": "instructions", "fused": "of these fmla", "l1d_misses": "L1D misses", "l2_misses": "L2 misses",
    "cycles": "cycles (estimate)", "cycles_by_kernel": "cycles, kernel by kernel",
}  # fmt: skip


@dataclass(frozen=True)
class Figures:
    """Of one inference.

    `cycles` are estimated from all counts together; `cycles_by_kernel` kernel by kernel and added up, which needs
    counts of each: None for ONNX Runtime.
    """

    instructions: int
    fused: int
    l1d_misses: int
    l2_misses: int
    cycles: float
    cycles_by_kernel: float | None = None

    @staticmethod
    def of(counts: Counts, device: Device, parts: Iterable[Counts] = ()) -> Figures:
        """With the `parts` that the counts are of, if they are known.

        The first two cache levels are L1D and L2 on every device.
        """
        first, second = counts.misses[:2]
        by_kernel = [estimate_cycles(part, device).cycles for part in parts]
        cycles = estimate_cycles(counts, device).cycles
        return Figures(counts.instructions, counts.fused, first, second, cycles, sum(by_kernel) if by_kernel else None)


@dataclass(frozen=True)
class Record:
    """One model: the figures of each contestant by its name."""

    model: str
    figures: Mapping[str, Figures]

    def rows(self, compared: tuple[str, str] | None) -> list[tuple[str, ...]]:
        """The table's, one for each figure, with the ratio of the two contestants that are `compared`."""
        known = [each.name for each in fields(Figures) if None not in self._numbers(each.name).values()]
        return [self._row(name, compared) for name in known]

    def _numbers(self, name: str) -> dict[str, Any]:
        return {who: getattr(found, name) for who, found in self.figures.items()}

    def _row(self, name: str, compared: tuple[str, str] | None) -> tuple[str, ...]:
        numbers = self._numbers(name)
        label = self.model if name == "instructions" else ""
        row = (label, _LABELS[name], *(units.figure(number) for number in numbers.values()))
        return (*row, f"{numbers[compared[0]] / numbers[compared[1]]:.2f}x") if compared else row


@dataclass(frozen=True)
class Settings:
    """What all models are measured with."""

    target: str
    root: Arm64Root | None
    opset: int | None
    variants: Sequence[str] = (OWN,)
    verify_limit: float | None = None
    count_limit: float = EMULATION_SECONDS

    @property
    def peer(self) -> str:
        """What ONNX Runtime is called here; "" if there is none."""
        return f"ONNX Runtime {self.root.version}" if self.root else ""

    @property
    def compared(self) -> tuple[str, str] | None:
        """The two contestants whose ratio is printed, if there are two."""
        if IN_ORDER in self.variants:
            return IN_ORDER, LAST
        return (OWN, self.peer) if self.peer else None

    def measure(self, name: str, path: Path) -> Record:
        """All contestants on one model. Raises EqfuseError."""
        inputs = random_inputs(inputs_of(read(path)), 0)
        figures = {variant: self.own(path, inputs, VARIANTS[variant]) for variant in self.variants}
        if self.root is not None:
            device = load_device(self.target)
            figures[self.peer] = Figures.of(self.root.count(path, inputs, device, self.count_limit), device)
        return Record(name, figures)

    def own(self, path: Path, inputs: Mapping[str, Any], variant: Variant = VARIANTS[OWN]) -> Figures:
        """Of a bundle that is compiled this way. Raises EqfuseError."""
        with tempfile.TemporaryDirectory(prefix="eqfuse-arm-") as scratch:
            bundle = Path(scratch) / "build"
            settings = {**variant.options, "opset": self.opset, "verify_limit": self.verify_limit}
            with maps_in_order(Path(scratch, "cache")) if variant.in_order else nullcontext():
                eqfuse.compile(path, bundle, target=self.target, threads=1, **settings)
            return counted(bundle, inputs, self.count_limit)


@contextmanager
def maps_in_order(cache: Path) -> Iterator[None]:
    """Meanwhile kernels store no value with its channels last; `cache` stands for the user's, whose bundles do."""
    with (
        mock.patch.object(prim_funcs, "channels_last_values", return_value=frozenset()),
        mock.patch.dict(os.environ, XDG_CACHE_HOME=str(cache)),
    ):
        yield


def counted(bundle: Path, inputs: Mapping[str, Any], seconds: float = EMULATION_SECONDS) -> Figures:
    """One inference of a bundle, counted within so many seconds. Raises EqfuseError."""
    with open_emulated(bundle) as compiled:
        counts = compiled.count(inputs, seconds)
        return Figures.of(counts.inference, compiled.target.device, [*(c.counts for c in counts.calls), counts.outside])


def main() -> int:
    """Measure model by model; those that cannot be compiled or run are named, and the others measured all the same."""
    arguments = _arguments()
    root = Arm64Root.at(arguments.root) if arguments.root and not arguments.layouts else None
    variants = (LAST, IN_ORDER) if arguments.layouts else (OWN, UNFUSED) if arguments.unfused else (OWN,)
    settings = Settings(
        arguments.target, root, arguments.opset, variants, arguments.verify_limit, arguments.count_limit
    )
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
    ratio = (" / ".join(settings.compared),) if settings.compared else ()
    columns = ("model", "one inference", *records[0].figures, *ratio)
    rows = [row for record in records for row in record.rows(settings.compared)]
    render.table(f"emulated {settings.target}, one core", columns, rows, left=2)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=Path, nargs="*", metavar="MODEL.onnx")
    parser.add_argument("--only", nargs="+", default=list(AGO), metavar="NAME", help="of networks/ (default AGO's)")
    parser.add_argument("--root", type=Path, metavar="FOLDER", help="made by benchmarks/arm64_root.sh")
    parser.add_argument("--target", default="arm-cortex-a76", help="a device (default arm-cortex-a76)")
    parser.add_argument("--opset", type=int, help="let eqfuse raise the models to this opset")
    parser.add_argument("--verify-limit", type=float, metavar="SECONDS", help="for comparing outputs (default 300)")
    parser.add_argument(
        "--count-limit", type=float, default=EMULATION_SECONDS, metavar="SECONDS",
        help=f"for each emulated run that counts (default {EMULATION_SECONDS:.0f})",
    )  # fmt: skip
    parser.add_argument("--unfused", action="store_true", help="count a kernel for each operator, too")
    parser.add_argument("--layouts", action="store_true", help="count two layouts of feature maps instead")
    parser.add_argument("--json", action="store_true", help="print figures as JSON")
    return parser.parse_args()


if __name__ == "__main__":
    try:
        sys.exit(main())
    except EqfuseError as error:
        sys.exit(f"arm.py: error: {error}")
