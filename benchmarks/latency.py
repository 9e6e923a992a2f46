"""How long a run takes: eqfuse without any search, ONNX Runtime, and TVM's Relax by its default pipeline.

Batch 1, float32, on AGO's networks at the sizes that it measures, ResNet-50 and EfficientNet-B0 (networks/), or on the
models that are given. Each contestant runs in a process of its own, which is stopped while others have their turn:
the threads of a pool spin on for a while. All numbers of threads take part in the same rounds. In a round each has one
turn, a call that does not count and then calls for 20 ms, of which the median counts; the order is reversed every other
round. Ratios are medians over the rounds of the time of ONNX Runtime over that of the other, so above 1 the other is
faster; with them the interquartile range.

With one thread times are CPU time, which other work on the machine disturbs least. With more they are wall-clock: CPU
time would count threads that spin and wait. Where other processes work meanwhile, those times say little: how many
cores they used is printed.

Before anything is timed outputs are compared with those of ONNX Runtime, for two inputs, between which they have to
differ.

    python benchmarks/latency.py                                   # all networks, about 20 minutes
    python benchmarks/latency.py --only squeezenet_56 bert_tiny --rounds 31
    python benchmarks/latency.py model.onnx --threads 1 --no-relax --json latency.json
    python benchmarks/latency.py --kernels --only mobilenet_v2_56  # where the time goes
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, fields
from functools import partial
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any, Self

import numpy as np
import onnx
from rich.console import Console
from rich.table import Table

from eqfuse.benchmarks.measuring.busy import Load
from eqfuse.benchmarks.measuring.contestants import TOOLS, Contestant, ContestantError, Sample, Setup
from eqfuse.benchmarks.measuring.kernel_breakdown import print_kernels
from eqfuse.benchmarks.networks import AGO, NETWORKS
from eqfuse.driver.options import Options
from eqfuse.lowering.bundle.bundle import MANIFEST
from eqfuse.lowering.running.turns import Middle

OURS, OFF, REFERENCE, RELAX, TUNED, PEER, OPENVINO, MNN = TOOLS
RELATIVE = 1e-3
"""By how much outputs may differ, relative to the largest of the output."""
LEAST_DIFFERENCE = 1e-3
"""By how much at least outputs differ for other inputs, relative to the largest."""

Who = tuple[str, int]
"""A contestant: its name, which is that of its tool or says more, and its number of threads."""


@dataclass
class Record:
    """One model. `samples` are the turns of each contestant, `compiling` the seconds its model took to be made.

    `others` are the cores that other processes used during the turns.
    """

    name: str
    family: str
    samples: dict[Who, list[Sample]] = field(default_factory=dict)
    compiling: dict[Who, float] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    others: float = 0.0

    def times(self, who: Who) -> list[float]:
        """Seconds of each turn, by the clock that suits the number of threads."""
        return [sample.cpu if who[1] == 1 else sample.wall for sample in self.samples.get(who, [])]

    def median(self, who: Who) -> float | None:
        """Of all turns; None if it did not take part."""
        times = self.times(who)
        return median(times) if times else None

    def ratio(self, who: Who, reference: str = REFERENCE) -> Middle | None:
        """The time of ONNX Runtime, or of another reference, over this one's, round by round."""
        pairs = zip(self.times((reference, who[1])), self.times(who), strict=False)
        ratios = [other / own for other, own in pairs]
        return Middle.of(ratios) if ratios else None

    def scaling(self, tool: str, threads: int) -> Middle | None:
        """Wall-clock time on one thread over that on several, round by round."""
        single, several = self.samples.get((tool, 1), []), self.samples.get((tool, threads), [])
        ratios = [one.wall / more.wall for one, more in zip(single, several, strict=False)]
        return Middle.of(ratios) if ratios else None

    def as_dict(self) -> dict[str, Any]:
        """Plain data; times in seconds."""
        found = [self._as_dict(who) for who in self.samples]
        about = {"name": self.name, "family": self.family, "problems": self.problems, "others": self.others}
        return {**about, "contestants": found}

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> Self:
        """The record of which `as_dict` gave the content."""
        found = cls(content["name"], content["family"], problems=list(content["problems"]), others=content["others"])
        for each in content["contestants"]:
            pairs = zip(each["wall"], each["cpu"], strict=True)
            found.samples[each["tool"], each["threads"]] = [Sample(wall, cpu) for wall, cpu in pairs]
        return found

    def _as_dict(self, who: Who) -> dict[str, Any]:
        ratio, samples = self.ratio(who), self.samples[who]
        return {
            "tool": who[0], "threads": who[1], "compile_seconds": self.compiling.get(who), "seconds": self.median(who),
            "ratio": asdict(ratio) if ratio else None,
            "wall": [sample.wall for sample in samples], "cpu": [sample.cpu for sample in samples],
        }  # fmt: skip


# --- measuring


def compile_bundle(model: Path, bundle: Path, threads: int, *extra: str, cache: Path | None = None) -> float:
    """Wall-clock seconds of `eqfuse compile`, the start of Python with it, on an empty cache or on that one."""
    bundle.parent.mkdir(parents=True, exist_ok=True)
    start = [sys.executable, "-P", "-m", "eqfuse"]
    command = [*start, "compile", str(model), "-o", str(bundle), "--threads", str(threads)]
    with tempfile.TemporaryDirectory() as empty:
        started = time.perf_counter()
        done = subprocess.run(
            [*command, "--quiet", *extra], capture_output=True, text=True,
            env={**os.environ, "XDG_CACHE_HOME": str(cache or empty)}, check=False,
        )  # fmt: skip
    if not (bundle / MANIFEST).is_file():
        lines = (done.stderr.strip() or f"exit code {done.returncode}").splitlines()
        raise ContestantError(f"eqfuse compile: {lines[-1][:300]}")
    return time.perf_counter() - started


def tools(options: argparse.Namespace) -> list[str]:
    """Who takes part."""
    absent = {TUNED, PEER, OPENVINO, MNN, *([RELAX] if options.no_relax else [])}
    if not any(option.name == "intensive" for option in fields(Options)):
        absent.add(OFF)
    return [tool for tool in TOOLS if tool not in absent]


def measure(record: Record, model: Path, options: argparse.Namespace, scratch: Path) -> None:
    """Compile, compare, and take turns."""
    setups: dict[Who, Setup] = {}
    for threads in options.threads:
        for tool in tools(options):
            try:
                setups[tool, threads] = _setup(record, Setup(tool, model, threads), scratch)
            except ContestantError as error:
                problem(record, f"{threads} thread(s): {error}")
    compete(record, setups, options)


def enter_all(stack: ExitStack, record: Record, setups: Mapping[Who, Setup]) -> dict[Who, Contestant]:
    """The contestants that can be started, until the stack is left; the problems of others go to the record."""
    entered: dict[Who, Contestant] = {}
    for who, setup in setups.items():
        try:
            entered[who] = stack.enter_context(Contestant(setup))
        except ContestantError as error:
            problem(record, f"{who[1]} thread(s): {error}")
    return entered


def compete(record: Record, setups: Mapping[Who, Setup], options: argparse.Namespace) -> None:
    """Load the compiled models, compare their results, and take turns."""
    with ExitStack() as stack:
        entered = enter_all(stack, record, setups)
        _require_equal(record, entered)
        for who, seconds in ((who, c.seconds) for who, c in entered.items() if who[0] == RELAX):
            record.compiling[who] = seconds
        processes = [contestant.process for contestant in entered.values()]
        before = Load.now(processes)
        take_rounds(record, entered, options)
        record.others = before.others(Load.now(processes))


def _setup(record: Record, setup: Setup, scratch: Path) -> Setup:
    """With a bundle, where the tool needs one."""
    if setup.tool not in (OURS, OFF):
        return setup
    bundle = scratch / f"{setup.threads}-{'off' if setup.tool == OFF else 'on'}"
    extra = ["--no-intensive"] if setup.tool == OFF else []
    seconds = compile_bundle(setup.model, bundle, setup.threads, *extra)
    record.compiling[setup.tool, setup.threads] = seconds
    return Setup(setup.tool, setup.model, setup.threads, bundle)


def _require_equal(record: Record, entered: dict[Who, Contestant]) -> None:
    """Let nobody take part whose outputs are not those of ONNX Runtime; say so where these ignore the inputs."""
    reference = next((contestant for (tool, _), contestant in entered.items() if tool == REFERENCE), None)
    if reference is None:
        return
    expected = [reference.outputs(seed) for seed in (0, 1)]
    if not any(_difference(a, b) > LEAST_DIFFERENCE for a, b in zip(*expected, strict=True)):
        problem(record, "the outputs hardly depend on the inputs")
    for who, contestant in list(entered.items()):
        try:
            found = [contestant.outputs(seed) for seed in (0, 1)]
            wrong = [_difference(a, b) for x, y in zip(expected, found, strict=True) for a, b in zip(x, y, strict=True)]
            if max(wrong) > RELATIVE:
                raise ContestantError(f"{who[0]}: outputs are off by {max(wrong):.2g} of the largest")
            contestant.sample(0.0)  # it fails where the model declares other shapes than outputs have
        except ContestantError as error:
            problem(record, f"{who[1]} thread(s): {error}")
            del entered[who]


def _difference(expected: np.ndarray[Any, Any], found: np.ndarray[Any, Any]) -> float:
    """The largest, relative to the largest element; infinite if shapes differ or elements are not finite."""
    if expected.shape != found.shape or not np.isfinite(found).all():
        return float("inf")
    if not expected.size:
        return 0.0
    largest = float(np.abs(expected).max()) or 1.0
    return float(np.abs(expected.astype(float) - found).max()) / largest


def take_rounds(record: Record, entered: Mapping[Who, Contestant], options: argparse.Namespace, seed: int = 0) -> None:
    """Turns of each, on the inputs of that seed."""
    record.samples = {who: [] for who in entered}
    for number in range(options.rounds):
        for who in list(entered)[:: 1 if number % 2 == 0 else -1]:
            if who[0] != RELAX:
                record.samples[who].append(entered[who].sample(options.turn, seed))
            elif number < options.relax_rounds:
                record.samples[who].append(entered[who].sample(0.0))


def problem(record: Record, text: str) -> None:
    """Note what went wrong, and tell."""
    record.problems.append(text)
    print(f"{record.name}: {text}", file=sys.stderr, flush=True)


# --- figures over all models


def mean_ratio(records: Sequence[Record], who: Who, reference: str = REFERENCE) -> float | None:
    """The geometric mean of ratios, each family of networks counting once; None if one did not take part."""
    families: dict[str, list[float]] = {}
    for record in records:
        ratio = record.ratio(who, reference)
        if ratio is None:
            return None
        families.setdefault(record.family, []).append(ratio.median)
    return geometric_mean([geometric_mean(ratios) for ratios in families.values()]) if families else None


# --- tables


def latency_table(records: Sequence[Record], threads: int, present: Sequence[str]) -> Table:
    """Milliseconds of each, and ONNX Runtime's time over that of the others."""
    others = [tool for tool in present if tool != REFERENCE]
    clock = "CPU" if threads == 1 else "wall-clock"
    ratio_heads = [f"ORT / {tool}" for tool in others]
    heads = ("model", "compile s", *(f"{tool} ms" for tool in present), *ratio_heads, "others' cores")
    table = Table(*heads, title=f"{threads} thread(s), {clock} time")
    for record in records:
        times = [figure(record.median((tool, threads)), 1e3, ".3f") for tool in present]
        ratios = [spread(record.ratio((tool, threads))) for tool in others]
        seconds = figure(record.compiling.get((OURS, threads)), 1, ".1f")
        table.add_row(record.name, seconds, *times, *ratios, f"{record.others:.2f}")
    for title, chosen in (("AGO's six", [r for r in records if r.name in AGO]), ("all", list(records))):
        means = [figure(mean_ratio(chosen, (tool, threads)), 1, ".2f") for tool in others]
        table.add_row(f"geometric mean, {title}", "", *[""] * len(present), *means)
    return table


def scaling_table(records: Sequence[Record], threads: int) -> Table:
    """How many times as fast several threads are."""
    table = Table("model", OURS, REFERENCE, title=f"{threads} threads: times as fast as one thread, wall-clock")
    for record in records:
        table.add_row(record.name, *(spread(record.scaling(tool, threads)) for tool in (OURS, REFERENCE)))
    return table


def figure(value: float | None, factor: float, form: str) -> str:
    """A number times a factor; a dash if there is none."""
    return "-" if value is None else format(value * factor, form)


def spread(ratio: Middle | None) -> str:
    """The median, and the interquartile range in brackets; a dash if there is none."""
    return "-" if ratio is None else f"{ratio.median:.2f} ({ratio.lower:.2f} to {ratio.upper:.2f})"


def wide_console() -> Console:
    """For tables: as wide as the terminal, or wide enough for every column in a file."""
    return Console(width=None if sys.stdout.isatty() else 220, highlight=False, markup=False)


def print_tables(records: Sequence[Record], options: argparse.Namespace) -> None:
    """All of them, then problems."""
    console = wide_console()
    for threads in options.threads:
        console.print(latency_table(records, threads, tools(options)))
    for threads in options.threads:
        if threads > 1 and 1 in options.threads:
            console.print(scaling_table(records, threads))
    for record in records:
        for problem in record.problems:
            console.print(f"{record.name}: {problem}")


# --- command line


def saved(build: Callable[[], onnx.ModelProto], folder: Path) -> Path:
    """The model, built and written when it is its turn."""
    path = folder / "model.onnx"
    onnx.save(build(), path)
    return path


def given(path: Path, folder: Path) -> Path:
    """A model that is there."""
    return path


def sources(options: argparse.Namespace) -> dict[str, tuple[str, Callable[[Path], Path]]]:
    """Models by name: their family, and how to get them given a folder. Exits if one is asked for that is not."""
    if options.models:
        return {path.stem: (path.stem, partial(given, path)) for path in options.models}
    unknown = [name for name in options.only if name not in NETWORKS]
    if unknown:
        sys.exit(f"no network called {', '.join(unknown)}: there are {', '.join(NETWORKS)}")
    chosen = options.only or list(NETWORKS)
    return {name: (NETWORKS[name].family, partial(saved, NETWORKS[name].build)) for name in chosen}


def parser() -> argparse.ArgumentParser:
    """The options."""
    result = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    result.add_argument("models", nargs="*", type=Path, metavar="MODEL", help="models in the place of the networks")
    result.add_argument("--only", nargs="+", default=[], metavar="NAME", help="only these networks")
    result.add_argument("--threads", nargs="+", type=int, default=[1, 2], metavar="N", help="default: 1 2")
    result.add_argument("--rounds", type=int, default=15, help="turns of each (default 15)")
    result.add_argument("--turn", type=float, default=0.02, metavar="SECONDS", help="of each turn (default 0.02)")
    result.add_argument("--relax-rounds", type=int, default=3, help="turns of TVM's Relax, of one call (default 3)")
    result.add_argument("--no-relax", action="store_true", help=f"without {RELAX}, which is slow")
    result.add_argument("--kernels", action="store_true", help="time each kernel, beside the roofline, instead")
    result.add_argument("--json", type=Path, metavar="FILE", help="write all figures, every turn in them")
    return result


def main() -> None:
    """Command line."""
    options = parser().parse_args()
    records: list[Record] = []
    breakdowns: list[dict[str, Any]] = []
    for name, (family, source) in sources(options).items():
        print(name, file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory(prefix="eqfuse-latency-") as folder:
            model = source(Path(folder))
            if options.kernels:
                bundles = {n: Path(folder) / f"kernels-{n}" for n in options.threads}
                for threads, bundle in bundles.items():
                    compile_bundle(model, bundle, threads)
                breakdowns.append({"name": name, "threads": print_kernels(name, bundles)})
                continue
            records.append(Record(name, family))
            measure(records[-1], model, options, Path(folder))
    if records:
        print_tables(records, options)
    if options.json:
        content = breakdowns if options.kernels else [record.as_dict() for record in records]
        options.json.writefigure(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
