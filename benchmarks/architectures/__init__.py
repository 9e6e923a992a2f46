"""Architectures of PyTorch's libraries as rows of data, and their export to ONNX by both of PyTorch's exporters.

Weights are random, drawn so that outputs depend on inputs and nothing stays at exactly 0 or 1.
"""

from __future__ import annotations

from .language import LANGUAGE
from .others import OTHERS
from .rows import Architecture, Form, Input, Library
from .vision import VISION

ARCHITECTURES: dict[str, Architecture] = {row.name: row for row in (*VISION, *LANGUAGE, *OTHERS)}
"""By name."""
FORMS = (Form("ts", False), Form("dynamo", True), Form("ts", True), Form("dynamo", False))
"""Exporters, with fixed and with free sizes."""


def forms_in_turn() -> dict[str, Form]:
    """The form of each architecture: they take turns over the table."""
    return {name: FORMS[position % len(FORMS)] for position, name in enumerate(ARCHITECTURES)}


__all__ = ["ARCHITECTURES", "FORMS", "Architecture", "Form", "Input", "Library", "forms_in_turn"]
