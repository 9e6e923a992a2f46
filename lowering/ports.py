"""What callers of a compiled model give and get: names, element types and shapes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Port:
    """One input or output. `dtype` is numpy's name of the element type; every dimension is at least 0."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}{shape_text(self.shape)}"


def shape_text(shape: Sequence[int | str] | None) -> str:
    """``[1, 3, N]``."""
    return "unknown" if shape is None else f"[{', '.join(map(str, shape))}]"


def random_inputs(ports: Sequence[Port], seed: int) -> dict[str, np.ndarray[Any, Any]]:
    """Standard normal floats; integers and booleans are 0 or 1, which suits indices of any table."""
    generator = np.random.default_rng(seed)
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    for port in ports:
        dtype = np.dtype(port.dtype)
        drawn = generator.standard_normal(port.shape) if dtype.kind == "f" else generator.integers(0, 2, port.shape)
        arrays[port.name] = np.asarray(drawn).astype(dtype)
    return arrays
