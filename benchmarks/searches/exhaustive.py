"""How much a search could find: every option of every decision about the costliest kernels of a model, measured.

Each kernel that `eqfuse compile` would make is timed by itself, as a search does it (docs/tuning.md). For the costliest
ones, by their share of a run, every option of every site is measured: all combinations where there are at most
`--all`, else site by site with the others at the best so far, again and again until a whole pass brings nothing. The
best is then compared with the analytic schedule in interleaved pairs: the table has the median of the ratios.

Measurements are kept in the tuning database, so the same command goes on where it was stopped.

    python benchmarks/searches/exhaustive.py squeezenet.onnx --kernels 10
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

from eqfuse.driver.clock import Clock
from eqfuse.driver.compiler.compilation import Compilation, kernels_of
from eqfuse.driver.compiler.processor import Processor
from eqfuse.driver.options import Options
from eqfuse.engine.onnx.model import read
from eqfuse.lowering.base.decisions import Decisions, DecisionSite
from eqfuse.lowering.base.target import target_of
from eqfuse.lowering.base.weights import Weights
from eqfuse.lowering.kernels.prim_funcs import DistinctKernels, ScheduleCheck
from eqfuse.lowering.tuning.measurement_setup import MeasurementSetup, open_setup
from eqfuse.lowering.tuning.settings import Settings
from eqfuse.lowering.tuning.space import Space, key_of
from eqfuse.lowering.tuning.tasks import Task, TaskTable
from eqfuse.support.processor import available_cores

BATCH = 16
"""Candidates that are built at once."""
LEADERS = 3
"""The fastest candidates, which are measured again beside the analytic one."""


@dataclass(frozen=True)
class Row:
    """A kernel: seconds of a call untuned and at best, and how many times as fast the best is in interleaved pairs."""

    task: Task
    calls: int
    untuned: float
    best: float
    ratio: float
    measured: int
    space: int
    decisions: Decisions

    def cells(self, total: float) -> list[str]:
        """For the table, with the share of all kernels' seconds."""
        operations, moved = (2.0 ** self.task.features[name] - 1.0 for name in ("flops", "bytes"))
        return [
            self.task.name, str(self.calls), f"{self.untuned * 1e6:.1f}", f"{self.best * 1e6:.1f}", f"{self.ratio:.3f}",
            f"{self.measured} of {self.space}", f"{operations / self.best / 1e9:.0f}", f"{moved / self.best / 1e9:.0f}",
            f"{self.calls * self.untuned / total:.1%}", ", ".join(f"{k} {v}" for k, v in self.decisions.items()),
        ]  # fmt: skip


@dataclass
class Exhaustion:
    """All options of one task.

    `latencies` are the seconds by decisions, as they were asked for and as the schedule took them; `measured` has the
    latter, and `sites` their traces.
    """

    setup: MeasurementSetup
    task: Task
    all_below: int

    def __post_init__(self) -> None:
        records = self.setup.records(self.task)
        self.latencies = {key_of(r.decisions): inf if r.latency is None else r.latency for r in records}
        self.measured = set(self.latencies)
        self.sites: dict[tuple[tuple[str, str], ...], tuple[DecisionSite, ...]] = {}

    @property
    def best(self) -> Decisions:
        """The fastest so far."""
        best, _ = min(self.latencies.items(), key=lambda item: item[1])
        return dict(best)

    def run(self) -> int:
        """Measure; the size of the space."""
        self.measure([{}])
        space = self.space()
        if space.size <= self.all_below:
            self.measure([space.decisions(genome) for genome in space.everything()])
            return space.size
        before = inf
        while self.latencies[key_of(self.best)] < before:
            before = self.latencies[key_of(self.best)]
            for place in range(len(self.space().sites)):
                self.measure(list(self._others(place)))
        return max(space.size, self.space().size)

    def space(self) -> Space:
        """Of the best candidate."""
        key = key_of(self.best)
        if key not in self.sites:
            (built,) = self.setup.build([(self.task, self.best)])
            self.sites[key] = built.trace
        return Space(self.sites[key], {})

    def _others(self, place: int) -> Iterator[Decisions]:
        """The best with each other option at a site."""
        space = self.space()
        own = space.genome(self.best)
        if place < len(space.sites):
            for option in range(len(space.sites[place].options)):
                yield space.decisions((*own[:place], option, *own[place + 1 :]))

    def measure(self, wanted: Sequence[Decisions]) -> None:
        """Those that were not measured yet."""
        fresh = list({key_of(each): each for each in wanted if key_of(each) not in self.latencies}.values())
        for begin in range(0, len(fresh), BATCH):
            for trial in self.setup.try_out([(self.task, each) for each in fresh[begin : begin + BATCH]]):
                seconds = inf if trial.latency is None else trial.latency
                taken = key_of(trial.candidate.decisions)
                self.latencies[key_of(trial.wanted)] = self.latencies.setdefault(taken, seconds)
                self.measured.add(taken)
                self.sites[taken] = trial.candidate.trace

    def confirm(self) -> tuple[Decisions, float]:
        """The decisions that are faster than the analytic schedule by most in interleaved pairs, and how many times."""
        leaders = [dict(key) for key, _ in sorted(self.latencies.items(), key=lambda item: item[1])[:LEADERS] if key]
        decisions = self.setup.choose_fastest(self.task, leaders)
        if not decisions:
            return {}, 1.0
        first, other = (each.kernel for each in self.setup.build([(self.task, {}), (self.task, decisions)]))
        assert first is not None
        assert other is not None
        (pairs,) = self.setup.runner.compare(first, [other])
        return decisions, median(old / new for old, new in pairs)


def exhaust(model: Path, options: argparse.Namespace) -> tuple[list[Row], float]:
    """The rows of the costliest kernels, and the seconds of all kernels of a run, untuned."""
    target = target_of(options.target, 1)
    processor = Processor(target, measure=False)
    chosen = Options(partition="joint", device=options.target)
    compilation = Compilation.of(read(model), chosen, Clock(None))
    processor.prepare(chosen)
    graph, kernels = kernels_of(result := compilation.optimize(processor))
    table = TaskTable(ScheduleCheck(DistinctKernels.of(graph, kernels, Weights(result.rewritten.model)), target))
    with open_setup(target, Settings(1), available_cores()) as setup:
        setup.between = table.constant_bytes(kernels)
        calls = table.calls(kernels)
        tasks = {key: Exhaustion(setup, table.tasks[key], options.all) for key in calls}
        for each in tasks.values():
            each.measure([{}])
        seconds = {key: calls[key] * each.latencies[()] for key, each in tasks.items()}
        rows = []
        for key in sorted(seconds, key=lambda key: -seconds[key])[: options.kernels]:
            each = tasks[key]
            print(f"{each.task.name}: {seconds[key] * 1e6:.1f} us", file=sys.stderr, flush=True)
            size = each.run()
            decisions, ratio = each.confirm()
            untuned, measured = each.latencies[()], len(each.measured)
            rows.append(Row(each.task, calls[key], untuned, untuned / ratio, ratio, measured, size, decisions))
        return rows, sum(seconds.values())


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, metavar="MODEL")
    parser.add_argument("--target", default="host", help="default: host")
    parser.add_argument("--kernels", type=int, default=10, metavar="N", help="the costliest (default 10)")
    parser.add_argument("--all", type=int, default=64, metavar="N", help="combinations that are all tried (default 64)")
    options = parser.parse_args()
    rows, total = exhaust(options.model, options)
    figures = ("untuned us", "best us", "untuned / best", "measured", "GFLOP/s", "GB/s", "share", "by")
    title = f"{options.model.stem}, {options.target}: {total * 1e3:.2f} ms of kernels, 1 thread"
    table = Table("kernel", "calls", *figures, title=title)
    for row in rows:
        table.add_row(*row.cells(total))
    Console(width=None if sys.stdout.isatty() else 220, highlight=False).print(table)
    saved = sum(row.calls * (row.untuned - row.best) for row in rows)
    print(f"with the best of each: {total / (total - saved):.3f} times as fast")


if __name__ == "__main__":
    main()
