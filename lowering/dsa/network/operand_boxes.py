"""Which part of each operand an operator needs to compute a part of one of its results.

What nothing is known of, and whatever is hard to say exactly, needs more than it reads, never less.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ....ir.graph import Operator
from ....ir.operators import OPERATORS
from .boxes import Box, Interval, Shape, intersection, reshaped, whole


@dataclass(frozen=True)
class Site:
    """An operator, the shapes of its operands (None where one is absent) and results, and what is asked of which."""

    operator: Operator
    operands: tuple[Shape | None, ...]
    results: tuple[Shape, ...]
    number: int
    box: Box

    @property
    def data(self) -> Shape:
        """The shape of the first operand."""
        return self.operands[0] or ()

    @property
    def result(self) -> Shape:
        """The shape of the result that is asked for."""
        return self.results[self.number]

    def integer(self, name: str, default: int = 0) -> int:
        """An integer attribute."""
        value = self.operator.attributes.get(name, default)
        return value if isinstance(value, int) else default

    def integers(self, name: str) -> tuple[int, ...]:
        """A list attribute; empty when missing."""
        value = self.operator.attributes.get(name, ())
        return value if isinstance(value, tuple) else ()


Boxes = Sequence[Box | None]
Rule = Callable[[Site], Boxes]


def operand_boxes(site: Site) -> tuple[Box | None, ...]:
    """Per operand, the box that the result's box needs; None where it needs nothing, or the operand is absent.

    A rule may leave operands out at the end: those are needed whole.
    """
    rule = None if site.operator.is_opaque else _rule(site.operator.op)
    found: Boxes = () if rule is None else rule(site)
    rest = [None if shape is None else whole(shape) for shape in site.operands[len(found) :]]
    return (*(None if shape is None else box for shape, box in zip(site.operands, found, strict=False)), *rest)


def _rule(op: str) -> Rule | None:
    if op in _RULES:
        return _RULES[op]
    known = OPERATORS.get(op)
    return _broadcast if known is not None and known.category.startswith("elementwise") else None


def whole_axes(operator: Operator, rank: int) -> frozenset[int]:
    """Axes of the result that cannot be cut without computing something twice, as a Softmax's: what the text calls
    requirements annotated to loop dimensions (section 3.4)."""
    axis = operator.attributes.get("axis", -1)
    if operator.op in _FROM_AXIS and isinstance(axis, int):
        return frozenset(range(axis % max(rank, 1), rank))
    if operator.op in ("InstanceNormalization", "GroupNormalization"):
        return frozenset(range(1 if operator.op == "GroupNormalization" else 2, rank))
    return frozenset()


def _aligned(box: Box, shape: Shape | None) -> Box | None:
    """The part of an operand that is broadcast to the result."""
    if shape is None:
        return None
    own = box[len(box) - len(shape) :]
    return tuple((0, 1) if extent == 1 else interval for extent, interval in zip(shape, own, strict=True))


def _broadcast(site: Site) -> Boxes:
    return [_aligned(site.box, shape) for shape in site.operands]


def _same(site: Site) -> Boxes:
    return [site.box]


def _batch_normalization(site: Site) -> Boxes:
    return [site.box, *[(site.box[1],)] * (len(site.operands) - 1)]


def _from_axis(site: Site) -> Boxes:
    """All of the axes from `axis` on: before opset 13 a Softmax took them as one."""
    axis = site.integer("axis", -1) % max(len(site.data), 1)
    return [(*site.box[:axis], *whole(site.data[axis:]))]


def _kept(count: int) -> Rule:
    """The first axes as they are, the others whole."""
    return lambda site: [(*site.box[:count], *whole(site.data[count:]))]


def _windows(site: Site) -> Box:
    """The spatial part of the data under the windows of a convolution or pooling."""
    kernel = site.integers("kernel_shape")
    ones = (1,) * len(kernel)
    strides, dilations = site.integers("strides") or ones, site.integers("dilations") or ones
    before = site.integers("pads")[: len(kernel)] or (0,) * len(kernel)
    found: list[Interval] = []
    for axis, (start, stop) in enumerate(site.box[2:]):
        extent = site.data[2 + axis]
        first = start * strides[axis] - before[axis]
        last = (stop - 1) * strides[axis] - before[axis] + (kernel[axis] - 1) * dilations[axis]
        low = min(max(0, first), extent - 1)
        found.append((low, max(low + 1, min(extent, last + 1))))
    return tuple(found)


def _convolution(site: Site) -> Boxes:
    weight = site.operands[1] or ()
    group, (start, stop) = max(1, site.integer("group", 1)), site.box[1]
    of_group, outputs = weight[1], weight[0] // group
    channels = (start // outputs * of_group, ((stop - 1) // outputs + 1) * of_group)
    filters = ((start, stop), *whole(weight[1:]))
    return [(site.box[0], channels, *_windows(site)), filters, ((start, stop),)]


def _pooling(site: Site) -> Boxes:
    return [(*site.box[:2], *_windows(site))]


def _matmul(site: Site) -> Boxes:
    left, right = site.operands[0] or (), site.operands[1] or ()
    if len(left) < 2 or len(right) < 2:
        return []
    rows, columns = site.box[-2:]
    first, second = _aligned(site.box[:-2], left[:-2]), _aligned(site.box[:-2], right[:-2])
    return [(*(first or ()), rows, (0, left[-1])), (*(second or ()), (0, right[-2]), columns)]


def _gemm(site: Site) -> Boxes:
    left, right = site.operands[0] or (), site.operands[1] or ()
    rows, columns = site.box
    first = ((0, left[0]), rows) if site.integer("transA") else (rows, (0, left[1]))
    second = (columns, (0, right[1])) if site.integer("transB") else ((0, right[0]), columns)
    addend = site.operands[2] if len(site.operands) > 2 else None
    return [first, second, _aligned(site.box, addend)]


def _reduction(site: Site) -> Boxes:
    axes = {axis % max(len(site.data), 1) for axis in site.integers("axes")}
    kept = iter(site.box)
    found: list[Interval] = []
    for axis, extent in enumerate(site.data):
        interval = next(kept, (0, 1)) if axis not in axes or site.integer("keepdims", 1) else (0, 0)
        found.append((0, extent) if axis in axes or not axes else interval)
    return [tuple(found)]


def _transpose(site: Site) -> Boxes:
    permutation = site.integers("perm")
    return [tuple(site.box[permutation.index(axis)] for axis in range(len(permutation)))]


def _reshape(site: Site) -> Boxes:
    return [reshaped(site.box, site.result, site.data)]


def _slice(site: Site) -> Boxes:
    found = list(site.box)
    axes = site.integers("axes") or tuple(range(len(site.data)))
    steps = site.integers("steps") or (1,) * len(axes)
    for axis, start, step in zip(axes, site.integers("starts"), steps, strict=True):
        axis %= len(site.data)
        extent = site.data[axis]
        start = max(0, min(start + extent if start < 0 else start, extent - 1 if step < 0 else extent))
        ends = start + step * site.box[axis][0], start + step * (site.box[axis][1] - 1)
        found[axis] = (min(ends), max(ends) + 1)
    return [tuple(found)]


def _split(site: Site) -> Boxes:
    axis = site.integer("axis") % max(len(site.data), 1)
    before = sum(shape[axis] for shape in site.results[: site.number])
    start, stop = site.box[axis]
    return [(*site.box[:axis], (start + before, stop + before), *site.box[axis + 1 :])]


def _concat(site: Site) -> Boxes:
    axis = site.integer("axis") % max(len(site.result), 1)
    found: list[Box | None] = []
    before = 0
    for shape in site.operands:
        shape = shape or ()
        start, stop = site.box[axis]
        shifted = (*site.box[:axis], (start - before, stop - before), *site.box[axis + 1 :])
        found.append(intersection(shifted, whole(shape)))
        before += shape[axis]
    return found


def _gather(site: Site) -> Boxes:
    axis = site.integer("axis") % max(len(site.data), 1)
    indices = site.operands[1] or ()
    inner = axis + len(indices)
    return [(*site.box[:axis], (0, site.data[axis]), *site.box[inner:]), site.box[axis:inner]]


def _pad(site: Site) -> Boxes:
    rank, pads = len(site.data), site.integers("pads")
    if len(pads) != 2 * rank:
        return []
    found: list[Interval] = []
    for axis, extent in enumerate(site.data):
        start, stop = (index - pads[axis] for index in site.box[axis])
        is_constant = site.operator.attributes.get("mode", "constant") == "constant"
        if not is_constant and (pads[axis] or pads[axis + rank]):
            start, stop = 0, extent
        low = min(max(0, start), extent - 1)
        found.append((low, max(low + 1, min(extent, stop))))
    return [tuple(found)]


_TAPS = 3
"""How far beyond its place a resized element looks, at most (cubic: two), and one for how places are rounded."""


def _resize(site: Site) -> Boxes:
    found: list[Interval] = []
    for (start, stop), extent, resized in zip(site.box, site.data, site.result, strict=True):
        low = max(0, start * extent // resized - _TAPS)
        high = min(extent, -(-stop * extent // resized) + _TAPS)
        found.append((start, stop) if extent == resized else (low, high))
    return [tuple(found)]


def _depth_to_space(site: Site) -> Boxes:
    block = site.integer("blocksize", 1)
    spatial = tuple((start // block, -(-stop // block)) for start, stop in site.box[2:])
    return [(site.box[0], (0, site.data[1]), *spatial)]


def _space_to_depth(site: Site) -> Boxes:
    block = site.integer("blocksize", 1)
    return [(site.box[0], (0, site.data[1]), *((a * block, b * block) for a, b in site.box[2:]))]


_FROM_AXIS = frozenset({"Softmax", "LogSoftmax", "Hardmax", "LayerNormalization", "RMSNormalization"})
REDUCTIONS = (
    "Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "SumSquare", "LogSum", "LogSumExp",
)  # fmt: skip
_RULES: dict[str, Rule] = {
    **dict.fromkeys(_FROM_AXIS, _from_axis),
    **dict.fromkeys((f"Reduce{name}" for name in REDUCTIONS), _reduction),
    **dict.fromkeys(("Reshape", "Flatten", "Squeeze", "Unsqueeze"), _reshape),
    **dict.fromkeys(("MaxPool", "AveragePool"), _pooling),
    **dict.fromkeys(("GlobalAveragePool", "GlobalMaxPool", "InstanceNormalization"), _kept(2)),
    **dict.fromkeys(("Identity", "Dropout"), _same),
    "GroupNormalization": _kept(1),
    "ConvTranspose": _kept(1),
    "BatchNormalization": _batch_normalization,
    "Conv": _convolution,
    "MatMul": _matmul,
    "Gemm": _gemm,
    "Transpose": _transpose,
    "Expand": _broadcast,
    "Slice": _slice,
    "Split": _split,
    "Concat": _concat,
    "Gather": _gather,
    "Pad": _pad,
    "Resize": _resize,
    "DepthToSpace": _depth_to_space,
    "SpaceToDepth": _space_to_depth,
}
