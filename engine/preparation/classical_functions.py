"""Operators of classical machine learning as those of ONNX: ``node -> function``.

    LinearRegressor(X) => Gemm(X, coefficients, intercepts); ArrayFeatureExtractor(X, i) => Gather(X, i)

So tables of labels, linear models and encodings are kernels, and rules see them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx import helper, numpy_helper

from ...ir.types import TensorType
from ..shapes.classical import is_classical

_LEAST_OPSET = 13
"""The version since which axes of Unsqueeze and ReduceSum are inputs."""
_TRANSFORMS = {"NONE": "Identity", "LOGISTIC": "Sigmoid", "SOFTMAX": "Softmax"}
"""What becomes of scores."""


def is_expandable_classical(node: ir.Node) -> bool:
    """Whether `classical_function` takes a node of that operator set, by its attributes."""
    return is_classical(node) and node.op_type in _WRITERS and _WRITERS[node.op_type](node, 2) is not None


def classical_function(node: ir.Node, opset: int, type_: TensorType | None) -> onnx.FunctionProto | None:
    """The function of a node whose first input has that type; None where there is none of its rank."""
    if type_ is None or type_.shape is None or opset < _LEAST_OPSET:
        return None
    if len(type_.shape) != 2 and node.op_type != "ArrayFeatureExtractor":
        return None
    if node.op_type == "Imputer" and type_.dtype != "float32":
        return None
    nodes = _WRITERS[node.op_type](node, len(type_.shape))
    if nodes is None:
        return None
    inputs = [f"x{number}" for number in range(len(node.inputs))]
    outputs = [f"y{number}" for number in range(len(node.outputs))]
    opsets = [helper.make_opsetid("", opset)]
    return helper.make_function("eqfuse.classical", node.op_type, inputs, outputs, nodes, opsets)


Nodes = list[onnx.NodeProto]


def _constant(name: str, value: Any, dtype: str) -> onnx.NodeProto:
    return helper.make_node("Constant", [], [name], value=numpy_helper.from_array(np.asarray(value, dtype), name))


def _attribute(node: ir.Node, name: str, default: Any) -> Any:
    return node.attributes[name].value if name in node.attributes else default


def _extract(node: ir.Node, rank: int) -> Nodes:
    """The columns of indices, of which ONNX Runtime takes any number; a row of them where the operand has one axis."""
    del node
    nodes = [_constant("all", [-1], "int64"), helper.make_node("Reshape", ["x1", "all"], ["places"])]
    nodes.append(helper.make_node("Gather", ["x0", "places"], ["columns"], axis=-1))
    nodes.append(_constant("first", [0], "int64"))
    last = ("Unsqueeze", ["columns", "first"]) if rank == 1 else ("Identity", ["columns"])
    return [*nodes, helper.make_node(*last, ["y0"])]


def _scores(node: ir.Node, rows: int) -> Nodes | None:
    """`scores`, of the coefficients of so many rows."""
    coefficients = np.asarray(_attribute(node, "coefficients", ()), "float32")
    intercepts = np.asarray(_attribute(node, "intercepts", ()), "float32")
    if not rows or not coefficients.size or coefficients.size % rows or intercepts.size not in (0, rows):
        return None
    bias = intercepts if intercepts.size else np.zeros(rows, "float32")
    return [
        helper.make_node("Cast", ["x0"], ["x"], to=onnx.TensorProto.FLOAT),
        _constant("coefficients", coefficients.reshape(rows, -1), "float32"),
        _constant("intercepts", bias, "float32"),
        helper.make_node("Gemm", ["x", "coefficients", "intercepts"], ["scores"], transB=1),
    ]


def _regress(node: ir.Node, rank: int) -> Nodes | None:
    """Without a transform: of one target, ONNX Runtime takes none but PROBIT."""
    del rank
    scores = _scores(node, _attribute(node, "targets", 1))
    if scores is None or _attribute(node, "post_transform", "NONE") != "NONE":
        return None
    return [*scores, helper.make_node("Identity", ["scores"], ["y0"])]


def _classify(node: ir.Node, rank: int) -> Nodes | None:
    """Of a row of coefficients for each label: one row alone has a threshold."""
    del rank
    labels = _attribute(node, "classlabels_ints", ())
    scores = _scores(node, len(labels)) if len(labels) > 1 else None
    transform = _TRANSFORMS.get(_attribute(node, "post_transform", "NONE"))
    if scores is None or transform is None:
        return None
    last = helper.make_node(transform, ["scores"], ["y1"])
    best = helper.make_node("ArgMax", ["scores"], ["best"], axis=1, keepdims=0)
    label = helper.make_node("Gather", ["labels", "best"], ["y0"])
    return [*scores, _constant("labels", labels, "int64"), best, label, last]


def _encode(node: ir.Node, rank: int) -> Nodes | None:
    """A column for each category; none is 1 for what is of no category."""
    del rank
    categories = _attribute(node, "cats_int64s", ())
    if not len(categories) or not _attribute(node, "zeros", 1):
        return None
    return [
        helper.make_node("Cast", ["x0"], ["x"], to=onnx.TensorProto.INT64),
        _constant("last", [-1], "int64"),
        helper.make_node("Unsqueeze", ["x", "last"], ["rows"]),
        _constant("categories", categories, "int64"),
        helper.make_node("Equal", ["rows", "categories"], ["found"]),
        helper.make_node("Cast", ["found"], ["y0"], to=onnx.TensorProto.FLOAT),
    ]


def _impute(node: ir.Node, rank: int) -> Nodes | None:
    """Another number in the place of NaN, or of the one that stands for nothing."""
    del rank
    values = _attribute(node, "imputed_value_floats", ())
    replaced = _attribute(node, "replaced_value_float", 0.0)
    if not len(values):
        return None
    find = helper.make_node("IsNaN", ["x0"], ["missing"])
    if not np.isnan(replaced):
        find = helper.make_node("Equal", ["x0", "replaced"], ["missing"])
    return [
        _constant("replaced", replaced, "float32"),
        find,
        _constant("values", values, "float32"),
        helper.make_node("Where", ["missing", "values", "x0"], ["y0"]),
    ]


_WRITERS: dict[str, Callable[[ir.Node, int], Nodes | None]] = {
    "ArrayFeatureExtractor": _extract, "LinearRegressor": _regress, "LinearClassifier": _classify,
    "OneHotEncoder": _encode, "Imputer": _impute,
}  # fmt: skip
