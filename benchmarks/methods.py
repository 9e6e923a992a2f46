"""What each way to partition is worth once it is compiled: milliseconds of its bundle, beside ONNX Runtime.

Every model is compiled with `--partition` none, fuseops, dnnfusion, ago and joint, for one thread; equal kernels once.
Kernels are those of the bundle's manifest, the fusion rate is operators of the original over them, and the predicted
time is the sum over them: the costs that `joint` minimises. The compiler has compared the outputs with the original's.

Methods whose bundles hold the same library and the same weights are one program, which is measured once; equal weights
are one file, for how the system keeps a file in memory makes a difference of up to a tenth. All programs of a model are
loaded into one process, each `SESSIONS` times, and take turns in random order, a call that does not count and one that
does. Times are CPU time; ratios are medians over the rounds, so that other work on the machine meets all alike, and
milliseconds are these ratios times those of `joint`.

Spearman's rank correlation says whether the predictions put the methods of a model in the order of their times. The
noise is the share by which sessions of one program differ, the largest that was seen for the model. Programs whose
times differ by less from the next are in no order: they share a rank, the mean of theirs, and so do their predictions,
of which the mean counts. A model all of whose methods share one rank has no correlation. Beside it are the correlation
in which only equal programs share a rank, and that of the kernels of each bundle, timed where they stand.

    python benchmarks/methods.py   # those of DNNFusion's Table 5 that can be built, and AGO's six
    python benchmarks/methods.py --only tinybert mnasnet_56 --rounds 200
    python benchmarks/methods.py --only gpt2 --methods dnnfusion joint --time-limit 300
    python benchmarks/methods.py model.onnx --trials 200         # tuned
    python benchmarks/methods.py --only efficientnet_b0 --methods neither rewriting fusion joint   # DNNFusion's Fig. 7
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import mean, median
from typing import Any, get_args

from rich.table import Table

from eqfuse.benchmarks.latency import OURS, REFERENCE, compile_bundle, given, saved, wide_console
from eqfuse.benchmarks.measuring.contestants import TOOLS, ContestantError, Setup
from eqfuse.benchmarks.networks import AGO
from eqfuse.benchmarks.table5 import BUILDERS
from eqfuse.benchmarks.table5.figures import TABLE5
from eqfuse.driver.choices import rule_topics
from eqfuse.engine.choices import PartitionMethod
from eqfuse.engine.onnx.model import read
from eqfuse.engine.operator_graph import operator_graph
from eqfuse.engine.shapes.inference import infer
from eqfuse.lowering.base.ports import random_inputs
from eqfuse.lowering.bundle.bundle import MANIFEST, read_manifest
from eqfuse.lowering.plan.kernel_facts import read_table
from eqfuse.lowering.plan.manifest import WEIGHTS
from eqfuse.lowering.running.kernel_times import kernel_times

METHODS = get_args(PartitionMethod)
_AS_READ = ("--skip", ",".join(rule_topics()))
"""Flags by which no rule changes the model."""
BARS: Mapping[str, tuple[str, ...]] = {
    "neither": ("--partition", "none", *_AS_READ),
    "rewriting": ("--partition", "none"),
    "fusion": ("--partition", "joint", *_AS_READ),
}
"""Flags of DNNFusion's Fig. 7: what rewriting and fusion are worth apart; `joint` is both."""
MODELS = {**BUILDERS, **{name: network.build for name, network in AGO.items()}}
SESSIONS = 2
"""Of each program: where its memory lies makes a difference of a percent."""
LEAST_ROUNDS = 7


@dataclass(frozen=True)
class Compiled:
    """What a bundle says of itself: kernels, the seconds that they are predicted to take, and the checksums of its
    program; with the seconds it took to compile, None if an earlier run did, and the rank correlation of predicted
    and measured times of its kernels, None of fewer than three."""

    kernels: int
    predicted: float
    program: tuple[str, str]
    compiling: float | None
    correlation: float | None

    @staticmethod
    def of(bundle: Path, compiling: float | None) -> Compiled:
        """Read it, and time its kernels."""
        manifest = read_manifest(bundle)
        predicted = sum(row.calls * (row.predicted or 0.0) for row in read_table(bundle))
        program = manifest.files[manifest.library], manifest.files.get(WEIGHTS, "")
        breakdown = kernel_times(bundle, random_inputs(manifest.inputs, 0), 1)
        return Compiled(manifest.provenance.kernels, predicted, program, compiling, breakdown.correlation)


@dataclass(frozen=True)
class Outcome:
    """One model: its operators, the bundle of each method that has one, and the seconds of each round of each session
    of the programs, by their first method, and of ONNX Runtime's."""

    name: str
    operators: int
    compiled: Mapping[str, Compiled]
    rounds: Mapping[str, Sequence[Sequence[float]]]

    def measured_by(self, method: str) -> str:
        """The first method with the same program: its sessions measured it."""
        return first_with(self.compiled, method)

    def ratio(self, method: str, other: str) -> float:
        """How many times as long a program takes, or ONNX Runtime, as another."""
        pairs = [(one, two) for one in self.rounds[method] for two in self.rounds[other]]
        return median(a / b for one, two in pairs for a, b in zip(one, two, strict=True))

    def seconds(self) -> dict[str, float]:
        """Measured, by method."""
        basis = self.measured_by("joint" if "joint" in self.compiled else next(iter(self.compiled)))
        whole = median(time for times in self.rounds[basis] for time in times)
        return {method: whole * self.ratio(self.measured_by(method), basis) for method in self.compiled}

    @property
    def noise(self) -> float:
        """The largest share by which two sessions of a program differ."""
        pairs = [
            (one, two) for sessions in self.rounds.values() for n, one in enumerate(sessions) for two in sessions[:n]
        ]
        return max((abs(median(a / b for a, b in zip(*pair, strict=True)) - 1.0) for pair in pairs), default=0.0)

    def excess(self) -> float | None:
        """The time of `joint` over that of the fastest method."""
        seconds = self.seconds()
        return seconds["joint"] / min(seconds.values()) if "joint" in seconds else None

    def gain(self, method: str) -> float:
        """The time of ONNX Runtime over that of a method."""
        return self.ratio(REFERENCE, self.measured_by(method))

    def correlation(self, noise: float) -> float | None:
        """Of predicted and measured times of the methods; None if there are fewer than three, or all are equal."""
        seconds = self.seconds()
        groups = group_equal(seconds, noise)
        if len(seconds) < 3 or len(groups) < 2:
            return None
        predicted = [mean(self.compiled[method].predicted for method in group) for group in groups for _ in group]
        measured = [number for number, group in enumerate(groups) for _ in group]
        from scipy.stats import spearmanr  # takes most of a second to load

        return float(spearmanr(predicted, measured).statistic)

    def kernel_correlation(self) -> float | None:
        """Of predicted and measured times of kernels, in the mean over the methods' bundles."""
        values = [each.correlation for each in self.compiled.values() if each.correlation is not None]
        return mean(values) if values else None

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            **asdict(self), "noise": self.noise, "excess": self.excess(), "correlation": self.correlation(self.noise),
            "untied": self.correlation(0.0), "kernels": self.kernel_correlation(), "seconds": self.seconds(),
        }  # fmt: skip


def first_with(compiled: Mapping[str, Compiled], method: str) -> str:
    """The first method whose program is that of a method."""
    return next(other for other, each in compiled.items() if each.program == compiled[method].program)


def group_equal(seconds: Mapping[str, float], noise: float) -> list[list[str]]:
    """The methods from the fastest to the slowest, in groups within which each is slower than the one before by at most
    a share of its time."""
    groups: list[list[str]] = []
    for method in sorted(seconds, key=seconds.__getitem__):
        if groups and seconds[method] <= (1.0 + noise) * seconds[groups[-1][-1]]:
            groups[-1].append(method)
        else:
            groups.append([method])
    return groups


def compile_methods(name: str, model: Path, options: argparse.Namespace, folder: Path) -> dict[Path, float | None]:
    """The bundles of the methods that have one, in folders of their names, and the seconds that each took; None for
    those that were there."""
    bundles: dict[Path, float | None] = {}
    tuning = ["--trials", str(options.trials)] if options.trials else []
    for method in options.methods:
        flags = BARS.get(method, ("--partition", method))
        extra = [*flags, "--time-limit", str(options.time_limit), *tuning]
        try:
            is_there = (folder / method / MANIFEST).is_file()
            bundles[folder / method] = (
                None if is_there else compile_bundle(model, folder / method, 1, *extra, cache=folder / "cache")
            )
        except ContestantError as error:
            print(f"{name}: {method}: {error}", file=sys.stderr, flush=True)
    return bundles


def compare(name: str, model: Path, bundles: Mapping[Path, float | None], options: argparse.Namespace) -> Outcome:
    """Measure the bundles of a model, in folders of their methods' names, beside ONNX Runtime."""
    original = read(model)
    operators = len(operator_graph(original, infer(original)))
    share_weights(list(bundles))
    compiled = {bundle.name: Compiled.of(bundle, seconds) for bundle, seconds in bundles.items()}
    first = [bundle for bundle in bundles if first_with(compiled, bundle.name) == bundle.name]
    inputs = random_inputs(read_manifest(first[0]).inputs, 0)
    calls = {
        bundle.name: [TOOLS[OURS](Setup(OURS, model, 1, bundle)).bind(inputs) for _ in range(SESSIONS)]
        for bundle in first
    }
    calls[REFERENCE] = [TOOLS[REFERENCE](Setup(REFERENCE, model, 1)).bind(inputs)]
    return Outcome(name, operators, compiled, take_turns(calls, options))


def share_weights(bundles: Sequence[Path]) -> None:
    """Make equal weights of bundles one file."""
    files: dict[str, Path] = {}
    for bundle in bundles:
        own, checksum = bundle / WEIGHTS, read_manifest(bundle).files.get(WEIGHTS, "")
        if files.setdefault(checksum, own) != own:
            own.unlink()
            os.link(files[checksum], own)


def take_turns(
    calls: Mapping[str, Sequence[Callable[[], Any]]], options: argparse.Namespace
) -> dict[str, list[list[float]]]:
    """The CPU seconds of each call in each round; rounds end with the time that there is, but not before the least."""
    rounds: dict[str, list[list[float]]] = {name: [[] for _ in sessions] for name, sessions in calls.items()}
    turns = [(call, rounds[name][n]) for name, sessions in calls.items() for n, call in enumerate(sessions)]
    shuffle = random.Random(0).shuffle
    ends = time.process_time() + options.seconds
    while len(turns[0][1]) < (LEAST_ROUNDS if time.process_time() > ends else options.rounds):
        shuffle(turns)
        for call, taken in turns:
            call()
            before = time.process_time()
            call()
            taken.append(time.process_time() - before)
    return rounds


def print_tables(outcomes: Sequence[Outcome]) -> None:
    """A row for each bundle and one for each model, then figures over all models."""
    console = wide_console()
    console.print(_bundle_table(outcomes))
    console.print(_model_table(outcomes))
    excesses = {outcome.name: excess for outcome in outcomes if (excess := outcome.excess()) is not None}
    if excesses:
        worst = max(excesses, key=excesses.__getitem__)
        console.print(f"joint over the fastest method: at most {excesses[worst]:.3f} ({worst})")
    correlations = {
        "methods, ties within the noise": [outcome.correlation(outcome.noise) for outcome in outcomes],
        "methods, ties of equal programs": [outcome.correlation(0.0) for outcome in outcomes],
        "kernels": [outcome.kernel_correlation() for outcome in outcomes],
    }
    for text, each in correlations.items():
        if values := [value for value in each if value is not None]:
            figures = f"mean {mean(values):.2f} over {len(values)} models, least {min(values):.2f}"
            console.print(f"rank correlation of {text}: {figures}")


def _bundle_table(outcomes: Sequence[Outcome]) -> Table:
    table = Table("model", "method", "kernels", "predicted ms", "measured ms", "same as", "ORT / eqfuse", "compile s")
    for outcome in outcomes:
        seconds = outcome.seconds()
        for method, compiled in outcome.compiled.items():
            same = outcome.measured_by(method)
            table.add_row(
                outcome.name, method, str(compiled.kernels), f"{1e3 * compiled.predicted:.3f}",
                f"{1e3 * seconds[method]:.3f}", "" if same == method else same, f"{outcome.gain(method):.2f}",
                _figure(compiled.compiling, 0),
            )  # fmt: skip
    return table


def _model_table(outcomes: Sequence[Outcome]) -> Table:
    heads = ("model", "operators", "rate", "Table 5", "noise", "joint / fastest", "methods", "equal only", "kernels")
    table = Table(*heads, title="Fusion rate of joint beside DNNFusion's, and rank correlations")
    for outcome in outcomes:
        joint, printed = outcome.compiled.get("joint"), TABLE5.get(outcome.name)
        table.add_row(
            outcome.name, str(outcome.operators), _figure(outcome.operators / joint.kernels if joint else None),
            _figure(printed.rate if printed else None), f"{outcome.noise:.1%}", _figure(outcome.excess(), 3),
            _figure(outcome.correlation(outcome.noise)), _figure(outcome.correlation(0.0)),
            _figure(outcome.kernel_correlation()),
        )  # fmt: skip
    return table


def _figure(value: float | None, digits: int = 2) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", type=Path, metavar="MODEL", help="models in the place of the networks")
    parser.add_argument("--only", nargs="+", default=list(MODELS), choices=MODELS, metavar="NAME")
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=(*METHODS, *BARS), metavar="METHOD")
    parser.add_argument("--trials", type=int, help="candidates to measure in a search for schedules")
    parser.add_argument("--time-limit", type=float, default=60.0, help="of each search for a graph (default 60)")
    parser.add_argument("--rounds", type=int, default=100, help="turns of each session at most (default 100)")
    parser.add_argument("--seconds", type=float, default=20.0, help="of CPU time of the rounds of a model (default 20)")
    parser.add_argument("--bundles", type=Path, metavar="FOLDER", help="keep bundles there, those of earlier runs too")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures, every turn in them")
    options = parser.parse_args()
    sources = {path.stem: partial(given, path) for path in options.models}
    outcomes: list[Outcome] = []
    for name, source in (sources or {name: partial(saved, MODELS[name]) for name in options.only}).items():
        print(name, file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory(prefix="eqfuse-methods-") as folder:
            model = source(Path(folder))
            kept = options.bundles / name if options.bundles else Path(folder)
            if bundles := compile_methods(name, model, options, kept):
                outcomes.append(compare(name, model, bundles, options))
        if options.json:
            options.json.write_text(json.dumps([o.as_dict() for o in outcomes], indent=1) + "\n", encoding="utf-8")
    print_tables(outcomes)


if __name__ == "__main__":
    main()
