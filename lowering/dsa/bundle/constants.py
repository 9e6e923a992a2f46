"""What is in DDR before a program starts: its constants, as one file and an index."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..codegen.generated import Generated
from ..codegen.promotion import Blob, packed
from ..network.boxes import Box
from ..network.constant_slices import ConstantSlice
from ..network.graph import Network
from ..network.storage import cast_array
from ..program.instructions import Buffer, Program, Role

Array = np.ndarray[Any, Any]
Weights = Callable[[str], Array]
"""The elements of a constant by its name."""


def network_of(generated: Generated) -> Network:
    """The operators of a program, at its batch."""
    return generated.residence.flow.graph.network


def constant_contents(
    generated: Generated, alignment: int, weights: Weights, slices: Mapping[str, ConstantSlice]
) -> dict[str, Array]:
    """The content of each constant buffer: tables whole, blobs packed as the program reads them."""
    network = network_of(generated)
    source = _Source(network, weights, slices)
    found = {name: source.part(value, None) for name, value in generated.tables.items()}
    return found | {name: _blob(network, source, blob, alignment) for name, blob in generated.constants.items()}


class _Source:
    """Parts of constants, each of them read once."""

    def __init__(self, network: Network, weights: Weights, slices: Mapping[str, ConstantSlice]) -> None:
        self.network, self.weights, self.slices = network, weights, slices
        self.known: dict[int, Array] = {}

    def part(self, value: int, box: Box | None) -> Array:
        if value not in self.known:
            whole = self._whole(self.network.graph.values[value].name)
            self.known[value] = cast_array(whole, self.network.dtype(value)).reshape(self.network.shapes[value])
        found = self.known[value]
        return found if box is None else found[tuple(slice(start, stop) for start, stop in box)]

    def _whole(self, name: str) -> Array:
        piece = self.slices.get(name)
        return self.weights(name) if piece is None else piece.of_array(self._whole(piece.of))


def _blob(network: Network, source: _Source, blob: Blob, alignment: int) -> Array:
    layout = packed(network, blob, alignment)
    found = np.zeros(layout.size, np.uint8)
    for (value, box), offset in zip(blob, layout.offsets, strict=True):
        content = np.frombuffer(np.ascontiguousarray(source.part(value, box)).tobytes(), np.uint8)
        found[offset : offset + content.size] = content
    return found


def constant_buffers(program: Program) -> list[Buffer]:
    """The buffers of constants, in the order of a constants file."""
    return [buffer for buffer in program.buffers if buffer.role is Role.CONSTANT]


def constants_image(program: Program, contents: Mapping[str, Array]) -> bytes:
    """All constants, one after another in the order of their buffers."""
    return b"".join(np.ascontiguousarray(contents[buffer.name]).tobytes() for buffer in constant_buffers(program))


def constants_of(program: Program, image: Array) -> dict[str, Array]:
    """The contents by buffer. Raises ValueError where the image has another size."""
    sizes = [buffer.value.size for buffer in constant_buffers(program)]
    if sum(sizes) != image.size:
        raise ValueError(f"{image.size} bytes of constants, and the program has {sum(sizes)}")
    found, start = {}, 0
    for buffer, size in zip(constant_buffers(program), sizes, strict=True):
        found[buffer.name] = image[start : start + size].view(np.dtype(buffer.dtype)).reshape(buffer.shape)
        start += size
    return found
