"""What several threads gain on a quiet machine, and what they cost where another process keeps a core busy.

eqfuse, ONNX Runtime and OpenVINO with 1, 2 and 4 threads. Each contestant runs in a process of its own, which stands
still while others have their turn, and keeps its own defaults (measuring/contestants.py). In a round each has two
turns of `--turn` seconds after a call that does not count: one by itself, and one beside a process that computes
without end. Times are the mean by the wall clock of a turn's calls, for waits that come now and then count; the table
has medians over the rounds. In brackets is the time on one thread over it, both in the same state of the machine, round
by round: above 1 the threads are faster than one. Bundles are compiled by estimates alone, for as many threads as there
are cores at most.

Other processes disturb these figures: the last column has the cores that they used in the quiet turns. With
`--real-time`, as root, quiet turns have a priority that lets no other process in.

    python benchmarks/threads.py model.onnx                      # about a minute for each model
    python benchmarks/threads.py det.onnx --input-shapes x:1,3,640,640 --threads 1 2 --rounds 15
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import onnx
from rich.table import Table

from eqfuse.benchmarks.latency import OPENVINO, OURS, REFERENCE, compile_bundle, wide_console
from eqfuse.benchmarks.measuring.busy import Load
from eqfuse.benchmarks.measuring.contestants import Contestant, ContestantError, Setup
from eqfuse.support.processor import available_cores

TOOLS = (OURS, REFERENCE, OPENVINO)
QUIET, BUSY = "quiet", "busy"
NEIGHBOUR = "while True: pass"

Case = tuple[str, int, str]
"""A tool, a number of threads, and whether there is a busy neighbour."""


@dataclass
class Record:
    """One model: the seconds of each turn, and the cores that other processes used in quiet turns."""

    name: str
    seconds: dict[Case, list[float]] = field(default_factory=dict)
    others: float = 0.0

    def gain(self, tool: str, threads: int, state: str) -> float:
        """The time on one thread over that on several."""
        one, several = self.seconds[tool, 1, state], self.seconds[tool, threads, state]
        return median(a / b for a, b in zip(one, several, strict=True))


def measure(record: Record, model: Path, options: argparse.Namespace, scratch: Path) -> None:
    """Compile, and take turns."""
    with ExitStack() as stack:
        contestants: dict[tuple[str, int], Contestant] = {}
        for threads in options.threads:
            bundle = scratch / f"bundle-{min(threads, available_cores())}"
            if not bundle.exists():
                compile_bundle(model, bundle, min(threads, available_cores()), "--no-measure", cache=options.cache)
            for tool in options.tools:
                try:
                    contestants[tool, threads] = stack.enter_context(Contestant(Setup(tool, model, threads, bundle)))
                except ContestantError as error:
                    print(f"{record.name}: {threads} thread(s): {error}", file=sys.stderr, flush=True)
        neighbour = stack.enter_context(busy_neighbour())
        for number in range(options.rounds):
            take_turns(record, contestants, neighbour, options, is_reversed=number % 2 == 1)
        record.others /= options.rounds


def take_turns(
    record: Record,
    contestants: Mapping[tuple[str, int], Contestant],
    neighbour: Callable[[bool], None],
    options: argparse.Namespace,
    *,
    is_reversed: bool,
) -> None:
    """One round."""
    processes = [contestant.process for contestant in contestants.values()]
    for state in (QUIET, BUSY):
        neighbour(state == BUSY)
        before = Load.now(processes)
        for who in list(contestants)[:: -1 if is_reversed else 1]:
            if options.real_time:
                set_real_time(contestants[who].process, state == QUIET)
            record.seconds.setdefault((*who, state), []).append(contestants[who].sample(options.turn).mean)
        record.others += before.others(Load.now(processes)) if state == QUIET else 0.0
    neighbour(False)


def set_real_time(process: int, is_real_time: bool) -> None:
    """Let all threads of a process go before those of others, or not any more."""
    policy = os.SCHED_FIFO if is_real_time else os.SCHED_OTHER
    for thread in os.listdir(f"/proc/{process}/task"):
        os.sched_setscheduler(int(thread), policy, os.sched_param(int(is_real_time)))


@contextmanager
def busy_neighbour() -> Iterator[Callable[[bool], None]]:
    """A process that computes without end, stopped at first; the function lets it go on (True) or stops it (False)."""
    with subprocess.Popen([sys.executable, "-c", NEIGHBOUR]) as process:

        def switch(is_busy: bool) -> None:
            os.kill(process.pid, signal.SIGCONT if is_busy else signal.SIGSTOP)

        switch(False)
        try:
            yield switch
        finally:
            process.kill()


def fix_shapes(source: Path, shapes: Mapping[str, list[int]], folder: Path) -> Path:
    """The model with inputs of these shapes, which tools then read from the file; itself if there are none."""
    if not shapes:
        return source
    model = onnx.load(source)
    for value in model.graph.input:
        for dimension, size in zip(value.type.tensor_type.shape.dim, shapes.get(value.name, []), strict=False):
            dimension.dim_value = size
    del model.graph.value_info[:]
    for value in model.graph.output:
        value.type.tensor_type.ClearField("shape")
    onnx.save(onnx.shape_inference.infer_shapes(model), folder / source.name)
    return folder / source.name


def print_table(records: list[Record], threads: list[int]) -> None:
    """Milliseconds, and the gain of several threads over one."""
    columns = [f"{state}, {n} thread(s)" for state in (QUIET, BUSY) for n in threads]
    table = Table("model", "tool", *columns, "others' cores", title="milliseconds (times as fast as one thread)")
    for record in records:
        for tool in dict.fromkeys(tool for tool, *_ in record.seconds):
            cells = [_cell(record, (tool, n, state)) for state in (QUIET, BUSY) for n in threads]
            table.add_row(record.name, tool, *cells, f"{record.others:.2f}")
    wide_console().print(table)


def _cell(record: Record, case: Case) -> str:
    if case not in record.seconds:
        return "-"
    text = f"{median(record.seconds[case]) * 1e3:.2f}"
    tool, threads, state = case
    return text if threads == 1 or (tool, 1, state) not in record.seconds else (
        f"{text} ({record.gain(tool, threads, state):.2f})"
    )  # fmt: skip


def input_shape(text: str) -> tuple[str, list[int]]:
    """``x:1,3,640,640``."""
    name, _, sizes = text.rpartition(":")
    return name, [int(size) for size in sizes.split(",")]


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=Path, metavar="MODEL")
    parser.add_argument("--input-shapes", nargs="+", type=input_shape, default=[], metavar="NAME:SIZES")
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2, 4], metavar="N", help="default: 1 2 4")
    parser.add_argument("--rounds", type=int, default=9, help="default: 9")
    parser.add_argument("--turn", type=float, default=0.3, metavar="SECONDS", help="of each turn (default 0.3)")
    parser.add_argument("--cache", type=Path, metavar="FOLDER", help="keep compiled kernels here and use them again")
    parser.add_argument("--tools", nargs="+", default=TOOLS, choices=TOOLS, metavar="TOOL", help="default: all three")
    parser.add_argument("--real-time", action="store_true", help="let no other process into quiet turns (root)")
    options = parser.parse_args()
    records = []
    for source in options.models:
        with tempfile.TemporaryDirectory(prefix="threads-") as folder:
            records.append(Record(source.stem))
            measure(records[-1], fix_shapes(source, dict(options.input_shapes), Path(folder)), options, Path(folder))
    print_table(records, options.threads)


if __name__ == "__main__":
    main()
