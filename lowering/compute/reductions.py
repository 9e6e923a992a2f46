"""Reductions and running sums."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

from tvm import te, tirx

from .call import Call, Expr, Lowering, sizes
from .elementary import dtype_of, exp, highest, lowest, square

Reducer = Callable[[Expr, Sequence[Any]], Expr]

_MAXIMUM = te.comm_reducer(lambda a, b: te.max(a, b), lowest, name="max")
_MINIMUM = te.comm_reducer(lambda a, b: te.min(a, b), highest, name="min")
_PRODUCT = te.comm_reducer(lambda a, b: a * b, lambda dtype: tirx.const(1, dtype), name="product")


def total(x: Expr, axes: Sequence[Any]) -> Expr:
    """The sum along axes, of which there may be none."""
    return te.sum(x, axis=list(axes)) if axes else x


def largest(x: Expr, axes: Sequence[Any]) -> Expr:
    """The largest along axes, where TVM's own would not go below the lowest finite float."""
    return _MAXIMUM(x, axis=list(axes)) if axes else x


def smallest(x: Expr, axes: Sequence[Any]) -> Expr:
    """The smallest along axes."""
    return _MINIMUM(x, axis=list(axes)) if axes else x


def _product(x: Expr, axes: Sequence[Any]) -> Expr:
    return _PRODUCT(x, axis=list(axes)) if axes else x


class _Along:
    """A reduction of the first input along its axes."""

    def __init__(self, call: Call) -> None:
        self.call, self.source = call, call.source(0)
        self.axes, self.keeps = call.ints("axes"), bool(call.integer("keepdims", 1))
        self.count = prod(sizes(self.source)[a] for a in self.axes)

    def kept(self, indices: Sequence[Expr]) -> list[Expr]:
        """Indices of the result with reduced axes kept."""
        if self.keeps:
            return list(indices)
        rest = iter(indices)
        return [0 if a in self.axes else next(rest) for a in range(len(self.source.shape))]

    def stage(self, reducer: Reducer, element: Callable[..., Expr], part: str = "") -> te.Tensor:
        """The elements put together; `element` takes the indices of the input."""
        reduced = self.call.reduce_axes(sizes(self.source)[a] for a in self.axes)

        def value(*indices: Expr) -> Expr:
            places = self.kept(indices)
            for axis, variable in zip(self.axes, reduced, strict=True):
                places[axis] = variable.var
            return reducer(element(*places), reduced)

        return self.call.stage(self.call.shape, value, part)

    def after(self, function: Callable[[Expr], Expr], inner: te.Tensor) -> te.Tensor:
        """A function of every result."""
        return self.call.stage(self.call.shape, lambda *i: function(inner(*i)))


def _plain(reducer: Reducer, inner: Callable[[Expr], Expr] = lambda x: x) -> Lowering:
    def lower(call: Call) -> te.Tensor:
        along = _Along(call)
        return along.stage(reducer, lambda *i: inner(tirx.convert(along.source(*i))))

    return lower


def _extreme(reducer: Reducer) -> Lowering:
    """The largest or smallest; truth values are ordered as numbers."""

    def lower(call: Call) -> te.Tensor:
        along = _Along(call)
        if call.dtype != "bool":
            return along.stage(reducer, along.source)
        numbers = along.stage(reducer, lambda *i: along.source(*i).astype("int8"), "number")
        return along.after(lambda x: tirx.NE(x, tirx.const(0, "int8")), numbers)

    return lower


def _after(outer: Callable[[Expr], Expr], inner: Callable[[Expr], Expr] = lambda x: x) -> Lowering:
    def lower(call: Call) -> te.Tensor:
        along = _Along(call)
        sums = along.stage(total, lambda *i: inner(tirx.convert(along.source(*i))), "sum")
        return along.after(outer, sums)

    return lower


def _mean(call: Call) -> te.Tensor:
    along = _Along(call)
    sums = along.stage(total, along.source, "sum")
    return along.after(lambda x: divided(x, along.count), sums)


def divided(x: Expr, count: int) -> Expr:
    """A sum by a number of elements."""
    dtype = dtype_of(tirx.convert(x))
    if dtype.startswith("float"):
        return x * tirx.const(1 / count, dtype)
    return tirx.truncdiv(x, tirx.const(count, dtype))


def _log_sum_exp(call: Call) -> te.Tensor:
    """Lowered by the largest, unless that is infinite."""
    along = _Along(call)
    highest_ = along.stage(largest, along.source, "max")
    shift = along.after(lambda x: tirx.Select(tirx.isfinite(x), x, call.constant(0)), highest_)
    sums = along.stage(total, lambda *i: exp(along.source(*i) - shift(*_result(along, i))), "sum")
    return call.stage(call.shape, lambda *i: tirx.log(sums(*i)) + shift(*i))


def _result(along: _Along, indices: Sequence[Expr]) -> list[Expr]:
    """Indices of the result from those of the input."""
    if along.keeps:
        return [0 if a in along.axes else i for a, i in enumerate(indices)]
    return [i for a, i in enumerate(indices) if a not in along.axes]


def _running_sum(call: Call) -> te.Tensor:
    """Each result adds what is before it: quadratic in the axis, but free of any order of the results."""
    x = call.source(0)
    (axis,) = call.ints("axis")
    (k,) = call.reduce_axes([sizes(x)[axis]])
    exclusive, reverse = call.integer("exclusive", 0), call.integer("reverse", 0)

    def element(*indices: Expr) -> Expr:
        here = indices[axis]
        before, after = (here, k.var) if reverse else (k.var, here)
        counts = tirx.LT(before, after) if exclusive else tirx.LE(before, after)
        value = x(*indices[:axis], k.var, *indices[axis + 1 :])
        return te.sum(tirx.Select(counts, value, call.constant(0)), axis=k)

    return call.stage(call.shape, element)


LOWERINGS: Mapping[str, Lowering] = {
    "ReduceSum": _plain(total),
    "ReduceMean": _mean,
    "ReduceMax": _extreme(largest),
    "ReduceMin": _extreme(smallest),
    "ReduceProd": _plain(_product),
    "ReduceL1": _plain(total, tirx.abs),
    "ReduceL2": _after(tirx.sqrt, square),
    "ReduceSumSquare": _plain(total, square),
    "ReduceLogSum": _after(tirx.log),
    "ReduceLogSumExp": _log_sum_exp,
    "CumSum": _running_sum,
}
