"""Verification that two ONNX models compute the same: run both, compare, and name the first value that differs.

The package stands alone: it reads ONNX models and knows nothing of rules, e-graphs or extraction.
"""

from __future__ import annotations

from .report import OutputReport, Status, Verification
from .runs.source import ModelLike
from .verify import look_for_order, prepare, require_comparison, require_verdict, verify

__all__ = [
    "ModelLike",
    "OutputReport",
    "Status",
    "Verification",
    "look_for_order",
    "prepare",
    "require_comparison",
    "require_verdict",
    "verify",
]
