"""The results of operators on small tensors whose elements depend on dynamic dimensions."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np

from ...ir.sizes import ONE, ZERO, Size, floor_divide, number
from .floats import ARITHMETIC, FLOATS, Real, ratio, truncate
from .site import MOST, Contents, Site, Undecided, product, require_number, require_size, tensor_of

Element = Real | bool | None


def compute_contents(site: Site) -> list[Contents | None]:
    """The elements of each output. Raises Undecided if they do not follow from the operands."""
    rule = (_FLOAT_RULES if site.dtype in FLOATS else _RULES).get(site.node.op_type)
    if rule is None:
        raise Undecided
    result = rule(site)
    return result if isinstance(result, list) else [result]


# --- reading sizes


def _shape(site: Site) -> Contents:
    shape = list(site.shape())
    part = shape[site.attribute("start", 0) : site.attribute("end", len(shape))]
    return tensor_of(part, (len(part),))


def _size(site: Site) -> Contents:
    return tensor_of([product(site.shape())], ())


# --- moving elements


def _gather(site: Site) -> Contents:
    data = site.content(0)
    axis = site.axis(site.attribute("axis", 0), data.ndim)
    indices = np.asarray(site.integers(1), np.int64).reshape(site.content(1).shape)
    if indices.size and not (-data.shape[axis] <= indices.min() and indices.max() < data.shape[axis]):
        raise Undecided
    return _array(np.take(data, indices, axis))


def _slice(site: Site) -> Contents:
    data = site.content(0)
    starts, ends = site.integers_of("starts", 1), site.integers_of("ends", 2)
    axes = site.integers_of("axes", 3, list(range(len(starts))))
    steps = site.integers_of("steps", 4, [1] * len(starts))
    cuts = [slice(None)] * data.ndim
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        place = site.axis(axis, data.ndim)
        bottom = step < 0 and end < -data.shape[place]  # an end before the first element
        cuts[place] = slice(start, None if bottom else end, step)
    return _array(data[tuple(cuts)])


def _concat(site: Site) -> Contents:
    parts = [site.content(i) for i in range(len(site.node.inputs))]
    return _array(np.concatenate(parts, axis=site.attribute("axis", 0)))


def _split(site: Site) -> list[Contents | None]:
    data = site.content(0)
    axis = site.axis(site.attribute("axis", 0), data.ndim)
    count = len(site.node.outputs)
    even = -(-data.shape[axis] // count)
    sizes = site.integers_of("split", 1, [even] * (count - 1) + [data.shape[axis] - even * (count - 1)])
    return [_array(part) for part in np.split(data, np.cumsum(sizes)[:-1], axis)]


def _reshape(site: Site) -> Contents:
    data, target = site.content(0), site.integers_of("shape", 1)
    if not site.attribute("allowzero", 0):
        target = [data.shape[i] if size == 0 else size for i, size in enumerate(target)]
    return _array(data.reshape(target))


def _flatten(site: Site) -> Contents:
    data = site.content(0)
    axis = site.attribute("axis", 1)
    return _array(data.reshape(math.prod(data.shape[:axis]), -1))


def _squeeze(site: Site) -> Contents:
    data = site.content(0)
    axes = site.integers_of("axes", 1, [i for i, d in enumerate(data.shape) if d == 1])
    return _array(np.squeeze(data, tuple(axes)))


def _unsqueeze(site: Site) -> Contents:
    return _array(np.expand_dims(site.content(0), tuple(site.integers_of("axes", 1))))


def _transpose(site: Site) -> Contents:
    return _array(np.transpose(site.content(0), site.attribute("perm")))


def _expand(site: Site) -> Contents:
    data, target = site.content(0), tuple(site.integers(1))
    return _limit_size(np.broadcast_to(data, np.broadcast_shapes(data.shape, target)))


def _tile(site: Site) -> Contents:
    data, repeats = site.content(0), site.integers(1)
    if data.size * math.prod(repeats) > MOST:
        raise Undecided
    return _array(np.tile(data, repeats))


def _identity(site: Site) -> Contents:
    return site.content(0)


def _cast(site: Site) -> Contents:
    """Between the types that are followed; the contents of one floating-point type are those of the other."""
    data = site.content(0)
    if site.dtype == "bool":
        return _each(lambda e: e if isinstance(e, bool) else _is_truth(site, e), data)
    integers = _each(lambda e: number(int(e)) if isinstance(e, bool) else e, data)
    if site.dtype in FLOATS:
        return _each(lambda e: ratio(e, 1) if isinstance(e, Size) else e, integers)
    return _each(lambda e: truncate(site.bounds, e), integers)


def _is_truth(site: Site, element: Size) -> bool | None:
    equal = _equal(site, element, ZERO)
    return None if equal is None else not equal


# --- making tensors


def _constant_of_shape(site: Site) -> Contents:
    shape = site.integers(0)
    tensor = site.attribute("value")
    array = np.zeros(1, np.float32) if tensor is None else tensor.numpy()
    if array.dtype.kind not in "iu" or math.prod(shape) > MOST:
        raise Undecided
    return tensor_of([number(int(array.ravel()[0]))] * math.prod(shape), tuple(shape))


def _range(site: Site) -> Contents:
    start, limit, step = (require_size(site.content(i).item()) for i in range(3))
    distance, stride = require_number(limit - start), require_number(step)
    length = max(0, -(-distance // stride)) if stride else MOST + 1
    if length > MOST:
        raise Undecided
    return tensor_of([start + number(stride * i) for i in range(length)], (length,))


# --- arithmetic


def _array(result: Any) -> Contents:
    return np.asarray(result, object)


def _limit_size(result: Contents) -> Contents:
    if result.size > MOST:
        raise Undecided
    return _array(result)


def _each(function: Callable[..., Element], *tensors: Contents) -> Contents:
    """A function of elements, if all of them are known, on tensors that broadcast."""
    if math.prod(np.broadcast_shapes(*(tensor.shape for tensor in tensors))) > MOST:
        raise Undecided
    lifted = np.frompyfunc(lambda *e: None if any(x is None for x in e) else function(*e), len(tensors), 1)
    return _array(lifted(*tensors))


def _elementwise(function: Callable[..., Element]) -> Callable[[Site], Contents]:
    """An operator of one function of elements, which also gets the site."""

    def rule(site: Site) -> Contents:
        return _each(lambda *e: function(site, *e), *(site.content(i) for i in range(len(site.node.inputs))))

    return rule


def _modulo(site: Site, dividend: Size, divisor: Size) -> Size | None:
    if not site.bounds.is_at_least(divisor, 0):
        return None
    if site.bounds.is_at_least(dividend, 0):
        quotient = site.bounds.divide(dividend, divisor)
    elif divisor.number and not site.attribute("fmod", 0):  # the remainder has the sign of the divisor
        quotient = floor_divide(dividend, divisor)
    else:
        return None
    return None if quotient is None else dividend - quotient * divisor


def _absolute(site: Site, element: Size) -> Size | None:
    return element if site.bounds.is_at_least(element, 0) else None


def _equal(site: Site, left: Element, right: Element) -> bool | None:
    if isinstance(left, bool) or isinstance(right, bool):
        return left == right
    if left == right:
        return True
    difference = require_size(left) - require_size(right)
    return False if any(site.bounds.is_at_least(d, 1) for d in (difference, difference.scale(-1))) else None


def _less(site: Site, left: Size, right: Size) -> bool | None:
    if site.bounds.is_at_least(right - left, 1):
        return True
    return False if site.bounds.is_at_least(left - right, 0) else None


def _not(value: bool | None) -> bool | None:
    return None if value is None else not value


def _where(site: Site) -> Contents:
    condition, yes, no = (site.content(i) for i in range(3))
    choose = np.frompyfunc(lambda c, y, n: None if c is None else y if c else n, 3, 1)
    if math.prod(np.broadcast_shapes(condition.shape, yes.shape, no.shape)) > MOST:
        raise Undecided
    return _array(choose(condition, yes, no))


def _fold(function: Callable[[Site, Size, Size], Size]) -> Callable[[Site], Contents]:
    """An operator of two or more operands, joined two by two."""

    def rule(site: Site) -> Contents:
        tensors = [site.content(i) for i in range(len(site.node.inputs))]
        return reduce(lambda a, b: _each(lambda x, y: function(site, x, y), a, b), tensors)

    return rule


def _reduction(function: Callable[[Site, Size, Size], Size], start: Size | None) -> Callable[[Site], Contents]:
    def rule(site: Site) -> Contents:
        data = site.content(0)
        axes = site.integers_of("axes", 1, [])
        if not axes and site.attribute("noop_with_empty_axes", 0):
            raise Undecided
        places = {site.axis(axis, data.ndim) for axis in axes} or set(range(data.ndim))
        kept = [axis for axis in range(data.ndim) if axis not in places]
        rows = np.transpose(data, [*kept, *sorted(places)]).reshape(*(data.shape[a] for a in kept), -1)
        if start is None and rows.shape[-1] == 0:
            raise Undecided

        def join(row: list[Size | None]) -> Size:
            elements = [require_size(element) for element in row]
            return reduce(lambda a, b: function(site, a, b), elements if start is None else [start, *elements])

        joined = [join(list(row)) for row in rows.reshape(-1, rows.shape[-1])]
        shape = rows.shape[:-1]
        if site.attribute("keepdims", 1) == 1:
            shape = tuple(1 if axis in places else size for axis, size in enumerate(data.shape))
        return tensor_of(joined, shape)

    return rule


_RULES: dict[str, Callable[[Site], Contents | list[Contents | None]]] = {
    "Shape": _shape,
    "Size": _size,
    "Gather": _gather,
    "Slice": _slice,
    "Concat": _concat,
    "Split": _split,
    "Reshape": _reshape,
    "Flatten": _flatten,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Transpose": _transpose,
    "Expand": _expand,
    "Tile": _tile,
    "Identity": _identity,
    "Cast": _cast,
    "ConstantOfShape": _constant_of_shape,
    "Range": _range,
    "Add": _elementwise(lambda site, a, b: a + b),
    "Sub": _elementwise(lambda site, a, b: a - b),
    "Mul": _elementwise(lambda site, a, b: a * b),
    "Neg": _elementwise(lambda site, a: a.scale(-1)),
    "Div": _elementwise(lambda site, a, b: site.bounds.divide(a, b)),
    "Mod": _elementwise(_modulo),
    "Abs": _elementwise(_absolute),
    "Equal": _elementwise(_equal),
    "Less": _elementwise(_less),
    "Greater": _elementwise(lambda site, a, b: _less(site, b, a)),
    "LessOrEqual": _elementwise(lambda site, a, b: _not(_less(site, b, a))),
    "GreaterOrEqual": _elementwise(lambda site, a, b: _not(_less(site, a, b))),
    "Not": _elementwise(lambda site, a: not a),
    "And": _elementwise(lambda site, a, b: a and b),
    "Or": _elementwise(lambda site, a, b: a or b),
    "Where": _where,
    "Sum": _fold(lambda site, a, b: a + b),
    "Min": _fold(lambda site, a, b: site.bounds.minimum(a, b)),
    "Max": _fold(lambda site, a, b: site.bounds.maximum(a, b)),
    "ReduceProd": _reduction(lambda site, a, b: a * b, ONE),
    "ReduceSum": _reduction(lambda site, a, b: a + b, ZERO),
    "ReduceMin": _reduction(lambda site, a, b: site.bounds.minimum(a, b), None),
    "ReduceMax": _reduction(lambda site, a, b: site.bounds.maximum(a, b), None),
}
_MOVEMENTS = (
    "Gather", "Slice", "Concat", "Split", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Expand", "Tile",
    "Identity", "Cast", "Where",
)  # fmt: skip


def _on_reals(function: Callable[..., Real | None]) -> Callable[[Site], Contents]:
    return _elementwise(lambda site, *elements: function(site.bounds, *elements))


_FLOAT_RULES = {name: _RULES[name] for name in _MOVEMENTS} | {n: _on_reals(f) for n, f in ARITHMETIC.items()}
"""The rules of operators that compute floating-point numbers."""
