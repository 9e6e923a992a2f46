"""What can go wrong on the way from a graph to code."""

from __future__ import annotations

from collections.abc import Mapping

from ...support.errors import EqfuseError, VerificationError


class LoweringError(EqfuseError):
    """A model, or a part of one, that cannot be compiled for the target."""


class DsaError(LoweringError):
    """A model that cannot be scheduled on an accelerator; the message names the tensor, the level and the bytes."""


class WrongKernelsError(VerificationError):
    """A compiled model that is wrong because kernels are."""

    def __init__(self, message: str, kernels: Mapping[str, str]) -> None:
        """`kernels` maps the names of kernels to their problems."""
        super().__init__(message)
        self.kernels = kernels


class CrashError(EqfuseError):
    """Compiled code that ended the process it ran in, or took too long (`timed_out`); the message says which."""

    def __init__(self, message: str, timed_out: bool = False) -> None:
        super().__init__(message)
        self.timed_out = timed_out


class TuningError(EqfuseError):
    """A tracker, a device or a cluster that is not there, or not as tuning needs it; the message says what to do."""


class BundleError(EqfuseError):
    """A compiled bundle that cannot be used here; the message names the file and the problem."""
