"""Rows of the results, kept in a file of JSON lines so that a run that was ended goes on later."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

Half = Literal["optimize", "compile"]
HALVES: tuple[Half, ...] = ("optimize", "compile")
DECISIVE = 1e-4
"""Damage that moves an output by this part of its size, or by more, has to be refused."""


@dataclass(frozen=True)
class Alarm:
    """A right result that a command was asked for: its exit code, and what it said where it refused."""

    subject: str
    half: Half
    code: int
    message: str
    seconds: float

    @property
    def key(self) -> str:
        """One for each row."""
        return f"alarm {self.half} {self.subject}"

    @property
    def is_refused(self) -> bool:
        """Exit code 5 says that a budget was hit: the output is valid."""
        return self.code not in (0, 5)


@dataclass(frozen=True)
class Miss:
    """A damaged result. `effect` is the largest move of an output on ordinary inputs, as a part of that output's size.

    `status` is "refused", "accepted", or "undecided" where there was no verdict; `reason` is what verification said.
    """

    number: int
    half: Half
    subject: str
    damage: str
    place: str
    effect: float
    measured_in: str
    status: str
    reason: str
    seconds: float

    @property
    def key(self) -> str:
        """One for each row."""
        return damage_key(self.half, self.number)

    @property
    def is_decisive(self) -> bool:
        """Whether it has to be refused."""
        return self.effect >= DECISIVE


def damage_key(half: str, number: int) -> str:
    """The key of a row of damage."""
    return f"damage {half} {number}"


@dataclass
class Results:
    """Rows by their keys, the file that they are appended to, and the processor they were made on."""

    path: Path
    rows: dict[str, Alarm | Miss] = field(default_factory=dict)

    @staticmethod
    def of(path: Path) -> Results:
        """Those that a file has; none if there is none yet."""
        found = Results(path)
        for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
            content: dict[str, Any] = json.loads(line)
            row: Alarm | Miss = Alarm(**content) if "code" in content else Miss(**content)
            found.rows[row.key] = row
        return found

    def add(self, row: Alarm | Miss) -> None:
        """Keep a row; one with its key gives way."""
        self.rows[row.key] = row
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(row)) + "\n")

    @property
    def alarms(self) -> Iterator[Alarm]:
        """Those of right results."""
        return (row for row in self.rows.values() if isinstance(row, Alarm))

    @property
    def misses(self) -> Iterator[Miss]:
        """Those of damaged results."""
        return (row for row in self.rows.values() if isinstance(row, Miss))
