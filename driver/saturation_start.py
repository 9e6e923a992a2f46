"""The process that saturates, for a command to start before it imports the stages. Light to import."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..engine.egraph.worker import Worker
from ..rules.vocabulary import Precision, RuleSelection


def start_saturation(
    rules: Sequence[Path], precision: Precision, only: Sequence[str], skip: Sequence[str], domains: Sequence[str]
) -> Worker:
    """The process, as a context, which loads the selected rules while its parent imports what else a run needs."""
    return Worker(RuleSelection(tuple(rules), precision, tuple(only), tuple(skip), tuple(domains)))
