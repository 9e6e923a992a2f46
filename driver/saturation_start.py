"""The process that saturates, for a command to start before it imports the stages. Light to import."""

from __future__ import annotations

from ..engine.egraph.worker import Worker
from ..rules.vocabulary import RuleSelection

__all__ = ["RuleSelection", "start_saturation"]


def start_saturation(selection: RuleSelection) -> Worker:
    """The process, as a context, which loads the selected rules while its parent imports the rest."""
    return Worker(selection)
