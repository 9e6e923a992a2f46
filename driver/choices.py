"""What commands need before they import the stages: names that users choose from, and the process that saturates.

Light to import, so that ``--help`` answers at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..rules.places import DIRECTORY
from ..rules.vocabulary import PROPERTIES, SOUNDNESS, RuleSelection

if TYPE_CHECKING:
    from ..engine.egraph.worker import Worker

__all__ = ["DEFAULT_TRIALS", "RULE_PROPERTIES", "RULE_SOUNDNESS", "RuleSelection", "rule_topics", "start_saturation"]

RULE_PROPERTIES, RULE_SOUNDNESS = PROPERTIES, SOUNDNESS

DEFAULT_TRIALS = 200
"""The number of candidates that `eqfuse tune` measures by default."""


def rule_topics() -> list[str]:
    """The names of the shipped rule files, which are topics; reading the files takes longer than `--help` may."""
    return sorted({file.stem for file in DIRECTORY.glob("*.egg")} - {"conditions"})


def start_saturation(selection: RuleSelection) -> Worker:
    """The process that saturates, as a context: it loads the selected rules while its parent imports the stages."""
    from ..engine.egraph.worker import Worker  # `--help` starts no process

    return Worker(selection)
