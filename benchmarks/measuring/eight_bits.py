"""A quantised model beside its float model: times in several runtimes, and how far results are from one another.

ONNX Runtime and OpenVINO run the quantised file, ONNX Runtime also the file that `eqfuse optimize` makes of it, and
the float model; eqfuse is compiled from the quantised model and from the float model. Results are counted in steps:
the step of an output is the scale of the DequantizeLinear that makes it, else a 255th of the range of its values. Two
right runtimes may differ in steps, for a float is rounded to another integer if it differs in the last place. The
distance from the float model is the norm of the difference over the norm of the float model's results. Nobody is left
out for its results but those whose shapes or infinities differ; rows say who is more than twice as far from the float
model as ONNX Runtime with the quantised file.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import geometric_mean
from typing import Any, Self

import numpy as np
import onnx
from onnx import numpy_helper
from rich.table import Table

from eqfuse.benchmarks.latency import (
    OPENVINO,
    OURS,
    REFERENCE,
    Record,
    Who,
    compile_bundle,
    enter_all,
    figure,
    problem,
    spread,
    take_rounds,
    wide_console,
)
from eqfuse.benchmarks.measuring.busy import Load
from eqfuse.benchmarks.measuring.contestants import Array, Contestant, ContestantError, Setup
from eqfuse.benchmarks.measuring.quantising import FORMS, quantised
from eqfuse.lowering.plan.kernel_facts import read_table
from eqfuse.lowering.running.turns import Middle

OUR_FLOAT, REFERENCE_FLOAT, OPTIMISED = "eqfuse float", "ONNX Runtime float", "ONNX Runtime optimised"
INT8_PEERS = (REFERENCE, OPENVINO)
"""Those that run the same quantised file as eqfuse."""
COLUMNS = (OURS, OUR_FLOAT, REFERENCE, OPTIMISED, OPENVINO, REFERENCE_FLOAT)
LEAST_SHARE = 0.5
"""Of the multiply-adds: below it a network counts as one that stays in float."""
_SEEDS = (0, 1)
"""Of the inputs whose results are compared."""
_FAR = 2.0
"""Times the distance of ONNX Runtime's results from the float model, beyond which a runtime is named."""
_WHOLE = 255
"""Steps of the range of an output that no DequantizeLinear makes."""


@dataclass(frozen=True)
class Accuracy:
    """Of one runtime's results: the most steps that an element is off ONNX Runtime's with the quantised file, the
    share of elements that are off by half a step or more, and the distance from the float model."""

    steps: float
    share: float
    distance: float


@dataclass
class QuantisedRecord(Record):
    """A quantised model. `integer_share` is the part of the multiply-adds that eqfuse computes in 8 bits."""

    accuracy: dict[str, Accuracy] = field(default_factory=dict)
    integer_share: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        accuracy = {tool: asdict(each) for tool, each in self.accuracy.items()}
        return {**super().as_dict(), "accuracy": accuracy, "integer_share": self.integer_share}

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> Self:
        """The record of which `as_dict` gave the content."""
        accuracy = {tool: Accuracy(**each) for tool, each in content["accuracy"].items()}
        return replace(super().of(content), accuracy=accuracy, integer_share=content["integer_share"])

    def best_peer(self, threads: int) -> Middle | None:
        """The time of the faster peer with the same file, by its median, over that of eqfuse; None without both."""
        medians = {peer: seconds for peer in INT8_PEERS if (seconds := self.median((peer, threads))) is not None}
        return self.ratio((OURS, threads), min(medians, key=medians.__getitem__)) if medians else None

    def comparisons(self, threads: int) -> dict[str, Middle | None]:
        """Times over others, above 1 if eqfuse gains."""
        return {
            "best int8 peer / eqfuse": self.best_peer(threads),
            "ONNX Runtime / eqfuse": self.ratio((OURS, threads)),
            "OpenVINO / eqfuse": self.ratio((OURS, threads), OPENVINO),
            "eqfuse float / int8": self.ratio((OURS, threads), OUR_FLOAT),
            "ONNX Runtime / optimised": self.ratio((OPTIMISED, threads)),
        }

    def line(self) -> str:
        """The medians in milliseconds and the ratio to the best peer, for a reader who waits."""
        found = []
        for threads in sorted({number for _, number in self.samples}):
            times = (f"{tool} {figure(self.median((tool, threads)), 1e3, '.3f')}" for tool in COLUMNS)
            best = spread(self.best_peer(threads))
            found.append(f"{threads} thread(s), ms: {', '.join(times)}; best int8 peer / eqfuse {best}")
        return "; ".join(found) or "nothing was measured"


# --- measuring


def measure_forms(
    name: str, source: Callable[[Path], Path], beside: str, options: argparse.Namespace, scratch: Path
) -> list[QuantisedRecord]:
    """A record for each form of a network that `options.known` does not have; what went wrong is in it.

    `beside` is the name of the folder beside the model that has its inputs; without it they are random.
    """
    wanted = [f"{name} {form}" for form in options.forms or FORMS]
    records = [QuantisedRecord(each, name) for each in wanted if each not in options.known]
    if not records:
        return []
    try:
        model = source(scratch)
    except ContestantError as error:
        for record in records:
            problem(record, str(error))
        return records
    inputs = scratch / beside if (scratch / beside).exists() else None
    float_model = _FloatModel(model, inputs, options, scratch)
    for record in records:
        try:
            float_model.measure(record, quantised(model, record.name.rpartition(" ")[2], inputs))
        except ContestantError as error:
            problem(record, str(error))
        print(f"{record.name}: {record.line()}", file=sys.stderr, flush=True)
    return records


@dataclass
class _FloatModel:
    """A float model, and the bundles that were compiled of it, which all of its quantised forms share."""

    model: Path
    inputs: Path | None
    options: argparse.Namespace
    scratch: Path
    bundles: dict[int, Path | None] = field(default_factory=dict)

    def measure(self, record: QuantisedRecord, file: Path) -> None:
        """Compile, compare results, and take turns."""
        folder = self.scratch / record.name.rpartition(" ")[2]
        folder.mkdir()
        setups = self._setups(record, file, folder)
        with ExitStack() as stack:
            entered = enter_all(stack, record, setups)
            _compare(record, onnx.load(file), entered)
            processes = [contestant.process for contestant in entered.values()]
            before = Load.now(processes)
            take_rounds(record, entered, self.options)
            record.others = before.others(Load.now(processes))

    def _setups(self, record: QuantisedRecord, file: Path, folder: Path) -> dict[Who, Setup]:
        setups: dict[Who, Setup] = {}
        try:
            optimised = _optimise(file, folder / "optimised.onnx", self.options.runtime)
        except ContestantError as error:
            problem(record, str(error))
            optimised = None
        for threads in self.options.threads:
            for peer in INT8_PEERS:
                if peer in (REFERENCE, *self.options.peers):
                    setups[peer, threads] = Setup(peer, file, threads, None, self.inputs)
            setups[REFERENCE_FLOAT, threads] = Setup(REFERENCE, self.model, threads, None, self.inputs)
            if optimised:
                setups[OPTIMISED, threads] = Setup(REFERENCE, optimised, threads, None, self.inputs)
            if bundle := self._compile(record, OURS, file, folder / f"bundle-{threads}", threads):
                setups[OURS, threads] = Setup(OURS, file, threads, bundle, self.inputs)
                record.integer_share = integer_share(bundle)
            if bundle := self._float_bundle(record, threads):
                setups[OUR_FLOAT, threads] = Setup(OURS, self.model, threads, bundle, self.inputs)
        return setups

    def _float_bundle(self, record: QuantisedRecord, threads: int) -> Path | None:
        if threads not in self.bundles:
            folder = self.scratch / f"float-{threads}"
            self.bundles[threads] = self._compile(record, OUR_FLOAT, self.model, folder, threads)
        return self.bundles[threads]

    def _compile(self, record: QuantisedRecord, who: str, model: Path, bundle: Path, threads: int) -> Path | None:
        options = self.options
        extra = [*(["--target", options.target] if options.target else []), *(["--no-measure"] * options.no_measure)]
        extra += ["--trials", str(options.trials)] if options.trials else []
        try:
            record.compiling[who, threads] = compile_bundle(model, bundle, threads, *extra, cache=options.cache)
        except ContestantError as error:
            problem(record, f"{who}, {threads} thread(s): {error}")
            return None
        return bundle


def _optimise(model: Path, path: Path, runtime: str) -> Path:
    """What `eqfuse optimize` makes of a model for a runtime."""
    command = [sys.executable, "-P", "-m", "eqfuse", "optimize", str(model), "-o", str(path), "--quiet"]
    command += ["--runtime", runtime]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if not path.is_file():
        lines = (done.stderr.strip() or f"exit code {done.returncode}").splitlines()
        raise ContestantError(f"eqfuse optimize: {lines[-1][:300]}")
    return path


def integer_share(bundle: Path) -> float | None:
    """Of the multiply-adds of a bundle those in kernels with products of integers; None if there are no products."""
    products = [(facts.multiply_adds * facts.calls, facts.operators) for facts in read_table(bundle)]
    whole = sum(count for count, _ in products)
    integers = sum(count for count, operators in products if {"ConvInteger", "MatMulInteger"} & {*operators})
    return integers / whole if whole else None


def _compare(record: QuantisedRecord, model: onnx.ModelProto, entered: dict[Who, Contestant]) -> None:
    """Note how far results are apart, on the fewest threads that take part; remove who has none to compare."""
    found: dict[Who, list[list[Array]]] = {}
    for who, contestant in list(entered.items()):
        try:
            found[who] = [contestant.outputs(seed) for seed in _SEEDS]
        except ContestantError as error:
            problem(record, f"{who[1]} thread(s): {error}")
            del entered[who]
    for threads in sorted({number for _, number in found}, reverse=True):
        expected, exact = found.get((REFERENCE, threads)), found.get((REFERENCE_FLOAT, threads))
        if expected is None or exact is None:
            continue
        steps = [_step(model, number, values[number]) for values in expected for number in range(len(values))]
        for (tool, number), results in found.items():
            if number != threads:
                continue
            pairs = zip(_flat(expected), _flat(results), _flat(exact), steps, strict=True)
            if any(a.shape != b.shape or not np.isfinite(b).all() for a, b, *_ in pairs):
                problem(record, f"{threads} thread(s): {tool}: results have other shapes or are not finite")
                del entered[tool, number]
                continue
            record.accuracy[tool] = measure_accuracy(_flat(expected), _flat(results), _flat(exact), steps)
    reference = record.accuracy.get(REFERENCE)
    for tool, accuracy in record.accuracy.items():
        if reference and accuracy.distance > _FAR * reference.distance:
            distances = f"{accuracy.distance:.3f}, ONNX Runtime {reference.distance:.3f}"
            problem(record, f"{tool} is far from the float model: {distances}")


def _flat(results: Sequence[Sequence[Array]]) -> list[Array]:
    return [array for outputs in results for array in outputs]


def measure_accuracy(
    expected: Sequence[Array], results: Sequence[Array], exact: Sequence[Array], steps: Sequence[float]
) -> Accuracy:
    """Of all outputs together; `steps` has the step of each, `exact` are the results of the float model."""
    triples = list(zip(expected, results, steps, strict=True))
    off = np.concatenate([(np.abs(b.astype(float) - a) / step).ravel() for a, b, step in triples])
    apart = sum(float(np.square(b.astype(float) - a).sum()) for a, b in zip(exact, results, strict=True))
    whole = sum(float(np.square(a.astype(float)).sum()) for a in exact)
    return Accuracy(float(off.max(initial=0.0)), float(np.mean(off >= 0.5)), float(np.sqrt(apart / (whole or 1.0))))


def _step(model: onnx.ModelProto, number: int, values: Array) -> float:
    """The step of an output by its number, whose values these are."""
    name = model.graph.output[number].name
    makers = [node for node in model.graph.node if name in node.output and node.op_type == "DequantizeLinear"]
    scales = {stored.name: stored for stored in model.graph.initializer}
    if makers and makers[0].input[1] in scales:
        return float(np.max(numpy_helper.to_array(scales[makers[0].input[1]])))
    return float(np.ptp(values.astype(float))) / _WHOLE or 1.0


# --- tables

_HEADS = tuple(QuantisedRecord("", "").comparisons(1))


def _short(head: str) -> str:
    """The head of a column that is not wider than it must be."""
    return head.replace("ONNX Runtime", "ORT")


def print_quantised(records: Sequence[QuantisedRecord]) -> None:
    """Times and ratios for each number of threads, accuracy, and problems."""
    console = wide_console()
    for threads in sorted({who[1] for record in records for who in record.samples}):
        console.print(_times(records, threads))
        console.print(_means(records, threads))
    console.print(_accuracies(records))
    for record in records:
        for text in record.problems:
            console.print(f"{record.name}: {text}")


def _times(records: Sequence[QuantisedRecord], threads: int) -> Table:
    title = f"{threads} thread(s), {'CPU' if threads == 1 else 'wall-clock'} time, ms"
    table = Table("model", *map(_short, (*COLUMNS, *_HEADS, "in 8 bits", "others' cores")), title=title)
    for record in records:
        times = [figure(record.median((tool, threads)), 1e3, ".3f") for tool in COLUMNS]
        best, *ratios = record.comparisons(threads).values()
        cells = [spread(best), *("-" if ratio is None else f"{ratio.median:.2f}" for ratio in ratios)]
        share = "-" if record.integer_share is None else f"{record.integer_share:.0%}"
        table.add_row(record.name, *times, *cells, share, f"{record.others:.2f}")
    return table


def _means(records: Sequence[QuantisedRecord], threads: int) -> Table:
    """Geometric means over all rows, over those that compute in 8 bits, and over each form, with the lowest row."""
    groups = {"all": records, "without those that stay in float": [r for r in records if _is_integer(r)]}
    groups |= {form: [r for r in records if r.name.endswith(f" {form}")] for form in FORMS}
    table = Table("geometric mean (lowest, rows)", *map(_short, _HEADS), title=f"{threads} thread(s)")
    for title, chosen in groups.items():
        table.add_row(title, *(_mean([r.comparisons(threads)[head] for r in chosen]) for head in _HEADS))
    return table


def _is_integer(record: QuantisedRecord) -> bool:
    return record.integer_share is not None and record.integer_share >= LEAST_SHARE


def _mean(ratios: Sequence[Middle | None]) -> str:
    present = [ratio.median for ratio in ratios if ratio is not None]
    return f"{geometric_mean(present):.2f} ({min(present):.2f}, {len(present)})" if present else "-"


def _accuracies(records: Sequence[QuantisedRecord]) -> Table:
    shown = (OURS, OPTIMISED, OPENVINO)
    far = (REFERENCE, *shown)
    heads = [*(f"{tool}: most steps (off)" for tool in shown), *(f"{tool}: from float" for tool in far)]
    title = "steps from ONNX Runtime's results, and distances from the float model"
    table = Table("model", *map(_short, heads), title=title)
    for record in records:
        found = [record.accuracy.get(tool) for tool in shown]
        steps = ["-" if each is None else f"{each.steps:.3g} ({100 * each.share:.2g} %)" for each in found]
        distances = [record.accuracy.get(tool) for tool in far]
        table.add_row(record.name, *steps, *("-" if each is None else f"{each.distance:.4f}" for each in distances))
    return table
