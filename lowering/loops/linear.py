"""Linear models and support vector machines as their plain loop reads them: what is multiplied with an entry of a row
lies side by side, so that sums are vectors.

    y[k] = sum over i of x[i] C[k, i]  is read as  C[i, k]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx import numpy_helper

from ..base.errors import LoweringError

LINEAR = ("LinearRegressor", "LinearClassifier", "SVMRegressor")
_TRANSFORMS = {"LinearClassifier": (b"NONE", b"LOGISTIC", b"SOFTMAX")}
"""What may become of the scores; of other operators' nothing does."""
_KERNELS = (b"LINEAR", b"POLY", b"RBF", b"SIGMOID")
_FEWEST_CLASSES = 2


def pack_linear(operator: str, values: Mapping[str, Any], dtypes: Sequence[str | None]) -> dict[str, Any]:
    """The attributes of an operator of `LINEAR` with transposed matrices, `columns` of its rows, and `results` of each.

    Raises LoweringError for a model that the loop does not compute.
    """
    if dtypes[0] != "float32" or values["post_transform"] not in _TRANSFORMS.get(operator, (b"NONE",)):
        raise LoweringError(f"{operator} of {dtypes[0]} with {values['post_transform'].decode()}")
    if operator == "SVMRegressor":
        return _pack_machine(values)
    if operator == "LinearClassifier":
        results = len(values["classlabels_ints"])
        if results < _FEWEST_CLASSES or len(values["intercepts"]) != results:
            raise LoweringError("a classifier with one score for two classes, or with labels that are text")
    else:
        results = values["targets"] or 1
        if len(values["intercepts"]) not in (0, results):
            raise LoweringError("not one intercept for each target")
    return {**values, **_matrix("coefficients", values["coefficients"], results), "results": results}


def _pack_machine(values: Mapping[str, Any]) -> dict[str, Any]:
    supports = values["n_supports"] or 0
    if values["kernel_type"] not in _KERNELS or len(values["rho"]) != 1:
        raise LoweringError(f"a support vector machine by {values['kernel_type'].decode()}")
    if not supports:
        return {**values, "columns": len(values["coefficients"]), "results": 1, "n_supports": 0}
    if len(values["coefficients"]) != supports:
        raise LoweringError("not one coefficient for each support vector")
    return {**values, **_matrix("support_vectors", values["support_vectors"], supports), "results": 1}


def _matrix(name: str, entries: Sequence[float], rows: int) -> dict[str, Any]:
    """A list of rows as a list of columns, and their number."""
    if len(entries) % rows:
        raise LoweringError(f"{len(entries)} {name} are no matrix of {rows} rows")
    matrix = np.asarray(entries, np.float32).reshape(rows, -1)
    return {name: numpy_helper.from_array(matrix.T.ravel()), "columns": matrix.shape[1]}
