"""Compare simulated layers, with all that they wait for, with SCALE-Sim 3 (Raj et al., 2025).

Each layer is a matrix product whose operands and result are in DRAM. eqfuse compiles it for an accelerator with one
core, whose array has SCALE-Sim's size and dataflow, whose LB has the bytes of its three scratchpads, and whose DDR
moves as many words a cycle as each of its three interfaces with DRAM. So both count cycles of the array, cycles that
it waits, and words to and from DRAM.

Where the two differ, the table says why, as far as one of four reasons explains it:

- refetched: SCALE-Sim moves more words than eqfuse. Its scratchpads are filled half by half, in the order in which
  the array reads; once an operand does not fit, what was read before is fetched again for each fold.
- apart: SCALE-Sim moves both operands and the result at once, each by an interface of its own.
- filled first: SCALE-Sim's array waits until half of each scratchpad is full, eqfuse's for the first tile only.
- rows of tiles: eqfuse cuts the layer into tiles of equal rows, which are no multiple of the array's, so that it has
  more folds than the whole layer.

    python benchmarks/accelerators/scalesim_layers.py --python /tmp/scalesim/bin/python

scalesim.py says how to install SCALE-Sim, which takes a few minutes for these layers.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from eqfuse.benchmarks.accelerators.cell import optimised
from eqfuse.benchmarks.accelerators.scalesim import FLOAT, Scratchpads, Simulated, simulate
from eqfuse.costmodels.dsa_device import Dataflow, DsaDevice, load_dsa_device
from eqfuse.costmodels.systolic import Product
from eqfuse.lowering.dsa.codegen.compiler import Choices, accelerator_network, program_for
from eqfuse.lowering.dsa.program.instructions import Level, Unit
from eqfuse.lowering.dsa.schedule.clusters import Allocation
from eqfuse.lowering.dsa.simulate.time_report import TimeReport

LAYERS = (
    ("MobileNet-v2, 28 x 28, 144 to 32", Product(784, 32, 144)),
    ("MobileNet-v2, 14 x 14, 384 to 64", Product(196, 64, 384)),
    ("MobileNet-v2, 14 x 14, 64 to 384", Product(196, 384, 64)),
    ("MobileNet-v2, 7 x 7, 960 to 160", Product(49, 160, 960)),
    ("MobileNet-v2, 7 x 7, 160 to 960", Product(49, 960, 160)),
    ("attention of 384 tokens, 64 wide", Product(384, 384, 64)),
)
_BASE = "edge-npu"
_SIDE = 32
"""Rows and columns of the array."""
_NOTABLE = 0.1
"""A difference from here on gets a reason."""


@dataclass(frozen=True)
class LayerRow:
    """A layer as both simulate it: cycles in all, of which the array computes some, and words to and from DRAM."""

    name: str
    product: Product
    scratchpads: Scratchpads
    theirs: Simulated
    computing: int
    total: int
    moved: int

    @property
    def difference(self) -> float:
        """By how much eqfuse counts more cycles."""
        return self.total / self.theirs.total - 1

    def reasons(self) -> Iterator[str]:
        """What explains a difference."""
        if abs(self.difference) < _NOTABLE:
            return
        words = (self.product.m * self.product.k, self.product.k * self.product.n, self.product.m * self.product.n)
        if self.difference < 0 and self.theirs.moved > (1 + _NOTABLE) * self.moved:
            yield "refetched"
        if self.difference > 0 and self.computing > (1 + _NOTABLE) * self.theirs.computing:
            yield "rows of tiles"
        together, apart = sum(words) / self.scratchpads.bandwidth, max(words) / self.scratchpads.bandwidth
        if self.difference > 0 and together > max(self.computing, (1 + _NOTABLE) * apart):
            yield "apart"
        filling = min(max(words[:2]), self.scratchpads.size * 1024 / 2) / self.scratchpads.bandwidth
        if self.difference < 0 and filling > _NOTABLE * self.theirs.total:
            yield "filled first"


def one_core(scratchpads: Scratchpads) -> DsaDevice:
    """The accelerator that has what SCALE-Sim has: transfers take no time before their first byte."""
    base = load_dsa_device(_BASE)
    clock, room = 1e9, 3 * scratchpads.size * 1024 * FLOAT
    flows = (Dataflow.OUTPUT_STATIONARY,)
    return replace(
        base, clock=clock, local_buffer=room, weight_buffer=room // 3, global_buffer=room,
        ddr_bandwidth=scratchpads.bandwidth * FLOAT * clock, global_bandwidth=64 * FLOAT * clock,
        local_bandwidth=1024 * clock, dma_latency=0.0, hoist_latency=0.0,
        units=tuple(
            replace(unit, rows=_SIDE, columns=_SIDE, dataflows=flows) if unit.kind == "matrix" else unit
            for unit in base.units
        ),
    )  # fmt: skip


def compiled(product: Product, device: DsaDevice) -> TimeReport:
    """The report of the fastest program for a layer."""
    found = optimised(layer(product), _BASE)
    network = accelerator_network(found.graph, found.layers, device, FLOAT)
    return program_for(network, device, Allocation(1, 1, product.m), Choices()).report


def layer(product: Product) -> onnx.ModelProto:
    """A model of one product with constant weights."""
    weights = np.ones((product.k, product.n), np.float32)
    values = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (("x", (product.m, product.k)), ("y", (product.m, product.n)))
    ]
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    graph = helper.make_graph([node], "layer", values[:1], values[1:], [numpy_helper.from_array(weights, "w")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def compare(scratchpads: Scratchpads, python: str, work: Path) -> Iterator[LayerRow]:
    """All layers in both simulators."""
    device = one_core(scratchpads)
    unit = next(unit for unit in device.units if unit.kind == "matrix")
    products = [product for _, product in LAYERS]
    theirs = simulate(products, unit, unit.dataflows[0], scratchpads, python, work)
    for (name, product), simulated in zip(LAYERS, theirs, strict=True):
        report = compiled(product, device)
        busy = dict(report.occupied)[Unit.MME] * report.cycles
        moved = sum(each.bytes for each in report.traffic if Level.DDR in (each.source, each.target))
        yield LayerRow(name, product, scratchpads, simulated, round(busy), ceil(report.cycles), moved // FLOAT)


def print_table(rows: Sequence[LayerRow]) -> None:
    """A Markdown table."""
    print("| layer | m x n x k | words a cycle | array | all | words ", end="")
    print("| SCALE-Sim: array | all | stalls | words | cycles | because |")
    print(f"| --- | --- {'| ---: ' * 9}| --- |")
    for row in rows:
        size = f"{row.product.m} x {row.product.n} x {row.product.k}"
        theirs = (row.theirs.computing, row.theirs.total, row.theirs.stalls, row.theirs.moved)
        figures = (row.scratchpads.bandwidth, row.computing, row.total, row.moved, *theirs)
        numbers = " | ".join(f"{figure:,}" for figure in figures)
        print(f"| {row.name} | {size} | {numbers} | {row.difference:+.0%} | {', '.join(row.reasons())} |")


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable, help="the interpreter that has scalesim")
    parser.add_argument("--size", type=int, default=64, help="thousands of words of each scratchpad (default 64)")
    parser.add_argument("--bandwidths", type=int, nargs="+", default=[10, 64], help="words a cycle (default 10 64)")
    options = parser.parse_args()
    rows: list[LayerRow] = []
    with tempfile.TemporaryDirectory() as folder:
        for bandwidth in options.bandwidths:
            scratchpads = Scratchpads(options.size, bandwidth)
            rows += compare(scratchpads, options.python, Path(folder) / str(bandwidth))
    print_table(rows)


if __name__ == "__main__":
    main()
