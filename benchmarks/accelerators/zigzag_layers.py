"""Compare simulated layers, and a small network, with ZigZag (Mei et al., IEEE Transactions on Computers 2021).

ZigZag knows an accelerator by its memories, their ports and the dimensions of its array. It searches the order of the
loops of a layer and how many of them each memory holds, and counts the cycles of each such mapping by formulas, of
which the fewest are taken here. Nothing is simulated. eqfuse compiles the same ONNX model for an accelerator with one
core. Both have a weight-stationary array of 32 x 32, one scratchpad for operands and results, and a DRAM that moves
some words a cycle, of all of them together; and both keep every operand in DRAM between layers.

An array is described in two ways, by the words of weights that each of its cells holds: with one, loading the next
ones stops the array; with two, an array loads ahead. The difference of cycles is the sum of three, which the table
shows:

- folds: eqfuse's array drains for each fold (if it loads ahead: for each product), ZigZag's for each layer. Both wait
  for the next weights to enter, unless they are loaded ahead.
- tiles: eqfuse cuts the layer into tiles, which together have more folds than the whole layer, or drain more often.
- waits: eqfuse's array waits for its first tile, and at the end for results to leave. ZigZag's waits until all that is
  loaded once only has been loaded, and does not compute meanwhile.

    python -m venv /tmp/zigzag && /tmp/zigzag/bin/pip install zigzag-dse==3.9.1 six
    python benchmarks/accelerators/zigzag_layers.py --python /tmp/zigzag/bin/python
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import onnx

from eqfuse.benchmarks.accelerators.one_core import FLOAT, LAYERS, NOTABLE, SIDE, Core, Ours, layer, simulated, size_of
from eqfuse.benchmarks.networks.convolutional import bottlenecks
from eqfuse.benchmarks.networks.folded import FoldedNetwork
from eqfuse.costmodels.dsa_device import Dataflow
from eqfuse.costmodels.systolic import Product, best_dataflow

_RUN = """
import json, logging, sys
import onnx
from zigzag.api import get_hardware_performance_zigzag
from zigzag.mapping.data_movement import DataMoveAttr

def moved(evaluation):
    outermost = [levels[-1] for levels in evaluation.mapping.unit_mem_data_movement.values()]
    amounts = [level.get_attribute(DataMoveAttr.DATA_TRANS_AMOUNT_PER_PERIOD) for level in outermost]
    periods = [level.get_attribute(DataMoveAttr.DATA_TRANS_PERIOD_COUNT) for level in outermost]
    return sum(a.get(way) * p.get(way) for a, p in zip(amounts, periods) for way in a.data)

logging.disable(logging.CRITICAL)
bits, accelerator, mapping, folder, *paths = sys.argv[1:]
for path in paths:
    model = onnx.shape_inference.infer_shapes(onnx.load(path))
    for node in model.graph.node:
        for size in ("weight_size", "act_size", "output_size"):
            node.attribute.append(onnx.helper.make_attribute(size, int(bits)))
    _, _, found = get_hardware_performance_zigzag(
        model, accelerator, mapping, opt="latency", dump_folder=folder, loma_show_progress_bar=False
    )
    layers = [layer for layer, _ in found[0][1]]
    print(json.dumps({
        "computing": sum(layer.ideal_temporal_cycle + layer.systolic_drain_cycle for layer in layers),
        "stalls": sum(layer.stall_slack_comb for layer in layers),
        "total": sum(layer.latency_total2 for layer in layers),
        "moved": sum(map(moved, layers)),
    }))
"""
_DIMENSIONS = ("D1", "D2")
"""Of the array: its rows and its columns."""
_WAYS = {"in": "fh", "read": "tl", "written": "fl", "out": "th"}
"""ZigZag's names for what a port does: written from the memory above, read for the one below, written from below, read
for the one above."""
_OPERANDS = {"I": "I1", "W": "I2", "O": "O"}
"""Its names for inputs, weights and outputs in memories."""
_PREFIXES = {"read": "r", "write": "w", "read_write": "rw"}
"""How the name of a port has to begin."""
_CONVOLUTIONS = ((28, 128), (14, 256), (7, 512))
"""ResNet-50's: rows of the feature map, and its channels."""


@dataclass(frozen=True)
class Case:
    """A model, and the products that an array computes for it."""

    name: str
    model: onnx.ModelProto
    products: tuple[Product, ...]


@dataclass(frozen=True)
class Theirs:
    """What ZigZag says of a model: cycles of the array with its drains, those that it waits for a memory while it
    computes, all cycles, and words to and from DRAM."""

    computing: float
    stalls: float
    total: float
    moved: float


@dataclass(frozen=True)
class ZigZagRow:
    """A model in both."""

    case: Case
    core: Core
    ours: Ours
    theirs: Theirs

    @property
    def difference(self) -> float:
        """By how much eqfuse counts more cycles."""
        return self.ours.total / self.theirs.total - 1

    @property
    def parts(self) -> Mapping[str, float]:
        """The three kinds of cycles of which the difference is the sum."""
        whole = sum(best_dataflow(self.core.array, product)[0] for product in self.case.products)
        entering = 0 if self.core.loads_ahead else SIDE * sum(map(_folds, self.case.products))
        array_theirs = self.theirs.computing + min(self.theirs.stalls, entering)
        waits_theirs = self.theirs.total - array_theirs
        return {
            "folds": whole - array_theirs,
            "tiles": self.ours.computing - whole,
            "waits": self.ours.total - self.ours.computing - waits_theirs,
        }

    def reasons(self) -> Iterator[str]:
        """The parts that make a large difference."""
        if abs(self.difference) >= NOTABLE:
            sign = 1 if self.difference > 0 else -1
            yield from (name for name, part in self.parts.items() if sign * part >= NOTABLE / 2 * self.theirs.total)


def _folds(product: Product) -> int:
    """Of weights that stay."""
    return -(-product.k // SIDE) * -(-product.n // SIDE)


def cases() -> Iterator[Case]:
    """Products, convolutions, and a network of two residual blocks."""
    for name, product in LAYERS:
        yield Case(name, layer(product), (product,))
    for side, channels in _CONVOLUTIONS:
        net = FoldedNetwork("convolution")
        made = net.conv(net.input("x", (1, channels, side, side)), channels)
        name = f"ResNet-50, 3 x 3, {side} x {side}, {channels} channels"
        yield Case(name, net.model({made: (1, channels, side, side)}), (_convolution(side, channels, channels, 3),))
    side, channels = _CONVOLUTIONS[0]
    block = [_convolution(side, *sizes) for sizes in ((4 * channels, channels, 1), (channels, channels, 3))]
    block.append(_convolution(side, channels, 4 * channels, 1))
    yield Case(f"two residual blocks, {side} x {side}", bottlenecks(side, channels, 2), (*block, *block))


def _convolution(side: int, inputs: int, outputs: int, kernel: int) -> Product:
    return Product(side * side, outputs, inputs * kernel * kernel)


# --- ZigZag's files


def accelerator_of(core: Core) -> dict[str, Any]:
    """The accelerator as ZigZag describes one: weights in the array's cells, everything in a scratchpad and in DRAM."""
    word = 8 * FLOAT
    row, whole = SIDE * word, SIDE * SIDE * word
    cell = [_port("read", word, "W read"), _port("write", word, "W in")]
    scratchpad = [
        _port("read", row, "I read"),
        _port("read", row, "W read"),
        _port("write", row, "O written"),
        _port("read", row, "O read"),
        _port("write", whole, "I in", "W in", "O in"),
        _port("read", whole, "O out"),
    ]
    everything = ("I in", "I read", "W in", "W read", "O in", "O read", "O written", "O out")
    dram = [_port("read_write", core.bandwidth * word, *everything)]
    memories = {
        "cells": _memory((2 if core.loads_ahead else 1) * word, "W", cell, ()),
        "scratchpad": _memory(core.words * word, "IWO", scratchpad, _DIMENSIONS),
        "dram": _memory(10**12, "IWO", dram, _DIMENSIONS),
    }
    array = {"dimensions": _DIMENSIONS, "sizes": (SIDE, SIDE), "systolic_dimensions": _DIMENSIONS}
    costs = {"unit_energy": 1.0, "unit_area": 1.0}
    return {"name": "one_core", "memories": memories, "operational_array": {**array, **costs}}


def _memory(bits: int, operands: str, ports: Sequence[dict[str, Any]], served: Sequence[str]) -> dict[str, Any]:
    """Energies and areas play no role."""
    numbered = [{"name": f"{_PREFIXES[port['type']]}_port_{n}", **port} for n, port in enumerate(ports, 1)]
    return {
        "size": bits, "r_cost": 1.0, "w_cost": 1.0, "area": 0.0, "latency": 1, "ports": numbered,
        "operands": [_OPERANDS[operand] for operand in operands], "served_dimensions": served,
    }  # fmt: skip


def _port(kind: str, bits: int, *uses: str) -> dict[str, Any]:
    """A port that moves some bits a cycle, for uses as "W in"."""
    named = [f"{_OPERANDS[operand]}, {_WAYS[way]}" for operand, way in map(str.split, uses)]
    return {"type": kind, "bandwidth_min": 8 * FLOAT, "bandwidth_max": bits, "allocation": named}


def mapping_of() -> list[dict[str, Any]]:
    """Weights stay in the array: the reduction along its rows, output channels along its columns."""
    spatial = {"D1": [f"C, {SIDE}"], "D2": [f"K, {SIDE}"]}
    return [{"name": "default", "spatial_mapping": spatial, "memory_operand_links": _OPERANDS}]


def evaluate(models: Sequence[onnx.ModelProto], core: Core, python: str, work: Path) -> list[Theirs]:
    """Each model in ZigZag, by an interpreter that has it. JSON is YAML."""
    work.mkdir(parents=True)
    accelerator, mapping = work / "accelerator.yaml", work / "mapping.yaml"
    accelerator.write_text(json.dumps(accelerator_of(core)))
    mapping.write_text(json.dumps(mapping_of()))
    paths = [work / f"{number}.onnx" for number in range(len(models))]
    for model, path in zip(models, paths, strict=True):
        onnx.save(model, path)
    done = subprocess.run(
        [python, "-W", "ignore", "-c", _RUN, str(8 * FLOAT), *map(str, (accelerator, mapping, work / "out", *paths))],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        sys.exit(f"ZigZag failed: {done.stderr.strip().splitlines()[-1]}")
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    return [msgspec.json.decode(line, type=Theirs) for line in lines]


def compare(core: Core, python: str, work: Path) -> Iterator[ZigZagRow]:
    """All models in both. ZigZag knows no overlap of layers, so eqfuse's run one by one, too."""
    tried = list(cases())
    found = evaluate([case.model for case in tried], core, python, work)
    for case, theirs in zip(tried, found, strict=True):
        yield ZigZagRow(case, core, simulated(case.model, core, "tvm"), theirs)


def print_table(rows: Sequence[ZigZagRow]) -> None:
    """A Markdown table."""
    print("| layer | m x n x k | words a cycle | loads ahead | array | all | words ", end="")
    print("| ZigZag: array | stalls | all | words | cycles | folds | tiles | waits | because |")
    print(f"| --- | --- | ---: | --- {'| ---: ' * 11}| --- |")
    for row in rows:
        sizes = size_of(row.case.products[0]) if len(row.case.products) == 1 else ""
        ours, theirs = row.ours, row.theirs
        figures = (ours.computing, ours.total, ours.moved, theirs.computing, theirs.stalls, theirs.total, theirs.moved)
        numbers = " | ".join(f"{figure:,.0f}" for figure in figures)
        parts = " | ".join(f"{part:+,.0f}" for part in row.parts.values())
        start = f"| {row.case.name} | {sizes} | {row.core.bandwidth} | {'yes' if row.core.loads_ahead else 'no'}"
        print(f"{start} | {numbers} | {row.difference:+.0%} | {parts} | {', '.join(row.reasons())} |")


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable, help="the interpreter that has zigzag-dse")
    parser.add_argument("--size", type=int, default=192, help="thousands of words of the scratchpad (default 192)")
    parser.add_argument("--bandwidths", type=int, nargs="+", default=[64], help="words a cycle (default 64)")
    options = parser.parse_args()
    rows: list[ZigZagRow] = []
    with tempfile.TemporaryDirectory() as folder:
        for bandwidth in options.bandwidths:
            for ahead in (False, True):
                core = Core(1024 * options.size, bandwidth, Dataflow.WEIGHT_STATIONARY, ahead)
                rows += compare(core, options.python, Path(folder) / f"{bandwidth} {ahead}")
    print_table(rows)


if __name__ == "__main__":
    main()
