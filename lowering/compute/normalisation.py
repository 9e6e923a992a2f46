"""Normalisations and softmaxes, each in stages: what is reduced, and then every element."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from tvm import te, tirx

from .call import Call, Expr, Lowering, Shape, Source, read, sizes
from .elementary import exp, exp_below_88, power, square
from .reductions import largest, smallest, total


def _batch(call: Call) -> te.Tensor:
    x, scale, shift, centre, variance = (call.source(i) for i in range(5))
    epsilon = call.constant(call.number("epsilon", 1e-5))
    factor = call.stage(sizes(scale), lambda c: scale(c) / tirx.sqrt(variance(c) + epsilon), "factor")
    return call.stage(call.shape, lambda n, c, *i: (x(n, c, *i) - centre(c)) * factor(c) + shift(c))


@dataclass(frozen=True)
class _Parts:
    """A tensor in parts that are normalised each by itself.

    `element` takes the number of a part (of as many indices as `outer` has) and a place in it (`inner`).
    """

    call: Call
    outer: Shape
    inner: Shape
    element: Callable[[Sequence[Expr], Sequence[Expr]], Expr]

    def _reduced(self, function: Callable[[Sequence[Expr], Expr], Expr], part: str) -> te.Tensor:
        """The sums over parts of a function of the part's number and an element."""
        axes = self.call.reduce_axes(self.inner)
        places = [a.var for a in axes]
        return self.call.stage(
            self.outer, lambda *o: total(function(o, tirx.convert(self.element(o, places))), axes), part
        )

    def mean(self) -> Callable[[Sequence[Expr]], Expr]:
        """The mean of a part."""
        sums = self._reduced(lambda _, x: x, "sum")
        return lambda o: sums(*o) * self._share()

    def scale(self, centre: Callable[[Sequence[Expr]], Expr] | None) -> Callable[[Sequence[Expr]], Expr]:
        """One over the deviation of a part from a centre (None: from zero)."""
        epsilon = self.call.constant(self.call.number("epsilon", 1e-5))

        def squared(outer: Sequence[Expr], x: Expr) -> Expr:
            return square(x if centre is None else x - centre(outer))

        sums = self._reduced(squared, "squares")
        factor = self.call.stage(
            self.outer,
            lambda *o: self.call.constant(1) / tirx.sqrt(sums(*o) * self._share() + epsilon),
            "factor",
        )
        return lambda o: factor(*o)

    def _share(self) -> Expr:
        return self.call.constant(1 / prod(self.inner))


def _channelwise(call: Call, groups: int) -> te.Tensor:
    """Instance (one channel to a group) and group normalisation."""
    x, gain, shift = call.source(0), call.source(1), call.source(2)
    batch, channels, *spatial = sizes(x)
    members = channels // groups
    parts = _Parts(
        call,
        (batch, groups),
        tuple(spatial) if members == 1 else (members, *spatial),
        (lambda o, i: x(*o, *i)) if members == 1 else (lambda o, i: x(o[0], o[1] * members + i[0], *i[1:])),
    )
    mean = parts.mean()
    scale = parts.scale(mean)

    def element(n: Expr, c: Expr, *i: Expr) -> Expr:
        part = (n, c if members == 1 else c // members)
        return (x(n, c, *i) - mean(part)) * scale(part) * gain(c) + shift(c)

    return call.stage(call.shape, element)


def _trailing(call: Call, axis: int) -> _Parts:
    x = call.source(0)
    return _Parts(call, sizes(x)[:axis], sizes(x)[axis:], lambda o, i: x(*o, *i))


def _layer(call: Call) -> te.Tensor:
    x, gain, shift, axis = call.source(0), call.source(1), call.optional(2), call.integer("axis")
    parts = _trailing(call, axis)
    mean = parts.mean()
    scale = parts.scale(mean)

    def element(*i: Expr) -> Expr:
        value = (x(*i) - mean(i[:axis])) * scale(i[:axis]) * read(gain, i, call.shape)
        return value if shift is None else value + read(shift, i, call.shape)

    return call.stage(call.shape, element)


def _root_mean_square(call: Call) -> te.Tensor:
    x, gain, axis = call.source(0), call.source(1), call.integer("axis")
    scale = _trailing(call, axis).scale(None)
    return call.stage(call.shape, lambda *i: x(*i) * scale(i[:axis]) * read(gain, i, call.shape))


def _response(call: Call) -> te.Tensor:
    """LRN: by the squares of neighbouring channels."""
    x, size = call.source(0), call.integer("size")
    (k,) = call.reduce_axes([size])
    channels, before = sizes(x)[1], (size - 1) // 2

    def squared(n: Expr, c: Expr, *i: Expr) -> Expr:
        place = c + k.var - before
        seen = te.if_then_else(te.all(place >= 0, place < channels), x(n, place, *i), call.constant(0))
        return te.sum(square(seen), axis=k)

    squares = call.stage(call.shape, squared, "squares")
    alpha, beta = call.constant(call.number("alpha", 1e-4) / size), round(call.number("beta", 0.75), 6)
    bias = call.constant(call.number("bias", 1.0))
    return call.stage(call.shape, lambda *i: x(*i) / power(squares(*i) * alpha + bias, call.constant(beta)))


# --- softmaxes


def _along(call: Call, function: Callable[[Expr], Expr], x: Source, largest_too: bool, part: str) -> te.Tensor:
    """Elements of `x` put together along the axis, which is dropped: the largest of them, or the sum."""
    axis = call.integer("axis", -1)
    (k,) = call.reduce_axes([sizes(x)[axis]])
    combine = largest if largest_too else total
    shape = (*call.shape[:axis], *call.shape[axis + 1 :])
    return call.stage(shape, lambda *i: combine(function(x(*i[:axis], k.var, *i[axis:])), [k]), part)


def _dropped(call: Call, indices: Sequence[Expr]) -> list[Expr]:
    axis = call.integer("axis", -1)
    return [*indices[:axis], *indices[axis + 1 :]]


def _softmax(call: Call) -> te.Tensor:
    x = call.source(0)
    highest = _along(call, lambda v: v, x, True, "max")
    powers = call.stage(call.shape, lambda *i: exp_below_88(x(*i) - highest(*_dropped(call, i))), "exp")
    sums = _along(call, lambda v: v, powers, False, "sum")
    factor = call.stage(sizes(sums), lambda *i: call.constant(1) / sums(*i), "factor")
    return call.stage(call.shape, lambda *i: powers(*i) * factor(*_dropped(call, i)))


def _log_softmax(call: Call) -> te.Tensor:
    x = call.source(0)
    highest = _along(call, lambda v: v, x, True, "max")
    lowered = call.stage(call.shape, lambda *i: x(*i) - highest(*_dropped(call, i)), "lowered")
    sums = _along(call, exp, lowered, False, "sum")
    return call.stage(call.shape, lambda *i: lowered(*i) - tirx.log(sums(*_dropped(call, i))))


def _hardmax(call: Call) -> te.Tensor:
    """One at the first of the largest."""
    x, axis = call.source(0), call.integer("axis", -1)
    size = sizes(x)[axis]
    highest = _along(call, lambda v: v, x, True, "max")
    (k,) = call.reduce_axes([size])

    def place(*i: Expr) -> Expr:
        is_highest = tirx.EQ(x(*i[:axis], k.var, *i[axis:]), highest(*i))
        return smallest(tirx.Select(is_highest, k.var, tirx.const(size, "int32")), [k])

    first = call.stage(sizes(highest), place, "place")
    one, zero = call.constant(1), call.constant(0)
    return call.stage(call.shape, lambda *i: tirx.Select(tirx.EQ(first(*_dropped(call, i)), i[axis]), one, zero))


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
