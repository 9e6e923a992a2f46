"""What a search for schedules is worth: eqfuse's, as AGO has it (INFOCOM 2023), beside TVM's MetaSchedule.

    subgraphs   AGO's micro benchmark (section VI-B, Fig. 13): its four sub-graphs of two complex operators at batch 1
                and 4 (networks/pairs.py says which), by the full search (tuned), without intensive fusion (AGO-NI),
                without the reformer (AGO-NR), and by MetaSchedule, each with the same trials
    network     whole networks (default MobileNet-V2 at 56): eqfuse and MetaSchedule with the same trials, and
                with --long-trials MetaSchedule with many more
    ablation    networks (default MobileNet-V2 and MNasNet at all sizes) by the full search, AGO-NI and AGO-NR
    ort         networks (default those of AGO's six at all sizes): the tuned bundle and the one without a search beside
                ONNX Runtime
    budgets     trials until the search of a sub-graph is stable, over its weight by AGO's Eq. (1) (its Fig. 8)
    arm         networks (default MobileNet-V2 at 56) tuned for an Arm processor by emulation: executed instructions of
                the tuned bundle, of the one without a search, and of ONNX Runtime's aarch64 build, where --root has it
                (benchmarks/arm64_root.sh makes it)

Each search is a process of its own with an empty cache, so no two share records. End-to-end times are taken as
benchmarks/latency.py takes them: outputs are compared, then contestants take turns, each in a process that is stopped
while others have theirs; with one thread times are CPU time. Curves are what the searches say of themselves: the sum of
a model's kernels at their best so far. "ms after N s" compares searches when the first of them was done.

    python benchmarks/tuning.py --part subgraphs --trials 200 --picture build/pictures --json subgraphs.json
    python benchmarks/tuning.py --part network --long-trials 2000 --keep build/tuning     # hours
    python benchmarks/tuning.py --part ort --keep build/tuning
    python benchmarks/tuning.py --part budgets --trials 100 --seeds 3
    python benchmarks/tuning.py --part arm --root /tmp/arm64-root
    python benchmarks/tuning.py --part subgraphs --quick                                  # a look, some minutes
    python benchmarks/tuning.py --print subgraphs.json --picture build/pictures           # of earlier runs

With --keep what a search found stays in that folder and is taken from there by later runs: a run that was stopped goes
on. The folder has to be emptied when schedules, rules or models change.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path

import onnx

from eqfuse.benchmarks import arm
from eqfuse.benchmarks.latency import OURS, Record, compete, compile_bundle, problem, saved
from eqfuse.benchmarks.measuring.contestants import ContestantError, Setup
from eqfuse.benchmarks.networks import AGO, NETWORKS
from eqfuse.benchmarks.networks.pairs import PAIRS
from eqfuse.benchmarks.searches import budgets
from eqfuse.benchmarks.searches.picture import curves_svg
from eqfuse.benchmarks.searches.results import (
    LONG_PEER,
    NO_INTENSIVE,
    NO_REFORMER,
    PEER,
    PLAIN,
    REFERENCE,
    TUNED,
    Comparison,
    Results,
    results_of,
)
from eqfuse.benchmarks.searches.search import VARIANTS, Budget, Job
from eqfuse.benchmarks.searches.tables import ABLATION, ARM, NETWORK, ORT, PARTS, SUBGRAPHS, print_results
from eqfuse.cli import render
from eqfuse.costmodels.device import load_device
from eqfuse.engine.onnx.model import read
from eqfuse.lowering.arm.emulate import Arm64Root
from eqfuse.lowering.base.interface import inputs_of
from eqfuse.lowering.base.ports import random_inputs
from eqfuse.support.errors import EqfuseError

ARM_TARGET = "arm-cortex-a76"
BUDGETS = "budgets"
BATCHES = (1, 4)
QUICK_TRIALS, QUICK_ROUNDS = 16, 5
_DEFAULTS = {
    ABLATION: [name for name in AGO if name.startswith(("mobilenet", "mnasnet"))],
    NETWORK: ["mobilenet_v2_56"],
    ORT: list(AGO),
    ARM: ["mobilenet_v2_56"],
}


def searches_of(part: str, long_trials: int | None) -> list[str]:
    """Whose searches a part needs."""
    if part == SUBGRAPHS:
        return [TUNED, NO_INTENSIVE, NO_REFORMER, PEER]
    if part == ABLATION:
        return [TUNED, NO_INTENSIVE, NO_REFORMER]
    if part == NETWORK:
        return [TUNED, PEER, *([LONG_PEER] if long_trials else [])]
    return [TUNED]


# --- models

Source = tuple[str, Callable[[], onnx.ModelProto]]
"""The family of a model, and what builds it."""


def sources(options: argparse.Namespace) -> dict[str, Source]:
    """Models by name. Exits if one is asked for that is not there."""
    known = _pairs() if options.part == SUBGRAPHS else {n: (each.family, each.build) for n, each in NETWORKS.items()}
    unknown = [name for name in options.only if name not in known]
    if unknown:
        sys.exit(f"no model called {', '.join(unknown)}: there are {', '.join(known)}")
    names = options.only or _DEFAULTS.get(options.part, list(known))
    return {name: known[name] for name in (names[:1] if options.quick else names)}


def _pairs() -> dict[str, Source]:
    return {f"{name}_b{batch}": (name, partial(PAIRS[name], batch)) for batch in BATCHES for name in PAIRS}


# --- measuring


def compared(name: str, source: Source, options: argparse.Namespace) -> Comparison:
    """All contestants of one model."""
    found = Comparison(Record(name, source[0]))
    with tempfile.TemporaryDirectory(prefix="eqfuse-tuning-") as scratch:
        model = saved(source[1], Path(scratch))
        kept, names = options.keep or Path(scratch), searches_of(options.part, options.long_trials)
        jobs = _searched(found, {who: _job(name, who, model, kept, options) for who in names})
        if options.part == ARM:
            _count(found, model, jobs, options)
        else:
            _compete(found, model, jobs, Path(scratch), options)
    return found


def _job(name: str, who: str, model: Path, folder: Path, options: argparse.Namespace) -> Job:
    trials = options.long_trials if who == LONG_PEER else options.trials
    tool = PEER if who == LONG_PEER else who
    target = ARM_TARGET if options.part == ARM else "host"
    budget = Budget(trials, options.threads, options.seed, target)
    place = f"{name}-{tool}-{target}-{trials}-{options.threads}-{options.seed}"
    return Job(tool, model, folder / place, budget)


def _searched(found: Comparison, jobs: dict[str, Job]) -> dict[str, Job]:
    """Those that went well."""
    done = {}
    for who, job in jobs.items():
        _tell(f"{found.record.name}: {who}, {job.budget.trials} trials")
        try:
            found.searches[who] = job.done()
            done[who] = job
        except ContestantError as error:
            problem(found.record, str(error))
    return done


def _compete(found: Comparison, model: Path, jobs: dict[str, Job], scratch: Path, options: argparse.Namespace) -> None:
    threads = options.threads
    setups = {(REFERENCE, threads): Setup(REFERENCE, model, threads)}
    try:
        compile_bundle(model, scratch / PLAIN, threads)
        setups[PLAIN, threads] = Setup(OURS, model, threads, scratch / PLAIN)
    except ContestantError as error:
        problem(found.record, str(error))
    for who, job in jobs.items():
        tool = TUNED if job.tool in VARIANTS else job.tool
        setups[who, threads] = Setup(tool, model, threads, job.compiled)
    compete(found.record, setups, options)


def _count(found: Comparison, model: Path, jobs: dict[str, Job], options: argparse.Namespace) -> None:
    """Executed instructions; those of ONNX Runtime where `--root` has it."""
    inputs = random_inputs(inputs_of(read(model)), 0)
    counts = found.instructions
    try:
        for who, job in jobs.items():
            counts[who] = arm.counted(job.compiled, inputs).instructions
        settings = arm.Settings(ARM_TARGET, Arm64Root.at(options.root) if options.root else None, None)
        counts[PLAIN] = settings.own(model, inputs).instructions
        if settings.root is not None:
            counts[settings.peer] = settings.root.count(model, inputs, load_device(ARM_TARGET)).instructions
    except EqfuseError as error:
        problem(found.record, str(error))


def measured(options: argparse.Namespace) -> Results:
    """All models of a part; the file of --json and the pictures have the results so far."""
    found: list[Comparison] = []
    for name, source in sources(options).items():
        found.append(compared(name, source, options))
        results = Results(options.part, options.trials, options.long_trials, options.threads, tuple(found))
        if options.json:
            options.json.write_text(json.dumps(results.as_dict(), indent=1) + "\n", encoding="utf-8")
        draw(results, found[-1:], options.picture)
    return Results(options.part, options.trials, options.long_trials, options.threads, tuple(found))


def draw(results: Results, comparisons: Sequence[Comparison], folder: Path | None) -> None:
    """A picture for each model with a curve."""
    if folder is None:
        return
    folder.mkdir(parents=True, exist_ok=True)
    for each in comparisons:
        if any(search.measured for search in each.searches.values()):
            reference = each.record.median((REFERENCE, results.threads))
            title = f"{each.record.name}: sum of kernels, best so far, {results.threads} thread(s)"
            picture = curves_svg(title, each.searches, {REFERENCE: reference} if reference else {})
            (folder / f"tuning_{results.part}_{each.record.name}.svg").write_text(picture, encoding="utf-8")


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def print_budgets(options: argparse.Namespace) -> None:
    """Searches of each structure at each size: the table, the fitted line, and its picture and rows where asked for."""
    rows: list[budgets.Row] = []
    with tempfile.TemporaryDirectory(prefix="eqfuse-tuning-") as scratch:
        for name, behind in budgets.STRUCTURES.items():
            for size in budgets.SIZES[:1] if options.quick else budgets.SIZES:
                proto = budgets.build(behind, size)
                key = "-".join(["conv", *behind, *map(str, size)]).lower()
                model = Path(scratch) / f"{key}.onnx"
                onnx.save(proto, model)
                _tell(key)
                found = []
                for seed in range(options.seeds):
                    options.seed = seed
                    job = _job(key, TUNED, model, options.keep or Path(scratch), options)
                    found.append(budgets.budget_of(job.done()))
                rows.append(budgets.Row(name, size, budgets.weight_of(proto), tuple(found)))
    columns = ("structure", "I, O, HW", "weight", "budgets", "median")
    table: list[tuple[str, ...]] = [
        (r.structure, str(r.size), f"{r.weight:.0f}", str(r.budgets), f"{r.budget:g}") for r in rows
    ]
    render.table(f"trials until within 2 % of the best of {options.trials}", columns, table, left=2)
    line = budgets.fit(rows)
    print(f"budget = {line.slope:.3g} x weight + {line.bias:.3g}, correlation {line.correlation:.2f}")
    if options.json:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n", encoding="utf-8")
    if options.picture:
        options.picture.mkdir(parents=True, exist_ok=True)
        (options.picture / "tuning_budgets.svg").write_text(budgets.budgets_svg(rows), encoding="utf-8")


# --- command line


def parser() -> argparse.ArgumentParser:
    """The options."""
    result = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    result.add_argument(
        "--part", choices=(*PARTS, BUDGETS), default=SUBGRAPHS, help=f"what to measure (default {SUBGRAPHS})"
    )
    result.add_argument("--only", nargs="+", default=[], metavar="NAME", help="only these sub-graphs or networks")
    result.add_argument("--trials", type=int, default=200, metavar="N", help="of each search (default 200)")
    result.add_argument("--long-trials", type=int, metavar="N", help="of another one by MetaSchedule (network)")
    result.add_argument("--threads", type=int, default=1, metavar="N", help="default: 1")
    result.add_argument("--seed", type=int, default=0, metavar="N", help="of all searches (default 0)")
    result.add_argument("--seeds", type=int, default=3, metavar="N", help="searches of each sub-graph (budgets)")
    result.add_argument("--rounds", type=int, default=31, help="turns of each, end to end (default 31)")
    result.add_argument("--turn", type=float, default=0.02, metavar="SECONDS", help="of each turn (default 0.02)")
    result.add_argument("--root", type=Path, metavar="FOLDER", help="made by benchmarks/arm64_root.sh (arm)")
    result.add_argument("--keep", type=Path, metavar="FOLDER", help="keep what searches find, and use it again")
    result.add_argument("--picture", type=Path, metavar="FOLDER", help="draw the curves, an SVG for each model")
    result.add_argument("--json", type=Path, metavar="FILE", help="write all figures, after each model")
    result.add_argument("--print", type=Path, nargs="+", metavar="FILE", help="only tables and pictures of such files")
    result.add_argument(
        "--quick", action="store_true", help=f"{QUICK_TRIALS} trials, {QUICK_ROUNDS} turns, the first model only"
    )
    return result


def main() -> None:
    """Command line."""
    options = parser().parse_args()
    if options.print:
        for path in options.print:
            results = results_of(json.loads(path.read_text(encoding="utf-8")))
            draw(results, results.comparisons, options.picture)
            print_results(results)
        return
    if options.quick:
        options.trials, options.rounds = QUICK_TRIALS, QUICK_ROUNDS
    if options.part == BUDGETS:
        print_budgets(options)
        return
    print_results(measured(options))


if __name__ == "__main__":
    main()
