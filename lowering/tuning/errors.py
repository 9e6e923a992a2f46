"""What can go wrong while kernels are tuned."""

from __future__ import annotations

from ...errors import EqfuseError


class TuningError(EqfuseError):
    """A tracker, a device or a cluster that is not there, or not as tuning needs it; the message says what to do."""
