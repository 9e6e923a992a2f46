"""Comparison of compiled outputs with those of ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...support.errors import VerificationError


def require_equal(expected: Mapping[str, Any], computed: Mapping[str, Any]) -> None:
    """Raise VerificationError for outputs that differ by more than the tolerance of their type."""
    from ...engine.verification.runs.compare import Tolerance, compare

    for name, value in expected.items():
        difference = compare(value, computed[name], Tolerance())
        if not difference.equal:
            raise VerificationError(f"output {name!r} differs from ONNX Runtime's: {difference}")
