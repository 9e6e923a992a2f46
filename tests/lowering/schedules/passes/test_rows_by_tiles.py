"""Rows inside of kernels that are stored tile by tile, for widths that vectors do not divide."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tvm import topi

from eqfuse.lowering.schedules import schedule

from ..functions import HOST, SERVER, execute, of_one

WIDTHS = (8, 9, 15, 16, 17, 24, 31, 33, 47, 49, 50, 63, 65, 100)


@pytest.mark.parametrize("target", [HOST, SERVER], ids=["host", "server"])
@pytest.mark.parametrize("width", WIDTHS)
def test_soft_max_of_any_width(width: int, target: Any) -> None:
    x = 9 * np.random.default_rng(width).standard_normal((7, width)).astype(np.float32)
    scheduled = schedule(of_one((7, width), topi.nn.softmax), target)
    powers = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    result = execute(scheduled, [x, np.zeros_like(x)])
    np.testing.assert_allclose(result, powers / powers.sum(1, keepdims=True), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(("width", "stored"), [(49, 64), (33, 48), (17, 32), (48, 48)])
def test_rows_have_room_for_all_of_their_tiles(width: int, stored: int) -> None:
    scheduled = schedule(of_one((4096, width), topi.nn.softmax), SERVER)
    assert "rows" in scheduled.rule
    assert stored in {int(b.shape[-1]) for b in scheduled.schedule.mod["main"].body.block.alloc_buffers}
