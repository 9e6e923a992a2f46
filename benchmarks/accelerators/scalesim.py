"""Compare the matrix products of a program for an accelerator with SCALE-Sim 3 (Raj et al., 2025), product by product.

SCALE-Sim simulates one systolic array with three scratchpads. The program's tiles say which products an array runs;
each distinct one is given to it in the dataflow that eqfuse chose, with an array of the device's size. Printed are the
cycles that both count for computing, and what SCALE-Sim adds: its stalls, and the words that it moves between its
scratchpads and its DRAM beside the elements of operands and result. In eqfuse's programs tiles read from LB, and
transfers have instructions of their own, so there stalls are not a part of a product's cycles.

SCALE-Sim 3.0.0 needs numpy 1, so it runs in an interpreter of its own:

    python -m venv /tmp/scalesim && /tmp/scalesim/bin/pip install scalesim 'numpy<2' 'pandas<3'
    python benchmarks/accelerators/scalesim.py BUNDLE --python /tmp/scalesim/bin/python
"""

from __future__ import annotations

import argparse
import csv
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from eqfuse.benchmarks.accelerators.one_core import FLOAT, size_of
from eqfuse.costmodels.dsa_device import ComputeUnit, Dataflow, DsaDevice
from eqfuse.costmodels.systolic import Product, SystolicArray, best_dataflow
from eqfuse.lowering.bundle.bundle import read_manifest
from eqfuse.lowering.dsa.back_end import section_of
from eqfuse.lowering.dsa.bundle.files import read_program
from eqfuse.lowering.dsa.program.instructions import Compute
from eqfuse.support.errors import EqfuseError

_RUN = """
import sys
from scalesim.scale_sim import scalesim
config, products, layout, out = sys.argv[1:]
scalesim(save_disk_space=True, config=config, topology=products, layout=layout, input_type_gemm=True).run_scale(out)
"""
_CONFIG = """[general]
run_name = products
[architecture_presets]
ArrayHeight = {rows}
ArrayWidth = {columns}
IfmapSramSzkB = {scratchpad}
FilterSramSzkB = {scratchpad}
OfmapSramSzkB = {scratchpad}
IfmapOffset = 0
FilterOffset = 10000000
OfmapOffset = 20000000
Bandwidth = {bandwidth}
Dataflow = {dataflow}
MemoryBanks = 1
ReadRequestBuffer = 32
WriteRequestBuffer = 32
[layout]
IfmapCustomLayout = False
IfmapSRAMBankBandwidth = {bandwidth}
IfmapSRAMBankNum = 1
IfmapSRAMBankPort = 2
FilterCustomLayout = False
FilterSRAMBankBandwidth = {bandwidth}
FilterSRAMBankNum = 1
FilterSRAMBankPort = 2
[sparsity]
SparsitySupport = false
SparseRep = ellpack_block
OptimizedMapping = false
BlockSize = 8
RandomNumberGeneratorSeed = 40
[run_presets]
InterfaceBandwidth = USER
UseRamulatorTrace = False
"""


@dataclass(frozen=True)
class Scratchpads:
    """SCALE-Sim's memories: the thousands of words of each operand's and the result's, and the words a cycle that each
    exchanges with DRAM."""

    size: int
    bandwidth: int


@dataclass(frozen=True)
class Simulated:
    """What SCALE-Sim says of a product: cycles of the array, stalls, the cycles of all with those before the array
    begins, and the words that scratchpads exchange with DRAM."""

    computing: int
    stalls: int
    total: int
    moved: int


@dataclass(frozen=True)
class Row:
    """A product as an array runs it, `uses` times in a program: the cycles of both simulators, and SCALE-Sim's stalls
    and words between its scratchpads and DRAM."""

    product: Product
    dataflow: Dataflow
    uses: int
    cycles: int
    theirs: int
    stalls: int
    moved: int

    @property
    def elements(self) -> int:
        """Elements of both operands and the result."""
        m, n, k = self.product.m, self.product.n, self.product.k
        return m * k + k * n + m * n


def matrix_products(folder: Path) -> dict[Product, int]:
    """The products of a program's tiles, those that are most often run first, and how often."""
    uses: dict[Product, int] = {}
    for instruction in read_program(folder).instructions:
        for work in instruction.work if isinstance(instruction, Compute) else ():
            for product in work.products:
                single = Product(product.m, product.n, product.k)
                uses[single] = uses.get(single, 0) + product.count
    return dict(sorted(uses.items(), key=lambda use: -use[1]))


def as_run(unit: ComputeUnit, product: Product) -> tuple[Product, Dataflow, int]:
    """The product or its transposed form, whichever an array runs, in its dataflow, and the cycles."""
    cycles, dataflow = best_dataflow(unit, product)
    array = SystolicArray.of(unit, dataflow)
    forms = (product, Product(product.n, product.m, product.k))
    return next(form for form in forms if array.cycles(form) == cycles), dataflow, cycles


def compare(products: dict[Product, int], device: DsaDevice, python: str, work: Path) -> list[Row]:
    """Run all products in SCALE-Sim, those of a dataflow together."""
    unit = next(unit for unit in device.units if unit.kind == "matrix")
    runs = [(*as_run(unit, product), uses) for product, uses in products.items()]
    rows: list[Row] = []
    for dataflow in dict.fromkeys(run[1] for run in runs):
        chosen = [run for run in runs if run[1] is dataflow]
        bandwidth = round(device.global_bandwidth / device.cores / device.clock / FLOAT)
        scratchpads = Scratchpads(max(1, device.local_buffer // 3 // 1024), bandwidth)
        reports = simulate([run[0] for run in chosen], unit, dataflow, scratchpads, python, work / dataflow.value)
        for (product, _, cycles, uses), report in zip(chosen, reports, strict=True):
            rows.append(Row(product, dataflow, uses, cycles, report.computing, report.stalls, report.moved))
    return rows


def simulate(
    products: Sequence[Product], unit: ComputeUnit, dataflow: Dataflow, scratchpads: Scratchpads, python: str,
    work: Path,
) -> list[Simulated]:  # fmt: skip
    """Each product in SCALE-Sim, by an interpreter that has it."""
    work.mkdir(parents=True)
    config, table, layout = work / "array.cfg", work / "products.csv", work / "layout.csv"
    config.write_text(
        _CONFIG.format(
            rows=unit.rows, columns=unit.columns, scratchpad=scratchpads.size, bandwidth=scratchpads.bandwidth,
            dataflow=dataflow.value,
        )
    )  # fmt: skip
    lines = [f"p{number},{p.m},{p.n},{p.k}," for number, p in enumerate(products)]
    table.write_text("\n".join(["Layer,M,N,K,", *lines, ""]))
    layout.write_text("none\n")
    done = subprocess.run(
        [python, "-W", "ignore", "-c", _RUN, *map(str, (config, table, layout, work))],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        sys.exit(f"SCALE-Sim failed: {done.stderr.strip().splitlines()[-1]}")
    computed, moved = (_read(work / "products" / name) for name in ("COMPUTE_REPORT.csv", "DETAILED_ACCESS_REPORT.csv"))
    found = []
    for times, words in zip(computed, moved, strict=True):
        stalls = int(times["Stall Cycles"])
        total = sum(
            int(float(count)) for name, count in words.items() if name.startswith("DRAM") and "Cycle" not in name
        )
        whole = int(times["Total Cycles (incl. prefetch)"])
        found.append(Simulated(int(times["Total Cycles"]) - stalls, stalls, whole, total))
    return found


def _read(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        rows = csv.DictReader(file, skipinitialspace=True)
        return [{name: text for name, text in row.items() if name} for row in rows]


def print_table(rows: list[Row]) -> None:
    """A Markdown table, and the largest difference of cycles."""
    print("| m x n x k | dataflow | uses | cycles | SCALE-Sim | its stalls | elements | words it moves |")
    print("| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for row in rows:
        figures = (row.uses, row.cycles, row.theirs, row.stalls, row.elements, row.moved)
        print(f"| {size_of(row.product)} | {row.dataflow.value} | {' | '.join(f'{figure:,}' for figure in figures)} |")
    worst = max((abs(row.theirs / row.cycles - 1) for row in rows), default=0.0)
    print(f"\nThe cycles differ by at most {100 * worst:.2f} %.")


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path, help="the folder that `eqfuse compile --target dsa-NAME` wrote")
    parser.add_argument("--python", default=sys.executable, help="the interpreter that has scalesim")
    parser.add_argument("--most", type=int, default=20, metavar="N", help="only the N most used products (default 20)")
    options = parser.parse_args()
    try:
        device = section_of(read_manifest(options.bundle).dsa, str(options.bundle)).device
        products = matrix_products(options.bundle)
    except EqfuseError as error:
        sys.exit(str(error))
    with tempfile.TemporaryDirectory() as folder:
        print_table(compare(dict(list(products.items())[: options.most]), device, options.python, Path(folder)))


if __name__ == "__main__":
    main()
