"""What is tuned: a distinct kernel of a model. Light to import."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ...ir.types import TensorType


@dataclass(frozen=True)
class Task:
    """A kernel, equal ones of a model being one task.

    `key` names it for ever (64 hex digits of what it computes, on which tensors); `prim_func` is TVM's JSON of it.
    `parameters` are its inputs, those at the places `constants` known beforehand, and then its `outputs` outputs, all
    before any packing. `features` tell a learned model what the kernel is (operations, bytes, extents of loops).
    """

    key: str
    name: str
    prim_func: str
    outputs: int
    constants: tuple[int, ...]
    parameters: tuple[TensorType, ...]
    features: Mapping[str, float]
