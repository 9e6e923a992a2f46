"""One bundle for all sizes of a model: whether it is right, and its time beside ONNX Runtime and beside other bundles.

The bundle is compiled without options, but that it is verified on the inputs of all cases. At the first case, the
typical one, there are two more bundles: one that has these sizes as `--typical`, and one for these shapes alone.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from rich.table import Table

from eqfuse.benchmarks.latency import (
    OURS,
    REFERENCE,
    Record,
    Who,
    compile_bundle,
    enter_all,
    problem,
    take_rounds,
    wide_console,
)
from eqfuse.benchmarks.measuring.busy import Load
from eqfuse.benchmarks.measuring.contestants import Array, Contestant, ContestantError, Setup
from eqfuse.benchmarks.measuring.packages import Case, write_inputs
from eqfuse.benchmarks.threads import fix_shapes
from eqfuse.engine.onnx.model import read
from eqfuse.engine.verification.judges.oracle import Oracle, judge
from eqfuse.engine.verification.runs.compare import Tolerance, compare
from eqfuse.engine.verification.runs.source import read_source
from eqfuse.lowering.base.interface import inputs_of
from eqfuse.lowering.bundle.bundle import read_manifest

TYPICAL, STATIC = "typical", "static"
"""Bundles beside the one for all sizes."""
VERIFY_SECONDS = 3600
"""By the clock: a machine that others use needs longer than the usual limit for five large pages."""
LEAST_RATIO, MOST_OF_STATIC = 1.0, 1.05
"""Targets: of ONNX Runtime's time over the bundle's, and of the time with `--typical` over the static bundle's."""


@dataclass
class Row(Record):
    """A model at one of its sizes: "right", "wrong" or "refused", and the operators that another runtime runs."""

    verdict: str = "-"
    fallback: str = "-"

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {**super().as_dict(), "verdict": self.verdict, "fallback": self.fallback}

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> Self:
        """The row of which `as_dict` gave the content."""
        return replace(super().of(content), verdict=content["verdict"], fallback=content["fallback"])

    def ratios(self) -> dict[str, float]:
        """Of ONNX Runtime's time over the bundle's by numbers of threads, and of times over the static bundle's."""
        threads = sorted({number for tool, number in self.samples if tool == OURS})
        wanted = {f"{n} thread(s)": (REFERENCE, (OURS, n)) for n in threads}
        wanted |= {f"{who} / static": (who, (STATIC, 1)) for who in (OURS, TYPICAL)}
        found = {name: self.ratio(who, reference) for name, (reference, who) in wanted.items()}
        return {name: ratio.median for name, ratio in found.items() if ratio is not None}

    def misses(self) -> list[str]:
        """What is not as it should be."""
        found = [text for text, wanted in ((self.verdict, "right"), (self.fallback, "none")) if text != wanted]
        for name, ratio in self.ratios().items():
            is_missed = ratio < LEAST_RATIO if "thread" in name else name.startswith(TYPICAL) and ratio > MOST_OF_STATIC
            found += [f"{ratio:.2f} {name}"] if is_missed else []
        return found


def measure_sizes(
    name: str, model: Path, cases: Sequence[Case], options: argparse.Namespace, scratch: Path
) -> list[Row]:
    """Compile the bundles, and let them take turns at every size."""
    inputs = write_inputs(inputs_of(read(model)), cases, scratch / "inputs")
    rows = [Row(f"{name} {case}", name) for case in cases]
    setups = _compile_all(rows[0], Setup(REFERENCE, model, 1, None, inputs), cases[0], options, scratch)
    fallback = _list_fallbacks([setup.bundle for (tool, _), setup in setups.items() if tool == OURS and setup.bundle])
    with ExitStack() as stack:
        entered = enter_all(stack, rows[0], setups)
        for number, row in enumerate(rows):
            row.fallback = fallback
            chosen = {who: each for who, each in entered.items() if number == 0 or who[0] in (OURS, REFERENCE)}
            _judge_size(row, number, chosen)
            _time_size(row, number, chosen, options)
    return rows


def _compile_all(
    record: Row, reference: Setup, typical: Case, options: argparse.Namespace, scratch: Path
) -> dict[Who, Setup]:
    """ONNX Runtime and the bundle for all sizes on all numbers of threads, and the two others on one."""
    model, inputs = reference.model, reference.inputs
    all_sizes, first = ("--inputs", str(inputs)), ("--inputs", f"{inputs}/0.npz")
    wanted: dict[Who, tuple[Path, tuple[str, ...]]] = {(OURS, n): (model, all_sizes) for n in options.threads}
    if sizes := typical.sizes(inputs_of(read(model))):
        names = (argument for name, size in sizes.items() for argument in ("--typical", f"{name}={size}"))
        (scratch / "fixed").mkdir()
        wanted[TYPICAL, 1] = model, (*all_sizes, *names)
        wanted[STATIC, 1] = fix_shapes(model, typical.shapes, scratch / "fixed"), first
    setups = {(REFERENCE, threads): Setup(REFERENCE, model, threads, None, inputs) for threads in options.threads}
    extra = ["--verify-limit", str(VERIFY_SECONDS), *(["--no-measure"] * options.no_measure)]
    for (tool, threads), (source, arguments) in wanted.items():
        bundle = scratch / f"{tool}-{threads}"
        try:
            seconds = compile_bundle(source, bundle, threads, *arguments, *extra, cache=options.cache)
            record.compiling[tool, threads] = seconds
            setups[tool, threads] = Setup(OURS, source, threads, bundle, inputs)
        except ContestantError as error:
            problem(record, f"{tool}, {threads} thread(s): {error}")
    return setups


def _list_fallbacks(bundles: Sequence[Path]) -> str:
    entries = [entry for bundle in bundles for entry in read_manifest(bundle).fallbacks]
    operators = sorted({operator for entry in entries for operator in entry.operators})
    return ", ".join(operators) or ("none" if bundles else "-")


def _judge_size(row: Row, number: int, entered: dict[Who, Contestant]) -> None:
    """Compare every bundle with ONNX Runtime; who refuses the size takes no part."""
    reference = next(contestant for (tool, _), contestant in entered.items() if tool == REFERENCE)
    expected, inputs = reference.outputs(number), reference.setup.inputs
    assert inputs is not None
    for who, contestant in list(entered.items()):
        try:
            verdict = "right"
            if not is_right(reference.setup.model, inputs / f"{number}.npz", expected, contestant.outputs(number)):
                verdict = "wrong"
        except ContestantError as error:
            problem(row, str(error))
            verdict = "refused"
            del entered[who]
        row.verdict = verdict if row.verdict in ("-", "right") and who[0] != REFERENCE else row.verdict


def is_right(model: Path, inputs: Path, expected: Sequence[Array], results: Sequence[Array]) -> bool:
    """Whether results are equal up to the usual tolerance, or no farther from a float64 run than ONNX Runtime's are."""
    if all(compare(a, b, Tolerance()).equal for a, b in zip(expected, results, strict=True)):
        return True
    with np.load(inputs) as arrays:
        exact = Oracle(read_source(model, "original")).run(dict(arrays)).values()
    judgements = [judge(e, a, b, None) for e, a, b in zip(exact, expected, results, strict=True)]
    return all(judgement.no_farther for judgement in judgements)


def _time_size(row: Row, number: int, entered: Mapping[Who, Contestant], options: argparse.Namespace) -> None:
    processes = [contestant.process for contestant in entered.values()]
    before = Load.now(processes)
    take_rounds(row, entered, options, number)
    row.others = before.others(Load.now(processes))


def print_rows(rows: Sequence[Row]) -> None:
    """The table, what misses the targets, and problems."""
    console = wide_console()
    heads = list(dict.fromkeys(name for row in rows for name in row.ratios()))
    columns = [f"ORT / eqfuse, {name}" if "thread" in name else name for name in heads]
    table = Table("model and size", "", "fallback", *columns, "others' cores")
    for row in rows:
        ratios = row.ratios()
        cells = [f"{ratios[name]:.2f}" if name in ratios else "" for name in heads]
        table.add_row(row.name, row.verdict, row.fallback, *cells, f"{row.others:.1f}")
    console.print(table)
    console.print("One thread: CPU time; several: wall-clock, which counts only where others' cores are few.")
    for row in rows:
        for text in (*row.misses(), *row.problems):
            console.print(f"{row.name}: {text}")
