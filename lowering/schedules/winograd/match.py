"""Which functions Winograd's minimal filters compute: 3x3 convolutions over feature maps with their channels last."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import tvm_ffi
from tvm import tirx

from ..base.blocks import BlockInfo, BufferAccess, parameter_index
from ..base.draft import Draft
from ..base.extents import is_symbolic
from ..base.nodes import Expression, Variable
from ..base.tiled import PaddedMap
from ..base.winograd_filters import TAPS
from ..tiling.padding import find_padding


class PlaneAxes(NamedTuple):
    """Iterators of a block for image, row, column and output channel."""

    image: int
    row: int
    column: int
    channel: int


@dataclass(frozen=True)
class FilteredConvolution:
    """A 3x3 convolution of a function: its sum, the block after it, and the map that the sum reads.

    `padding` is the name of the output of a block that only pads for the sum, `weights` the parameter with the weights.
    `outputs` are the images, rows, columns and channels that it computes, and `variables` the iterators of the block
    after it in that order.
    """

    anchor: BlockInfo
    epilogue: BlockInfo
    source: PaddedMap
    padding: str | None
    weights: int
    variables: tuple[Variable, ...]
    outputs: tuple[Any, ...]

    @property
    def channels(self) -> int:
        """Channels of the input."""
        return self.source.shape[3]

    @property
    def is_free(self) -> bool:
        """Whether the number of images, rows or columns is dynamic."""
        return any(map(is_symbolic, self.outputs))


def find_convolution(draft: Draft, anchor: BlockInfo, epilogue: BlockInfo) -> FilteredConvolution | None:
    """The convolution, if the sum is one with weights [O, C, 3, 3], stride and dilation 1, and one group."""
    weights = next((r for r in anchor.reads if r.shape[2:] == (TAPS, TAPS) and draft.is_constant(r)), None)
    data = next((r for r in anchor.reads if r is not weights), None)
    accesses = (*anchor.reads, *epilogue.reads, epilogue.write)
    if weights is None or data is None or any(str(access.buffer.dtype) != "float32" for access in accesses):
        return None
    axes = _find_axes(anchor, data, weights)
    after = None if axes is None else _find_epilogue_axes(anchor, epilogue, axes)
    index = parameter_index(draft.function, weights.buffer)
    if axes is None or after is None or index is None:
        return None
    padding = find_padding(draft, data)
    iterators = [i.var for i in draft.schedule.get(epilogue.block).iter_vars]
    outputs, variables = tuple(anchor.extents[axis] for axis in axes), tuple(iterators[i] for i in after)
    if padding is not None:
        return FilteredConvolution(anchor, epilogue, padding, data.name, index, variables, outputs)
    places = tuple(tirx.Var(name, "int32") for name in ("n", "h", "w", "c"))
    unpadded = PaddedMap(data.name, places, tirx.BufferLoad(data.buffer, places), (), (), (data.buffer,), data.shape)
    return FilteredConvolution(anchor, epilogue, unpadded, None, index, variables, outputs)


def _find_axes(anchor: BlockInfo, data: BufferAccess, weights: BufferAccess) -> PlaneAxes | None:
    """The axes of the output, if Y[n, h, w, o] += X[n, h + i, w + j, c] * W[o, c, i, j]."""
    plain = (*weights.indices, *anchor.write.indices, data.indices[0], data.indices[-1])
    if len(anchor.spatial) != 4 or len(data.shape) != 4 or not all(isinstance(index, tirx.Var) for index in plain):
        return None
    o, c, i, j = (next(iter(used)) for used in weights.iterators)
    if not {c, i, j} <= anchor.reduced or o in anchor.reduced or data.shape[3] != anchor.extents[c]:
        return None
    if len({c, i, j}) != 3 or any(anchor.extents[other] > 1 for other in anchor.reduced - {c, i, j}):
        return None
    image, row, column, channel = data.iterators
    if channel != {c} or not (_is_window(data, 1, i) and _is_window(data, 2, j)):
        return None
    (n,), (h,), (w,) = image, row - {i}, column - {j}
    return PlaneAxes(n, h, w, o) if {n, h, w, o} == set(anchor.spatial) else None


def _find_epilogue_axes(anchor: BlockInfo, epilogue: BlockInfo, axes: PlaneAxes) -> list[int] | None:
    """The iterators of the block after the sum in that order, if it writes vectors of channels."""
    read = epilogue.read_of(anchor)
    if len(epilogue.extents) != 4 or not all(isinstance(index, tirx.Var) for index in read.indices):
        return None
    after = [next(iter(read.iterators[anchor.write.dimension_of(axis)])) for axis in axes]
    return after if epilogue.write.is_unit_stride(after[3]) else None


def _is_window(data: BufferAccess, dimension: int, tap: int) -> bool:
    """Whether the index is the sum of two iterators, one of them that of the filter."""
    index, used = data.indices[dimension], data.iterators[dimension]
    plain = isinstance(index, tirx.Add) and isinstance(index.a, tirx.Var) and isinstance(index.b, tirx.Var)
    return plain and tap in used and len(used) == 2


def substitute(expression: Expression, variables: Sequence[Variable], places: Sequence[Any]) -> Expression:
    """The expression with other places for its variables."""

    def place_of(part: Any) -> Any:
        return next((p for v, p in zip(variables, places, strict=True) if v.same_as(part)), part)

    return tvm_ffi.structural_map(expression, [(tirx.Var, place_of)])
