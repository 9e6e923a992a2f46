"""Normalisations and softmaxes, each in stages: first the reductions, and then every element."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tvm import te, tirx

from .call import Expr, Lowering, Operand, Shape, TensorCall, read, sizes
from .elementary import exp, exp_below_88, log, power, square
from .extents import Extent, as_number, product
from .reductions import Reducer, reduce_max, reduce_min, reduce_sum

OfPart = Callable[[Sequence[Expr]], Expr]
"""A number for each part of a tensor, by the indices of the part."""


def _batch(call: TensorCall) -> te.Tensor:
    x, scale, shift, centre, variance = (call.source(i) for i in range(5))
    epsilon = call.constant(call.number("epsilon", 1e-5))
    factor = call.stage(sizes(scale), lambda c: scale(c) / tirx.sqrt(variance(c) + epsilon), "factor")
    return call.stage(call.shape, lambda n, c, *i: (x(n, c, *i) - centre(c)) * factor(c) + shift(c))


@dataclass(frozen=True)
class _Parts:
    """A tensor in parts that are normalised each by itself.

    `element` takes the number of a part (of as many indices as `outer` has) and a place in it (`inner`).
    """

    call: TensorCall
    outer: Shape
    inner: Shape
    element: Callable[[Sequence[Expr], Sequence[Expr]], Expr]

    def _sum(self, function: Callable[[Sequence[Expr], Expr], Expr], part: str) -> te.Tensor:
        """The sums over parts of a function of the part's number and an element."""
        axes = self.call.reduce_axes(self.inner)
        places = [a.var for a in axes]

        def sum_of(*o: Expr) -> Expr:
            return reduce_sum(function(o, tirx.convert(self.element(o, places))), axes)

        return self.call.stage(self.outer, sum_of, part)

    def mean(self) -> OfPart:
        """The mean of a part."""
        sums = self._sum(lambda _, x: x, "sum")
        return lambda o: sums(*o) * self.call.reciprocal(product(self.inner))

    def scale(self, centre: OfPart | None) -> OfPart:
        """One over the deviation of a part from a centre (None: from zero)."""
        call = self.call
        epsilon = call.constant(call.number("epsilon", 1e-5))
        squares = self._sum(lambda o, x: square(x if centre is None else x - centre(o)), "squares")

        def inverse(*o: Expr) -> Expr:
            return call.constant(1) / tirx.sqrt(squares(*o) * call.reciprocal(product(self.inner)) + epsilon)

        factor = call.stage(self.outer, inverse, "factor")
        return lambda o: factor(*o)


def _channelwise(call: TensorCall, groups: Extent) -> te.Tensor:
    """Instance (one channel to a group) and group normalisation."""
    x, gain, shift = call.source(0), call.source(1), call.source(2)
    batch, channels, *spatial = sizes(x)
    members = 1 if channels is groups else channels // groups
    if isinstance(members, int) and members == 1:
        parts = _Parts(call, (batch, groups), tuple(spatial), lambda o, i: x(*o, *i))
    else:
        inner = (members, *spatial)
        parts = _Parts(call, (batch, groups), inner, lambda o, i: x(o[0], o[1] * members + i[0], *i[1:]))
    mean = parts.mean()
    scale = parts.scale(mean)

    def element(n: Expr, c: Expr, *i: Expr) -> Expr:
        part = (n, c if isinstance(members, int) and members == 1 else c // members)
        return (x(n, c, *i) - mean(part)) * scale(part) * gain(c) + shift(c)

    return call.stage(call.shape, element)


def _trailing(call: TensorCall, axis: int) -> _Parts:
    x = call.source(0)
    return _Parts(call, sizes(x)[:axis], sizes(x)[axis:], lambda o, i: x(*o, *i))


def _layer(call: TensorCall) -> te.Tensor:
    x, gain, shift, axis = call.source(0), call.source(1), call.optional(2), call.integer("axis")
    parts = _trailing(call, axis)
    mean = parts.mean()
    scale = parts.scale(mean)

    def element(*i: Expr) -> Expr:
        value = (x(*i) - mean(i[:axis])) * scale(i[:axis]) * read(gain, i, call.shape)
        return value if shift is None else value + read(shift, i, call.shape)

    return call.stage(call.shape, element)


def _root_mean_square(call: TensorCall) -> te.Tensor:
    x, gain, axis = call.source(0), call.source(1), call.integer("axis")
    scale = _trailing(call, axis).scale(None)
    return call.stage(call.shape, lambda *i: x(*i) * scale(i[:axis]) * read(gain, i, call.shape))


def _response(call: TensorCall) -> te.Tensor:
    """LRN: by the squares of neighbouring channels."""
    x, size = call.source(0), call.integer("size")
    (k,) = call.reduce_axes([size])
    channels, before = sizes(x)[1], (size - 1) // 2

    def sum_of_squares(n: Expr, c: Expr, *i: Expr) -> Expr:
        place = c + k.var - before
        value = te.if_then_else(te.all(place >= 0, place < channels), x(n, place, *i), call.constant(0))
        return te.sum(square(value), axis=k)

    squares = call.stage(call.shape, sum_of_squares, "squares")
    alpha, beta = call.constant(call.number("alpha", 1e-4) / size), round(call.number("beta", 0.75), 6)
    bias = call.constant(call.number("bias", 1.0))
    return call.stage(call.shape, lambda *i: x(*i) / power(squares(*i) * alpha + bias, call.constant(beta)))


# --- softmaxes


def _reduce_axis(
    call: TensorCall, reducer: Reducer, x: Operand, part: str, function: Callable[[Expr], Expr] = lambda v: v
) -> te.Tensor:
    """Elements of `x`, each through a function, reduced along the axis, which is dropped."""
    axis = call.integer("axis", -1)
    (k,) = call.reduce_axes([sizes(x)[axis]])
    shape = (*call.shape[:axis], *call.shape[axis + 1 :])
    return call.stage(shape, lambda *i: reducer(function(x(*i[:axis], k.var, *i[axis:])), [k]), part)


def _without_axis(call: TensorCall, indices: Sequence[Expr]) -> list[Expr]:
    axis = call.integer("axis", -1)
    return [*indices[:axis], *indices[axis + 1 :]]


def _softmax(call: TensorCall) -> te.Tensor:
    x = call.source(0)
    highest = _reduce_axis(call, reduce_max, x, "max")
    powers = call.stage(call.shape, lambda *i: exp_below_88(x(*i) - highest(*_without_axis(call, i))), "exp")
    sums = _reduce_axis(call, reduce_sum, powers, "sum")
    factor = call.stage(sizes(sums), lambda *i: call.constant(1) / sums(*i), "factor")
    return call.stage(call.shape, lambda *i: powers(*i) * factor(*_without_axis(call, i)))


def _log_softmax(call: TensorCall) -> te.Tensor:
    x = call.source(0)
    highest = _reduce_axis(call, reduce_max, x, "max")
    lowered = call.stage(call.shape, lambda *i: x(*i) - highest(*_without_axis(call, i)), "lowered")
    sums = _reduce_axis(call, reduce_sum, lowered, "sum", exp)
    logs = call.stage(sizes(sums), lambda *i: log(sums(*i)), "log")
    return call.stage(call.shape, lambda *i: lowered(*i) - logs(*_without_axis(call, i)))


def _hardmax(call: TensorCall) -> te.Tensor:
    """One at the first of the largest."""
    x, axis = call.source(0), call.integer("axis", -1)
    size = sizes(x)[axis]
    highest = _reduce_axis(call, reduce_max, x, "max")
    (k,) = call.reduce_axes([size])

    def place(*i: Expr) -> Expr:
        is_highest = tirx.EQ(x(*i[:axis], k.var, *i[axis:]), highest(*i))
        return reduce_min(tirx.Select(is_highest, k.var, as_number(size, "int32")), [k])

    first = call.stage(sizes(highest), place, "place")
    one, zero = call.constant(1), call.constant(0)
    return call.stage(call.shape, lambda *i: tirx.Select(tirx.EQ(first(*_without_axis(call, i)), i[axis]), one, zero))


LOWERINGS: Mapping[str, Lowering] = {
    "BatchNormalization": _batch,
    "InstanceNormalization": lambda call: _channelwise(call, sizes(call.source(0))[1]),
    "GroupNormalization": lambda call: _channelwise(call, call.integer("num_groups")),
    "LayerNormalization": _layer,
    "RMSNormalization": _root_mean_square,
    "LRN": _response,
    "Softmax": _softmax,
    "LogSoftmax": _log_softmax,
    "Hardmax": _hardmax,
}
