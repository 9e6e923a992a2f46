"""Bringing a model to a newer opset, so that rules may use newer operators."""

from __future__ import annotations

from dataclasses import replace

from onnx import version_converter
from onnx_ir import serde

from ...errors import UsageError
from .model import Model, first_line


def raise_opset(model: Model, opset: int | None) -> Model:
    """The model at `opset`; itself where that is None or what it has.

    Raises UsageError for an opset below the model's, one that onnx does not know, or a model it cannot convert.
    """
    if opset is None or opset == model.opset:
        return model
    if opset < model.opset:
        raise UsageError(f"--opset {opset}: {model.label} already uses opset {model.opset}")
    try:
        converted = version_converter.convert_version(serde.serialize_model(model.ir), opset)
    except Exception as error:  # the converter raises many kinds
        raise UsageError(f"--opset {opset}: onnx cannot convert {model.label}: {first_line(error)}") from None
    return replace(model, ir=serde.deserialize_model(converted))
