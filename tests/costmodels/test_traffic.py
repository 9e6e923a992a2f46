"""Bytes read and written, and the sizes behind them."""

from __future__ import annotations

import pytest

from eqfuse.costmodels.traffic import Traffic, traffic
from eqfuse.ir.operation import LIMIT, Attributes, Operation, extent
from eqfuse.ir.sizes import SYMBOL
from eqfuse.ir.types import TensorType


def f32(*shape: int | str) -> TensorType:
    return TensorType("float32", shape)


@pytest.mark.parametrize(
    ("op", "attributes", "operands", "output", "expected"),
    [
        ("Add", {}, (f32(8, 4), f32(4)), f32(8, 4), Traffic(144, 128)),
        ("Reshape", {"shape": (4, 8)}, (f32(8, 4),), f32(4, 8), Traffic(0, 0)),
        ("Slice", {}, (f32(100, 4),), f32(2, 4), Traffic(32, 32)),
        ("Gather", {}, (f32(1000, 4), TensorType("int64", (2,))), f32(2, 4), Traffic(32 + 16, 32)),
        ("Expand", {}, (f32(1, 4),), f32(10, 4), Traffic(16, 160)),
        ("Split", {"split": (2, 2)}, (f32(4, 4),), None, Traffic(64, 64)),
        ("Concat", {"axis": 0}, (f32(2, 4), f32(3, 4)), f32(5, 4), Traffic(80, 80)),
        ("Concat", {"axis": 0, "continued": (1, 0)}, (f32(2, 4), f32(3, 4)), f32(5, 4), Traffic(48, 48)),
        ("Shape", {}, (f32(100),), TensorType("int64", (1,)), Traffic(0, 8)),
        ("Clip", {}, (f32(4), None, f32()), f32(4), Traffic(20, 16)),
    ],
)
def test_traffic(
    op: str, attributes: Attributes, operands: tuple[TensorType | None, ...], output: TensorType, expected: Traffic
) -> None:
    assert traffic(Operation.of(op, attributes, operands, output)) == expected


def test_a_symbolic_dimension_counts_the_default() -> None:
    assert extent(f32("sequence", 2)).elements == 2 * SYMBOL


@pytest.mark.parametrize("name", ["N", "batch", "batch_size", "Batch"])
def test_a_batch_counts_one(name: str) -> None:
    assert extent(f32(name, 2)).elements == 2


def test_an_unknown_output_is_as_large_as_the_largest_operand() -> None:
    assert Operation.of("Mystery", {}, (f32(3), f32(5, 5)), None).output == extent(f32(5, 5))


def test_a_huge_tensor_is_bounded() -> None:
    assert extent(f32(2**60, 2**60)).elements == LIMIT
