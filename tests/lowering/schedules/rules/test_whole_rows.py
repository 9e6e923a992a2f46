"""A reduction of everything to one element is a row: vectors of partial results, not one element after the other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tvm import te

from eqfuse.lowering.schedules import schedule

from ..functions import HOST, SERVER, execute


def reduction(shape: tuple[int, ...], combine: Any) -> Any:
    x = te.placeholder(shape, name="x")
    axes = [te.reduce_axis((0, extent), f"k{place}") for place, extent in enumerate(shape)]
    total = te.compute((), lambda: combine(x[tuple(axes)], axis=axes), name="total")
    return te.create_prim_func([x, te.compute((), lambda: total() * 2.0, name="y")])


@pytest.mark.representatives(3)
@pytest.mark.parametrize("shape", [(64, 48), (1, 32, 33), (4097,), (3, 5), (6, 7, 8), (2, 5, 3, 4)], ids=str)
@pytest.mark.parametrize(("combine", "of_numpy"), [(te.max, np.max), (te.min, np.min), (te.sum, np.sum)])
def test_everything_is_reduced(shape: tuple[int, ...], combine: Any, of_numpy: Any) -> None:
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    result = execute(schedule(reduction(shape, combine), HOST), [x, np.zeros((), np.float32)])
    np.testing.assert_allclose(result, 2 * of_numpy(x), rtol=1e-4, atol=1e-4)


def test_it_is_a_row() -> None:
    assert "rows" in schedule(reduction((64, 48), te.max), SERVER).rule


@pytest.mark.parametrize("shape", [(12, 8), (1, 14, 14, 8), (6, 10, 7, 3)], ids=str)
def test_axes_that_lie_behind_each_other_are_read_as_one(shape: tuple[int, ...]) -> None:
    """Vectors of places that are computed by divisions would be gathered element by element."""
    script = schedule(reduction(shape, te.min), SERVER).schedule.mod["main"].script()
    assert "x[" in script
    assert "//" not in script
