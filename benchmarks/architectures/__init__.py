"""Architectures as rows of data, and their export to ONNX: by both of PyTorch's exporters, and by other tools.

Weights are random, drawn so that outputs depend on inputs and nothing stays at exactly 0 or 1.
"""

from __future__ import annotations

from collections.abc import Mapping

from .image_families import IMAGE_FAMILIES
from .language import LANGUAGE
from .other_tools import OTHER_TOOLS
from .others import OTHERS
from .rows import Architecture, Exporter, Form, Input, Library
from .text_families import TEXT_FAMILIES
from .vision import VISION

JUDGED: Mapping[str, Architecture] = {row.name: row for row in (*VISION, *LANGUAGE, *OTHERS)}
"""What `judge.py` judges verification by."""
ARCHITECTURES: Mapping[str, Architecture] = {
    **JUDGED, **{row.name: row for row in (*IMAGE_FAMILIES, *TEXT_FAMILIES, *OTHER_TOOLS)},
}  # fmt: skip
"""All, by name."""
FORMS = (Form("ts", False), Form("dynamo", True), Form("ts", True), Form("dynamo", False))
"""PyTorch's exporters, with fixed and with free sizes."""
EXPORTERS: Mapping[Library, Exporter] = {
    "sklearn": "skl2onnx", "lightgbm": "onnxmltools", "xgboost": "onnxmltools", "jax": "jax2onnx", "keras": "tf2onnx",
    "paddle": "paddle2onnx",
}  # fmt: skip
"""Of the libraries that have one of their own."""


def forms_of(architecture: Architecture) -> tuple[Form, ...]:
    """All forms in which the architecture can be exported."""
    exporter = EXPORTERS.get(architecture.library)
    return FORMS if exporter is None else (Form(exporter, False), Form(exporter, True))


def forms_in_turn(architectures: Mapping[str, Architecture] = JUDGED) -> dict[str, Form]:
    """The form of each architecture: they take turns over the table."""
    forms = {name: forms_of(each) for name, each in architectures.items()}
    return {name: each[position % len(each)] for position, (name, each) in enumerate(forms.items())}


__all__ = [
    "ARCHITECTURES", "EXPORTERS", "FORMS", "JUDGED", "Architecture", "Form", "Input", "Library", "forms_in_turn",
    "forms_of",
]  # fmt: skip
