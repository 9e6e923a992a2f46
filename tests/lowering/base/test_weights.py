"""Constants that a model's nodes compute."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from onnx import helper

from eqfuse.engine.onnx.model import read
from eqfuse.lowering.base.errors import LoweringError
from eqfuse.lowering.base.weights import Weights

from ..small_models import model, weights


def test_a_constant_may_follow_from_the_shape_of_what_is_computed() -> None:
    nodes = [
        helper.make_node("Neg", ["x"], ["a"]),
        helper.make_node("Shape", ["a"], ["shape"]),
        helper.make_node("Mul", ["shape", "two"], ["sizes"]),
        helper.make_node("Expand", ["x", "sizes"], ["y"]),
    ]
    stored = Weights(read(model(nodes, {"x": (1, 3)}, {"y": (2, 6)}, two=np.array([2, 2]))))
    np.testing.assert_array_equal(stored["sizes"], [2, 6])


@pytest.mark.parametrize("name", ["x", "a", "nothing"])
def test_what_depends_on_an_input_is_refused_by_name(name: str) -> None:
    proto = model([helper.make_node("Neg", ["x"], ["a"])], {"x": (3,)}, {"a": (3,)})
    with pytest.raises(LoweringError, match=f"{name!r} is no constant"):
        Weights(read(proto))[name]


def test_a_constant_may_be_computed_by_many_nodes_in_a_row() -> None:
    names = ["w", *(f"w{number}" for number in range(1500))]
    nodes = [helper.make_node("Neg", [before], [after]) for before, after in pairwise(names)]
    nodes.append(helper.make_node("Add", ["x", names[-1]], ["y"]))
    stored = Weights(read(model(nodes, {"x": (3,)}, {"y": (3,)}, w=weights(3))))
    np.testing.assert_array_equal(stored[names[-1]], weights(3))
