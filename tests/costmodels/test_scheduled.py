"""Costs of compiled kernels."""

from __future__ import annotations

import pytest

from eqfuse.costmodels.choices import DEFAULT_DEVICE
from eqfuse.costmodels.device import load_device
from eqfuse.costmodels.scheduled import scheduled_seconds, steps_per_product
from eqfuse.ir.operation import Operation
from eqfuse.ir.types import TensorType


def test_a_pooling_whose_window_is_not_known_has_a_cost() -> None:
    """It is opaque, as where the pads depend on free sizes."""
    maps = TensorType("float32", (1, 8, 16, 16))
    assert scheduled_seconds(Operation.of("MaxPool", {}, (maps,), maps), load_device(DEFAULT_DEVICE)) > 0


@pytest.mark.parametrize(
    ("data", "depth", "usual", "exact"),
    [("uint8", 8, 0.75, 0.5), ("int8", 8, 0.75, 0.75), ("uint8", 6, 0.75, 0.75), ("uint8", 7, 4.0, 4.0)],
)
def test_products_of_bytes_take_the_best_instruction_that_fits(
    data: str, depth: int, usual: float, exact: float
) -> None:
    """With AVX2, vpmaddubsw takes four bytes without a sign by exact pairs of weights, vpmaddwd any two."""
    types = TensorType(data, (16, depth)), TensorType("int8", (depth, 32)), None, None
    operation = Operation.of("MatMulInteger", {}, types, TensorType("int32", (16, 32)))
    device = load_device("x86-64-v3")
    assert steps_per_product(operation, device) == usual
    assert steps_per_product(operation, device.with_exact_pairs) == exact


@pytest.mark.parametrize(
    ("rows", "depth", "zero", "steps"),
    [(16, 8, (), 0.6), (16, 7, (), 4.0), (16, 8, (32,), 4.0), ("rows", 8, (), 4.0)],
    ids=["pairs", "no pairs", "a zero point each", "dynamic"],
)
def test_products_of_activations_take_pairs_of_known_sizes(
    rows: int | str, depth: int, zero: tuple[int, ...], steps: float
) -> None:
    operands = TensorType("uint8", (2, rows, depth)), TensorType("int8", (2, depth, 32))
    zeros = TensorType("uint8", ()), TensorType("int8", zero)
    operation = Operation.of("MatMulInteger", {}, (*operands, *zeros), TensorType("int32", (2, rows, 32)))
    assert steps_per_product(operation, load_device("x86-64-v3")) == steps
    assert steps_per_product(operation, load_device("arm-cortex-a76")) == 4.0
