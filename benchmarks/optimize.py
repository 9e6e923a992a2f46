"""Compare `eqfuse.optimize` with onnxsim, onnxslim and onnxscript's optimizer, model by model.

Every run is a fresh process that imports its tool, reads the model, optimises it and writes the result. The tools
take turns, so that a change of the machine's speed meets all of them; figures are medians over the rounds, ratios are
medians of the rounds' ratios. CPU and wall seconds are those of the whole process and its children, peak memory that of
the largest of them. eqfuse verifies its result unless --no-verify says otherwise; the others don't by default, and are
run that way.

Each result is then compared with the original in ONNX Runtime, as `eqfuse verify` does, at two sizes of free
dimensions, and with --latency timed beside it (measuring/results.py). Wrong results are listed with what differs.

    python benchmarks/optimize.py model.onnx folder/ --repeat 5 --json > figures.json
    python benchmarks/optimize.py --package silero-vad --latency --sizes samples=512 batch=1
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:  # a process that runs another tool imports nothing of eqfuse
    from eqfuse.benchmarks.measuring.results import Verdict
    from eqfuse.lowering.running.turns import Estimate

PEERS = ("onnxsim", "onnxslim", "onnxscript")
TOOLS = ("eqfuse", *PEERS)


@dataclass(frozen=True)
class Process:
    """What one run took: seconds, MiB (of the largest process); `error` is the last line it wrote if it failed."""

    cpu: float
    wall: float
    peak: float
    error: str = ""


@dataclass(frozen=True)
class Size:
    """Nodes of the main graph, those of it and of its bodies that depend on an input, and the bytes with weights."""

    nodes: int
    layers: int
    bytes: int


@dataclass
class ToolRecord:
    """One tool on one model. `latency` is the time of its result over that of the original, pair by pair."""

    processes: list[Process] = field(default_factory=list)
    size: Size | None = None
    verdict: Verdict | None = None
    latency: Estimate | None = None

    @property
    def error(self) -> str:
        return next((process.error for process in self.processes if process.error), "")

    def median(self, name: str) -> float:
        return float(statistics.median(getattr(process, name) for process in self.processes))


@dataclass
class ModelRecord:
    """All tools on one model. `figures` is what eqfuse says of its own run."""

    name: str
    original: Size
    tools: dict[str, ToolRecord] = field(default_factory=lambda: {tool: ToolRecord() for tool in TOOLS})
    figures: dict[str, Any] = field(default_factory=dict)

    def ratio(self, peer: str, name: str) -> float:
        """eqfuse over `peer`, the median over the rounds."""
        pairs = zip(self.tools["eqfuse"].processes, self.tools[peer].processes, strict=True)
        return float(statistics.median(getattr(ours, name) / getattr(theirs, name) for ours, theirs in pairs))

    def as_dict(self) -> dict[str, Any]:
        done = [peer for peer in PEERS if not self.tools[peer].error and not self.tools["eqfuse"].error]
        ratios = {peer: {name: self.ratio(peer, name) for name in ("cpu", "wall", "peak")} for peer in done}
        return {**asdict(self), "ratios": ratios}


def eqfuse_figures(source: Path, result: Path, verify: bool) -> dict[str, Any]:
    import eqfuse

    found = eqfuse.optimize(source, result, verify=verify)
    return {
        "flops": [found.before.flops, found.after.flops],
        "intermediate_bytes": [found.before.intermediate_bytes, found.after.intermediate_bytes],
        "enodes": found.enodes,
        "stop_reason": found.saturation.stop_reason,
        "extraction": found.extraction.status,
        "phases": dict(found.phases),
    }


def work(tool: str, source: Path, result: Path, verify: bool) -> dict[str, Any]:
    """Optimise `source` with a tool, as its users do; onnxsim without the proof that it tries where z3 is installed."""
    if tool == "eqfuse":
        return eqfuse_figures(source, result, verify)
    if tool == "onnxslim":
        import onnxslim

        onnxslim.slim(str(source), str(result))
    elif tool == "onnxscript":
        import onnx_ir
        from onnxscript import optimizer

        model = onnx_ir.load(source)
        optimizer.optimize(model)
        onnx_ir.save(model, result)
    else:
        import onnxsim

        onnx.save(onnxsim.simplify(str(source), certify=False)[0], result)
    return {}


def measure(command: Sequence[str], environment: dict[str, str]) -> Process:
    with tempfile.TemporaryFile() as log:
        started = os.times().elapsed
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        _, status, usage = os.wait4(process.pid, 0)
        wall = os.times().elapsed - started
        process.returncode = os.waitstatus_to_exitcode(status)
        log.seek(0)
        lines = log.read().decode(errors="replace").split("\n")
    last = next((line for line in reversed(lines) if line.strip()), f"exit {process.returncode}")
    error = last[:300] if process.returncode else ""
    return Process(usage.ru_utime + usage.ru_stime, wall, usage.ru_maxrss / 1024, error)


def size(path: Path) -> Size:
    model = onnx.load(path, load_external_data=False)
    total = sum(file.stat().st_size for file in path.parent.glob(f"{path.name}*"))
    return Size(len(model.graph.node), count_layers(model.graph, set()), total)


def count_layers(graph: onnx.GraphProto, outer: set[str]) -> int:
    """Nodes that depend on an input or on a value of `outer`, those in bodies included."""
    live = outer | ({i.name for i in graph.input} - {i.name for i in graph.initializer})
    layers = 0
    for node in graph.node:
        if not live.isdisjoint((*node.input, *outer_names(node))):
            layers += 1 + sum(count_layers(body, live) for body in bodies(node))
            live.update(filter(None, node.output))
    return layers


def bodies(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    for attribute in node.attribute:
        yield from (attribute.g, *attribute.graphs)


def outer_names(node: onnx.NodeProto) -> Iterator[str]:
    """What the bodies of a node (If, Loop, Scan) read, their own values included."""
    for body in bodies(node):
        for inner in body.node:
            yield from inner.input
            yield from outer_names(inner)


def run_tool(tool: str, source: Path, folder: Path, record: ModelRecord, options: argparse.Namespace) -> None:
    environment = {**os.environ, **({"OMP_NUM_THREADS": str(options.threads)} if options.threads else {})}
    result, figures = folder / f"{tool}.onnx", folder / "figures.json"
    for file in folder.glob(f"{tool}.onnx*"):
        file.unlink()
    command = [sys.executable, __file__, "--work", tool, str(source), str(result), str(figures)]
    process = measure(command + ["--no-verify"] * options.no_verify, environment)
    record.tools[tool].processes.append(process)
    if not process.error:
        record.tools[tool].size = record.tools[tool].size or size(result)
        record.figures = json.loads(figures.read_text()) or record.figures


def compare(source: Path, options: argparse.Namespace) -> ModelRecord:
    from eqfuse.benchmarks.measuring.results import judge_result, sample_of, time_result

    record = ModelRecord(source.stem, size(source))
    with tempfile.TemporaryDirectory(dir=options.scratch) as folder:
        for turn in range(options.repeat):
            for index in range(len(TOOLS)):
                run_tool(TOOLS[(turn + index) % len(TOOLS)], source, Path(folder), record, options)
        sample = sample_of(source, dict(options.sizes))
        for tool, each in record.tools.items():
            result = Path(folder) / f"{tool}.onnx"
            if not each.error:
                each.verdict = judge_result(source, result, sample)
            if each.verdict is not None and not each.verdict.is_wrong and options.latency:
                each.latency = time_result(source, result, sample, options.latency_threads)
    return record


def change(before: float, after: float, unit: float = 1) -> str:
    digits = 0 if unit == 1 else 2
    return f"{before / unit:.{digits}f} → {after / unit:.{digits}f}"


def layers_text(tool: ToolRecord) -> str:
    """The layers of a result; of a wrong one that it is wrong."""
    if tool.size is None or tool.error:
        return "failed"
    status = tool.verdict.status if tool.verdict is not None else "right"
    return f"{tool.size.layers}{'' if status == 'right' else f' {status}'}"


def result_row(record: ModelRecord) -> list[str]:
    ours, before, figures = record.tools["eqfuse"].size, record.original, record.figures
    peers = [layers_text(record.tools[peer]) for peer in PEERS]
    if ours is None:
        return [record.name, str(before.nodes), str(before.layers), *peers, "eqfuse failed"]
    (flops, fewer_flops), (traffic, less_traffic) = figures["flops"], figures["intermediate_bytes"]
    return [
        record.name,
        change(before.nodes, ours.nodes),
        change(before.layers, ours.layers),
        *peers,
        change(flops, fewer_flops, 1e6),
        change(traffic, less_traffic, 1e6),
        change(before.bytes, ours.bytes, 1e6),
        str(figures["enodes"]),
        f"{figures['stop_reason']}, {figures['extraction']}",
    ]


def result_table(records: Sequence[ModelRecord]) -> Table:
    heads = ("model", "nodes", "layers", *PEERS, "MFLOPs", "intermediate MB", "file MB", "e-nodes", "search")
    table = Table(*heads, title="Original → eqfuse; layers that the peers leave")
    for record in records:
        table.add_row(*result_row(record))
    return table


def cost_row(record: ModelRecord, name: str, digits: int) -> list[str]:
    """The median of each tool, then eqfuse over each peer."""
    tools = [record.tools[tool] for tool in TOOLS]
    medians = ["failed" if tool.error else f"{tool.median(name):.{digits}f}" for tool in tools]
    failed = record.tools["eqfuse"].error
    ratios = ["-" if failed or record.tools[p].error else f"{record.ratio(p, name):.2f}" for p in PEERS]
    return medians + ratios


def cost_table(records: Sequence[ModelRecord], title: str, name: str, digits: int) -> Table:
    table = Table("model", *TOOLS, *(f"eqfuse / {peer}" for peer in PEERS), title=title)
    for record in records:
        table.add_row(record.name, *cost_row(record, name, digits))
    done = [(peer, [r for r in records if not r.tools["eqfuse"].error and not r.tools[peer].error]) for peer in PEERS]
    means = [geometric_mean([record.ratio(peer, name) for record in both]) for peer, both in done]
    table.add_row("geometric mean", *[""] * len(TOOLS), *means, style="bold")
    return table


def geometric_mean(ratios: Sequence[float]) -> str:
    return f"{statistics.geometric_mean(ratios):.3f}" if ratios else "-"


def latency_table(records: Sequence[ModelRecord]) -> Table:
    """The mean is over the models for which all tools have a result that is right."""
    table = Table("model", *TOOLS, title="Time in ONNX Runtime over that of the original (99 % limits)")
    complete = []
    for record in records:
        latencies = [record.tools[tool].latency for tool in TOOLS]
        shown = [f"{e.median:.3f} ({e.lower:.3f} to {e.upper:.3f})" if e is not None else "-" for e in latencies]
        table.add_row(record.name, *shown)
        medians = [e.median for e in latencies if e is not None]
        complete += [medians] if len(medians) == len(TOOLS) else []
    means = [geometric_mean(column) for column in zip(*complete, strict=True)] or ["-"] * len(TOOLS)
    table.add_row(f"geometric mean of {len(complete)}", *means, style="bold")
    return table


def phase_table(records: Sequence[ModelRecord]) -> Table:
    phases = list(dict.fromkeys(phase for record in records for phase in record.figures.get("phases", {})))
    table = Table("model", *phases, title="eqfuse: wall seconds by phase, last run")
    for record in records:
        seconds = record.figures.get("phases", {})
        table.add_row(record.name, *(f"{seconds.get(phase, 0):.2f}" for phase in phases))
    return table


def print_tables(records: Sequence[ModelRecord]) -> None:
    console = Console(width=None if sys.stdout.isatty() else 200)
    console.print(result_table(records))
    if any(tool.latency is not None for record in records for tool in record.tools.values()):
        console.print(latency_table(records))
    console.print(cost_table(records, "CPU seconds of a run", "cpu", 2))
    console.print(cost_table(records, "Wall seconds of a run", "wall", 2))
    console.print(cost_table(records, "Peak memory of a run, MiB", "peak", 0))
    console.print(phase_table(records))
    for record in records:
        for tool, found in record.tools.items():
            if found.error:
                console.print(f"{record.name}: {tool} failed: {found.error}", style="red", markup=False)
            elif found.verdict is not None and found.verdict.status != "right":
                verdict = found.verdict
                console.print(f"{record.name}: {tool} {verdict.status}: {verdict.reason}", style="red", markup=False)


def models(paths: Sequence[Path], packages: Sequence[str] = ()) -> list[Path]:
    """The models among the paths, in the folders among them, and in the installed packages; the smallest first."""
    own = [each for path in paths for each in (path.rglob("*.onnx") if path.is_dir() else [path])]
    shipped = [file for name in packages for file in files(name) or () if file.suffix == ".onnx"]
    every = {*own, *(Path(str(file.locate())) for file in shipped)}
    return sorted(every, key=lambda path: (path.stat().st_size, path))


def named_size(text: str) -> tuple[str, int]:
    """``height=64``."""
    name, _, number = text.partition("=")
    if not name or not number.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=SIZE")
    return name, int(number)


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    result.add_argument("paths", type=Path, nargs="*", help="models, or folders of them")
    result.add_argument("--package", action="append", default=[], help="the models of an installed package; repeatable")
    result.add_argument("--repeat", type=int, default=3, help="rounds (default 3)")
    result.add_argument("--no-verify", action="store_true", help="run eqfuse without its verification")
    result.add_argument("--threads", type=int, help="OMP_NUM_THREADS of every run (default: not set)")
    result.add_argument("--latency", action="store_true", help="time the results beside the originals")
    result.add_argument("--latency-threads", type=int, default=1, help="threads of ONNX Runtime (default 1: CPU time)")
    result.add_argument(
        "--sizes", type=named_size, nargs="+", default=[], metavar="NAME=SIZE",
        help="sizes of dynamic dimensions (default: 128, and 1 for the first of an input, where the model takes them)",
    )  # fmt: skip
    result.add_argument("--scratch", type=Path, help="folder for the results while they are measured")
    result.add_argument("--json", action="store_true", help="print JSON, every run in it, instead of tables")
    result.add_argument("--work", choices=TOOLS, help=argparse.SUPPRESS)
    return result


def main() -> None:
    options = parser().parse_args()
    if options.work:
        source, result, figures = options.paths
        figures.write_text(json.dumps(work(options.work, source, result, not options.no_verify)))
        return
    records = []
    for source in models(options.paths, options.package):
        print(source.name, file=sys.stderr)
        records.append(compare(source, options))
    if options.json:
        print(json.dumps([record.as_dict() for record in records], indent=1))
        return
    print_tables(records)


if __name__ == "__main__":
    main()
