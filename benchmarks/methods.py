"""What each way to partition is worth once it is compiled: milliseconds of its bundle, beside ONNX Runtime.

Every model is compiled with `--partition` none, fuseops, dnnfusion, ago and joint, for one thread; equal kernels once.
Kernels are those of the bundle's manifest; the predicted time is the sum over them. The bundles of a model take turns
in one set of rounds (latency.py). Spearman's rank correlation says whether the predictions put the methods of a model
in the order of their times.
Times that differ by less than `NOISE` from the next are in no order: such methods share a rank, the mean of
theirs, and so do their predictions, of which the mean counts. A model all of whose methods share one rank has no
correlation. Below it, for comparison, is the correlation without ties.

    python benchmarks/methods.py   # those of DNNFusion's Table 5 that can be built, and AGO's six
    python benchmarks/methods.py --only tinybert mnasnet_56 --rounds 31
    python benchmarks/methods.py model.onnx --trials 200         # tuned
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any, get_args

from rich.console import Console
from rich.table import Table
from scipy.stats import spearmanr

from eqfuse.benchmarks.latency import OURS, REFERENCE, Record, Who, compete, compile_bundle, given, problem, saved
from eqfuse.benchmarks.measuring.contestants import ContestantError, Setup
from eqfuse.benchmarks.networks import AGO
from eqfuse.benchmarks.table5 import BUILDERS
from eqfuse.engine.choices import PartitionMethod
from eqfuse.lowering.bundle.bundle import read_manifest
from eqfuse.lowering.bundle.kernel_facts import read_table

METHODS = get_args(PartitionMethod)
MODELS = {**BUILDERS, **{name: network.build for name, network in AGO.items()}}
CLOSE = 1.02
"""`joint` should take at most this many times the time of the fastest method."""
CORRELATION = 0.9
"""Wanted in the mean over models."""
NOISE = 0.01
"""The share of a time by which measurements of equal kernels differ."""


@dataclass(frozen=True)
class Compiled:
    """What a bundle says of itself: operators, kernels, and the seconds that its kernels are predicted to take."""

    operators: int
    kernels: int
    predicted: float

    @staticmethod
    def of(bundle: Path) -> Compiled:
        """Read it."""
        origin = read_manifest(bundle).provenance
        predicted = sum(row.calls * (row.predicted or 0.0) for row in read_table(bundle))
        return Compiled(origin.operators, origin.kernels, predicted)


@dataclass(frozen=True)
class Outcome:
    """One model: the bundle of each method that has one, and the turns of all."""

    record: Record
    compiled: dict[str, Compiled]

    def seconds(self) -> dict[str, float]:
        """Measured, by method."""
        medians = {method: self.record.median((method, 1)) for method in self.compiled}
        return {method: seconds for method, seconds in medians.items() if seconds is not None}

    def excess(self) -> float | None:
        """The time of `joint` over that of the fastest method."""
        seconds = self.seconds()
        return seconds["joint"] / min(seconds.values()) if "joint" in seconds else None

    def correlation(self, noise: float = NOISE) -> float | None:
        """Of predicted and measured times of the methods; None where there are fewer than three, or all are equal."""
        seconds = self.seconds()
        groups = group_equal(seconds, noise)
        if len(seconds) < 3 or len(groups) < 2:
            return None
        predicted = [mean(self.compiled[method].predicted for method in group) for group in groups for _ in group]
        measured = [number for number, group in enumerate(groups) for _ in group]
        return float(spearmanr(predicted, measured).statistic)

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        rows = {method: vars(compiled) for method, compiled in self.compiled.items()}
        return {**self.record.as_dict(), "methods": rows, "excess": self.excess(), "correlation": self.correlation()}


def group_equal(seconds: Mapping[str, float], noise: float) -> list[list[str]]:
    """The methods from the fastest to the slowest, in groups within which each is slower than the one before by less
    than a share of its time."""
    groups: list[list[str]] = []
    for method in sorted(seconds, key=seconds.__getitem__):
        if groups and seconds[method] < (1.0 + noise) * seconds[groups[-1][-1]]:
            groups[-1].append(method)
        else:
            groups.append([method])
    return groups


def measure(name: str, model: Path, options: argparse.Namespace, scratch: Path) -> Outcome:
    """Compile by every method, compare with ONNX Runtime, and take turns."""
    record, compiled = Record(name, name), dict[str, Compiled]()
    setups: dict[Who, Setup] = {(REFERENCE, 1): Setup(REFERENCE, model, 1)}
    tuning = ["--trials", str(options.trials)] if options.trials else []
    for method in METHODS:
        bundle = scratch / method
        try:
            extra = ["--partition", method, *tuning]
            record.compiling[method, 1] = compile_bundle(model, bundle, 1, *extra, cache=scratch / "cache")
        except ContestantError as error:
            problem(record, f"{method}: {error}")
            continue
        compiled[method] = Compiled.of(bundle)
        setups[method, 1] = Setup(OURS, model, 1, bundle)
    compete(record, setups, options)
    return Outcome(record, compiled)


def print_tables(outcomes: Sequence[Outcome]) -> None:
    """A row for each bundle, then what is wanted of all."""
    console = Console(width=None if sys.stdout.isatty() else 160, highlight=False, markup=False)
    table = Table("model", "method", "operators", "kernels", "predicted ms", "measured ms", "ORT / eqfuse", "compile s")
    for outcome in outcomes:
        record = outcome.record
        for method, compiled in outcome.compiled.items():
            seconds, ratio = record.median((method, 1)), record.ratio((method, 1))
            table.add_row(
                record.name, method, str(compiled.operators), str(compiled.kernels), f"{1e3 * compiled.predicted:.3f}",
                "-" if seconds is None else f"{1e3 * seconds:.3f}", "-" if ratio is None else f"{ratio.median:.2f}",
                f"{record.compiling[method, 1]:.0f}",
            )  # fmt: skip
    console.print(table)
    excesses = {o.record.name: excess for o in outcomes if (excess := o.excess()) is not None}
    if excesses:
        worst = max(excesses, key=excesses.__getitem__)
        console.print(f"joint over the fastest method: at most {excesses[worst]:.3f} ({worst}), wanted {CLOSE}")
    for text, noise in ((f"ties within {NOISE:.0%}", NOISE), ("without ties", 0.0)):
        values = [value for outcome in outcomes if (value := outcome.correlation(noise)) is not None]
        if values:
            figures = f"mean {mean(values):.2f} over {len(values)} models, least {min(values):.2f}"
            console.print(f"rank correlation of predictions, {text}: {figures}, wanted {CORRELATION}")


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", type=Path, metavar="MODEL", help="models in the place of the networks")
    parser.add_argument("--only", nargs="+", default=list(MODELS), choices=MODELS, metavar="NAME")
    parser.add_argument("--trials", type=int, help="candidates to measure in a search for schedules")
    parser.add_argument("--rounds", type=int, default=15, help="turns of each (default 15)")
    parser.add_argument("--turn", type=float, default=0.02, metavar="SECONDS", help="of each turn (default 0.02)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures, every turn in them")
    options = parser.parse_args()
    sources = {path.stem: partial(given, path) for path in options.models}
    outcomes: list[Outcome] = []
    for name, source in (sources or {name: partial(saved, MODELS[name]) for name in options.only}).items():
        print(name, file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory(prefix="eqfuse-methods-") as folder:
            outcomes.append(measure(name, source(Path(folder)), options, Path(folder)))
    print_tables(outcomes)
    if options.json:
        options.json.write_text(json.dumps([o.as_dict() for o in outcomes], indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
