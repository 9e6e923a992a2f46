"""Sliding windows over the spatial axes of a tensor, and the padding around it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tvm import te, tirx

from .call import Call, Expr, NotLowered, Shape, Source, sizes


@dataclass(frozen=True)
class Windows:
    """How windows slide: one number for each spatial axis."""

    kernel: Shape
    before: Shape
    after: Shape
    strides: Shape
    dilations: Shape

    @staticmethod
    def of(call: Call) -> Windows:
        """The windows of a convolution or pooling."""
        kernel, pads = call.ints("kernel_shape"), call.ints("pads")
        spatial = len(kernel)
        if len(pads) != 2 * spatial or min(pads) < 0:
            raise NotLowered("pads that do not fit the kernel, or are negative")
        return Windows(kernel, pads[:spatial], pads[spatial:], call.ints("strides"), call.ints("dilations"))

    def places(self, positions: Sequence[Expr], offsets: Sequence[Expr]) -> list[Expr]:
        """What element of the padded tensor each window sees at these offsets in the kernel."""
        axes = zip(positions, self.strides, offsets, self.dilations, strict=True)
        return [_times(position, stride) + _times(offset, dilation) for position, stride, offset, dilation in axes]


def _times(x: Expr, factor: int) -> Expr:
    return x if factor == 1 else x * factor


def padded(call: Call, x: Source, before: Sequence[int], after: Sequence[int], fill: Expr) -> Source:
    """A tensor with a number around its last axes; itself where there is nothing to add.

    Negative padding cuts elements off.
    """
    if not any(before) and not any(after):
        return x
    whole = sizes(x)
    first = len(whole) - len(before)
    shape = (*whole[:first], *(n + a + b for n, a, b in zip(whole[first:], before, after, strict=True)))

    def element(*indices: Expr) -> Expr:
        inside = [i if not a else i - a for i, a in zip(indices[first:], before, strict=True)]
        limits = zip(inside, before, after, whole[first:], strict=True)
        conditions = [c for i, a, b, n in limits for c in _bounds(i, a, b, n)]
        value = x(*indices[:first], *inside)
        return te.if_then_else(te.all(*conditions), value, fill) if conditions else value

    result: Source = call.stage(shape, element, "pad")
    return result


def _bounds(index: Expr, before: int, after: int, size: int) -> list[Expr]:
    """What keeps an index inside."""
    return ([tirx.GE(index, 0)] if before > 0 else []) + ([tirx.LT(index, size)] if after > 0 else [])
