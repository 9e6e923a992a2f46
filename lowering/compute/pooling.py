"""Pooling over sliding windows, and over everything."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from tvm import te, tirx

from .call import Call, Expr, Lowering, NotLowered, Source, sizes
from .elementary import lowest
from .reductions import largest, total
from .windows import Windows, padded


def _widened(call: Call, windows: Windows, fill: Expr) -> Source:
    """The input with all that the last windows of a rounded-up count need."""
    x = call.source(0)
    axes = zip(
        sizes(x)[2:], call.shape[2:], windows.kernel, windows.before, windows.strides, windows.dilations, strict=True
    )
    needed = [(count - 1) * s + d * (k - 1) + 1 - n - a for n, count, k, a, s, d in axes]
    return padded(call, x, windows.before, [max(0, n) for n in needed], fill)


def _max_pool(call: Call) -> te.Tensor:
    windows = Windows.of(call)
    x = _widened(call, windows, lowest(call.dtype))
    kernel = call.reduce_axes(windows.kernel)

    def element(n: Expr, c: Expr, *positions: Expr) -> Expr:
        return largest(x(n, c, *windows.places(positions, [k.var for k in kernel])), kernel)

    return call.stage(call.shape, element)


def _average_pool(call: Call) -> te.Tensor:
    windows = Windows.of(call)
    x = _widened(call, windows, call.constant(0))
    kernel = call.reduce_axes(windows.kernel)
    sums = call.stage(
        call.shape,
        lambda n, c, *p: total(x(n, c, *windows.places(p, [k.var for k in kernel])), kernel),
        "sum",
    )
    counts = [_Count.of(call, windows, axis) for axis in range(len(windows.kernel))]

    full = prod(k for k, count in zip(windows.kernel, counts, strict=True) if count is None)

    def element(n: Expr, c: Expr, *positions: Expr) -> Expr:
        divisor = call.constant(full)
        for count, position in zip(counts, positions, strict=True):
            divisor = divisor if count is None else divisor * count.at(position).astype(call.dtype)
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
    def of(call: Call, windows: Windows, axis: int) -> _Count | None:
        """None where every window counts all it sees. Raises NotLowered where one counts nothing.

        Padding counts where the operator says so, but never what only makes room for the last window.
        """
        size, before, after = sizes(call.source(0))[2 + axis], windows.before[axis], windows.after[axis]
        low, high = (0, size + before + after) if call.integer("count_include_pad", 0) else (before, size + before)
        count = _Count(windows.kernel[axis], windows.strides[axis], windows.dilations[axis], low, high)
        known = [count._known(position) for position in range(call.shape[2 + axis])]
        if not all(known):
            raise NotLowered("a window that sees nothing but padding")
        return None if min(known) == count.kernel else count

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
