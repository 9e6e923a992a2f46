"""Intensive fusion beside the same convolutions as kernels of their own, and ONNX Runtime: AGO's Fig. 13, untuned.

The models are the four pairs of networks/pairs.py and an inverted residual, at batch 1 and 4. Each is compiled twice,
the second time with --no-intensive. On this machine the three take turns, each in a process that is stopped while
others have theirs (latency.py): ratios of CPU time, round by round; "kernels" are the times of the kernels with
convolutions inside the bundles, without the copies of the model's input and output to and from channels last, which a
network has once. For a Cortex-A76 what one inference executes is counted under QEMU: instructions, vector multiply-adds
among them, loads and stores of vectors on the stack (mostly spills), and misses of the first two data caches.

    python benchmarks/intensive.py                          # this machine
    python benchmarks/intensive.py --arm --root FOLDER      # FOLDER from benchmarks/arm64_root.sh; without it no ORT
    python benchmarks/intensive.py --only pointwise_depthwise --batches 1
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import eqfuse
from eqfuse.benchmarks.latency import OURS, REFERENCE, Record, compete, compile_bundle, geometric_mean, saved
from eqfuse.benchmarks.measuring.contestants import Setup
from eqfuse.benchmarks.networks.pairs import PAIRS
from eqfuse.cli import render
from eqfuse.costmodels.device import load_device
from eqfuse.engine.onnx.model import read
from eqfuse.lowering.arm.counts import Counts
from eqfuse.lowering.arm.peer import Arm64Root
from eqfuse.lowering.bundle.bundle import read_manifest
from eqfuse.lowering.bundle.emulated_model import open_emulated
from eqfuse.lowering.interface import inputs_of
from eqfuse.lowering.ports import random_inputs
from eqfuse.lowering.running.kernel_times import kernel_times

APART = "apart"
"""The bundle without intensive fusion."""
ARM_TARGET = "arm-cortex-a76"


@dataclass(frozen=True)
class Timed:
    """One model on this machine: the turns of all, whether its convolutions are one kernel, and seconds of kernels."""

    record: Record
    is_joined: bool
    fused: float
    apart: float

    @property
    def ratios(self) -> tuple[float, float]:
        """The time of ONNX Runtime, and of kernels apart, over that of the fused bundle; medians of rounds."""
        middles = [self.record.ratio((OURS, 1), reference) for reference in (REFERENCE, APART)]
        ort, apart = (middle.median if middle is not None else 0.0 for middle in middles)
        return ort, apart

    def row(self) -> tuple[str, ...]:
        """The table's."""
        seconds = self.record.median((OURS, 1)) or 0.0
        ort, apart = self.ratios
        kernels = (f"{1e6 * self.fused:.1f}", f"{1e6 * self.apart:.1f}", f"{self.apart / self.fused:.2f}")
        return (
            self.record.name, "one kernel" if self.is_joined else "apart", f"{1e6 * seconds:.1f}", f"{ort:.2f}",
            f"{apart:.2f}", *kernels,
        )  # fmt: skip


def time_model(name: str, model: Path, options: argparse.Namespace, scratch: Path) -> Timed:
    """Compile and measure one model on this machine."""
    record = Record(name, name)
    bundles = {OURS: scratch / "fused", APART: scratch / "apart"}
    compile_bundle(model, bundles[OURS], 1, "--no-measure")
    compile_bundle(model, bundles[APART], 1, "--no-measure", "--no-intensive")
    setups = {(who, 1): Setup(OURS, model, 1, bundle) for who, bundle in bundles.items()}
    compete(record, {(REFERENCE, 1): Setup(REFERENCE, model, 1), **setups}, options)
    fused, apart = (kernel_times(b, random_inputs(read_manifest(b).inputs, 0), 1) for b in bundles.values())
    own = [[k for k in times.kernels if "Conv" in k.facts.operators] for times in (fused, apart)]
    return Timed(record, sum(k.facts.calls for k in own[0]) == 1, *(sum(k.seconds for k in kernels) for kernels in own))


def count_model(name: str, model: Path, root: Arm64Root | None) -> Iterator[tuple[str, ...]]:
    """Rows of what one inference executes on the emulated board."""
    inputs = random_inputs(inputs_of(read(model)), 0)
    counts: dict[str, Counts] = {}
    for who, intensive in (("fused", True), (APART, False)):
        with tempfile.TemporaryDirectory(prefix="eqfuse-arm-") as scratch:
            bundle = Path(scratch) / "build"
            eqfuse.compile(model, bundle, target=ARM_TARGET, threads=1, intensive=intensive)
            with open_emulated(bundle) as compiled:
                counts[who] = compiled.count(inputs).inference
    if root is not None:
        counts[f"ORT {root.version}"] = root.count(model, inputs, load_device(ARM_TARGET))
    for number, (who, found) in enumerate(counts.items()):
        figures = (found.instructions, found.fused, found.stack, *found.misses[:2])
        ratio = found.instructions / counts["fused"].instructions
        yield (name if number == 0 else "", who, *map(render.figure, figures), f"{ratio:.2f}")


def print_times(rows: Sequence[Timed]) -> None:
    """The table of this machine."""
    columns = (
        "model", "convolutions", "fused us", "ORT / fused", "apart / fused", "kernels: fused us", "apart us",
        "apart / fused",
    )  # fmt: skip
    render.table("this machine, one thread", columns, [timed.row() for timed in rows], left=2)
    means = [geometric_mean([timed.ratios[n] for timed in rows]) for n in (0, 1)]
    kernels = geometric_mean([timed.apart / timed.fused for timed in rows])
    print(f"geometric means: ORT / fused {means[0]:.2f}, apart / fused {means[1]:.2f}, of kernels {kernels:.2f}")


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=list(PAIRS), choices=PAIRS, metavar="NAME")
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 4], metavar="N")
    parser.add_argument("--arm", action="store_true", help=f"count for {ARM_TARGET} in the place of times here")
    parser.add_argument("--root", type=Path, metavar="FOLDER", help="made by benchmarks/arm64_root.sh (with --arm)")
    parser.add_argument("--rounds", type=int, default=31, help="turns of each (default 31)")
    parser.add_argument("--turn", type=float, default=0.02, metavar="SECONDS", help="of each turn (default 0.02)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures, every turn in them")
    options = parser.parse_args()
    root = Arm64Root.at(options.root) if options.root else None
    counted: list[tuple[str, ...]] = []
    timed: list[Timed] = []
    for name in options.only:
        for batch in options.batches:
            with tempfile.TemporaryDirectory(prefix="eqfuse-intensive-") as folder:
                model, title = saved(lambda: PAIRS[name](batch), Path(folder)), f"{name}, batch {batch}"  # noqa: B023
                print(title, file=sys.stderr, flush=True)
                if options.arm:
                    counted += count_model(title, model, root)
                else:
                    timed.append(time_model(title, model, options, Path(folder)))
    if options.arm:
        columns = ("model", "who", "instructions", "fmla", "stack", "L1D misses", "L2 misses", "instructions / fused")
        render.table(f"emulated {ARM_TARGET}, one inference", columns, counted, left=2)
    else:
        print_times(timed)
    if options.json:
        options.json.write_text(json.dumps(_plain(timed, counted), indent=1) + "\n", encoding="utf-8")


def _plain(timed: Sequence[Timed], counted: Sequence[tuple[str, ...]]) -> list[Any]:
    return [*({**t.record.as_dict(), "fused": t.fused, "apart": t.apart} for t in timed), *counted]


if __name__ == "__main__":
    main()
