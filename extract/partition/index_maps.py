"""How each operator relates the loops of its operands to those of its result (see loops.py).

One function per kind of index map. It is given the axes of the operands (None where one is absent), says by uniting and
completing which loops are the same and which must not be tiled, and returns the axes of the outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ...ir.operation import Operation
from ...ir.operators import OPERATORS
from .loops import Axes, Axis, Loops, Misaligned


@dataclass(frozen=True)
class Site:
    """An operator inside a kernel. `operands` are axes; `inside` says which of them the kernel itself computes, and
    `costly` which of those come from an anchor op of the kernel: to compute them twice would be a loss."""

    operation: Operation
    operands: tuple[Axes | None, ...]
    inside: tuple[bool, ...]
    costly: tuple[bool, ...]
    results: tuple[tuple[int, ...], ...]

    @property
    def data(self) -> Axes:
        """The axes of the first operand. Raises Misaligned where it is absent."""
        first = self.operands[0] if self.operands else None
        if first is None:
            raise Misaligned
        return first

    @property
    def result(self) -> tuple[int, ...]:
        """The extents of the first output."""
        return self.results[0]


IndexMap = Callable[[Site, Loops], tuple[Axes, ...]]


def index_map(op: str) -> IndexMap | None:
    """The index map of an operator; None where nothing is known of it, so that it stays a kernel by itself."""
    if op in _MAPS:
        return _MAPS[op]
    known = OPERATORS.get(op)
    return _elementwise if known is not None and known.category.startswith("elementwise") else None


def _elementwise(site: Site, loops: Loops) -> tuple[Axes, ...]:
    result = loops.axes(site.result)
    for operand, costly in zip(site.operands, site.costly, strict=True):
        if operand is not None:
            _broadcast(operand, result, loops)
            loops.complete(*(_repeated(operand, result) if costly else ()))
    return (result,)


def _broadcast(operand: Axes, result: Axes, loops: Loops) -> None:
    """Right-aligned; axes of one element are repeated and say nothing."""
    for axis, target in zip(reversed(operand), reversed(result), strict=False):
        if axis:
            loops.unite(target, axis)


def _repeated(operand: Axes, result: Axes) -> list[Axis]:
    """Axes along which an operand is the same."""
    padded = ((),) * (len(result) - len(operand)) + operand
    return [axis for axis, own in zip(result, padded, strict=True) if not own]


def _channelwise(site: Site, loops: Loops) -> tuple[Axes, ...]:
    """BatchNormalization: the first operand as it is, the others by channel."""
    return (site.data,)


def _dropout(site: Site, loops: Loops) -> tuple[Axes, ...]:
    """Outside training: the data, and a mask of ones."""
    return tuple(site.data for _ in site.results)


def _shape(site: Site, loops: Loops) -> tuple[Axes, ...]:
    """Known without the data."""
    return (loops.axes(site.result),)


def _transpose(site: Site, loops: Loops) -> tuple[Axes, ...]:
    return (tuple(site.data[axis] for axis in site.operation.integers("perm")),)


def _reshape(site: Site, loops: Loops) -> tuple[Axes, ...]:
    return (loops.regroup(site.data, site.result),)


def _depth_to_space(site: Site, loops: Loops) -> tuple[Axes, ...]:
    batch, channels, height, width = site.data
    block = site.operation.integer("blocksize", 1)
    inner = loops.size(channels) // block**2
    if site.operation.attributes.get("mode", "DCR") == "DCR":
        down, across, kept = loops.regroup((channels,), (block, block, inner))
    else:
        kept, down, across = loops.regroup((channels,), (inner, block, block))
    return ((batch, kept, (*height, *down), (*width, *across)),)


def _space_to_depth(site: Site, loops: Loops) -> tuple[Axes, ...]:
    batch, channels, height, width = site.data
    block = site.operation.integer("blocksize", 1)
    rows, down = loops.regroup((height,), (loops.size(height) // block, block))
    columns, across = loops.regroup((width,), (loops.size(width) // block, block))
    return ((batch, (*down, *across, *channels), rows, columns),)


def _cut(site: Site, loops: Loops) -> tuple[Axes, ...]:
    """Slice, Pad, Split, Concat, Tile, Expand: axes that change their size are other loops, and are not tiled."""
    results = []
    for extents in site.results:
        axes = loops.axes(extents)
        for operand, costly in zip(site.operands, site.costly, strict=True):
            if operand is not None:
                _same_or_complete(operand, axes, loops)
                loops.complete(*(_repeated(operand, axes) if costly else ()))
        results.append(axes)
    return tuple(results)


def _same_or_complete(operand: Axes, result: Axes, loops: Loops) -> None:
    for axis, target in zip(reversed(operand), reversed(result), strict=False):
        if loops.size(axis) == loops.size(target):
            loops.unite(target, axis)
        elif axis:  # of one element it is only repeated
            loops.complete(axis, target)


def _gather(site: Site, loops: Loops) -> tuple[Axes, ...]:
    axis = site.operation.integer("axis", 0) % max(1, len(site.data))
    indices = site.operands[1] if len(site.operands) > 1 else None
    loops.complete(site.data[axis])
    picked = indices if indices is not None else loops.axes(site.result[axis : axis + 1])
    result = (*site.data[:axis], *picked, *site.data[axis + 1 :])
    return (result if len(result) == len(site.result) else _fail(),)


def _matmul(site: Site, loops: Loops) -> tuple[Axes, ...]:
    left, right = site.data, site.operands[1] or ()
    if len(left) < 2 or len(right) < 2:
        raise Misaligned
    return (_product(left, right, site, loops),)


def _product(left: Axes, right: Axes, site: Site, loops: Loops) -> Axes:
    """Rows of the left times columns of the right. What the kernel computes is reused along the other's free axis."""
    loops.unite(left[-1], right[-2])
    loops.complete(left[-1])
    batch = loops.axes(site.result[:-2])
    _broadcast(left[:-2], batch, loops)
    _broadcast(right[:-2], batch, loops)
    if site.inside[0]:
        loops.complete(right[-1], *_repeated(left[:-2], batch))
    if site.inside[1]:
        loops.complete(left[-2], *_repeated(right[:-2], batch))
    return (*batch, left[-2], right[-1])


def _gemm(site: Site, loops: Loops) -> tuple[Axes, ...]:
    left, right = site.data, site.operands[1] or ()
    if len(left) != 2 or len(right) != 2:
        raise Misaligned
    left = left[::-1] if site.operation.integer("transA", 0) else left
    right = right[::-1] if site.operation.integer("transB", 0) else right
    result = _product(left, right, site, loops)
    if len(site.operands) > 2 and site.operands[2] is not None:
        _broadcast(site.operands[2], result, loops)
    return (result,)


def _conv(site: Site, loops: Loops) -> tuple[Axes, ...]:
    batch, channels, *space = site.data
    weight = site.operation.operand(1).dimensions
    maps = loops.axis(site.result[1])
    if site.operation.group > 1 and len(weight) > 1 and weight[1] == 1 and weight[0] == site.operation.group:
        loops.unite(maps, channels)  # depthwise
    elif site.inside[0]:
        loops.complete(channels, maps)
    kernel = weight[2:] if site.operation.op == "Conv" else ()
    return ((batch, maps, *_windows(space, kernel, site, loops)),)


def _pool(site: Site, loops: Loops) -> tuple[Axes, ...]:
    batch, channels, *space = site.data
    result = (batch, channels, *_windows(space, site.operation.integers("kernel_shape"), site, loops))
    return (result, *(result for _ in site.results[1:]))


def _windows(space: Sequence[Axis], kernel: tuple[int, ...], site: Site, loops: Loops) -> list[Axis]:
    """The spatial axes of the result.

    Windows that do not overlap cut an axis into themselves and their places; where they overlap over what the kernel
    computes, neither side is tiled. Without `kernel`, they overlap.
    """
    rank = len(space)
    strides = site.operation.integers("strides") or (1,) * rank
    pads = site.operation.integers("pads") or (0,) * 2 * rank
    result: list[Axis] = []
    for i, (axis, extent) in enumerate(zip(space, site.result[2:], strict=True)):
        apart = len(kernel) == rank and kernel[i] <= strides[i] and not pads[i] and not pads[rank + i]
        if apart and loops.size(axis) == extent * strides[i]:
            place, window = loops.regroup((axis,), (extent, strides[i]))
            loops.complete(window)
        else:
            place = loops.axis(extent)
            if site.inside[0]:
                loops.complete(axis, place)
            elif loops.size(axis) == extent:
                loops.unite(axis, place)
        result.append(place)
    return result


def _reduce(site: Site, loops: Loops) -> tuple[Axes, ...]:
    data = site.data
    axes = {a % len(data) for a in site.operation.integers("axes") or range(len(data))}
    loops.complete(*(data[a] for a in axes))
    kept = [() if a in axes else axis for a, axis in enumerate(data)]
    if len(site.result) != len(data):
        kept = [axis for a, axis in enumerate(kept) if a not in axes]
    return (tuple(kept),)


def _global_pool(site: Site, loops: Loops) -> tuple[Axes, ...]:
    batch, channels, *space = site.data
    loops.complete(*space)
    return ((batch, channels, *(() for _ in space)),)


def _row(site: Site, loops: Loops) -> tuple[Axes, ...]:
    """Softmax, CumSum: one axis whole."""
    axis = site.operation.integer("axis", -1)
    loops.complete(site.data[axis])
    return (site.data,)


def _rows(site: Site, loops: Loops) -> tuple[Axes, ...]:
    """LayerNormalization: every axis from one on whole."""
    axis = site.operation.integer("axis", -1)
    loops.complete(*site.data[axis:])
    return (site.data, *(_fail() for _ in site.results[1:]))


def _maps(site: Site, loops: Loops) -> tuple[Axes, ...]:
    """InstanceNormalization: every feature map whole."""
    loops.complete(*site.data[2:])
    return (site.data,)


def _groups(site: Site, loops: Loops) -> tuple[Axes, ...]:
    """GroupNormalization, LRN: channels whole too."""
    loops.complete(*site.data[1:])
    return (site.data,)


def _resize(site: Site, loops: Loops) -> tuple[Axes, ...]:
    result = loops.axes(site.result)
    for axis, target in zip(site.data, result, strict=True):
        if loops.size(axis) == loops.size(target):
            loops.unite(axis, target)
        elif site.inside[0]:
            loops.complete(axis, target)
    return (result,)


def _fail() -> Axes:
    raise Misaligned


def _named(function: IndexMap, names: str) -> dict[str, IndexMap]:
    return dict.fromkeys(names.split(), function)


_REDUCTIONS = ["Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "SumSquare", "LogSum", "LogSumExp"]
_MAPS: dict[str, IndexMap] = {
    **_named(_elementwise, "Sum Mean"),
    **_named(_dropout, "Dropout"),
    **_named(_shape, "Shape Size"),
    **_named(_channelwise, "BatchNormalization"),
    **_named(_transpose, "Transpose"),
    **_named(_reshape, "Reshape Flatten Squeeze Unsqueeze"),
    **_named(_depth_to_space, "DepthToSpace"),
    **_named(_space_to_depth, "SpaceToDepth"),
    **_named(_cut, "Slice Pad Split Concat Tile Expand"),
    **_named(_gather, "Gather"),
    **_named(_matmul, "MatMul"),
    **_named(_gemm, "Gemm"),
    **_named(_conv, "Conv ConvTranspose"),
    **_named(_pool, "MaxPool AveragePool"),
    **_named(_global_pool, "GlobalAveragePool GlobalMaxPool"),
    **{f"Reduce{kind}": _reduce for kind in _REDUCTIONS},
    **_named(_row, "Softmax LogSoftmax Hardmax CumSum"),
    **_named(_rows, "LayerNormalization RMSNormalization"),
    **_named(_maps, "InstanceNormalization"),
    **_named(_groups, "GroupNormalization LRN"),
    **_named(_resize, "Resize"),
}
