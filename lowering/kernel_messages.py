"""What a process that compiles kernels is asked, and what it answers. Light to import."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..costmodels.device import Device


@dataclass(frozen=True)
class Request:
    """One kernel. `prim_func` is TVM's JSON of it, `target` as TVM takes it."""

    name: str
    prim_func: str
    device: Device
    target: Mapping[str, Any]
    object_file: str


@dataclass(frozen=True)
class Answer:
    """One kernel compiled, or why it is not. `repack` is what its schedule wants done to its constant inputs."""

    name: str
    seconds: float
    repack: Any = None
    problem: str | None = None
