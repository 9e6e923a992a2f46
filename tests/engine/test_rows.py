"""Products are taken of rows, and what moves whole rows is one Gather."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from onnx import helper

import eqfuse

from .models import model, normal, value


@pytest.mark.parametrize("leading", [(1, 48), ("N", 48), (1, "T")])
def test_a_product_and_its_bias_on_three_axes_are_one_gemm(leading: tuple[int | str, ...]) -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Add", ["a", "b"], ["c"]),
        helper.make_node("Reshape", ["c", "heads"], ["y"]),
    ]
    heads = [-1 if isinstance(size, str) else size for size in leading]
    weights = {"w": normal(32, 64), "b": normal(64), "heads": np.array([*heads, 4, 16])}
    source = model(nodes, [value("x", [*leading, 32])], [value("y", [*leading, 4, 16])], weights, opset=17)
    result = eqfuse.optimize_with_result(source)
    assert result.verification is not None
    assert result.verification.status == "passed"
    assert result.after.operators == {"Reshape": 2, "Gemm": 1}


def test_the_first_of_any_number_of_positions_is_cut_off_early() -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("MatMul", ["b", "v"], ["c"]),
        helper.make_node("Gather", ["c", "first"], ["y"], axis=1),
    ]
    weights = {"w": normal(32, 64), "v": normal(64, 32), "first": np.array(0)}
    result = eqfuse.optimize_with_result(model(nodes, [value("x", ["N", "T", 32])], ["y"], weights, opset=17))
    assert result.verification is not None
    assert result.verification.status == "passed"
    assert [node.op_type for node in result.model.graph] == ["Gather", "MatMul", "Relu", "MatMul"]


def test_a_shifted_window_is_one_gather() -> None:
    """Rows, as a map, rolled along both axes, cut into windows, and rows again; beside the large weight the places of
    the Gather hardly make the file grow."""
    nodes = [helper.make_node("Relu", ["x"], ["r"]), helper.make_node("Reshape", ["r", "map"], ["m0"])]
    for step, axis in enumerate((1, 2)):
        for part in ("back", "front"):
            weights = [f"{part}{axis}{edge}" for edge in ("start", "end")]
            nodes.append(helper.make_node("Slice", [f"m{step}", *weights, f"axis{axis}"], [f"{part}{axis}"]))
        nodes.append(helper.make_node("Concat", [f"back{axis}", f"front{axis}"], [f"m{step + 1}"], axis=axis))
    nodes += [
        helper.make_node("Reshape", ["m2", "windows"], ["s"]),
        helper.make_node("Transpose", ["s"], ["t"], perm=[0, 1, 3, 2, 4, 5]),
        helper.make_node("Reshape", ["t", "rows"], ["u"]),
        helper.make_node("MatMul", ["u", "w"], ["y"]),
    ]
    constants = {f"{part}{axis}{edge}": np.array([at]) for axis in (1, 2) for part, edge, at in [
        ("back", "start", 3), ("back", "end", 16), ("front", "start", 0), ("front", "end", 3)
    ]}  # fmt: skip
    constants |= {"axis1": np.array([1]), "axis2": np.array([2]), "map": np.array([1, 16, 16, 32])}
    constants |= {"windows": np.array([1, 4, 4, 4, 4, 32]), "rows": np.array([256, 32]), "w": normal(32, 4096)}
    source = model(nodes, [value("x", [256, 32])], [value("y", [256, 4096])], constants, opset=17)
    result = eqfuse.optimize_with_result(source)
    assert result.verification is not None
    assert result.verification.status == "passed"
    assert Counter(result.after.operators) == Counter(Relu=1, Gather=1, MatMul=1)
