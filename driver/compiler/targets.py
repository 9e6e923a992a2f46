"""What the target of a compilation allows: accelerators, and a search for schedules. Light to import."""

from __future__ import annotations

from typing import Any

from ...lowering.base.target import check_target, is_accelerator, is_library
from ...lowering.tuning.settings import Settings
from ...support.errors import UsageError


def is_for_accelerator(target: str) -> bool:
    """Whether the target is an accelerator. Raises UsageError if there is no target of this name."""
    check_target(target)
    return is_accelerator(target)


def require_processor(target: str) -> None:
    """Raise UsageError for an accelerator: a search for schedules has nothing to decide there."""
    if is_accelerator(target):
        raise UsageError(f"--target {target}: schedules are searched for processors; use `eqfuse compile`")


def search_settings(target: str, trials: int, **options: Any) -> Settings:
    """How to search for schedules; `options` are fields of `Settings`.

    Raises UsageError, before any work, for options that do not fit together and for a runner that cannot run the
    target's code.
    """
    settings = Settings(trials, **options)
    settings.runner_for(is_library=is_library(target))
    return settings
