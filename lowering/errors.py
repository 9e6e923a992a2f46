"""What can go wrong on the way from a graph to code."""

from __future__ import annotations

from ..errors import EqfuseError


class LoweringError(EqfuseError):
    """A model, or a part of one, that cannot be compiled for the target."""


class BundleError(EqfuseError):
    """A compiled bundle that cannot be used here; the message names the file and what is wrong with it."""
