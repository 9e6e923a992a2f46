"""What comparisons with other simulators share: an accelerator of one core, layers, and how eqfuse simulates them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from eqfuse.benchmarks.accelerators.cell import optimised
from eqfuse.costmodels.dsa_device import ComputeUnit, Dataflow, DsaDevice, load_dsa_device
from eqfuse.costmodels.systolic import Product
from eqfuse.lowering.dsa.clusters.compiler import program_for
from eqfuse.lowering.dsa.codegen.compiler import Choices, accelerator_network
from eqfuse.lowering.dsa.program.instructions import Level, Unit
from eqfuse.lowering.dsa.schedule.clusters import Allocation
from eqfuse.lowering.dsa.schedule.variants import VARIANTS

FLOAT = 2
"""Bytes of a word: other simulators count words, and the text's figures are of float16."""
SIDE = 32
"""Rows and columns of the array."""
NOTABLE = 0.1
"""A difference from here on gets a reason."""
LAYERS = (
    ("MobileNet-v2, 28 x 28, 144 to 32", Product(784, 32, 144)),
    ("MobileNet-v2, 14 x 14, 384 to 64", Product(196, 64, 384)),
    ("MobileNet-v2, 14 x 14, 64 to 384", Product(196, 384, 64)),
    ("MobileNet-v2, 7 x 7, 960 to 160", Product(49, 160, 960)),
    ("MobileNet-v2, 7 x 7, 160 to 960", Product(49, 960, 160)),
    ("attention of 384 tokens, 64 wide", Product(384, 384, 64)),
)
_BASE = "edge-npu"


@dataclass(frozen=True)
class Core:
    """What an accelerator of one core has: words of its LB, words a cycle to and from DDR, and an array of SIDE x SIDE
    that runs one dataflow."""

    words: int
    bandwidth: int
    dataflow: Dataflow = Dataflow.OUTPUT_STATIONARY
    loads_ahead: bool = False

    @property
    def device(self) -> DsaDevice:
        """The accelerator, whose transfers take no time before their first byte."""
        base, clock, room = load_dsa_device(_BASE), 1e9, self.words * FLOAT
        return replace(
            base, clock=clock, local_buffer=room, weight_buffer=room // 3, global_buffer=room,
            ddr_bandwidth=self.bandwidth * FLOAT * clock, global_bandwidth=64 * FLOAT * clock,
            local_bandwidth=1024 * clock, dma_latency=0.0, hoist_latency=0.0,
            units=tuple(self.array if unit.kind == "matrix" else unit for unit in base.units),
        )  # fmt: skip

    @property
    def array(self) -> ComputeUnit:
        """Its matrix unit."""
        return ComputeUnit("MME", "matrix", "core", SIDE, SIDE, (self.dataflow,), loads_ahead=self.loads_ahead)


@dataclass(frozen=True)
class Ours:
    """What eqfuse simulates: cycles in which the array computes, all cycles, and words to and from DDR."""

    computing: int
    total: int
    moved: int


def simulated(model: onnx.ModelProto, core: Core, variant: str = "full") -> Ours:
    """The fastest program of a variant for a model."""
    found, device = optimised(model, _BASE), core.device
    network = accelerator_network(found.graph, found.layers, device, FLOAT)
    samples = model.graph.input[0].type.tensor_type.shape.dim[0].dim_value
    report = program_for(network, device, Allocation.even(1, 1, samples), Choices(VARIANTS[variant])).report
    busy = dict(report.occupied)[Unit.MME] * report.cycles
    moved = sum(each.bytes for each in report.traffic if Level.DDR in (each.source, each.target))
    return Ours(round(busy), ceil(report.cycles), moved // FLOAT)


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


def size_of(product: Product) -> str:
    """As a table shows it."""
    return f"{product.m} x {product.n} x {product.k}"
