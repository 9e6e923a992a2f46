"""What can go wrong on the way to an accelerator."""

from __future__ import annotations

from ...base.errors import LoweringError


class DsaError(LoweringError):
    """A model that cannot be scheduled on an accelerator; the message names the tensor, the level and the bytes."""
