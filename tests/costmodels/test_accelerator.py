"""The costs of operators on an accelerator, and graphs that are the best there and nowhere else."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from eqfuse.costmodels.device import Accelerator, load_device
from eqfuse.costmodels.model import RooflineCost
from eqfuse.costmodels.scheduled import scheduled_seconds
from eqfuse.driver.optimize import optimize_model
from eqfuse.driver.options import Options
from eqfuse.engine.choices import PartitionMethod
from eqfuse.ir.operation import Operation
from eqfuse.ir.types import TensorType

from ..lowering.small_models import model

DEVICE = load_device("dsa-stcp920")
"""Eight cores of 1 GHz, each with an array of 32 x 64 and vectors of 64 elements."""


def operation(op: str, *shapes: tuple[int, ...], **attributes: int | tuple[int, ...]) -> Operation:
    """From the shapes of operands and result."""
    *operands, result = (TensorType("float32", shape) for shape in shapes)
    return Operation.of(op, attributes, tuple(operands), result)


def test_vectors_take_elements_on_all_cores() -> None:
    assert scheduled_seconds(operation("Relu", (8, 64, 8), (8, 64, 8)), DEVICE) == pytest.approx(8e-9)


def test_products_take_the_cycles_of_an_array() -> None:
    """Rows over eight cores: 256 each, in one fold with stationary weights: 2 x 32 + 64 + 256 - 2 cycles."""
    product = operation("MatMul", (2048, 24), (24, 24), (2048, 24))
    assert scheduled_seconds(product, DEVICE) == pytest.approx(382e-9)


def test_steps_of_a_recurrent_network_wait_for_each_other() -> None:
    def seconds(steps: int) -> float:
        shapes = (steps, 1, 32), (1, 128, 32), (1, 128, 32), (steps, 1, 1, 32)
        return scheduled_seconds(operation("LSTM", *shapes, hidden_size=32), DEVICE)

    assert seconds(16) == pytest.approx(16 * seconds(1), rel=0.01)


def test_unknown_shapes_have_a_cost() -> None:
    unknown = Operation.of("MatMul", {}, (TensorType("float32", None), TensorType("float32", None)), None)
    assert 0 <= RooflineCost(DEVICE).cost(unknown) < 1


@pytest.mark.parametrize("name", ["stcp920", "stcp920-1mb", "goya", "edge-npu"])
def test_levels_go_from_the_fastest_to_the_slowest(name: str) -> None:
    device = load_device(f"dsa-{name}")
    assert isinstance(device, Accelerator)
    local, shared = device.caches
    assert local.bandwidth >= shared.bandwidth >= device.dram_bandwidth
    assert device.dram_bandwidth == device.cluster.ddr_bandwidth


@pytest.mark.representatives(3)
@pytest.mark.parametrize("partition", ["none", "joint", "fuseops"])
@pytest.mark.parametrize(("device", "products"), [("x86-64-v4", 2), ("dsa-stcp920", 1)])
def test_narrow_products_become_one_where_an_array_would_be_empty(
    device: str, products: int, partition: PartitionMethod
) -> None:
    """(X A) B with four columns between them has a third of the arithmetic of X (A B), and is best on a processor. Four
    columns leave most of an array of 32 x 64 empty, which takes as long for each of the two as for the only one."""
    generator = np.random.default_rng(0)
    weights = {n: generator.standard_normal(s).astype(np.float32) for n, s in {"a": (24, 4), "b": (4, 24)}.items()}
    nodes = [helper.make_node("MatMul", ["x", "a"], ["h"]), helper.make_node("MatMul", ["h", "b"], ["y"])]
    source = model(nodes, {"x": (2048, 24)}, {"y": (2048, 24)}, **weights)
    result = optimize_model(source, None, Options(device=device, partition=partition, verify=False, intensive=False))
    assert [node.op_type for node in result.model.graph] == ["MatMul"] * products
