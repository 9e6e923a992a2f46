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
from dataclasses import dataclass
from pathlib import Path

from eqfuse.benchmarks.accelerators.one_core import LAYERS, NOTABLE, Core, Ours, layer, simulated, size_of
from eqfuse.benchmarks.accelerators.scalesim import Scratchpads, Simulated, simulate
from eqfuse.costmodels.systolic import Product


@dataclass(frozen=True)
class LayerRow:
    """A layer as both simulate it: cycles in all, of which the array computes some, and words to and from DRAM."""

    name: str
    product: Product
    scratchpads: Scratchpads
    theirs: Simulated
    ours: Ours

    @property
    def difference(self) -> float:
        """By how much eqfuse counts more cycles."""
        return self.ours.total / self.theirs.total - 1

    def reasons(self) -> Iterator[str]:
        """What explains a difference."""
        if abs(self.difference) < NOTABLE:
            return
        words = (self.product.m * self.product.k, self.product.k * self.product.n, self.product.m * self.product.n)
        if self.difference < 0 and self.theirs.moved > (1 + NOTABLE) * self.ours.moved:
            yield "refetched"
        if self.difference > 0 and self.ours.computing > (1 + NOTABLE) * self.theirs.computing:
            yield "rows of tiles"
        together, apart = sum(words) / self.scratchpads.bandwidth, max(words) / self.scratchpads.bandwidth
        if self.difference > 0 and together > max(self.ours.computing, (1 + NOTABLE) * apart):
            yield "apart"
        filling = min(max(words[:2]), self.scratchpads.size * 1024 / 2) / self.scratchpads.bandwidth
        if self.difference < 0 and filling > NOTABLE * self.theirs.total:
            yield "filled first"


def compare(scratchpads: Scratchpads, python: str, work: Path) -> Iterator[LayerRow]:
    """All layers in both simulators."""
    core = Core(3 * scratchpads.size * 1024, scratchpads.bandwidth)
    products = [product for _, product in LAYERS]
    theirs = simulate(products, core.array, core.dataflow, scratchpads, python, work)
    for (name, product), found in zip(LAYERS, theirs, strict=True):
        yield LayerRow(name, product, scratchpads, found, simulated(layer(product), core))


def print_table(rows: Sequence[LayerRow]) -> None:
    """A Markdown table."""
    print("| layer | m x n x k | words a cycle | array | all | words ", end="")
    print("| SCALE-Sim: array | all | stalls | words | cycles | because |")
    print(f"| --- | --- {'| ---: ' * 9}| --- |")
    for row in rows:
        theirs = (row.theirs.computing, row.theirs.total, row.theirs.stalls, row.theirs.moved)
        figures = (row.scratchpads.bandwidth, row.ours.computing, row.ours.total, row.ours.moved, *theirs)
        numbers = " | ".join(f"{figure:,}" for figure in figures)
        start = f"| {row.name} | {size_of(row.product)}"
        print(f"{start} | {numbers} | {row.difference:+.0%} | {', '.join(row.reasons())} |")


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
