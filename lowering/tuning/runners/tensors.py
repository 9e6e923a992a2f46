"""What kernels are run on to be timed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....ir.types import TensorType

_SEED = 0


def example_tensors(types: Sequence[TensorType]) -> list[NDArray[Any]]:
    """Floats between 0.5 and 1.5, the same every time, in which nothing overflows or is denormal; all else is zero.

    Zeros are indices that exist everywhere. Raises ValueError where a shape is not known.
    """
    random = np.random.default_rng(_SEED)
    return [_tensor(type_, random) for type_ in types]


def _tensor(type_: TensorType, random: np.random.Generator) -> NDArray[Any]:
    if not type_.is_static:
        raise ValueError(f"a shape that is not known: {type_.shape}")
    shape = tuple(int(extent) for extent in type_.shape or ())
    if "float" not in type_.dtype:
        return np.zeros(shape, type_.dtype)
    values: NDArray[Any] = random.random(shape, np.float32) + np.float32(0.5)
    return np.asarray(values).astype(type_.dtype, copy=False)
