"""Sliding windows over the spatial axes of a tensor, and the padding around it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tvm import te, tirx

from ...ir.operators.windows import reach_in_padding
from .call import Expr, NotLowered, Operand, Shape, TensorCall, sizes
from .extents import Extent, is_number


@dataclass(frozen=True)
class Windows:
    """How windows slide: one number for each spatial axis."""

    kernel: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]

    @staticmethod
    def of(call: TensorCall) -> Windows:
        """The windows of a convolution or pooling."""
        kernel, pads = call.ints("kernel_shape"), call.ints("pads")
        spatial = len(kernel)
        if len(pads) != 2 * spatial or min(pads) < 0:
            raise NotLowered("pads that do not fit the kernel, or are negative")
        return Windows(kernel, pads[:spatial], pads[spatial:], call.ints("strides"), call.ints("dilations"))

    def begins(self, call: TensorCall) -> tuple[Extent, ...]:
        """The padding in front of each axis: `before`, or what `auto_pad` makes of the sizes of a call.

        (count - 1) * stride + reach - size, at least 0, are shared by both ends; if they are odd, the name says which
        gets one more.
        """
        auto_pad = call.text("auto_pad", "")
        if not auto_pad:
            return self.before
        begins: list[Extent] = []
        for axis, (size, count) in enumerate(zip(sizes(call.source(0))[2:], call.shape[2:], strict=True)):
            stride = self.strides[axis]
            reach = reach_in_padding(call.operator.op, self.kernel[axis], self.dilations[axis])
            if isinstance(size, int) or stride == 1:
                begins.append(self.before[axis])
            else:
                total = te.max((count - 1) * stride + reach - size, 0)
                begins.append((total + 1) // 2 if auto_pad == "SAME_LOWER" else total // 2)
        return tuple(begins)

    def padded_shape(self, source: Shape, result: Shape) -> Shape:
        """The shape of a tensor with padding, as far as windows reach if the size is dynamic. So tiles of the result
        need tiles of it, whatever the sizes."""
        own = (self.kernel, self.before, self.after, self.strides, self.dilations)
        axes = zip(*own, source[2:], result[2:], strict=True)
        padded = (
            size + before + after if isinstance(size, int) else (count - 1) * stride + dilation * (kernel - 1) + 1
            for kernel, before, after, stride, dilation, size, count in axes
        )
        return (*source[:2], *padded)

    def places(self, positions: Sequence[Expr], offsets: Sequence[Expr]) -> list[Expr]:
        """The indices in the padded tensor of each window at these offsets in the kernel."""
        axes = zip(positions, self.strides, offsets, self.dilations, strict=True)
        return [(p if s == 1 else p * s) + (o if d == 1 else o * d) for p, s, o, d in axes]


def pad_around(
    call: TensorCall, x: Operand, before: Sequence[Extent], after: Sequence[Extent], fill: Expr, shape: Shape = ()
) -> Operand:
    """A tensor with a number around its last axes; the tensor itself if there is nothing to add.

    Negative padding cuts elements off. A `shape` that is given is that of the result.
    """
    if all(is_number(number, 0) for number in (*before, *after)):
        return x
    whole = sizes(x)
    first = len(whole) - len(before)
    padded = (*whole[:first], *(n + a + b for n, a, b in zip(whole[first:], before, after, strict=True)))

    def element(*indices: Expr) -> Expr:
        inside = [i if is_number(a, 0) else i - a for i, a in zip(indices[first:], before, strict=True)]
        conditions: list[Expr] = []
        for index, front, behind, size in zip(inside, before, after, whole[first:], strict=True):
            conditions += [] if isinstance(front, int) and front <= 0 else [tirx.GE(index, 0)]
            conditions += [] if isinstance(behind, int) and behind <= 0 else [tirx.LT(index, size)]
        value = x(*indices[:first], *inside)
        return te.if_then_else(te.all(*conditions), value, fill) if conditions else value

    result: Operand = call.stage(shape or padded, element, "pad")
    return result
