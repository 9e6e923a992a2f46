"""Whether compiled outputs are right beside those of ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf, isfinite
from typing import Any

import numpy as np

from ...errors import VerificationError

ROOM = 4.0
"""How many times the largest difference that was accepted before a difference may be."""


def compare_outputs(
    expected: Mapping[str, Any], computed: Mapping[str, Any], accepted: Mapping[str, float] | None
) -> dict[str, float]:
    """The largest difference of each output.

    Numbers may differ by the usual tolerance, or by as much as was `accepted` before; by any finite number where this
    is None, for compiled code that was verified in other ways on the same inputs. Raises VerificationError for outputs
    that differ by more.
    """
    from ...engine.verification.compare import Tolerance, compare

    differences = {}
    for name, value in expected.items():
        difference = compare(value, computed[name], Tolerance())
        allowed = inf if accepted is None else ROOM * accepted.get(name, -1.0)
        may_differ = isinstance(value, np.ndarray) and value.dtype.kind == "f" and isfinite(difference.max_abs)
        if not difference.equal and not (may_differ and difference.max_abs <= allowed):
            raise VerificationError(f"output {name!r} differs from ONNX Runtime's: {difference}")
        differences[name] = difference.max_abs
    return differences
