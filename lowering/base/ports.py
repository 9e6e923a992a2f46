"""What callers of a compiled model give and get: names, element types and shapes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes  # noqa: F401  since then numpy knows bfloat16 and the types of 8 bits by name
import numpy as np

from ...ir.sizes import NO_SIZES, number, parse_size


@dataclass(frozen=True)
class Port:
    """One input or output. `dtype` is numpy's name of the element type. A dimension is a size of at least 0, or the
    text of one that is known at the call (`ir/sizes.py`)."""

    name: str
    dtype: str
    shape: tuple[int | str, ...]

    @property
    def is_static(self) -> bool:
        """Whether all dimensions are sizes."""
        return all(isinstance(extent, int) for extent in self.shape)

    def shape_for(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """The shape for a call of these `sizes`; a size without a number, which no static shape has, is 1."""
        return tuple(_value(extent, sizes) for extent in self.shape)

    @property
    def names(self) -> frozenset[str]:
        """The names of the dynamic sizes."""
        sizes = [parse_size(extent) for extent in self.shape if isinstance(extent, str)]
        return frozenset(name for size in sizes if size is not None for name in size.names())

    @property
    def static_shape(self) -> tuple[int, ...]:
        """The shape of a static port."""
        return self.shape_for({})

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}{shape_text(self.shape)}"


def _value(extent: int | str, sizes: Mapping[str, int]) -> int:
    size = parse_size(extent) if isinstance(extent, str) else number(extent)
    return size.value(lambda name: sizes.get(name, 1)) if size is not None else 1


def shape_text(shape: Sequence[int | str] | None) -> str:
    """``[1, 3, N]``."""
    return "unknown" if shape is None else f"[{', '.join(map(str, shape))}]"


def random_inputs(
    ports: Sequence[Port], seed: int, sizes: Mapping[str, int] = NO_SIZES
) -> dict[str, np.ndarray[Any, Any]]:
    """Standard normal floats; integers and booleans are 0 or 1, which suits indices of any table.

    `sizes` are those of the call, 1 if they are not given.
    """
    generator = np.random.default_rng(seed)
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    for port in ports:
        dtype, shape = np.dtype(port.dtype), port.shape_for(sizes)
        drawn = generator.standard_normal(shape) if dtype.kind == "f" else generator.integers(0, 2, shape)
        arrays[port.name] = np.asarray(drawn).astype(dtype)
    return arrays
