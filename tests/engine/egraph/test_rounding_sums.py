"""Sums that round stay as they are, sums that only cancel do not."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

import eqfuse

from ...onnx_runtime import outputs_of
from ..models import model, value

TYPES = {"float32": 12582912.0, "float64": 1.5 * 2.0**52}
"""A number of each type beside which there are whole numbers only. ONNX Runtime computes float16 as float32."""
X = np.array([0.4, 0.6, 1.5, 2.5, -0.5, -1.2, 100.7, 3.0])


def two_sums(dtype: str, number: float, first: str, second: str) -> onnx.ModelProto:
    """(x + k) - k and its likes: operators with their operands, t being the first sum."""
    nodes = [
        helper.make_node(words[0], words[1:], [result])
        for words, result in ((first.split(), "t"), (second.split(), "y"))
    ]
    element_type = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    return model(
        nodes, [value("x", [len(X)], element_type)], [value("y", [len(X)], element_type)],
        {"k": np.array(number, dtype), "minus_k": np.array(-number, dtype)},
    )  # fmt: skip


@pytest.mark.representatives(3)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(
    ("first", "second"),
    [("Add x k", "Sub t k"), ("Add k x", "Add t minus_k"), ("Sub x k", "Add k t"), ("Sub k x", "Sub k t")],
)
def test_rounding_stays(dtype: str, first: str, second: str) -> None:
    proto = two_sums(dtype, TYPES[dtype], first, second)
    feeds = {"x": X.astype(dtype)}
    (expected,) = outputs_of(proto, feeds)
    (found,) = outputs_of(eqfuse.optimize(proto), feeds)
    assert expected.tolist() == np.round(X).tolist()
    np.testing.assert_array_equal(found, expected)


def test_other_sums_cancel() -> None:
    """Neither beside a small number nor where the second sum leaves most of the first."""
    assert len(eqfuse.optimize(two_sums("float32", 2.0, "Add x k", "Sub t k")).graph.node) == 1
    added = two_sums("float32", TYPES["float32"], "Add x k", "Add t k")
    assert [node.op_type for node in eqfuse.optimize(added).graph.node] == ["Add"]
