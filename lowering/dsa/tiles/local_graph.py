"""A tile as a graph of its own: the operators of a layer at the size of the parts that they make.

Evaluated on the tile's operands the graph gives exactly the elements that the layer gives there. What an operator
reads beyond its tensor's border stays padding; if the part at hand ends inside, there is none.

For each operator a rule adds operators to the tile's graph and returns what they make: the part that is asked for, or
one around it. If no rule knows an operator, whole operands are read.

Element i of an axis that Resize makes shows the place i * factor + offset of the axis that it comes from. With factor =
p / q the elements from a multiple of q on show what elements from 0 on show of the operand without a multiple of p
elements, so the same Resize of a part gives a part. If that does not hold, the part is filled to the whole operand with
zeros that nothing reads.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import prod
from typing import Any

from ....ir.graph import OperatorGraph
from ....ir.index_maps import axis_groups
from ....ir.operators import ELEMENTWISE, REDUCTIONS, RESHAPES
from ....ir.types import TensorType
from ...base.errors import DsaError
from ..network.boxes import Box, Interval, Shape, shape_of, size, whole
from ..network.graph import Network
from ..network.operand_boxes import are_windows_apart
from ..network.sums import PieceOfSum
from .local_builder import LocalBuilder, LocalPart, LocalSite, Rule, require_whole

_DENOMINATOR = 64
"""The largest denominator of a scale: larger ones would fill the part to nearly the whole operand."""
_EXACT = 1e-9
"""A scale counts as a fraction if it is at most this share away from it."""
_SHIFTING = frozenset({"half_pixel", "asymmetric", "pytorch_half_pixel"})
"""How coordinates are found by the scale alone, on axes of more than one element."""


@dataclass(frozen=True)
class _AxisPart:
    """The zeros put around the part along one axis, and the interval that its Resize makes."""

    before: int
    after: int
    start: int
    stop: int


def resize(site: LocalSite) -> LocalPart:
    """Raises DsaError if an element may show places that operand boxes leave out."""
    config = _config(site)
    scales = _scales(site, config)
    if not _is_local(config, site, scales):
        require_whole(site)
    axes = [_cut_axis(site, axis, scale, config) for axis, scale in enumerate(scales)]
    if any(axis is None for axis in axes):
        return _fill_to_whole(site)
    cuts = [axis for axis in axes if axis is not None]
    data = site.builder.pad(site.data(), [a.before for a in cuts], [a.after for a in cuts])
    return site.emit([data, *site.rest()], tuple((a.start, a.stop) for a in cuts), config=_by_scales(site))


def _config(site: LocalSite) -> dict[str, Any]:
    text = site.attributes.get("config")
    config = json.loads(text) if isinstance(text, str) and text else {}
    return config if isinstance(config, dict) else {}


def _scales(site: LocalSite, config: Mapping[str, Any]) -> list[float]:
    """Per axis, how many elements each becomes."""
    before, after = site.shape(0), site.network.shapes[site.result]
    listed = config.get("axes", range(len(before)))
    if "scales" not in config:
        return [n / m for m, n in zip(before, after, strict=True)]
    scales = [1.0] * len(before)
    for axis, scale in zip(listed, config["scales"], strict=True):
        scales[axis] = scale
    return scales


def _is_local(config: Mapping[str, Any], site: LocalSite, scales: list[float]) -> bool:
    """Whether all that an element shows is near its place in proportion: what operand boxes go by."""
    crops = config.get("coordinate_transformation_mode") == "tf_crop_and_resize"
    blurs = bool(config.get("antialias", 0)) and min(scales, default=1.0) < 1.0
    rows = zip(site.shape(0), site.network.shapes[site.result], scales, strict=True)
    return not crops and not blurs and not any(n == m and scale != 1.0 for n, m, scale in rows)


def _fill_to_whole(site: LocalSite) -> LocalPart:
    """Resize the whole operand along the axes whose size changes."""
    shape, result, box = site.shape(0), site.network.shapes[site.result], site.needs(0)
    resized = [n != m for n, m in zip(shape, result, strict=True)]
    before = [a if r else 0 for (a, _), r in zip(box, resized, strict=True)]
    after = [n - b if r else 0 for (_, b), n, r in zip(box, shape, resized, strict=True)]
    made = tuple((0, n) if r else i for i, n, r in zip(site.box, result, resized, strict=True))
    return site.emit([site.builder.pad(site.data(), before, after), *site.rest()], made, config=_by_scales(site))


def _by_scales(site: LocalSite) -> str:
    """The settings with a scale for each axis in place of sizes, which axes that are cut do not have."""
    config = _config(site)
    scales = [float(scale) for scale in _scales(site, config)]
    kept = {k: v for k, v in config.items() if k not in ("scales", "sizes", "axes", "keep_aspect_ratio_policy")}
    return json.dumps({**kept, "scales": scales}, sort_keys=True)


def _cut_axis(site: LocalSite, axis: int, scale: float, config: Mapping[str, Any]) -> _AxisPart | None:
    """How an axis of the part is resized by itself; None if it cannot be."""
    low, high = site.needs(0)[axis]
    extent, result = site.shape(0)[axis], site.network.shapes[site.result][axis]
    if extent == result and scale == 1.0:
        return _AxisPart(0, 0, *site.box[axis])
    factor = Fraction(1 / scale).limit_denominator(_DENOMINATOR)
    if config.get("coordinate_transformation_mode", "half_pixel") not in _SHIFTING or result == 1:
        return None
    if (low, high) == (0, extent):
        return _AxisPart(0, 0, 0, result)
    if abs(float(factor) * scale - 1.0) > _EXACT:
        return None
    number = low // factor.numerator
    first = number * factor.numerator
    start = number * factor.denominator
    stop = start + (high - first) * factor.denominator // factor.numerator
    after = 0
    while stop < site.box[axis][1] or stop - start < 2:
        if high == extent:  # nothing may be put behind the border
            return None
        after += 1
        stop = start + (high + after - first) * factor.denominator // factor.numerator
    return _AxisPart(low - first, after, start, stop)


@dataclass(frozen=True)
class _Axis:
    """The windows along one axis: the padding that is left before and after the part, and what they make."""

    before: int
    after: int
    made: Interval
    is_cut: bool = False
    """Whether the last window ends behind all padding that counts (see `ceil_mode`)."""


def pooling(site: LocalSite) -> LocalPart:
    """Windows over padding alone see what they see in the network."""
    counts_padding = bool(site.integer("count_include_pad", 0))
    axes = list(_axes(site, counts_padding))
    box = (*site.box[:2], *(axis.made for axis in axes))
    changed: dict[str, int] = {}
    if "ceil_mode" in site.attributes:
        changed["ceil_mode"] = int(any(axis.is_cut for axis in axes))
    return site.emit([site.data()], box, pads=_pads(axes), **changed)


def convolution(site: LocalSite) -> LocalPart:
    """One convolution for the whole groups of channels, one for each group of which a part is asked for."""
    axes = list(_axes(site, False))
    spatial = tuple(axis.made for axis in axes)
    outputs = site.shape(1)[0] // max(1, site.integer("group", 1))
    found = [_group(site, channels, spatial, _pads(axes)) for channels in _segments(site.box[1], outputs)]
    box = (*site.box[:2], *spatial)
    if len(found) == 1:
        return found[0]
    shape = tuple(stop - start for start, stop in box)
    return LocalPart(site.builder.add("Concat", [p.local for p in found], shape, attributes={"axis": 1}), box)


def _transposed_convolution(site: LocalSite) -> LocalPart:
    """Whole windows of the channels that are asked for; of whole groups if there are several."""
    result, kernel = site.network.shapes[site.result], site.shape(1)[2:]
    channels = site.box[1] if site.integer("group", 1) == 1 else (0, result[1])
    spatial = whole(result[2:])
    if site.integer("group", 1) == 1 and are_windows_apart(site.operator, kernel):
        seen = site.needs(0)[2:]
        spatial = tuple((first * side, last * side) for (first, last), side in zip(seen, kernel, strict=True))
    return site.emit(site.rest(0), (site.box[0], channels, *spatial))


def _segments(channels: Interval, outputs: int) -> Iterator[Interval]:
    """Output channels in runs that are part of a group of `outputs`, or whole groups."""
    start, stop = channels
    while start < stop:
        ends = stop // outputs * outputs if start % outputs == 0 else (start // outputs + 1) * outputs
        end = min(stop, ends) if ends > start else stop
        yield start, end
        start = end


def _group(site: LocalSite, channels: Interval, spatial: Box, pads: tuple[int, ...]) -> LocalPart:
    start, stop = channels
    filters, of_group = site.shape(1)[:2]
    groups = max(1, site.integer("group", 1))
    outputs = filters // groups
    first, last = start // outputs, (stop - 1) // outputs + 1
    seen = site.needs(0)
    read = seen[1] if groups == 1 else (first * of_group, last * of_group)
    data = site.take(0, (seen[0], read, *seen[2:]))
    weight = site.take(1, (channels, *site.needs(1)[1:]))
    inputs = [data, weight, *(_of_channels(site, number, channels) for number in range(2, len(site.operator.inputs)))]
    return site.emit(inputs, (site.box[0], channels, *spatial), group=last - first, pads=pads)


def _of_channels(site: LocalSite, number: int, channels: Interval) -> int | None:
    """A bias, or the zero points of a convolution of integers: one for each output channel, or one for all."""
    if site.boxes[number] is None or prod(site.shape(number)) == 1:
        return site.take(number)
    return site.take(number, (channels,))


def _pads(axes: list[_Axis]) -> tuple[int, ...]:
    return (*(axis.before for axis in axes), *(axis.after for axis in axes))


def _axes(site: LocalSite, counts_padding: bool) -> Iterator[_Axis]:
    """The windows along each axis. Raises DsaError for windows behind the last element."""
    kernel = site.integers("kernel_shape")
    ones = (1,) * len(kernel)
    strides, dilations = site.integers("strides") or ones, site.integers("dilations") or ones
    pads = site.integers("pads") or (0,) * (2 * len(kernel))
    for axis, (start, stop) in enumerate(site.box[2:]):
        low, high = site.needs(0)[2 + axis]
        extent, reach = site.shape(0)[2 + axis], (kernel[axis] - 1) * dilations[axis] + 1
        first = start * strides[axis] - pads[axis]
        last = (stop - 1) * strides[axis] - pads[axis] + reach
        if first > low:
            operator = site.operator
            raise DsaError(f"{operator.op} {operator.name!r}: a part of its result sees nothing but padding")
        ends = min(last, extent + pads[axis + len(kernel)]) if counts_padding else last
        after = max(0, ends - high)
        is_cut = high + after < last
        count = stop - start if is_cut else (high + after - first - reach) // strides[axis] + 1
        yield _Axis(low - first, after, (start, start + count), is_cut)


def local_parts(site: LocalSite) -> dict[int, LocalPart]:
    """The parts that an operator makes, by value: of the result that is asked for, perhaps of others.

    Raises DsaError if an operand at hand is less than what the operator needs.
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
    """Operators over all axes from `axis` on."""
    box = site.needs(0)
    return site.emit([site.data(), *(site.aligned(n, box) for n in range(1, len(site.operator.inputs)))], box)


def _softmax(site: LocalSite) -> LocalPart:
    """Softmax is over one axis: canonical attributes have no other form."""
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
    steps = [1 if stop - start == 1 else step for (start, stop), step in zip(site.box, steps, strict=True)]
    starts = [n - 1 if step < 0 else 0 for n, step in zip(site.builder.shape(local), steps, strict=True)]
    return LocalPart(site.builder.slice(local, starts, shape_of(site.box), steps), site.box)


def _concat(site: LocalSite) -> LocalPart:
    """Join the operands that have a part in the box; a single one needs no Concat."""
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
    """The interval of elements, counted row by row, that a box without gaps covers."""
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
    **dict.fromkeys(("Conv", "ConvInteger"), convolution),
    **dict.fromkeys(("MaxPool", "AveragePool"), pooling),
    "Resize": resize,
    **dict.fromkeys(("Softmax", "LogSoftmax", "Hardmax"), _softmax),
    **dict.fromkeys(("LayerNormalization", "RMSNormalization"), _normalised),
    **dict.fromkeys(REDUCTIONS, _at_box),
    **dict.fromkeys(RESHAPES, _reshape),
    **dict.fromkeys(("BatchNormalization", "Gemm", "Transpose", "Gather"), _at_box),
    **dict.fromkeys(("GlobalAveragePool", "GlobalMaxPool"), _global_pool),
    "GroupNormalization": _kept(1),
    "ConvTranspose": _transposed_convolution,
    **dict.fromkeys(("Identity", "Split"), _identity),
    **dict.fromkeys(("Sum", "Mean"), _joined),
    "Dropout": _dropout,
    "InstanceNormalization": _instance_normalization,
    **dict.fromkeys(("MatMul", "MatMulInteger"), _matmul),
    "Expand": _expand,
    "Slice": _slice,
    "Concat": _concat,
    "Pad": _pad,
    "DepthToSpace": _depth_to_space,
    "SpaceToDepth": _space_to_depth,
}


@dataclass(frozen=True)
class Tile:
    """Operators of one layer, ascending, with the parts of values at hand and those that they make.

    The parts at hand are the operands in order, constants too; they may be larger than the operators need. With a
    `piece` of a sum the tile adds to what earlier pieces made, which is its last operand; only the last one goes on to
    the operators after the product.
    """

    members: tuple[int, ...]
    inputs: tuple[tuple[int, Box], ...]
    outputs: tuple[tuple[int, Box], ...]
    piece: PieceOfSum | None = None


def local_graph(network: Network, tile: Tile) -> OperatorGraph:
    """The operators of a tile on its parts of values.

    Values come in this order: the tile's inputs (``i0``, ...), its outputs (``o0``, ...), others. Raises DsaError if
    an input of the tile is less than is needed.
    """
    builder = LocalBuilder()
    parts: dict[int, LocalPart] = {}
    piece, total = tile.piece, None
    for number, (value, box) in enumerate(tile.inputs):
        operand = network.graph.values[value]
        dtype = operand.type.dtype if operand.type is not None else "float32"
        part = LocalPart(builder.input(shape_of(box), dtype, is_constant=operand.is_constant), box)
        if piece is not None and piece.adds and number == len(tile.inputs) - 1:
            total = part
        else:
            parts[value] = part
    members = tile.members if piece is None or piece.is_last else (piece.reduction.product,)
    needed = network.needs(members, dict(tile.outputs), at_hand=parts)
    for index in members:
        for number, result in enumerate(network.graph.operators[index].outputs):
            if result not in needed or result in parts:
                continue
            boxes = network.operands(index, result, needed[result])
            if piece is not None and index == piece.reduction.product:
                boxes = piece.operands(boxes)
            new = local_parts(LocalSite(network, builder, parts, index, number, needed[result], boxes))
            for value, part in new.items():
                if value in needed and value not in parts:
                    made = builder.take(part, needed[value])
                    if total is not None and piece is not None and index == piece.reduction.product:
                        made = builder.add("Add", [total.local, made], shape_of(total.box))
                    parts[value] = LocalPart(made, needed[value])
    results = [builder.take(parts[value], box) for value, box in tile.outputs]
    return builder.graph(len(tile.inputs), results)
