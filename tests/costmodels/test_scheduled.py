"""Costs of compiled kernels."""

from __future__ import annotations

from eqfuse.costmodels.choices import DEFAULT_DEVICE
from eqfuse.costmodels.device import load_device
from eqfuse.costmodels.scheduled import scheduled_seconds
from eqfuse.ir.operation import Operation
from eqfuse.ir.types import TensorType


def test_a_pooling_whose_window_is_not_known_has_a_cost() -> None:
    """It is opaque, as where the pads depend on free sizes."""
    maps = TensorType("float32", (1, 8, 16, 16))
    assert scheduled_seconds(Operation.of("MaxPool", {}, (maps,), maps), load_device(DEFAULT_DEVICE)) > 0
