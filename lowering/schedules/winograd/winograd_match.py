"""Which functions Winograd's minimal filters compute: 3x3 convolutions over feature maps with their channels last."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import ir, s_tir, tirx

from ..stages import FUNCTION, Access, Stage, consumers, is_parameter, is_unit_stride, parameter_index, stages, walk
from ..winograd_filters import TAPS

Axes = tuple[int, int, int, int]
"""Iterators of a block for image, row, column and channel."""


@dataclass(frozen=True)
class Source:
    """How the sum reads a feature map: `value` at four `variables`, where the conditions on row and column hold.

    It is 0 elsewhere. `buffers` are what it reads, and `shape` is that of the map with its padding.
    """

    variables: tuple[Any, ...]
    value: Any
    rows: tuple[Any, ...]
    columns: tuple[Any, ...]
    buffers: tuple[Any, ...]
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Convolution:
    """A 3x3 convolution of a function: its sum, the block after it, and what the sum reads.

    `padding` is the name of what a block writes that only pads for the sum, `weights` the parameter with the weights.
    `outputs` are the images, rows, columns and channels that it computes, and `variables` the iterators of the block
    after it in that order.
    """

    anchor: Stage
    epilogue: Stage
    source: Source
    padding: str | None
    weights: int
    variables: tuple[Any, ...]
    outputs: tuple[int, int, int, int]

    @property
    def channels(self) -> int:
        """Channels of the input."""
        return self.source.shape[3]


def find_convolution(
    schedule: s_tir.Schedule, anchor: Stage, epilogue: Stage, is_constant: Callable[[Access], bool]
) -> Convolution | None:
    """The convolution, if the sum is one with weights [O, C, 3, 3], stride and dilation 1, and one group."""
    weights = next((r for r in anchor.reads if r.shape[2:] == (TAPS, TAPS) and is_constant(r)), None)
    data = next((r for r in anchor.reads if r is not weights), None)
    if weights is None or data is None or not all(map(_is_float, (*anchor.reads, *epilogue.reads, epilogue.write))):
        return None
    axes = _axes(anchor, data, weights)
    after = None if axes is None else _after(anchor, epilogue, axes)
    index = parameter_index(schedule.mod[FUNCTION], weights.buffer)
    if axes is None or after is None or index is None:
        return None
    padding = _padding(schedule, data)
    source, padded = (_source(data), None) if padding is None else (padding, data.name)
    iterators = [i.var for i in schedule.get(epilogue.block).iter_vars]
    images, rows, columns, channels = (anchor.extents[axis] for axis in axes)
    outputs = (images, rows, columns, channels)
    return Convolution(anchor, epilogue, source, padded, index, tuple(iterators[i] for i in after), outputs)


def _is_float(access: Access) -> bool:
    return str(access.buffer.dtype) == "float32"


def _axes(anchor: Stage, data: Access, weights: Access) -> Axes | None:
    """Image, row, column and output channel, if Y[n, h, w, o] += X[n, h + i, w + j, c] * W[o, c, i, j]."""
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
    return (n, h, w, o) if {n, h, w, o} == set(anchor.spatial) else None


def _after(anchor: Stage, epilogue: Stage, axes: Axes) -> list[int] | None:
    """The iterators of the block after the sum in that order, if it writes vectors of channels."""
    read = next(r for r in epilogue.reads if r.name == anchor.write.name)
    if len(epilogue.extents) != 4 or not all(isinstance(index, tirx.Var) for index in read.indices):
        return None
    order = [next(d for d, used in enumerate(anchor.write.iterators) if axis in used) for axis in axes]
    after = [next(iter(read.iterators[d])) for d in order]
    return after if is_unit_stride(epilogue.write, after[3]) else None


def _is_window(data: Access, dimension: int, tap: int) -> bool:
    """Whether the index is the sum of two iterators, one of them that of the filter."""
    index, used = data.indices[dimension], data.iterators[dimension]
    plain = isinstance(index, tirx.Add) and isinstance(index.a, tirx.Var) and isinstance(index.b, tirx.Var)
    return plain and tap in used and len(used) == 2


def _source(data: Access) -> Source:
    variables = tuple(tirx.Var(name, "int32") for name in ("n", "h", "w", "c"))
    value = tirx.BufferLoad(data.buffer, variables)
    return Source(variables, value, (), (), (data.buffer,), data.shape)


def _padding(schedule: s_tir.Schedule, data: Access) -> Source | None:
    """How the block in front reads what it pads with zeros along rows and columns, for the sum alone."""
    writer = next((s for s in stages(schedule) if s.write.name == data.name), None)
    if writer is None or is_parameter(schedule.mod[FUNCTION], writer.write.buffer):
        return None
    variables = tuple(i.var for i in schedule.get(writer.block).iter_vars)
    plain = len(variables) == 4 and all(i.same_as(v) for i, v in zip(writer.write.indices, variables, strict=True))
    value = writer.value
    if not plain or len(consumers(stages(schedule), writer)) != 1 or not _is_selection(value):
        return None
    condition, inside, outside = value.args
    calls = [part for part in walk(inside) if isinstance(part, ir.Call)]
    if calls or not isinstance(outside, tirx.FloatImm) or float(outside.value) != 0.0:
        return None
    found: tuple[list[Any], list[Any]] = ([], [])
    for bound in _bounds(condition):
        place = _bounded(bound, variables)
        if place not in (1, 2):
            return None
        found[place - 1].append(bound)
    buffers = tuple(read.buffer for read in writer.reads)
    return Source(variables, inside, tuple(found[0]), tuple(found[1]), buffers, data.shape)


def _is_selection(value: Any) -> bool:
    return isinstance(value, ir.Call) and "if_then_else" in str(value.op)


def _bounds(condition: Any) -> list[Any]:
    return [*_bounds(condition.a), *_bounds(condition.b)] if isinstance(condition, tirx.And) else [condition]


def _bounded(bound: Any, variables: tuple[Any, ...]) -> int | None:
    """The variable that is compared with a constant: what holds at both ends of a range holds inside."""
    if not isinstance(bound, tirx.LT | tirx.LE | tirx.GT | tirx.GE):
        return None
    parts = [part for side in (bound.a, bound.b) for part in walk(side)]
    used = [n for part in parts for n, variable in enumerate(variables) if variable.same_as(part)]
    linear = all(isinstance(part, tirx.Var | tirx.IntImm | tirx.Add | tirx.Sub | int) for part in parts)
    return used[0] if linear and len(used) == 1 else None


def at(expression: Any, variables: tuple[Any, ...], places: tuple[Any, ...]) -> Any:
    """The expression with other places for its variables."""

    def replaced(part: Any) -> Any:
        return next((p for v, p in zip(variables, places, strict=True) if v.same_as(part)), part)

    return tvm_ffi.structural_map(expression, [(tirx.Var, replaced)])
