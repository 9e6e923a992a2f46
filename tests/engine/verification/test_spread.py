"""How far outputs move, which says what a small difference is."""

from __future__ import annotations

import numpy as np
import pytest

from eqfuse.engine.verification.baseline import Baseline, Run


def test_outputs_that_are_larger_at_other_sizes_move_in_proportion() -> None:
    """A network may give numbers near 0.2 for images of 8 pixels, and hundreds for larger ones."""
    outputs = [np.float32([[0.2]]), np.float32([[0.2002]]), np.float32([[400.0]]), np.float32([[0.02]])]
    baseline = Baseline(tuple(Run({}, {"y": each}) for each in outputs))
    first, second, larger, smaller = (baseline.spread("y", index) for index in range(4))
    assert first == pytest.approx(2e-4, rel=1e-3)
    assert (second, smaller) == (first, first)
    assert larger == pytest.approx(0.4, rel=1e-2)
