"""The judge is judged: does verification refuse right results, and does it accept wrong ones?

False alarms: every architecture of `architectures/`, exported with random calibrated weights by one of PyTorch's two
exporters, with fixed and free sizes in turn, is optimised and compiled; what a command refuses is a false alarm.
Misses: results are damaged in the ways that rewriting goes wrong (`judging/damages.py`), one half as results of
`optimize`, the other compiled and compared with the undamaged model. How far damage moves outputs on ordinary inputs
is measured in float64; what moves one by 1e-4 of its size or more has to be refused.

    python benchmarks/judge.py --work FOLDER                         # both figures; what FOLDER has already stays
    python benchmarks/judge.py --work FOLDER --only alarms           # or: misses
    python benchmarks/judge.py --work FOLDER --only rtdetr --again   # rows of these subjects anew
    python benchmarks/judge.py --work FOLDER --tables                # print the tables of earlier runs, and end
    python benchmarks/judge.py --work FOLDER --shipped --damages 20  # five networks of this repository, without torch

Exports need PyTorch: `--python` names one that has it, or else an environment is made in FOLDER by pip.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.table import Table

from eqfuse.benchmarks.architectures import forms_in_turn
from eqfuse.benchmarks.architectures.environments import make_environment
from eqfuse.benchmarks.architectures.exporting import export_all
from eqfuse.benchmarks.judging.alarms import try_right_result
from eqfuse.benchmarks.judging.misses import Ward, try_damaged_result
from eqfuse.benchmarks.judging.rows import DECISIVE, HALVES, Alarm, Half, Miss, Results, damage_key
from eqfuse.benchmarks.judging.subjects import SHIPPED, Subject, exported_subject, shipped_subjects
from eqfuse.support.processor import processor_name

_WANTED = 0.99
"""The part of decisive damage that is to be refused."""


# --- what is judged


def find_subjects(options: argparse.Namespace) -> list[Subject]:
    """The models; what could not be exported is told. Raises ExportError without PyTorch."""
    if options.shipped:
        return shipped_subjects(SHIPPED, options.work / "shipped")
    forms = {name: [form] for name, form in forms_in_turn().items()}
    exports = list(
        export_all(
            forms, options.work / "models",
            lambda environment: options.python or make_environment(environment, options.work / environment.name),
        )
    )  # fmt: skip
    for export in exports:
        if export.problem:
            print(f"not exported: {export.name}: {export.problem}", file=sys.stderr)
    return [exported_subject(export) for export in exports if not export.problem]


def is_chosen(options: argparse.Namespace, part: str, name: str) -> bool:
    """Whether `--only` names the part, or a part of the subject's name; everything without it."""
    return not options.only or part in options.only or any(each.lower() in name.lower() for each in options.only)


def run_tasks(tasks: Sequence[Callable[[], Alarm | Miss]], results: Results, jobs: int) -> None:
    """Run and keep all, in several processes if asked to."""
    if jobs == 1:
        rows: Iterator[Alarm | Miss] = (task() for task in tasks)
        _keep(rows, results)
        return
    with ProcessPoolExecutor(jobs) as pool:
        _keep((future.result() for future in [pool.submit(task) for task in tasks]), results)


def _keep(rows: Iterator[Alarm | Miss], results: Results) -> None:
    for row in rows:
        results.add(row)
        said = f"exit {row.code} {row.message}" if isinstance(row, Alarm) else f"{row.status} {row.effect:.1e}"
        print(f"{row.key}, {row.seconds} s: {said}", file=sys.stderr, flush=True)


def list_alarms(subjects: Sequence[Subject], results: Results, options: argparse.Namespace) -> Iterator[partial[Alarm]]:
    """Right results that remain to be tried."""
    for subject in subjects:
        for half in HALVES:
            is_due = options.again or f"alarm {half} {subject.name}" not in results.rows
            if is_due and is_chosen(options, "alarms", subject.name):
                extra = ["--no-measure"] if options.no_measure and half == "compile" else []
                yield partial(try_right_result, subject, half, extra)


def _try_damage(subjects: tuple[Subject, ...], folder: Path, half: Half, number: int) -> Miss:
    ward = _WARDS.setdefault(folder, Ward(subjects, folder))
    return try_damaged_result(ward, half, number)


_WARDS: dict[Path, Ward] = {}
"""One for each folder, since it keeps what it computes, in each process."""


def list_damages(subjects: Sequence[Subject], results: Results, options: argparse.Namespace) -> Iterator[partial[Miss]]:
    """Damaged results that remain to be tried, half of them optimised and half compiled."""
    for number in range(options.damages // len(HALVES)):
        for half in HALVES:
            row = results.rows.get(damage_key(half, number))
            is_due = row is None or options.again
            if is_due and is_chosen(options, "misses", row.subject if row else ""):
                yield partial(_try_damage, tuple(subjects), options.work / "optimized", half, number)


# --- tables


def print_tables(results: Results) -> None:
    """Both figures, the tables, and a line for each false alarm and each miss."""
    console = Console(width=160)
    alarms, misses = list(results.alarms), list(results.misses)
    console.print(f"processor: {processor_name()}")
    if alarms:
        _print_alarms(console, alarms)
    if misses:
        _print_misses(console, misses)


def _print_alarms(console: Console, alarms: Sequence[Alarm]) -> None:
    refused = [row for row in alarms if row.is_refused]
    architectures = {row.subject for row in alarms}
    console.print(f"false alarms: {len(refused)} of {len(alarms)} right results, {len(architectures)} models")
    table = Table("library", "form", "models", *(f"{half}: refused" for half in HALVES))
    groups = sorted({_group(row.subject) for row in alarms})
    for group in groups:
        rows = [row for row in alarms if _group(row.subject) == group]
        counts = [_share([row for row in rows if row.half == half]) for half in HALVES]
        table.add_row(*group, str(len({row.subject for row in rows})), *counts)
    console.print(table)
    for row in refused:
        console.print(f"{row.half} {row.subject}: exit {row.code}: {row.message}")


def _share(rows: Sequence[Alarm]) -> str:
    return f"{sum(row.is_refused for row in rows)} of {len(rows)}"


def _group(subject: str) -> tuple[str, str]:
    """The library of an architecture and the form of its export; networks of this repository have no form."""
    name, _, form = subject.partition(".")
    return (name.partition("-")[0], form) if form else ("shipped", "")


def _print_misses(console: Console, misses: Sequence[Miss]) -> None:
    judged = [row for row in misses if row.status != "undecided"]
    decisive = [row for row in judged if row.is_decisive]
    refused = sum(row.status == "refused" for row in decisive)
    share = f"{100 * refused / len(decisive):.1f} %" if decisive else "-"
    console.print(
        f"misses: of {len(judged)} damaged results {len(decisive)} move an output by {DECISIVE:g} of its size or more; "
        f"refused: {refused} of them, {share} (wanted: {100 * _WANTED:g} %)"
    )
    for half in HALVES:
        console.print(_half_line(half, [row for row in judged if row.half == half]))
    table = Table("damage", "decisive", "refused", "smaller", "refused", "undecided")
    for damage in sorted({row.damage for row in misses}):
        table.add_row(damage, *_counts([row for row in misses if row.damage == damage]))
    table.add_row("all", *_counts(misses))
    console.print(table)
    subjects = Table("model", "decisive", "refused", "smaller", "refused", "undecided")
    for name in sorted({row.subject for row in misses if row.subject}):
        subjects.add_row(name, *_counts([row for row in misses if row.subject == name]))
    console.print(subjects)
    for row in decisive:
        if row.status != "refused":
            console.print(f"missed: {_describe(row)}")
    for row in misses:
        if row.status == "undecided":
            console.print(f"undecided: {_describe(row)}")


def _half_line(half: str, rows: Sequence[Miss]) -> str:
    counts = Counter((row.is_decisive, row.status) for row in rows)
    shares = [
        f"{counts[each, 'refused']} of {counts[each, 'refused'] + counts[each, 'accepted']}" for each in (True, False)
    ]
    return f"{half}: {shares[0]} decisive ones refused, {shares[1]} smaller ones"


def _counts(rows: Sequence[Miss]) -> list[str]:
    judged = [row for row in rows if row.status != "undecided"]
    found = [len(rows) - len(judged)]
    for is_decisive in (False, True):
        some = [row for row in judged if row.is_decisive == is_decisive]
        found = [len(some), sum(row.status == "refused" for row in some), *found]
    return [str(each) for each in found]


def _describe(row: Miss) -> str:
    effect = f"moves {row.effect:.1e} ({row.measured_in})" if row.subject else ""
    return f"{row.half} {row.number}, {row.subject}, {row.damage} at {row.place}: {effect}; {row.reason}"


# --- command line


def parser() -> argparse.ArgumentParser:
    """The options."""
    result = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    result.add_argument("--work", type=Path, required=True, metavar="FOLDER", help="models and results are kept there")
    result.add_argument(
        "--only", nargs="+", default=[], metavar="NAME", help="alarms, misses, or parts of models' names"
    )
    result.add_argument("--again", action="store_true", help="judge anew what there are results of")
    result.add_argument("--sample", type=int, metavar="N", help="judge only N rows, evenly spread")
    result.add_argument("--damages", type=int, default=400, metavar="N", help="damaged results in all (default 400)")
    result.add_argument("--jobs", type=int, default=1, metavar="N", help="processes at a time (default 1)")
    result.add_argument("--no-measure", action="store_true", help="compile right results without timing kernels")
    result.add_argument("--python", type=Path, metavar="FILE", help="a Python with PyTorch and the libraries")
    result.add_argument("--shipped", action="store_true", help="judge networks of this repository, without PyTorch")
    result.add_argument("--tables", action="store_true", help="print the tables of earlier runs, and end")
    return result


def main(arguments: Sequence[str] | None = None) -> None:
    """Command line."""
    options = parser().parse_args(arguments)
    results = Results.of(options.work / "results.jsonl")
    if not options.tables:
        subjects = find_subjects(options)
        tasks: list[Callable[[], Alarm | Miss]] = [
            *list_alarms(subjects, results, options), *list_damages(subjects, results, options),
        ]  # fmt: skip
        if options.sample is not None and options.sample < len(tasks):
            tasks = [tasks[position * len(tasks) // options.sample] for position in range(options.sample)]
        run_tasks(tasks, results, options.jobs)
    print_tables(results)


if __name__ == "__main__":
    main()
