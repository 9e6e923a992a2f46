"""Arm's Ethos-U, read from ``devices/ethos-u.toml``: for each device the system and the memory mode of Vela."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

_FILE = Path(__file__).parent / "devices" / "ethos" / "ethos-u.toml"


@dataclass(frozen=True)
class EthosDevice:
    """One configuration: `macs` multiply-accumulates a cycle in each of its `cores`.

    `system` and `memory_mode` name sections of Vela's configuration file; `arena` are the bytes of fast memory of this
    mode, None if it names none. `processor` is the device for what the NPU does not compute.
    """

    name: str
    family: str
    macs: int
    system: str
    memory_mode: str
    processor: str
    cores: int = 1
    arena: int | None = None

    @property
    def architecture(self) -> str:
        """Vela's name of the family."""
        return f"Ethos{self.family.upper()}"


def ethos_names() -> list[str]:
    """The devices, from the smallest to the largest."""
    return [*_devices()]


def ethos_device(name: str) -> EthosDevice:
    """The device of a name. Raises KeyError."""
    return _devices()[name]


@cache
def _devices() -> dict[str, EthosDevice]:
    content: dict[str, Any] = tomllib.loads(_FILE.read_text(encoding="utf-8"))
    return {name: msgspec.convert({"name": name, **fields}, EthosDevice) for name, fields in content.items()}
