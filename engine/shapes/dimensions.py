"""The shapes that operators give their outputs, if these are not simply dimensions of their operands.

Sizes are those of every run that ends without an error: a window that does not fit in its input has no size.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from ...ir.operators import FILTERS, GLOBAL_POOLS, MATRIX_PRODUCTS, OPERATORS, POOLS, REDUCTIONS
from ...ir.sizes import ONE, ZERO, Size, exact_quotient, floor_divide, number
from .site import Shape, Site, Undecided, dimensions, product, require_number, require_size
from .windows import convolution, global_pool, pool, transposed_convolution

_INFINITE = 2**31 - 1
"""A bound of a slice of this size or more means the end of the axis; -_INFINITE or less, its begin."""
_SHORT = 64
"""A scale that is a fraction of numbers up to this gives products without rounding in float32: sizes have 18 bits."""
_LARGEST = 2**36
"""The most elements of a tensor: no machine runs a model with larger ones."""


def compute_shapes(site: Site) -> list[Shape]:
    """The shapes of the outputs. Raises Undecided if no rule here gives them."""
    rule = _RULES.get(site.node.op_type)
    if rule is None:
        raise Undecided
    result = rule(site)
    return result if isinstance(result, list) else [result]


# --- operands' own dimensions


def _same(site: Site) -> Shape:
    return site.shape()


def _broadcast(site: Site) -> Shape:
    return site.broadcast(*(site.shape(i) for i in range(len(site.node.inputs))))


def _matrix_product(site: Site) -> Shape:
    left, right = site.shape(0), site.shape(1)
    if not left or not right:
        raise Undecided
    site.equations.equate((left[-1], right[-2] if len(right) > 1 else right[0]))
    stack = site.broadcast(left[:-2], right[:-2])
    return (*stack, *left[-2:-1], *(right[-1:] if len(right) > 1 else ()))


def _gemm(site: Site) -> Shape:
    left, right = site.shape(0), site.shape(1)
    over, under = site.attribute("transA", 0), site.attribute("transB", 0)
    site.equations.equate((left[0 if over else 1], right[1 if under else 0]))
    return left[1 if over else 0], right[0 if under else 1]


def _transpose(site: Site) -> Shape:
    shape = site.shape()
    return tuple(shape[i] for i in site.attribute("perm", range(len(shape))[::-1]))


def _squeeze(site: Site) -> Shape:
    shape = site.shape()
    if any(size is None or size.number is None for size in shape):
        axes = {site.axis(axis) for axis in site.integers_of("axes", 1)}
    else:
        ones = [axis for axis, size in enumerate(shape) if size == ONE]
        axes = {site.axis(axis) for axis in site.integers_of("axes", 1, ones)}
    site.equations.equate((ONE, *(shape[axis] for axis in axes)))
    return tuple(size for axis, size in enumerate(shape) if axis not in axes)


def _unsqueeze(site: Site) -> Shape:
    shape, axes = list(site.shape()), site.integers_of("axes", 1)
    for axis in sorted(site.axis(axis, len(shape) + len(axes)) for axis in axes):
        shape.insert(axis, ONE)
    return tuple(shape)


def _flatten(site: Site) -> Shape:
    shape = site.shape()
    axis = site.attribute("axis", 1)
    axis = axis + len(shape) if axis < 0 else axis
    return dimensions(product, (shape[:axis], shape[axis:]))


def _gather(site: Site) -> Shape:
    shape = site.shape()
    axis = site.axis(site.attribute("axis", 0))
    indices = site.constants.get(site.name(1))
    if indices is not None and indices.size:
        site.require(shape[axis], max(int(indices.max()) + 1, -int(indices.min())))
    return (*shape[:axis], *site.shape(1), *shape[axis + 1 :])


def _reduction(site: Site) -> Shape:
    shape = site.shape()
    axes = site.integers_of("axes", 1, [])
    if not axes and site.attribute("noop_with_empty_axes", 0):
        return shape
    places = {site.axis(axis) for axis in axes} or set(range(len(shape)))
    return _reduce_axes(site, shape, places)


def _reduce_axes(site: Site, shape: Shape, places: set[int]) -> Shape:
    if site.attribute("keepdims", 1) == 1:
        return tuple(ONE if axis in places else size for axis, size in enumerate(shape))
    return tuple(size for axis, size in enumerate(shape) if axis not in places)


def _place_of_extremum(site: Site) -> Shape:
    return _reduce_axes(site, site.shape(), {site.axis(site.attribute("axis", 0))})


# --- joining and cutting


def _concat(site: Site) -> Shape:
    shapes = [site.shape(i) for i in range(len(site.node.inputs))]
    axis = site.axis(site.attribute("axis", 0))
    columns = list(zip(*shapes, strict=True))
    joined = dimensions(lambda *sizes: sum(sizes, ZERO), *((size,) for size in columns[axis]))
    return tuple(joined[0] if i == axis else site.equations.equate(column) for i, column in enumerate(columns))


def _split(site: Site) -> list[Shape]:
    shape, count = site.shape(), len(site.node.outputs)
    axis = site.axis(site.attribute("axis", 0))
    if "split" in site.node.attributes or site.name(1):
        given = site.integers_of("split", 1)
        site.equations.equate((shape[axis], number(sum(given))))
        sizes: list[Size | None] = [number(size) for size in given]
    else:
        even = exact_quotient(require_size(shape[axis]), number(count))
        sizes = [even] * count
    return [(*shape[:axis], size, *shape[axis + 1 :]) for size in sizes]


def _slice(site: Site) -> Shape:
    shape = list(site.shape())
    starts, ends = _given_sizes(site, "starts", 1), _given_sizes(site, "ends", 2)
    axes = site.integers_of("axes", 3, list(range(len(starts))))
    steps = site.integers_of("steps", 4, [1] * len(starts))
    places = [site.axis(axis) for axis in axes]
    sizes = [shape[place] for place in places]
    ends = [None if e is None else within_reach(site, place, e) for place, e in zip(places, ends, strict=True)]
    cuts = dimensions(lambda size, start, end, step: cut(site, size, start, end, step), sizes, starts, ends, steps)
    for place, size in zip(places, cuts, strict=True):
        shape[place] = size
    return tuple(shape)


def _given_sizes(site: Site, name: str, index: int) -> list[Size | None]:
    if name in site.node.attributes:
        return [number(value) for value in site.attribute(name)]
    return site.sizes(index)


def within_reach(site: Site, axis: int, end: Size) -> Size:
    """The end of a slice, or infinity for one that no axis beside the sizes of the others can reach."""
    others = [size.number or 1 for place, size in enumerate(site.shape()) if place != axis and size is not None]
    reaches = end.number is None or end.number * math.prod(others) < _LARGEST
    return end if reaches else number(_INFINITE)


def cut(site: Site, size: Size, start: Size, end: Size, step: int) -> Size:
    """How many elements of `size` a slice keeps. Raises Undecided for one downwards, unless it keeps all."""
    if step < 0:
        whole = [bound.number for bound in (start, end)]
        if whole[0] is None or whole[1] is None or step != -1 or not (whole[0] == -1 or whole[0] >= _INFINITE):
            raise Undecided
        if whole[1] > -_INFINITE:
            raise Undecided
        return size
    first, last = place(site, size, start), place(site, size, end)
    length = size if not first.terms and last == size else site.bounds.maximum(last - first, ZERO)
    return floor_divide(length + number(step - 1), number(step))


def place(site: Site, size: Size, bound: Size) -> Size:
    """The place of a bound of a slice that goes upwards, from 0 to `size`: a negative one counts from the end."""
    value, bounds = bound.number, site.bounds
    if value is not None and abs(value) >= _INFINITE:
        return size if value > 0 else ZERO
    if not bound.terms:
        return ZERO
    if bounds.is_at_least(bound, 0):
        return bounds.minimum(bound, size)
    if bounds.is_at_least(bound.scale(-1), 1):
        return bounds.maximum(size + bound, ZERO)
    if bounds.is_ordered(size, bound.scale(-1)):
        return ZERO  # the first element, or before it, counted from the end
    is_negative = bounds.maximum(bounds.minimum(bound.scale(-1), ONE), ZERO)  # 1 or 0, as the sizes of a call say
    return bounds.minimum(bounds.maximum(bound + size * is_negative, ZERO), size)


def _pad(site: Site) -> Shape:
    shape = list(site.shape())
    pads = _given_sizes(site, "pads", 1)
    axes = site.integers(3) if site.name(3) else list(range(len(shape)))
    half = len(axes)
    for i, axis in enumerate(axes):
        place_ = site.axis(axis)
        shape[place_] = dimensions(lambda d, b, e: d + b + e, [shape[place_]], [pads[i]], [pads[half + i]])[0]
    return tuple(shape)


# --- other sizes


def _reshape(site: Site) -> Shape:
    source = site.shape()
    target = _given_sizes(site, "shape", 1)
    copies = not site.attribute("allowzero", 0)
    sizes: list[Size | None] = []
    for axis, size in enumerate(target):
        if size == ZERO and copies and axis < len(source):
            sizes.append(source[axis])
        else:
            sizes.append(size)
    return resolve(source, tuple(sizes))


def resolve(source: Shape, target: Shape) -> Shape:
    """The target of a Reshape with its -1 computed; that dimension is unknown if the others may be empty."""
    free = [axis for axis, size in enumerate(target) if size == number(-1)]
    if not free:
        return target
    left, others = list(source), [size for axis, size in enumerate(target) if axis not in free]
    for size in list(others):
        if size in left:
            left.remove(size)
            others.remove(size)
    try:
        rest = _evenly(product(tuple(left)), product(tuple(others)))
    except Undecided:
        rest = None
    return tuple(rest if axis in free else size for axis, size in enumerate(target))


def _expand(site: Site) -> Shape:
    return site.broadcast(site.shape(), tuple(site.sizes(1)))


def _tile(site: Site) -> Shape:
    return dimensions(_repeat, site.shape(), site.sizes(1))


def _repeat(size: Size, repeat: Size) -> Size:
    if repeat.number is not None and repeat.number < 0:
        raise Undecided
    return size * repeat


def _constant_of_shape(site: Site) -> Shape:
    return tuple(site.sizes(0))


def _range(site: Site) -> Shape:
    start, limit, step = (require_size(site.content(i).item()) for i in range(3))
    stride = require_number(step)
    if stride == 0:
        raise Undecided
    distance, stride = (limit - start, stride) if stride > 0 else (start - limit, -stride)
    return (floor_divide(site.bounds.maximum(distance, ZERO) + number(stride - 1), number(stride)),)


def _stft(site: Site) -> Shape:
    """Frames of a signal, their frequencies, and two parts of each."""
    signal = site.shape()
    step, size = require_number(require_size(site.content(1).item())), require_size(signal[1])
    length = require_size(site.content(3).item() if site.name(3) else site.shape(2)[0])
    if step < 1:
        raise Undecided
    site.require(size, length.number or 1)
    frames = floor_divide(size - length, number(step)) + ONE
    bins = floor_divide(length, number(2)) + ONE if site.attribute("onesided", 1) else length
    return (signal[0], frames, bins, number(2))


def _resize(site: Site) -> Shape:
    shape = list(site.shape())
    if site.opset < 11 or site.attribute("keep_aspect_ratio_policy", "stretch") != "stretch":
        raise Undecided
    axes = [site.axis(axis) for axis in site.attribute("axes", range(len(shape)))]
    if site.name(3) and len(sizes := site.sizes(3)) == len(axes):
        for axis, size in zip(axes, sizes, strict=True):
            shape[axis] = size
        return tuple(shape)
    if site.attribute("coordinate_transformation_mode", "half_pixel") == "tf_crop_and_resize":
        raise Undecided
    return _scale_axes(site, shape, axes, site.floats(2))


def _upsample(site: Site) -> Shape:
    shape = list(site.shape())
    scales = site.attribute("scales")
    return _scale_axes(site, shape, list(range(len(shape))), site.floats(1) if scales is None else list(scales))


def _scale_axes(site: Site, shape: list[Size | None], axes: list[int], scales: list[float]) -> Shape:
    """Dimensions times scales; unknown if the runtime's arithmetic might round."""
    for axis, scale in zip(axes, scales, strict=True):
        numerator, denominator = float(scale).as_integer_ratio()
        size, is_exact = shape[axis], denominator == 1 or max(numerator, denominator) <= _SHORT
        is_known = is_exact and size is not None
        shape[axis] = floor_divide(require_size(size).scale(numerator), number(denominator)) if is_known else None
    return tuple(shape)


def _largest(site: Site) -> list[Shape]:
    """For a TopK: as many elements as are asked for, which the axis has at least."""
    shape, axis = list(site.shape()), site.axis(site.attribute("axis", -1))
    count = site.attribute("k")
    kept = require_size(site.content(1).flat[0]) if count is None else number(count)
    if kept.number is not None:
        site.require(shape[axis], kept.number)
    shape[axis] = kept
    return [tuple(shape)] * 2


def _depth_to_space(site: Site) -> Shape:
    block = site.attribute("blocksize")
    batch, channels, *positions = site.shape()
    depth = dimensions(lambda c: _evenly(c, number(block * block)), [channels])
    return (batch, *depth, *dimensions(lambda d: d.scale(block), positions))


def _space_to_depth(site: Site) -> Shape:
    block = site.attribute("blocksize")
    batch, channels, *positions = site.shape()
    depth = dimensions(lambda c: c.scale(block * block), [channels])
    return (batch, *depth, *dimensions(lambda d: _evenly(d, number(block)), positions))


def _evenly(size: Size, parts: Size) -> Size:
    """The quotient by a divisor of the size in every valid run. Raises Undecided for parts of size 0."""
    if not parts.terms:
        raise Undecided
    return floor_divide(size, parts)


def _like_content(site: Site) -> Shape:
    """A vector of one number per dimension."""
    return (number(len(site.shape())),)


_LIKE_FIRST = (
    "Identity", "Dropout", "PRelu", "Clip", "IsInf", "Softmax", "LogSoftmax", "Hardmax", "LRN", "LpNormalization",
    "InstanceNormalization", "LayerNormalization", "GroupNormalization", "MeanVarianceNormalization",
    "BatchNormalization", "QuantizeLinear",
    "DequantizeLinear", "CumSum", "Trilu", "ScatterND", "ScatterElements",
)  # fmt: skip
_BY_CATEGORY = {"elementwise.unary": _same, "elementwise.binary": _broadcast, "elementwise.ternary": _broadcast}
_RULES: dict[str, Callable[[Site], Shape | list[Shape]]] = {
    **{name: _BY_CATEGORY[o.category] for name, o in OPERATORS.items() if o.category in _BY_CATEGORY},
    **dict.fromkeys(_LIKE_FIRST, _same),
    **dict.fromkeys(("Sum", "Mean"), _broadcast),
    **dict.fromkeys(REDUCTIONS, _reduction),
    "ArgMax": _place_of_extremum,
    "ArgMin": _place_of_extremum,
    **dict.fromkeys(MATRIX_PRODUCTS, _matrix_product),
    "Gemm": _gemm,
    "Transpose": _transpose,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Flatten": _flatten,
    "Gather": _gather,
    **dict.fromkeys(FILTERS, convolution),
    "ConvTranspose": transposed_convolution,
    **dict.fromkeys((*POOLS, "LpPool"), pool),
    **dict.fromkeys(GLOBAL_POOLS, global_pool),
    "Concat": _concat,
    "Split": _split,
    "Slice": _slice,
    "Pad": _pad,
    "Reshape": _reshape,
    "Expand": _expand,
    "Tile": _tile,
    "ConstantOfShape": _constant_of_shape,
    "Range": _range,
    "STFT": _stft,
    "Resize": _resize,
    "Upsample": _upsample,
    "TopK": _largest,
    "DepthToSpace": _depth_to_space,
    "SpaceToDepth": _space_to_depth,
    "Shape": _like_content,
    "Size": lambda site: (),
}


def has_rule(op_type: str) -> bool:
    """Whether a rule here gives the shapes of an operator's outputs."""
    return op_type in _RULES
