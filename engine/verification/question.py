"""The question to the process that verifies. It is light to import, since the asking process runs no models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from ...rules.vocabulary import Precision
    from .inputs.given import Sample


@dataclass(frozen=True)
class Question:
    """Two model files and how to compare them; the options are those of `verify`.

    `running` is a file that names the model that runs; if the process crashes, that model is the culprit.
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
        """Note which of the models runs next; empty for neither or both."""
        self.running.write_text(role)

    def last_running(self) -> str:
        """The model that ran last."""
        return self.running.read_text() if self.running.exists() else ""
