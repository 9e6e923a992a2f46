"""What the process that verifies is asked. Light to import: who asks does not run models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from ...rules.vocabulary import Precision
    from .inputs import Sample


@dataclass(frozen=True)
class Question:
    """Two model files and how to compare them; the options are those of `verify`.

    `running` is a file that says which of the models runs: where the process crashes, that one is the culprit.
    """

    original: Path
    candidate: Path
    running: Path
    seed: int
    shapes: Mapping[str, tuple[int, ...]]
    samples: tuple[Sample, ...]
    atol: float | None
    rtol: float | None
    precise: bool
    precision: Precision | None
    measure: bool

    def note_running(self, role: Literal["original", "candidate", ""]) -> None:
        """Say which of the models runs next; empty where it is neither or both."""
        self.running.write_text(role)

    def noted_running(self) -> str:
        """Which of the models ran last."""
        return self.running.read_text() if self.running.exists() else ""
