"""The constants of a program, which are in DDR before it starts, as one file in the order of their buffers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import accumulate, pairwise
from math import gcd
from typing import Any

import numpy as np

from ...base.errors import DsaError
from ..codegen.generated import Generated
from ..codegen.weights import pack_blob
from ..network.boxes import Box, Shape
from ..network.rewriting import ConstantSlice
from ..network.storage import cast_array
from ..program.instructions import Buffer, Program, Role

Array = np.ndarray[Any, Any]
Weights = Callable[[str], Array]
"""The elements of a constant of the model, by its name."""


def constant_contents(
    generated: Generated, alignment: int, weights: Weights, slices: Mapping[str, ConstantSlice]
) -> dict[str, Array]:
    """The content of each constant buffer: whole tables, and weights packed as the program reads them."""
    network, arrays = generated.network, dict[int, Array]()

    def whole(name: str) -> Array:
        piece = slices.get(name)
        return weights(name) if piece is None else piece.of_array(whole(piece.of))

    def part(value: int, box: Box | None) -> Array:
        if value not in arrays:
            name = network.graph.values[value].name
            array = cast_array(whole(name), network.dtype(value))
            arrays[value] = _for_samples(name, array, network.shapes[value])
        return arrays[value] if box is None else arrays[value][tuple(slice(*interval) for interval in box)]

    contents = {name: part(value, None) for name, value in generated.tables.items()}
    for name, blob in generated.constants.items():
        packed = pack_blob(network, blob, alignment)
        contents[name] = np.zeros(packed.size, np.uint8)
        for (value, box), offset in zip(blob, packed.offsets, strict=True):
            content = np.frombuffer(np.ascontiguousarray(part(value, box)).tobytes(), np.uint8)
            contents[name][offset : offset + content.size] = content
    return contents


def _for_samples(name: str, array: Array, shape: Shape) -> Array:
    """A constant in the shape that it has in a program: what it has for each sample is repeated for other batches.

    Raises DsaError if it differs from sample to sample, so that runs of a cluster would need different ones.
    """
    axis = next((axis for axis, (n, m) in enumerate(zip(array.shape, shape, strict=False)) if n != m), None)
    if axis is None or array.ndim != len(shape):
        return array.reshape(shape)
    length = gcd(array.shape[axis], shape[axis])
    first, *others = np.split(array, array.shape[axis] // length, axis)
    if any(not np.array_equal(first, other) for other in others):
        raise DsaError(f"constant {name!r} differs from sample to sample; compile for the batch of the model")
    return np.concatenate([first] * (shape[axis] // length), axis)


def _constant_buffers(program: Program) -> list[Buffer]:
    return [buffer for buffer in program.buffers if buffer.role is Role.CONSTANT]


def constants_image(program: Program, contents: Mapping[str, Array]) -> bytes:
    """The content of a constants file."""
    return b"".join(np.ascontiguousarray(contents[buffer.name]).tobytes() for buffer in _constant_buffers(program))


def split_image(program: Program, image: Array) -> dict[str, Array]:
    """The content of each constant buffer, from the bytes of a constants file. Raises ValueError for another size."""
    buffers = _constant_buffers(program)
    ends = [0, *accumulate(buffer.value.size for buffer in buffers)]
    if ends[-1] != image.size:
        raise ValueError(f"{image.size} bytes of constants, and the program has {ends[-1]}")
    return {
        buffer.name: image[start:end].view(np.dtype(buffer.dtype)).reshape(buffer.shape)
        for buffer, (start, end) in zip(buffers, pairwise(ends), strict=True)
    }
