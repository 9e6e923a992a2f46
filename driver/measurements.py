"""The user's measurements of sub-graphs, to list, export and remove."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..costmodels.measurement import Measurement, record_of
from ..costmodels.profile import ProfileDatabase
from ..extract.partition.canonical_key import operator_names
from ..support.errors import UsageError


@dataclass(frozen=True)
class Measured:
    """A measurement with the types of the operators in its sub-graph."""

    measurement: Measurement
    operators: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return record_of(self.measurement)


def open_database(path: Path | None) -> ProfileDatabase:
    """The database at `path`, or the user's own. Raises UsageError if the folder of `path` does not exist."""
    if path is not None and not path.parent.is_dir():
        raise UsageError(f"--database {path}: the folder {path.parent} does not exist")
    return ProfileDatabase.open(path)


def list_measured(database: ProfileDatabase, device: str | None) -> list[Measured]:
    """Every measurement, or those of a device."""
    return [Measured(each, operator_names(each.subgraph)) for each in database.all(device=device)]
