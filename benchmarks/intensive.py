"""Intensive fusion beside the same convolutions as kernels of their own, and ONNX Runtime: AGO's Fig. 13, untuned.

The models are the four pairs of networks/pairs.py and an inverted residual, at batch 1 and 4. Each is compiled three
times: as AGO's partition draws it (fused), one kernel where a template makes it, with --no-intensive (apart), and by
default (joint), which takes what is cheaper by its prices. On this machine these and ONNX Runtime take turns, each in a
process that is stopped while others have theirs (latency.py): ratios of CPU time, round by round; "kernels" are the
times of the kernels with convolutions inside the bundles, without the copies of the model's input and output to and
from channels last, which a network has once.

Counters say why. For a Cortex-A76 what one inference executes is counted under QEMU: instructions, vector multiply-adds
among them, loads and stores of vectors on the stack (mostly spills), and misses of the first two data caches. For
x86-64-v3 (AVX2: Valgrind knows no AVX-512) Cachegrind counts instructions, accesses of memory and misses of data
caches of 32 and 512 KiB, of one inference after the first.

    python benchmarks/intensive.py                          # this machine
    python benchmarks/intensive.py --cachegrind             # needs valgrind, cmake and a C compiler
    python benchmarks/intensive.py --arm --root FOLDER      # FOLDER from benchmarks/arm64_root.sh; without it no ORT
    python benchmarks/intensive.py --only pointwise_depthwise --batches 1
    python benchmarks/intensive.py --scales 4 8             # maps of 112 x 112 and 224 x 224 where they are 28 x 28
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import numpy as np

import eqfuse
from eqfuse.benchmarks.latency import OURS, REFERENCE, Record, compete, compile_bundle, saved
from eqfuse.benchmarks.measuring.contestants import Setup
from eqfuse.benchmarks.networks.pairs import PAIRS
from eqfuse.cli import render
from eqfuse.costmodels.device import load_device
from eqfuse.engine.onnx.model import read
from eqfuse.lowering.arm.counts import Counts
from eqfuse.lowering.arm.emulate import Arm64Root
from eqfuse.lowering.base.interface import inputs_of
from eqfuse.lowering.base.ports import random_inputs
from eqfuse.lowering.bundle.bundle import read_manifest
from eqfuse.lowering.running.emulated_model import open_emulated
from eqfuse.lowering.running.kernel_times import kernel_times
from eqfuse.support import units

APART, JOINT = "apart", "joint"
"""The bundle without intensive fusion, and the default one."""
WAYS: dict[str, dict[str, Any]] = {"fused": {"partition": "ago"}, APART: {"intensive": False}}
"""How each is compiled."""
ARM_TARGET = "arm-cortex-a76"
CACHEGRIND_TARGET = "x86-64-v3"
CACHEGRIND_LINES = (r"I +refs", r"D +refs", r"D1 +misses", r"LLd misses")
"""What Cachegrind prints on a line each, in the order of the table."""


@dataclass(frozen=True)
class Timed:
    """One model on this machine: the turns of all, kernels with convolutions in the one that AGO's partition draws and
    in the default one, and seconds of such kernels."""

    record: Record
    joined: int
    joint: int
    fused: float
    apart: float
    default: float

    @property
    def ratios(self) -> tuple[float, float, float]:
        """The time of ONNX Runtime, and of kernels apart, over that of the fused bundle, and of kernels apart over that
        of the default one; medians of rounds."""
        turns = (((OURS, 1), REFERENCE), ((OURS, 1), APART), ((JOINT, 1), APART))
        middles = [self.record.ratio(base, reference) for base, reference in turns]
        ort, apart, joint = (middle.median if middle is not None else 0.0 for middle in middles)
        return ort, apart, joint

    def row(self) -> tuple[str, ...]:
        """The table's."""
        seconds = self.record.median((OURS, 1)) or 0.0
        kernels = (f"{1e6 * t:.1f}" for t in (self.fused, self.default, self.apart))
        figures = (f"{1e6 * seconds:.1f}", *(f"{ratio:.2f}" for ratio in self.ratios), *kernels)
        return (self.record.name, str(self.joined), str(self.joint), *figures)


def time_model(name: str, model: Path, options: argparse.Namespace, scratch: Path) -> Timed:
    """Compile and measure one model on this machine."""
    record = Record(name, name)
    bundles = {OURS: scratch / "fused", APART: scratch / "apart", JOINT: scratch / "joint"}
    compile_bundle(model, bundles[OURS], 1, "--no-measure", "--partition", "ago")
    compile_bundle(model, bundles[APART], 1, "--no-measure", "--no-intensive")
    compile_bundle(model, bundles[JOINT], 1, "--no-measure")
    setups = {(who, 1): Setup(OURS, model, 1, bundle) for who, bundle in bundles.items()}
    compete(record, {(REFERENCE, 1): Setup(REFERENCE, model, 1), **setups}, options)
    times = [kernel_times(b, random_inputs(read_manifest(b).inputs, 0), 1) for b in bundles.values()]
    fused, apart, joint = ([kernel for kernel in t.kernels if "Conv" in kernel.facts.operators] for t in times)
    joined, by_default = (sum(kernel.facts.calls for kernel in kernels) for kernels in (fused, joint))
    return Timed(record, joined, by_default, *(sum(k.seconds for k in kernels) for kernels in (fused, apart, joint)))


def count_model(name: str, model: Path, root: Arm64Root | None) -> Iterator[tuple[str, ...]]:
    """Rows with the counts of one inference on the emulated board."""
    inputs = random_inputs(inputs_of(read(model)), 0)
    counts: dict[str, Counts] = {}
    for who, way in WAYS.items():
        with tempfile.TemporaryDirectory(prefix="eqfuse-arm-") as scratch:
            bundle = Path(scratch) / "build"
            eqfuse.compile(model, bundle, target=ARM_TARGET, threads=1, **way)
            with open_emulated(bundle) as compiled:
                counts[who] = compiled.count(inputs).inference
    if root is not None:
        counts[f"ORT {root.version}"] = root.count(model, inputs, load_device(ARM_TARGET))
    for number, (who, found) in enumerate(counts.items()):
        figures = (found.instructions, found.fused, found.stack, *found.misses[:2])
        ratio = found.instructions / counts["fused"].instructions
        yield (name if number == 0 else "", who, *map(units.figure, figures), f"{ratio:.2f}")


def count_with_cachegrind(name: str, model: Path, scratch: Path) -> Iterator[tuple[str, ...]]:
    """Rows with the counts of an inference after the first on a simulated processor with AVX2.

    Cachegrind counts a process; of one that runs the model three times and one that runs it once the difference is two
    inferences.
    """
    given = scratch / "x.npy"
    np.save(given, next(iter(random_inputs(inputs_of(read(model)), 0).values())))
    tool = ("valgrind", "--tool=cachegrind", "--cache-sim=yes", f"--cachegrind-out-file={os.devnull}")
    caches = ("--D1=32768,8,64", "--LL=524288,8,64")
    least = 0
    for who, way in WAYS.items():
        project, build = scratch / who, scratch / f"{who}-build"
        eqfuse.compile(model, project, target=CACHEGRIND_TARGET, format="c", threads=1, measure=False, **way)
        for step in (("-S", str(project), "-B", str(build)), ("--build", str(build))):
            subprocess.run(("cmake", *step), check=True, stdout=subprocess.DEVNULL)
        runs: list[list[int]] = []
        for repeat in ("1", "3"):
            program = (str(build / "eqfuse_example"), str(given), str(scratch / "y.npy"), "--repeat", repeat)
            text = subprocess.run((*tool, *caches, *program), check=True, capture_output=True, text=True).stderr
            lines = [re.search(rf"{line}:\s+([\d,]+)", text) for line in CACHEGRIND_LINES]
            runs.append([int(line[1].replace(",", "")) for line in lines if line is not None])
        figures = [(after - before) // 2 for before, after in zip(*runs, strict=True)]
        least = least or figures[0]
        yield (name if who != APART else "", who, *map(units.figure, figures), f"{figures[0] / least:.2f}")


def print_times(rows: Sequence[Timed]) -> None:
    """The table of this machine."""
    columns = (
        "model", "kernels fused", "joint", "fused us", "ORT / fused", "apart / fused", "apart / joint",
        "kernels: fused us", "joint us", "apart us",
    )  # fmt: skip
    render.table("this machine, one thread", columns, [timed.row() for timed in rows], left=1)
    means = [geometric_mean([timed.ratios[n] for timed in rows]) for n in (0, 1, 2)]
    kernels = [geometric_mean([t.apart / getattr(t, way) for t in rows]) for way in ("fused", "default")]
    print("geometric means: ORT / fused {:.2f}, apart / fused {:.2f}, apart / joint {:.2f}".format(*means))
    print("kernels alone: apart / fused {:.2f}, apart / joint {:.2f}".format(*kernels))


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=list(PAIRS), choices=PAIRS, metavar="NAME")
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 4], metavar="N")
    parser.add_argument("--scales", nargs="+", type=int, default=[1], metavar="S", help="of maps' sides (default 1)")
    counters = parser.add_mutually_exclusive_group()
    counters.add_argument("--arm", action="store_true", help=f"count for {ARM_TARGET} in the place of times here")
    counters.add_argument("--cachegrind", action="store_true", help=f"count for {CACHEGRIND_TARGET} by Valgrind")
    parser.add_argument("--root", type=Path, metavar="FOLDER", help="made by benchmarks/arm64_root.sh (with --arm)")
    parser.add_argument("--rounds", type=int, default=31, help="turns of each (default 31)")
    parser.add_argument("--turn", type=float, default=0.02, metavar="SECONDS", help="of each turn (default 0.02)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures, every turn in them")
    options = parser.parse_args()
    root = Arm64Root.at(options.root) if options.root else None
    counted: list[tuple[str, ...]] = []
    timed: list[Timed] = []
    for name in options.only:
        for scale, batch in itertools.product(options.scales, options.batches):
            with tempfile.TemporaryDirectory(prefix="eqfuse-intensive-") as folder:
                model = saved(lambda: PAIRS[name](batch, scale), Path(folder))  # noqa: B023
                title = f"{name}, batch {batch}" + (f", scale {scale}" if scale > 1 else "")
                print(title, file=sys.stderr, flush=True)
                if options.arm:
                    counted += count_model(title, model, root)
                elif options.cachegrind:
                    counted += count_with_cachegrind(title, model, Path(folder))
                else:
                    timed.append(time_model(title, model, options, Path(folder)))
    figures = ("instructions", *(("fmla", "stack") if options.arm else ("accesses",)), "L1D misses", "L2 misses")
    columns = ("model", "who", *figures, "instructions / fused")
    if options.arm:
        render.table(f"emulated {ARM_TARGET}, one inference", columns, counted, left=2)
    elif options.cachegrind:
        render.table(f"{CACHEGRIND_TARGET} by Cachegrind, one inference", columns, counted, left=2)
    else:
        print_times(timed)
    if options.json:
        options.json.write_text(json.dumps(_plain(timed, counted), indent=1) + "\n", encoding="utf-8")


def _plain(timed: Sequence[Timed], counted: Sequence[tuple[str, ...]]) -> list[Any]:
    return [*({**t.record.as_dict(), "fused": t.fused, "apart": t.apart} for t in timed), *counted]


if __name__ == "__main__":
    main()
