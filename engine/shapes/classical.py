"""The types of the results of operators of classical machine learning: ONNX infers few of them.

    Scaler(X[N, C]) -> float32[N, C]; TreeEnsembleRegressor(X[N, C]) -> float32[N, targets]
"""

from __future__ import annotations

import onnx_ir as ir

from ...ir.sizes import ONE, Size, number
from .site import Shape, Site, Undecided

DOMAIN = "ai.onnx.ml"
_ELEMENTWISE = frozenset({"Scaler", "Normalizer", "Imputer", "Binarizer", "LabelEncoder"})
"""Operators whose result has the shape of the operand."""
_FLOATS = frozenset(
    {"Scaler", "Normalizer", "LinearRegressor", "SVMRegressor", "TreeEnsembleRegressor", "OneHotEncoder"}
)
"""Operators that return float32 for every type of operand."""
_TABLES = {"LabelEncoder": "values_", "Imputer": "imputed_value_"}
"""The beginning of the attribute whose entries become elements."""
_TARGETS = {"LinearRegressor": "targets", "TreeEnsembleRegressor": "n_targets", "TreeEnsemble": "n_targets"}
"""The attribute of regressors with the number of columns."""
_CLASSIFIERS = frozenset({"LinearClassifier", "TreeEnsembleClassifier", "SVMClassifier"})
_TWO = 2
"""Classes of which the scores are those of the classes, not of their only pair."""
_ENTRIES = {"strings": "string", "int64s": "int64", "ints": "int64", "floats": "float32"}
"""The element type of entries by the end of the attribute that lists them."""


def is_classical(node: ir.Node) -> bool:
    """Whether a node is of the operator set of classical machine learning."""
    return node.domain == DOMAIN


def classical_dtypes(node: ir.Node) -> list[str | None]:
    """The element types of a node's outputs, as far as its attributes tell."""
    if node.op_type in _CLASSIFIERS:
        return [_entry_type(node, "classlabels_"), "float32"]
    if node.op_type in _FLOATS:
        return ["float32"]
    return [_entry_type(node, _TABLES[node.op_type])] if node.op_type in _TABLES else []


def classical_shapes(site: Site) -> list[Shape]:
    """The shapes of a node's outputs. Raises Undecided if nothing follows from those of its operands."""
    node, shape = site.node, site.shape()
    if node.op_type in _ELEMENTWISE:
        return [shape]
    rows: Size | None = shape[0] if len(shape) > 1 else ONE
    if node.op_type in _TARGETS:
        return [(rows, number(site.attribute(_TARGETS[node.op_type], 1)))]
    if node.op_type == "SVMRegressor":
        return [(rows, ONE)]
    if node.op_type == "TreeEnsembleClassifier":
        return [(rows,), (rows, number(_count(node, "classlabels_")))]
    if node.op_type == "LinearClassifier":
        scores = len(site.attribute("intercepts", ()) or [0] * _count(node, "classlabels_"))
        return [(rows,), (rows, number(2 if scores == 1 else scores))]
    if node.op_type == "SVMClassifier":
        return [(rows,), (rows, number(_machine_scores(site)))]
    if node.op_type == "OneHotEncoder":
        return [(*shape, number(_count(node, "cats_")))]
    raise Undecided


def _machine_scores(site: Site) -> int:
    """The scores of a row: one for each class, or for each pair of more than two if no probabilities are estimated."""
    classes = _count(site.node, "classlabels_")
    has_pairs = site.attribute("vectors_per_class", ()) and not site.attribute("prob_a", ()) and classes > _TWO
    return classes * (classes - 1) // 2 if has_pairs else classes


def _tables(node: ir.Node, prefix: str) -> dict[str, int]:
    """The lengths of the attributes that begin so, by their element types."""
    named = ((name.removeprefix(prefix), a) for name, a in node.attributes.items() if name.startswith(prefix))
    return {_ENTRIES[ending]: len(attribute.value) for ending, attribute in named if ending in _ENTRIES}


def _entry_type(node: ir.Node, prefix: str) -> str | None:
    return next(iter(_tables(node, prefix)), None)


def _count(node: ir.Node, prefix: str) -> int:
    return max(_tables(node, prefix).values(), default=0)
