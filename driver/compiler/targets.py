"""The options that a target allows: accelerators, and a search for schedules. Light to import."""

from __future__ import annotations

from ...lowering.base.target import check_target, is_accelerator, is_library
from ...lowering.tuning.settings import Settings
from ...support.errors import UsageError


def is_for_accelerator(target: str) -> bool:
    """Whether the target is an accelerator. Raises UsageError if there is no target of this name."""
    check_target(target)
    return is_accelerator(target)


def require_processor(target: str) -> None:
    """Raise UsageError for an accelerator, which has no schedules to tune."""
    if is_accelerator(target):
        raise UsageError(f"--target {target}: only schedules of processors are tuned; use `eqfuse compile`")


def check_search(target: str, settings: Settings) -> None:
    """Raise UsageError, before any work, for a runner that cannot run the target's code."""
    settings.runner_for(is_library=is_library(target))
