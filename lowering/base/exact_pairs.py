"""Weights of which products by any bytes add up exactly, two at a time, in 16 bits: those of 7 bits always do.

AVX2 multiplies by these in two thirds of the time (vpmaddubsw). Each kernel looks at its own weights; costs, which know
no values, are those of the faster instruction if the weights of the whole model are of this kind.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...costmodels.device import Device
from ...engine.onnx.model import Model
from ...ir.types import BYTES
from .weights import Weights

LARGEST_PAIR = (2**15 - 1) // 255
"""The largest |w1| + |w2| with which a * w1 + b * w2 fits 16 bits for all bytes a and b: 128."""


def has_exact_pairs(weights: NDArray[np.int8]) -> bool:
    """Whether products of any two bytes without a sign by neighbours 2 i and 2 i + 1 on any axis add up in 16 bits."""
    sizes = np.abs(weights.astype(np.int16))
    return all(
        int((even[: len(odd)] + odd).max(initial=0)) <= LARGEST_PAIR
        for rows in (np.moveaxis(sizes, axis, 0) for axis in range(sizes.ndim))
        for even, odd in [(rows[::2], rows[1::2])]
    )


def device_for_weights(device: Device, model: Model) -> Device:
    """The device with the instruction that multiplies by the stored matrices and filters of bytes of a model."""
    paired = device.with_exact_pairs
    if paired == device:
        return device
    stored = model.stored.items()
    names = [name for name, tensor in stored if len(tensor.shape) > 1 and tensor.dtype.name.lower() in BYTES]
    arrays = map(Weights(model).__getitem__, names)
    is_exact = all(array.dtype == np.int8 and has_exact_pairs(array) for array in arrays)
    return paired if names and is_exact else device
