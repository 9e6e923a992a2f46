"""Run GraphTurbo's ten models on a simulated accelerator, and print what the text does (OSDI 2023, section 5).

The models of Table 2, in float16, are built (networks/), optimised, partitioned into the layers that TVM fuses,
scheduled, generated and simulated, as lowering/dsa does it and in its other variants: the TVM-like and AStitch-like
baselines and the four steps of the text's Fig. 15. Each is simulated with TVM's and with GraphTurbo's samples per
cluster of Table 2 (--all-batches: with all that share the batch evenly), and its best counts.

All clusters do the same on their shares of the batch and of DDR's bandwidth. So one is simulated, and the throughput is
its own times the number of clusters. Speed-ups compare simulated times, of one simulator.

Each figure is made by a process of its own, see accelerators/cell.py. Optimised models and figures are kept in a
folder as long as sources and device are the same, so a run that was ended goes on where it was. All figures but seconds
are the same in every run.

    python benchmarks/dsa.py --own-batches --jobs 2              # everything on the documented device: hours
    python benchmarks/dsa.py --own-batches --device stcp920-1mb
    python benchmarks/dsa.py --labels A,G --variants tvm,full
    python benchmarks/dsa.py --labels B --variants tvm,full --table1 --json bert.json
    python benchmarks/dsa.py --labels A,A8 --variants graphturbo,full --all-batches      # Fig. 16, floats and int8
    python benchmarks/dsa.py --print bert.json                   # the tables of earlier runs
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from eqfuse.benchmarks.accelerators.cell import CACHE, Run, command
from eqfuse.benchmarks.accelerators.graphturbo import MODELS, TABLE1
from eqfuse.benchmarks.accelerators.tables import APPROACHES, Failure, Results, all_tables
from eqfuse.costmodels.dsa_device import load_dsa_device
from eqfuse.lowering.dsa.schedule.clusters import allocations
from eqfuse.lowering.dsa.schedule.variants import VARIANTS
from eqfuse.support.errors import EqfuseError

SWEPT = "B"
"""The label that Table 1 is of."""


@dataclass(frozen=True)
class Cell:
    """A figure to make."""

    label: str
    variant: str
    samples: int


def samples_of(label: str, clusters: int, every: bool = False) -> list[int]:
    """Samples per cluster to try: Table 2's two as far as they share the batch evenly, or all that do."""
    configuration = MODELS[label]
    possible = sorted(each.per_cluster for each in allocations(configuration.batch, clusters))
    printed = (configuration.tvm, configuration.graphturbo)
    return [n for n in possible if every or n in printed]


def cells_of(
    labels: Iterable[str],
    variants: Sequence[str],
    clusters: int,
    *,
    every: bool = False,
    table1: bool = False,
    own: bool = False,
) -> list[Cell]:
    """All figures to make, label by label; with `table1` those of its sizes as well.

    `own`: each at its own number of samples of Table 2 only, the TVM-like variant at TVM's, all others at GraphTurbo's.
    """
    found = [Cell(label, v, n) for label in labels for v in variants for n in samples_of(label, clusters, every)]
    if own:
        column = {label: (MODELS[label].tvm, MODELS[label].graphturbo) for label in MODELS}
        found = [cell for cell in found if cell.samples == column[cell.label][cell.variant != "tvm"]]
    if table1:
        sweep = (Cell(SWEPT, APPROACHES[r.approach], r.per_cluster) for r in TABLE1 if r.approach in APPROACHES)
        found += [cell for cell in sweep if cell.variant in variants]
    return list(dict.fromkeys(found))


# --- running


def last_line(text: str, code: int) -> str:
    """What a process says at its end, or how it ended."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    ended = f"killed by signal {-code}" if code < 0 else f"exit code {code}"
    return lines[-1][:300] if lines else ended


def run_process(arguments: Sequence[str], limit: float) -> tuple[str, str | None]:
    """Standard output of a process, and what went wrong with it."""
    try:
        done = subprocess.run(arguments, capture_output=True, text=True, timeout=limit, check=False)
    except subprocess.TimeoutExpired:
        return "", f"not done within {limit:g} s"
    return done.stdout, last_line(done.stderr, done.returncode) if done.returncode else None


def made(cell: Cell, options: argparse.Namespace) -> Run | Failure:
    """The figure, by a process of its own; tells how it went."""
    arguments = command(cell.label, options.device, options.cache, cell.variant, cell.samples, options.validate)
    output, problem = run_process(arguments, options.limit)
    title = f"{cell.label} {cell.variant} {cell.samples}"
    if problem is not None:
        _tell(f"{title}: FAILED: {problem}")
        return Failure(cell.label, cell.variant, cell.samples, problem, shlex.join(arguments[1:]))
    run = Run(**json.loads(output))
    ratio = run.figures["lower_bound"]["ratio"]
    figures = f"{run.throughput:,.0f} samples/s, {run.cycles / 1e6:.2f} Mcycles, bound / cycles {ratio:.2f}"
    _tell(f"{title}: {figures}, {run.compiling:.1f} s")
    return run


def prepared(label: str, options: argparse.Namespace) -> Failure | None:
    """Optimise a model for its cells, where that was not done before."""
    arguments = command(label, options.device, options.cache)
    began = time.perf_counter()
    _, problem = run_process(arguments, options.limit)
    _tell(f"{label}: optimised, {time.perf_counter() - began:.1f} s" if problem is None else f"{label}: {problem}")
    return None if problem is None else Failure(label, None, None, problem, shlex.join(arguments[1:]))


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def all_results(cells: Sequence[Cell], clusters: int, options: argparse.Namespace) -> Results:
    """Of all cells, in their order; the file of --json has the results so far."""
    labels = list(dict.fromkeys(cell.label for cell in cells))
    found: list[Run | Failure] = []
    with ThreadPoolExecutor(options.jobs) as pool:
        problems = [each for each in pool.map(partial(prepared, options=options), labels) if each is not None]
        without = {each.label for each in problems}
        for each in pool.map(partial(made, options=options), (c for c in cells if c.label not in without)):
            found.append(each)
            results = _results(options.device, clusters, [*problems, *found])
            if options.json:
                options.json.write_text(json.dumps(asdict(results), indent=1) + "\n", encoding="utf-8")
    return _results(options.device, clusters, [*problems, *found])


def _results(device: str, clusters: int, found: Sequence[Run | Failure]) -> Results:
    runs = tuple(each for each in found if isinstance(each, Run))
    return Results(device, clusters, runs, tuple(each for each in found if isinstance(each, Failure)))


def read_results(path: Path) -> Results:
    """What --json wrote."""
    data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    runs, failures = tuple(Run(**each) for each in data["runs"]), tuple(Failure(**each) for each in data["failures"])
    return Results(data["device"], data["clusters"], runs, failures)


def together(parts: Sequence[Results]) -> Results:
    """All runs of several files, of which the later count. Exits if they are of different devices."""
    if len({(each.device, each.clusters) for each in parts}) != 1:
        sys.exit(f"figures of different devices: {', '.join(sorted({each.device for each in parts}))}")
    found: dict[tuple[str, str | None, int | None], Run | Failure] = {}
    for part in parts:
        everything: list[Run | Failure] = [*part.failures, *part.runs]
        for each in everything:
            if each.variant is not None:
                found.pop((each.label, None, None), None)
            found[each.label, each.variant, each.samples] = each
    return _results(parts[0].device, parts[0].clusters, list(found.values()))


# --- command line


def chosen(text: str, known: Iterable[str], what: str) -> list[str]:
    """Names that commas separate. Raises ArgumentTypeError for one that is not known."""
    names = list(dict.fromkeys(text.split(",")))
    known = list(known)
    unknown = [name for name in names if name not in known]
    if unknown:
        raise argparse.ArgumentTypeError(f"no {what} called {', '.join(unknown)}: there are {', '.join(known)}")
    return names


def parser() -> argparse.ArgumentParser:
    """The options."""
    result = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    labels, variants = partial(chosen, known=MODELS, what="label"), partial(chosen, known=VARIANTS, what="variant")
    result.add_argument(
        "--labels", type=labels, default=list(MODELS), metavar="A,B,...", help="of Table 2, and A8: ResNet-50 of int8"
    )
    result.add_argument(
        "--variants", type=variants, default=list(VARIANTS), metavar="tvm,full,...", help="default: all"
    )
    result.add_argument("--device", default="stcp920", help="default stcp920, the one that the text documents")
    result.add_argument("--all-batches", action="store_true", help="try all numbers of samples per cluster")
    result.add_argument("--own-batches", action="store_true", help="only each approach's own number of Table 2")
    result.add_argument("--table1", action="store_true", help="BERT-128 at the batch sizes of Table 1 too")
    result.add_argument("--validate", action="store_true", help="check that programs keep to the device's rules")
    result.add_argument("--jobs", type=int, default=1, metavar="N", help="processes at a time (default 1)")
    result.add_argument("--limit", type=float, default=1800.0, metavar="SECONDS", help="of each process (default 1800)")
    result.add_argument(
        "--cache", type=Path, default=CACHE, metavar="FOLDER", help=f"optimised models and figures (default {CACHE})"
    )
    result.add_argument("--json", type=Path, metavar="FILE", help="write all figures, after each of them")
    result.add_argument("--print", type=Path, nargs="+", metavar="FILE", help="only the tables of such files, together")
    return result


def main() -> None:
    """Command line."""
    options = parser().parse_args()
    if options.print:
        print(all_tables(together([read_results(path) for path in options.print])))
        return
    try:
        clusters = load_dsa_device(options.device).clusters
    except EqfuseError as error:
        sys.exit(str(error))
    began = time.perf_counter()
    every, table1 = options.all_batches, options.table1
    own = options.own_batches
    cells = cells_of(options.labels, options.variants, clusters, every=every, table1=table1, own=own)
    results = all_results(cells, clusters, options)
    _tell(f"{len(cells)} figures in {(time.perf_counter() - began) / 60:.1f} minutes")
    print(all_tables(results))


if __name__ == "__main__":
    main()
