"""Pooling over sliding windows, and over everything."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from tvm import te, tirx

from .call import Expr, Lowering, NotLowered, TensorCall, sizes
from .elementary import lowest
from .extents import Extent, is_number
from .reductions import largest, mean, reduce_max, reduce_sum
from .windows import Windows, pad_around

MOST_TAPS = 4096
"""Positions of a window over maps of dynamic size. Exporters write windows of 1,280 x 1,280 for "everything", of which
the map of a call may leave little: a plain loop runs as far as the map goes."""

ReadWindow = Callable[[Expr, Expr, Sequence[Expr]], Expr]
"""An element of a window: by batch, channel and the window's position."""


def _read_windows(call: TensorCall, fill: Expr) -> tuple[list[Any], ReadWindow]:
    """Reduction axes over a window, and the element at their place.

    The padding leaves room for the last windows of a rounded-up count.
    """
    windows = _clamp_windows(call)
    source = call.source(0)
    after = [
        _room_behind(call, windows, axis, size, count)
        for axis, (size, count) in enumerate(zip(sizes(source)[2:], call.shape[2:], strict=True))
    ]
    before = [n if not isinstance(n, int) else max(0, n) for n in windows.begins(call)]
    largest = tuple(max(0, n) for n in windows.before)
    shape = replace(windows, before=largest, after=tuple(after)).padded_shape(sizes(source), call.shape)
    x = pad_around(call, source, before, after, fill, shape)
    kernel = call.reduce_axes(windows.kernel)
    skipped = [max(0, -before) for before in windows.before]

    def element(n: Expr, c: Expr, positions: Sequence[Expr]) -> Expr:
        places = windows.places(positions, [k.var for k in kernel])
        return x(n, c, *(p + skip if skip else p for p, skip in zip(places, skipped, strict=True)))

    return kernel, element


def _room_behind(call: TensorCall, windows: Windows, axis: int, size: Extent, count: Extent) -> int:
    """The padding that the last window of an axis reads, at most that if the size is dynamic."""
    reach = windows.dilations[axis] * (windows.kernel[axis] - 1) + 1 - windows.before[axis]
    if isinstance(size, int) and isinstance(count, int):
        return max(0, (count - 1) * windows.strides[axis] + reach - size)
    beyond = reach - windows.after[axis] - 1 if not call.integer("ceil_mode", 0) else windows.strides[axis] - 1
    return windows.after[axis] + max(0, min(beyond, windows.strides[axis] - 1))


def _clamp_windows(call: TensorCall) -> Windows:
    """The windows without the padding that every one of them covers; `before` is negative if they cover more.

    Exporters write windows of any size for "everything".
    """
    windows = Windows.of(call)
    kernel, before = [], []
    for axis, (size, count) in enumerate(zip(sizes(call.source(0))[2:], call.shape[2:], strict=True)):
        extent, start, dilation = windows.kernel[axis], windows.before[axis], windows.dilations[axis]
        if not isinstance(size, int) or not isinstance(count, int):
            if prod(windows.kernel) > MOST_TAPS:
                raise NotLowered("a window that is larger than the map may be")
            kernel.append(extent)
            before.append(start)
            continue
        reach = (count - 1) * windows.strides[axis] - start
        first = max(0, -(reach // dilation))
        last = min(extent - 1, (size + start - 1) // dilation)
        if first > last:
            raise NotLowered("windows that see nothing but padding")
        kernel.append(last - first + 1)
        before.append(start - first * dilation)
    return replace(windows, kernel=tuple(kernel), before=tuple(before))


def _max_pool(call: TensorCall) -> te.Tensor:
    kernel, element = _read_windows(call, lowest(call.dtype))
    return call.stage(call.shape, lambda n, c, *positions: reduce_max(element(n, c, positions), kernel))


def _average_pool(call: TensorCall) -> te.Tensor:
    windows = Windows.of(call)
    kernel, seen = _read_windows(call, call.constant(0))
    sums = call.stage(call.shape, lambda n, c, *positions: reduce_sum(seen(n, c, positions), kernel), "sum")
    counts = [_Count.of(call, windows, axis) for axis in range(len(windows.kernel))]
    alike = prod(count for count in counts if isinstance(count, int))

    def element(n: Expr, c: Expr, *positions: Expr) -> Expr:
        divisor = call.constant(alike)
        for count, position in zip(counts, positions, strict=True):
            divisor = divisor if isinstance(count, int) else divisor * count.at(position).astype(call.dtype)
        return sums(n, c, *positions) / divisor

    return call.stage(call.shape, element)


@dataclass(frozen=True)
class _Count:
    """The number of elements that a window counts along one axis: from `low` on, before `high` of the padded axis."""

    kernel: int
    stride: int
    dilation: int
    low: Extent
    high: Extent

    @staticmethod
    def of(call: TensorCall, windows: Windows, axis: int) -> _Count | int:
        """A number if all windows count as many. Raises NotLowered if one counts nothing.

        Padding counts if the operator says so, but never the room for the last window alone.
        """
        size, before, after = sizes(call.source(0))[2 + axis], windows.begins(call)[axis], windows.after[axis]
        low, high = (0, size + before + after) if call.integer("count_include_pad", 0) else (before, size + before)
        kernel, stride, dilation = windows.kernel[axis], windows.strides[axis], windows.dilations[axis]
        if call.integer("count_include_pad", 0) and not call.integer("ceil_mode", 0):
            return kernel  # also of an only window that reaches beyond the padding
        if not isinstance(size, int) or not isinstance(call.shape[2 + axis], int):
            is_bare = is_number(before, 0) and not after and not call.integer("ceil_mode", 0)
            return kernel if is_bare and (kernel == 1 or stride == 1) else _Count(kernel, stride, dilation, low, high)
        numbers = set()
        for start in range(0, call.shape[2 + axis] * stride, stride):
            first, last = max(0, -((start - low) // dilation)), min(kernel, -((start - high) // dilation))
            if first >= last:
                raise NotLowered("a window that sees nothing but padding")
            numbers.add(last - first)
        return _Count(kernel, stride, dilation, low, high) if len(numbers) > 1 else max(numbers, default=kernel)

    def at(self, position: Expr) -> Expr:
        """The count as an expression of the position."""
        start = position * self.stride
        first = te.max(self._divide(self.low - start), tirx.const(0, "int32"))
        last = te.min(self._divide(self.high - start), tirx.const(self.kernel, "int32"))
        return last - first

    def _divide(self, x: Expr) -> Expr:
        """Divide by the dilation, rounding up."""
        return x if self.dilation == 1 else tirx.floordiv(x + (self.dilation - 1), self.dilation)


def _plane(call: TensorCall) -> range:
    return range(2, len(sizes(call.source(0))))


LOWERINGS: Mapping[str, Lowering] = {
    "MaxPool": _max_pool,
    "AveragePool": _average_pool,
    "GlobalAveragePool": lambda call: mean(call, _plane(call)),
    "GlobalMaxPool": lambda call: largest(call, _plane(call)),
}
