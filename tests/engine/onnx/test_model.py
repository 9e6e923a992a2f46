"""Sparse constants, wherever they stand: read as dense ones, as ONNX Runtime reads them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import eqfuse
from eqfuse.engine.onnx.model import read
from eqfuse.support.errors import ModelError

from ...lowering.small_models import expected
from ..models import model, value

FLAT, COORDINATES = [0, 4], [[0, 0], [1, 1]]
X = np.arange(6, dtype=np.float32).reshape(2, 3) + 1


def sparse(indices: Any = FLAT, shape: Any = (2, 3), dtype: Any = np.float32) -> onnx.SparseTensorProto:
    values = numpy_helper.from_array(np.array([1, 2], dtype), "w")
    return helper.make_sparse_tensor(values, numpy_helper.from_array(np.array(indices, np.int64), "i"), shape)


def with_initializer(tensor: onnx.SparseTensorProto, is_default: bool = False) -> onnx.ModelProto:
    inputs = [value("x", [2, 3]), *([value("w", [2, 3])] if is_default else [])]
    proto = model([helper.make_node("Mul", ["x", "w"], ["y"])], inputs, ["y"])
    proto.graph.sparse_initializer.append(tensor)
    return proto


def with_node(tensor: onnx.SparseTensorProto) -> onnx.ModelProto:
    nodes = [helper.make_node("Constant", [], ["w"], sparse_value=tensor), helper.make_node("Mul", ["x", "w"], ["y"])]
    return model(nodes, [value("x", [2, 3])], ["y"])


def in_a_branch(tensor: onnx.SparseTensorProto) -> onnx.ModelProto:
    scaled = helper.make_graph([helper.make_node("Mul", ["x", "w"], ["q"])], "scaled", [], [value("q", None)])
    scaled.sparse_initializer.append(tensor)
    other = helper.make_graph([helper.make_node("Neg", ["x"], ["q"])], "other", [], [value("q", None)])
    nodes = [helper.make_node("If", ["c"], ["y"], then_branch=scaled, else_branch=other)]
    return model(nodes, [value("x", [2, 3]), value("c", [], onnx.TensorProto.BOOL)], ["y"])


@pytest.mark.representatives(3)
@pytest.mark.parametrize("indices", [FLAT, COORDINATES], ids=["flat", "coordinates"])
@pytest.mark.parametrize("build", [with_initializer, with_node, in_a_branch])
def test_it_is_kept(build: Any, indices: Any) -> None:
    proto = build(sparse(indices))
    before = proto.SerializeToString()
    feeds = {"x": X} | ({"c": np.array(True)} if build is in_a_branch else {})
    wanted = expected(proto, feeds)["y"]
    np.testing.assert_array_equal(wanted, X * [[1, 0, 0], [0, 2, 0]])
    np.testing.assert_array_equal(expected(eqfuse.optimize(proto), feeds)["y"], wanted)
    assert proto.SerializeToString() == before


def test_it_may_be_the_default_of_an_input() -> None:
    proto = with_initializer(sparse(), is_default=True)
    result = eqfuse.optimize(proto)
    for feeds in ({"x": X}, {"x": X, "w": X}):
        np.testing.assert_array_equal(expected(result, feeds)["y"], expected(proto, feeds)["y"])


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        (sparse(shape=(2**20, 2**20)), "sparse constant 'w': its shape 1048576x1048576 is too large"),
        (sparse([0, 6]), "sparse constant 'w': its indices do not fit its shape and values"),
        (sparse([[0, 0], [1, -1]]), "sparse constant 'w': its indices do not fit its shape and values"),
        (sparse([[0], [1]]), "sparse constant 'w': its indices do not fit its shape and values"),
    ],
    ids=["large", "outside", "negative", "rank"],
)
def test_what_cannot_be_read_is_named(tensor: onnx.SparseTensorProto, message: str) -> None:
    with pytest.raises(ModelError, match=f"^graph: {message}"):
        read(with_initializer(tensor))


def test_a_default_has_the_shape_of_its_input() -> None:
    with pytest.raises(ModelError, match="initializer 'w': has the shape 3x3, and the input of this name another one"):
        read(with_initializer(sparse(shape=(3, 3)), is_default=True))
