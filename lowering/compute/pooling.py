"""Pooling over sliding windows, and over everything."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from tvm import te, tirx

from .call import Call, Expr, Lowering, NotLowered, Source, sizes
from .elementary import lowest
from .reductions import largest, total
from .windows import Windows, padded

Read = Callable[[Expr, Expr, Sequence[Expr]], Expr]
"""An element that a window sees: of batch, channel and the window's position."""


def _seen(call: Call, fill: Expr) -> tuple[list[Any], Read]:
    """Reduction axes over a window, and what they go over; windows are cut to what one of them sees of the input."""
    windows = _clamped(call)
    x = _widened(call, windows, fill)
    kernel = call.reduce_axes(windows.kernel)
    skipped = [max(0, -before) for before in windows.before]

    def seen(n: Expr, c: Expr, positions: Sequence[Expr]) -> Expr:
        places = windows.places(positions, [k.var for k in kernel])
        return x(n, c, *(p + skip if skip else p for p, skip in zip(places, skipped, strict=True)))

    return kernel, seen


def _clamped(call: Call) -> Windows:
    """The windows without what all of them see of the padding alone; their `before` is negative where that is more.

    Exporters write windows of any size for "everything".
    """
    windows = Windows.of(call)
    first, last = zip(*(_inside(call, windows, axis) for axis in range(len(windows.kernel))), strict=True)
    kernel = tuple(high - low + 1 for low, high in zip(first, last, strict=True))
    before = tuple(b - low * d for b, low, d in zip(windows.before, first, windows.dilations, strict=True))
    return replace(windows, kernel=kernel, before=before)


def _inside(call: Call, windows: Windows, axis: int) -> tuple[int, int]:
    """The first and last place of the kernel that is inside of the input for some window; all where none is."""
    size, count = sizes(call.source(0))[2 + axis], call.shape[2 + axis]
    kernel, before, stride = windows.kernel[axis], windows.before[axis], windows.strides[axis]
    reach = (count - 1) * stride - before
    places = [k * windows.dilations[axis] for k in range(kernel)]
    found = [n for n, place in enumerate(places) if place + reach >= 0 and place - before < size]
    return (found[0], found[-1]) if found else (0, kernel - 1)


def _widened(call: Call, windows: Windows, fill: Expr) -> Source:
    """The input with all that the last windows of a rounded-up count need."""
    x = call.source(0)
    axes = zip(
        sizes(x)[2:], call.shape[2:], windows.kernel, windows.before, windows.strides, windows.dilations, strict=True
    )
    needed = [(count - 1) * s + d * (k - 1) + 1 - n - a for n, count, k, a, s, d in axes]
    return padded(call, x, [max(0, n) for n in windows.before], [max(0, n) for n in needed], fill)


def _max_pool(call: Call) -> te.Tensor:
    kernel, seen = _seen(call, lowest(call.dtype))
    return call.stage(call.shape, lambda n, c, *positions: largest(seen(n, c, positions), kernel))


def _average_pool(call: Call) -> te.Tensor:
    windows = Windows.of(call)
    kernel, seen = _seen(call, call.constant(0))
    sums = call.stage(call.shape, lambda n, c, *positions: total(seen(n, c, positions), kernel), "sum")
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
    """How many elements a window counts along one axis: those from `low` on and before `high` of the padded axis."""

    kernel: int
    stride: int
    dilation: int
    low: int
    high: int

    @staticmethod
    def of(call: Call, windows: Windows, axis: int) -> _Count | int:
        """A number where all windows count as many. Raises NotLowered where one counts nothing.

        Padding counts where the operator says so, but never what only makes room for the last window.
        """
        size, before, after = sizes(call.source(0))[2 + axis], windows.before[axis], windows.after[axis]
        low, high = (0, size + before + after) if call.integer("count_include_pad", 0) else (before, size + before)
        count = _Count(windows.kernel[axis], windows.strides[axis], windows.dilations[axis], low, high)
        known = [count._known(position) for position in range(call.shape[2 + axis])]
        if not all(known):
            raise NotLowered("a window that sees nothing but padding")
        return known[0] if min(known) == max(known) else count

    def _known(self, position: int) -> int:
        start = position * self.stride
        return sum(self.low <= start + k * self.dilation < self.high for k in range(self.kernel))

    def at(self, position: Expr) -> Expr:
        """The count as an expression of the position."""
        start = position * self.stride
        first = te.max(_ceil_divided(self.low - start, self.dilation), tirx.const(0, "int32"))
        last = te.min(_ceil_divided(self.high - start, self.dilation), tirx.const(self.kernel, "int32"))
        return last - first


def _ceil_divided(x: Expr, divisor: int) -> Expr:
    return x if divisor == 1 else tirx.floordiv(x + (divisor - 1), divisor)


def _global(call: Call, average: bool) -> te.Tensor:
    x = call.source(0)
    spatial = sizes(x)[2:]
    axes = call.reduce_axes(spatial)
    combine = total if average else largest
    whole = call.stage(call.shape, lambda n, c, *_: combine(x(n, c, *axes), axes), "sum" if average else "")
    if not average:
        return whole
    return call.stage(call.shape, lambda *i: whole(*i) * call.constant(1 / prod(spatial)))


LOWERINGS: Mapping[str, Lowering] = {
    "MaxPool": _max_pool,
    "AveragePool": _average_pool,
    "GlobalAveragePool": lambda call: _global(call, average=True),
    "GlobalMaxPool": lambda call: _global(call, average=False),
}
