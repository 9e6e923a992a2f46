"""Messages between the saturation and its worker process."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Message = tuple[str, Any]
"""The kind of a message ("stage", "progress", "snapshot", "done" or "error"), and its content."""


@dataclass(frozen=True)
class Job:
    """A program with its facts and the limits of the run; an iteration runs two schedules."""

    facts: str
    simplification: str
    exploration: str
    node_limit: int
    time_limit: float
    iteration_limit: int


@dataclass(frozen=True)
class Snapshot:
    """The e-graph at one moment: rows of (constructor, literals, operands, class, whether a rule subsumed it), analyses
    by class, classes of the terms. Classes are numbered from 0; nodes of constants are not said to be subsumed.
    """

    rows: list[tuple[str, tuple[Any, ...], tuple[int, ...], int, bool]]
    analyses: dict[str, dict[int, Any]]
    terms: dict[int, int]


@dataclass
class Progress:
    """Figures of a run until now."""

    iterations: int = 0
    growth: list[int] = field(default_factory=list)
    matches: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    stop_reason: str = "time limit"
