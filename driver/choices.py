"""Names that users choose from, gathered from the stages. Light to import, so that ``--help`` answers at once."""

from __future__ import annotations

from ..rules.places import DIRECTORY
from ..rules.vocabulary import PROPERTIES, SOUNDNESS

RULE_PROPERTIES, RULE_SOUNDNESS = PROPERTIES, SOUNDNESS

DEFAULT_TRIALS = 200
"""The number of candidates that `eqfuse tune` measures by default."""


def rule_topics() -> list[str]:
    """The names of the shipped rule files, which are topics; reading the files takes longer than `--help` may."""
    return sorted({file.stem for file in DIRECTORY.glob("*.egg")} - {"conditions"})
