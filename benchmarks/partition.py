"""Count the fused kernels of each way to partition a model, beside the figures that DNNFusion and AGO print.

Builds the models of DNNFusion's Table 5 that can be built (table5/), or reads those that are given. FuseOps and AGO's
clusters cut the model as it is; DNNFusion rewrites it first, and `joint` rewrites and cuts together. Kernels are those
that `eqfuse compile --no-measure` makes of the groups, which are in brackets: the lowering confirms those of several
anchor ops; a view is none. Intermediate bytes are those of the values that leave their kernel, before: their operator.
The fusion rate is operators of the original over kernels, and operators are those that depend on an input. z3 checks
the certificate of every partition.

    python benchmarks/partition.py                                 # the models of Table 5
    python benchmarks/partition.py --only vgg16 c3d
    python benchmarks/partition.py bert_base=bert.onnx mobilevit=mobilevit.onnx other.onnx --only bert_base mobilevit
    python benchmarks/partition.py --rules benchmarks/table5/taso.egg --groups taso    # rewriting by TASO alone

`architectures/torch_side/detection.py` exports faster_rcnn and mask_rcnn.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import onnx
from rich.table import Table

from eqfuse.benchmarks.latency import wide_console
from eqfuse.benchmarks.measuring.partition_statistics import PartitionStatistics, statistics
from eqfuse.benchmarks.table5 import BUILDERS
from eqfuse.benchmarks.table5.figures import FIG14, TABLE5, PrintedBalance
from eqfuse.costmodels.device import Device
from eqfuse.driver.clock import Clock
from eqfuse.driver.compiler.processor import ProcessorKernels
from eqfuse.driver.options import Options
from eqfuse.driver.partition import Partitioned, compile_drawn, partition_model
from eqfuse.driver.saturate import Saturated, saturate_model
from eqfuse.engine.choices import PartitionMethod
from eqfuse.engine.egraph.worker import Worker
from eqfuse.engine.operator_graph import operator_graph
from eqfuse.extract.joint import JointCosts
from eqfuse.extract.partition.annotations.certificate import certificate_of
from eqfuse.extract.partition.annotations.proof import certify
from eqfuse.extract.partition.groups import unfused
from eqfuse.extract.partition.search.methods import partition_by
from eqfuse.extract.partition.templates.kernels import KernelModel
from eqfuse.extract.partition.templates.savings import intermediate_bytes
from eqfuse.ir.graph import OperatorGraph
from eqfuse.lowering.base.target import target_of

OTHERS: tuple[PartitionMethod, ...] = ("fuseops", "dnnfusion", "ago")
CERTIFY_SECONDS = 120.0
MOBILEVIT = "mobilevit"

Source: TypeAlias = Path | onnx.ModelProto


@dataclass(frozen=True)
class Cut:
    """One partition: sub-graphs, fused kernels, operators that make up a kernel alone by their type, bytes that leave
    kernels, cost and the time that finding it took in seconds, the groups that z3 found in order and convex, balance.
    """

    groups: int
    kernels: int
    alone: Mapping[str, int]
    intermediate: int
    cost: float
    seconds: float
    certified: int
    balance: PartitionStatistics


@dataclass(frozen=True)
class Setting:
    """What partitions are made for."""

    options: Options
    device: Device
    lowering: ProcessorKernels

    @staticmethod
    def of(arguments: argparse.Namespace) -> Setting:
        """As the command line has it, for one thread."""
        target = target_of(arguments.device, 1)
        options = Options(
            device=arguments.device, time_limit=arguments.time_limit, rules=tuple(arguments.rules),
            only=tuple(arguments.groups), trust_rules=bool(arguments.rules),
        )  # fmt: skip
        return Setting(options, target.device, ProcessorKernels(target))


@dataclass
class Record:
    """One model: operators before and after rewriting, bytes of intermediate results of the original, every cut."""

    name: str
    operators: int
    rewritten: int
    intermediate: int
    cuts: dict[str, Cut] = field(default_factory=dict)
    costs: JointCosts | None = None
    seconds: float = 0.0

    @property
    def joint(self) -> Cut:
        return self.cuts["joint"]

    @property
    def rate(self) -> float:
        """The fusion rate of `joint`."""
        return self.operators / self.joint.kernels

    @property
    def ratio(self) -> float:
        """What `joint` leaves of the bytes of intermediate results."""
        return self.joint.intermediate / self.intermediate

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "rate": self.rate, "ratio": self.ratio}


def measured(found: Partitioned, seconds: float) -> Cut:
    """The figures of a partition. Raises PartitionError if z3 finds its certificate wrong."""
    graph, partition = found.partition.graph, found.partition
    proof = certify(graph, certificate_of(partition), CERTIFY_SECONDS)
    single = sorted(graph.operators[kernel[0]].op for kernel in found.kernels if len(kernel) == 1)
    return Cut(
        groups=len(found.kernels) if found.drawn is None else found.drawn.count,
        kernels=len(found.kernels),
        alone={op: single.count(op) for op in sorted(set(single))},
        intermediate=intermediate_bytes(found.partition),
        cost=found.seconds,
        seconds=seconds,
        certified=proof.groups,
        balance=statistics(found.drawn or partition),
    )


def timed_cut(method: PartitionMethod, known: Saturated, graph: OperatorGraph, setting: Setting) -> Cut:
    """A partition of the model as it is."""
    started = time.perf_counter()
    drawn = partition_by(method, graph, KernelModel(graph, setting.device))
    kernels = compile_drawn(graph, drawn, known.model, setting.options, setting.lowering, Clock(None))
    return measured(kernels, time.perf_counter() - started)


def rewritten_cut(known: Saturated, setting: Setting) -> Cut:
    """DNNFusion's partition: of the graph that its rewriting makes."""
    started = time.perf_counter()
    _, kernels = partition_model(known, "dnnfusion", setting.options, Clock(None), setting.lowering)
    return measured(kernels, time.perf_counter() - started)


def compare(name: str, source: Source, arguments: argparse.Namespace) -> Record:
    """Every partition of one model; the time of `joint` includes reading and saturation."""
    started = time.perf_counter()
    setting = Setting.of(arguments)
    with Worker(setting.options.selection) as worker:
        known = saturate_model(source, None, setting.options, worker, Clock(None))
    original = operator_graph(known.model, known.knowledge)
    saturation = time.perf_counter() - started
    progress(f"saturated in {saturation:.1f} s ({known.egraph.saturation.stop_reason})")
    record = Record(name, len(original), 0, intermediate_bytes(unfused(original)))
    begun = time.perf_counter()
    # First, for the time limit runs since the saturation.
    _, found = partition_model(known, "joint", setting.options, Clock(None), setting.lowering)
    seconds = saturation + time.perf_counter() - begun
    for method in OTHERS:
        is_rewritten = method == "dnnfusion"
        record.cuts[method] = (
            rewritten_cut(known, setting) if is_rewritten else timed_cut(method, known, original, setting)
        )
        progress(f"{method}: {record.cuts[method].kernels} kernels in {record.cuts[method].seconds:.1f} s")
    record.rewritten = len(found.partition.graph)
    record.cuts["joint"] = measured(found, seconds)
    record.costs = found.costs
    record.seconds = time.perf_counter() - started
    progress(f"joint: {record.joint.kernels} kernels in {seconds:.1f} s")
    return record


def progress(line: str) -> None:
    print(f"    {line}", file=sys.stderr, flush=True)


# --- tables


def kernel_table(records: Sequence[Record]) -> Table:
    heads = ("model", "operators", "rewritten", *OTHERS, "joint", "Table 5", "TVM", "DNNF", "rate", "DNNF's")
    table = Table(*heads, title="Fused kernels (sub-graphs)")
    for record in records:
        cuts = [f"{record.cuts[m].kernels} ({record.cuts[m].groups})" for m in (*OTHERS, "joint")]
        row = [record.name, str(record.operators), str(record.rewritten), *cuts]
        if printed := TABLE5.get(record.name):
            row += [str(printed.original), str(printed.tvm or "-"), str(printed.dnnf)]
            row += [f"{record.rate:.2f}", f"{printed.rate:.2f}"]
        else:
            row += ["-", "-", "-", f"{record.rate:.2f}", "-"]
        table.add_row(*row)
    return table


def byte_table(records: Sequence[Record]) -> Table:
    heads = ("model", "original", *OTHERS, "joint", "left", "Table 5", "DNNF", "left by it")
    table = Table(*heads, title="Intermediate results, MB")
    for record in records:
        cuts = [f"{record.cuts[m].intermediate / 1e6:.1f}" for m in (*OTHERS, "joint")]
        row = [record.name, f"{record.intermediate / 1e6:.1f}", *cuts]
        if printed := TABLE5.get(record.name):
            row += [f"{record.ratio:.1%}", str(printed.before), str(printed.after), f"{printed.ratio:.1%}"]
        else:
            row += [f"{record.ratio:.1%}", "-", "-", "-"]
        table.add_row(*row)
    return table


def cost_table(records: Sequence[Record]) -> Table:
    heads = ("original", "rewritten", "fused", "sequence", "joint", "bound")
    table = Table("model", *OTHERS, *heads, title="Cost, µs: partitions of the original, then the steps of joint")
    for record in records:
        steps = [getattr(record.costs, name) * 1e6 for name in heads]
        cuts = [record.cuts[method].cost * 1e6 for method in OTHERS]
        row = [f"{value:.0f}" for value in (*cuts, *steps)]
        table.add_row(record.name, *row)
    return table


def time_table(records: Sequence[Record]) -> Table:
    table = Table("model", *OTHERS, "joint", "all", "groups certified", title="Seconds; groups that z3 checked")
    for record in records:
        seconds = [f"{record.cuts[m].seconds:.2f}" for m in (*OTHERS, "joint")]
        certified = " ".join(str(record.cuts[m].certified) for m in (*OTHERS, "joint"))
        table.add_row(record.name, *seconds, f"{record.seconds:.1f}", certified)
    return table


def balance_table(record: Record) -> Table:
    heads = ("partition", "sub-graphs", "trivial", "mean", "median", "Jain")
    table = Table(*heads, title=f"Weights of the sub-graphs of {record.name}, printed figures below")
    for method, cut in record.cuts.items():
        table.add_row(method, *balance_row(cut.balance))
        if printed := FIG14.get(method):
            table.add_row(f"  AGO, Fig. 14: {'Relay' if method == 'fuseops' else 'AGO'}", *balance_row(printed))
    return table


def balance_row(found: PartitionStatistics | PrintedBalance) -> list[str]:
    trivial = "-" if found.trivial is None else str(found.trivial)
    return [str(found.count), trivial, f"{found.mean:.0f}", f"{found.median:.0f}", f"{found.jain:.2f}"]


def print_tables(records: Sequence[Record]) -> None:
    console = wide_console()
    for make in (kernel_table, byte_table, cost_table, time_table):
        console.print(make(records))
    for record in records:
        if record.name == MOBILEVIT:
            console.print(balance_table(record))


# --- command line


def sources(arguments: argparse.Namespace) -> dict[str, Callable[[], Source]]:
    """Models by name, each read or built when it is its turn. Exits if one is asked for that there is none of."""
    found: dict[str, Callable[[], Source]] = dict(BUILDERS)
    for text in arguments.models:
        name, given, path = text.rpartition("=")
        found[name if given else Path(path).stem] = partial(Path, path)
    unknown = [name for name in arguments.only if name not in found]
    if unknown:
        sys.exit(f"no model called {', '.join(unknown)}: there are {', '.join(found)}")
    return {name: source for name, source in found.items() if not arguments.only or name in arguments.only}


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    known = f"more models, {MOBILEVIT}= for AGO's figures, or in the place of one that is built: {', '.join(BUILDERS)}"
    result.add_argument("models", nargs="*", metavar="[NAME=]MODEL", help=known)
    result.add_argument("--only", nargs="+", default=[], metavar="NAME", help="only these")
    result.add_argument("--device", default="host", help="device that costs are for (default host)")
    result.add_argument("--time-limit", type=float, default=30.0, help="seconds for each model (default 30)")
    result.add_argument("--rules", nargs="+", default=[], metavar="FILE", help="further rules, which are not checked")
    result.add_argument("--groups", nargs="+", default=[], metavar="GROUP", help="rewrite by these rules alone")
    result.add_argument("--json", action="store_true", help="print JSON instead of tables")
    return result


def main() -> None:
    """Command line."""
    arguments = parser().parse_args()
    os.environ["XDG_CACHE_HOME"] = tempfile.mkdtemp()  # costs come from the model alone, not from measured kernels
    records = []
    for name, source in sources(arguments).items():
        print(name, file=sys.stderr, flush=True)
        records.append(compare(name, source(), arguments))
        gc.collect()  # a model may be half a gigabyte
    if arguments.json:
        print(json.dumps([record.as_dict() for record in records], indent=1))
    else:
        print_tables(records)


if __name__ == "__main__":
    main()
