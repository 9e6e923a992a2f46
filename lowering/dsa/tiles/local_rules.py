"""How one operator is computed on parts of its operands, by operator.

A rule adds operators to the tile's graph and returns what they make: the part that is asked for, or one around it. What
no rule knows is computed from whole operands.
"""

from __future__ import annotations

from ....ir.index_maps import axis_groups
from ....ir.operators import ELEMENTWISE, REDUCTIONS, RESHAPES
from ....ir.types import TensorType
from ..network.boxes import Box, Interval, Shape, shape_of, size, whole
from .local_builder import LocalPart
from .local_resize import resize
from .local_site import LocalSite, Rule, require_whole
from .local_windows import convolution, pooling


def local_parts(site: LocalSite) -> dict[int, LocalPart]:
    """The parts that an operator makes, by value: of the result that is asked for, perhaps of others.

    Raises DsaError where an operand at hand is less than what the operator needs.
    """
    rule = None if site.operator.is_opaque else _rule(site.operator.op)
    if rule is None or (len(site.operator.outputs) > 1 and site.operator.op != "Split"):
        return _from_whole(site)
    return {site.result: rule(site)}


def _rule(op: str) -> Rule | None:
    if op in _RULES:
        return _RULES[op]
    return _at_box if op in ELEMENTWISE else None


def _from_whole(site: LocalSite) -> dict[int, LocalPart]:
    require_whole(site)
    operator, values = site.operator, site.network.graph.values
    types = [values[v].type or TensorType("float32", site.network.shapes[v]) for v in operator.outputs]
    made = site.builder.add_all(
        operator.op, site.rest(0), types, site.attributes, is_opaque=operator.is_opaque
    )
    whole_boxes = (whole(site.network.shapes[value]) for value in operator.outputs)
    return {v: LocalPart(local, box) for v, local, box in zip(operator.outputs, made, whole_boxes, strict=True)}


def _at_box(site: LocalSite) -> LocalPart:
    """Operators that make the box from the operands it needs, with their own attributes."""
    return site.emit(site.rest(0), site.box)


def _joined(site: LocalSite) -> LocalPart:
    """Any number of operands, broadcast to the result."""
    return site.emit([site.aligned(number, site.box) for number in range(len(site.operator.inputs))], site.box)


def _normalised(site: LocalSite) -> LocalPart:
    """Over all axes from `axis` on."""
    box = site.needs(0)
    return site.emit([site.data(), *(site.aligned(n, box) for n in range(1, len(site.operator.inputs)))], box)


def _softmax(site: LocalSite) -> LocalPart:
    """Over one axis: canonical attributes have no other."""
    axis = site.axis(-1, len(site.box))
    box = (*site.box[:axis], site.needs(0)[axis], *site.box[axis + 1 :])
    return site.emit([site.data(box)], box)


def _kept(count: int) -> Rule:
    """The rule of operators that make whole axes of the result, except the first `count`."""

    def rule(site: LocalSite) -> LocalPart:
        box = (*site.box[:count], *whole(site.network.shapes[site.result][count:]))
        return site.emit(site.rest(0), box)

    return rule


def _instance_normalization(site: LocalSite) -> LocalPart:
    box = (*site.box[:2], *whole(site.shape(0)[2:]))
    channels = (site.box[1],)
    return site.emit([site.data(box), site.take(1, channels), site.take(2, channels)], box)


def _expand(site: LocalSite) -> LocalPart:
    return site.emit([site.data()], site.box, shape=shape_of(site.box))


def _dropout(site: LocalSite) -> LocalPart:
    if len(site.operator.inputs) > 2 and site.operator.inputs[2] is not None:
        require_whole(site)
        return site.emit(site.rest(0), whole(site.shape(0)))
    return _identity(site)


def _identity(site: LocalSite) -> LocalPart:
    return LocalPart(site.data(), site.box)


def _slice(site: LocalSite) -> LocalPart:
    axes = site.integers("axes") or tuple(range(len(site.box)))
    steps = [1] * len(site.box)
    for axis, step in zip(axes, site.integers("steps") or (1,) * len(axes), strict=True):
        steps[axis % len(site.box)] = step
    local = site.data()
    steps = _unit_steps(steps, site.box)
    starts = [n - 1 if step < 0 else 0 for n, step in zip(site.builder.shape(local), steps, strict=True)]
    return LocalPart(site.builder.slice(local, starts, shape_of(site.box), steps), site.box)


def _unit_steps(steps: list[int], box: Box) -> list[int]:
    """A step past one element is any step."""
    return [1 if stop - start == 1 else step for (start, stop), step in zip(box, steps, strict=True)]


def _concat(site: LocalSite) -> LocalPart:
    """Of the operands that have a part in it; of one there is nothing to join."""
    found = [local for local in site.rest(0) if local is not None]
    if len(found) == 1:
        return LocalPart(found[0], site.box)
    return site.emit([*found], site.box, axis=site.axis(0, len(site.box)))


def _pad(site: LocalSite) -> LocalPart:
    rank, pads = len(site.box), site.integers("pads")
    if len(pads) != 2 * rank:
        require_whole(site)
        return site.emit(site.rest(0), whole(site.network.shapes[site.result]))
    constant = site.attributes.get("mode", "constant") == "constant"
    made, before, after = [], [], []
    for axis, (start, stop) in enumerate(site.box):
        low, high = site.needs(0)[axis]
        first, last = start - pads[axis], stop - pads[axis]
        if not constant and (pads[axis] or pads[axis + rank]):
            first, last = -pads[axis], site.shape(0)[axis] + pads[axis + rank]
        first, last = min(first, low) if constant else first, max(last, high) if constant else last
        made.append((first + pads[axis], last + pads[axis]))
        before.append(low - first)
        after.append(last - high)
    if not any(before) and not any(after):
        return LocalPart(site.data(), tuple(made))
    return site.emit([site.data(), *site.rest()], tuple(made), pads=(*before, *after))


def _depth_to_space(site: LocalSite) -> LocalPart:
    block, box = site.integer("blocksize", 1), site.needs(0)
    channels = (0, site.network.shapes[site.result][1])
    return site.emit([site.data()], (box[0], channels, *((a * block, b * block) for a, b in box[2:])))


def _space_to_depth(site: LocalSite) -> LocalPart:
    block, box = site.integer("blocksize", 1), site.needs(0)
    channels = (0, site.network.shapes[site.result][1])
    return site.emit([site.data()], (box[0], channels, *((a // block, b // block) for a, b in box[2:])))


def _matmul(site: LocalSite) -> LocalPart:
    is_vector = min(len(site.shape(0)), len(site.shape(1))) < 2
    return site.emit(site.rest(0), whole(site.network.shapes[site.result]) if is_vector else site.box)


# --- elements in another shape


def _reshape(site: LocalSite) -> LocalPart:
    """The needed box as a row of elements for each group of axes, cut or filled to whole lines of the result."""
    builder, box, local = site.builder, site.needs(0), site.data()
    if size(box) == size(site.box):
        return LocalPart(builder.reshape(local, shape_of(site.box)), site.box)
    source, target = site.shape(0), site.network.shapes[site.result]
    groups = list(axis_groups(source, target))
    made = tuple(i for _, (a, b) in groups for i in _lines(site.box[a:b], target[a:b]))
    have = [_range(box[a:b], source[a:b]) for (a, b), _ in groups]
    want = [_range(made[a:b], target[a:b]) for _, (a, b) in groups]
    both = [(max(a, c), min(b, d)) for (a, b), (c, d) in zip(have, want, strict=True)]
    local = builder.reshape(local, shape_of(tuple(have)))
    starts = [start - a for (start, _), (a, _) in zip(both, have, strict=True)]
    local = builder.slice(local, starts, shape_of(tuple(both)), [1] * len(both))
    before = [start - c for (start, _), (c, _) in zip(both, want, strict=True)]
    after = [d - stop for (_, stop), (_, d) in zip(both, want, strict=True)]
    return LocalPart(builder.reshape(builder.pad(local, before, after), shape_of(made)), made)


def _range(box: Box, shape: Shape) -> Interval:
    """From which element to which a box without gaps goes."""
    first = last = 0
    for (start, stop), extent in zip(box, shape, strict=True):
        first, last = first * extent + start, last * extent + stop - 1
    return first, last + 1


def _lines(box: Box, shape: Shape) -> Box:
    """The smallest box around another that has no gaps."""
    first = next((axis for axis, (start, stop) in enumerate(box) if stop - start > 1), len(box))
    return (*box[: first + 1], *whole(shape[first + 1 :]))


def _global_pool(site: LocalSite) -> LocalPart:
    return site.emit([site.data()], site.box)


_RULES: dict[str, Rule] = {
    "Conv": convolution,
    **dict.fromkeys(("MaxPool", "AveragePool"), pooling),
    "Resize": resize,
    **dict.fromkeys(("Softmax", "LogSoftmax", "Hardmax"), _softmax),
    **dict.fromkeys(("LayerNormalization", "RMSNormalization"), _normalised),
    **dict.fromkeys(REDUCTIONS, _at_box),
    **dict.fromkeys(RESHAPES, _reshape),
    **dict.fromkeys(("BatchNormalization", "Gemm", "Transpose", "Gather"), _at_box),
    **dict.fromkeys(("GlobalAveragePool", "GlobalMaxPool"), _global_pool),
    **dict.fromkeys(("GroupNormalization", "ConvTranspose"), _kept(1)),
    **dict.fromkeys(("Identity", "Split"), _identity),
    **dict.fromkeys(("Sum", "Mean"), _joined),
    "Dropout": _dropout,
    "InstanceNormalization": _instance_normalization,
    "MatMul": _matmul,
    "Expand": _expand,
    "Slice": _slice,
    "Concat": _concat,
    "Pad": _pad,
    "DepthToSpace": _depth_to_space,
    "SpaceToDepth": _space_to_depth,
}
