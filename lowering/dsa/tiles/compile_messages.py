"""What a process that compiles tiles is asked, and what it answers. Light to import."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ....costmodels.device import Device


@dataclass(frozen=True)
class TileJob:
    """Functions by name, as TVM's JSON, for one object file; `plain`: by the plainest schedule."""

    functions: Mapping[str, str]
    device: Device
    target: Mapping[str, Any]
    object_file: str
    plain: bool = False


@dataclass(frozen=True)
class TileResult:
    """The functions that are in the object file, and what was wrong with others."""

    names: tuple[str, ...]
    problem: str = ""

    def missing(self, job: TileJob) -> list[str]:
        """Those that were asked for and are not there."""
        return [name for name in job.functions if name not in self.names]
