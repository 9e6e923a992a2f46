"""The choice between branches, of which only one is computed."""

from __future__ import annotations

import numpy as np
import pytest

from eqfuse.ir.operators import Unsupported, evaluate


@pytest.mark.parametrize("condition", [False, True])
def test_branches_may_have_shapes_of_their_own(condition: bool) -> None:
    then, otherwise = np.zeros((2, 3)), np.ones(4)
    chosen = evaluate("If", [np.array(condition), then, otherwise])
    np.testing.assert_array_equal(chosen, then if condition else otherwise)


def test_a_condition_is_one_truth_value() -> None:
    with pytest.raises(Unsupported):
        evaluate("If", [np.array([True, False]), np.zeros(2), np.zeros(2)])
