"""Elements of an axis in any order: slices beside each other, for all devices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ..tosa.graph import Array, Builder
from .values import Integers, Number, refuse

_MOST_SLICES = 256
"""Each is an operator of the NPU, and one map is more than hundreds of them are worth."""


def take_part(builder: Builder, x: Integers, starts: Sequence[int], sizes: Sequence[int]) -> Integers:
    """A box of a map, its axes as the model has them."""
    start, size = ([each[axis] for axis in x.order] for each in (starts, sizes))
    tensor = builder.add("SLICE", [x.tensor, builder.sizes(*start), builder.sizes(*size)], "int8", size)
    return replace(x, tensor=tensor, shape=tuple(sizes))


def take_places(builder: Builder, value: Number, x: Integers, axis: int, places: Array) -> Integers:
    """The elements at `places` of an axis of the model, in this order: a slice for each run of neighbours.

    Raises LoweringError if these are too many.
    """
    runs = np.split(places, np.flatnonzero(np.diff(places) != 1) + 1)
    if len(runs) > _MOST_SLICES:
        raise refuse(value, f"takes {len(runs)} slices, and more than {_MOST_SLICES} are slow")
    parts = []
    for run in runs:
        starts, sizes = [0] * len(x.shape), list(x.shape)
        starts[axis], sizes[axis] = int(run[0]), len(run)
        parts.append(take_part(builder, x, starts, sizes).tensor)
    shape = list(x.shape)
    shape[axis] = len(places)
    stored = [shape[each] for each in x.order]
    tensor = parts[0] if len(parts) == 1 else builder.add("CONCAT", parts, "int8", stored, axis=x.order.index(axis))
    return replace(x, tensor=tensor, shape=tuple(shape))
