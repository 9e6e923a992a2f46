"""Estimators of scikit-learn, LightGBM and XGBoost, fitted on random rows, and exported by skl2onnx and onnxmltools."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np

from .answering import Array, Request, answer_all, require_use, shape_of

_ROWS = 2000
"""Rows that estimators are fitted on."""
_CLASSES = 3
_FEW_ROWS = ("gaussian_process", "neighbors", "svm")
"""Modules whose estimators keep the rows that they are fitted on."""
_FEW = 200


def _data(columns: int, rows: int, is_classifier: bool) -> tuple[Array, Array]:
    generator = np.random.default_rng(0)
    features = generator.standard_normal((rows, columns)).astype(np.float32)
    signal = np.sin(features @ generator.standard_normal(columns)) + features[:, 0] * features[:, 1]
    if is_classifier:
        return features, np.digitize(signal, np.quantile(signal, [1 / _CLASSES, 2 / _CLASSES]))
    return features, (signal + 0.1 * generator.standard_normal(rows)).astype(np.float32)


def _fit(request: Request) -> Any:
    architecture = request["architecture"]
    module, _, kind = architecture["model"].rpartition(".")
    library = {"sklearn": f"sklearn.{module}"}.get(architecture["library"], architecture["library"])
    estimator = getattr(importlib.import_module(library), kind)(**architecture["configuration"])
    if "random_state" in estimator.get_params():
        estimator.set_params(random_state=0)
    is_classifier = not ("Regressor" in kind or kind in ("Ridge", "SVR"))
    rows = _FEW if module in _FEW_ROWS else _ROWS
    return estimator.fit(*_data(shape_of(request)[1], rows, is_classifier))


def _convert(request: Request, estimator: Any) -> Any:
    library, shape = request["architecture"]["library"], shape_of(request)
    if library == "sklearn":
        from skl2onnx import to_onnx
        from skl2onnx.common.data_types import FloatTensorType

        types = [("features", FloatTensorType(shape))]
        options = {id(estimator): {"zipmap": False}} if hasattr(estimator, "classes_") else None
        return to_onnx(estimator, initial_types=types, options=options)
    import onnxmltools
    from onnxmltools.convert.common.data_types import FloatTensorType as Floats

    convert = getattr(onnxmltools, f"convert_{library}")
    extra = {"zipmap": False} if library == "lightgbm" else {}
    return convert(estimator, initial_types=[("features", Floats(shape))], **extra)


def _export(request: Request) -> dict[str, Any]:
    Path(request["path"]).write_bytes(_convert(request, _fit(request)).SerializeToString())
    require_use(request)
    return {}


if __name__ == "__main__":
    answer_all(_export)
