"""Reductions and running sums."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tvm import te, tirx

from .call import Expr, Lowering, NotLowered, TensorCall, sizes
from .elementary import dtype_of, exp, highest, log, lowest, square
from .extents import as_number, product
from .integers import absolute, divide

Reducer = Callable[[Expr, Sequence[Any]], Expr]
"""Reduces an expression along axes; without axes it is the expression."""


def _reducer(function: Callable[..., Expr]) -> Reducer:
    return lambda x, axes: function(x, axis=list(axes)) if axes else x


reduce_sum = _reducer(te.sum)
reduce_max = _reducer(te.comm_reducer(lambda a, b: te.max(a, b), lowest, name="max"))
"""From -infinity; TVM's own would not go below the lowest finite float."""
reduce_min = _reducer(te.comm_reducer(lambda a, b: te.min(a, b), highest, name="min"))
_reduce_product = _reducer(te.comm_reducer(lambda a, b: a * b, lambda dtype: tirx.const(1, dtype), name="product"))


_LONG = 1 << 12
"""Elements that are summed one after another in float32: of more the rounding of the sum, at half of its last digit for
each, would be seen in a result."""


class _Reduction:
    """A reduction of the first input along axes, by default those of the attribute."""

    def __init__(self, call: TensorCall, axes: Sequence[int] | None = None) -> None:
        self.call, self.source = call, call.source(0)
        self.axes, self.keeps = call.ints("axes") if axes is None else axes, bool(call.integer("keepdims", 1))
        self.count = product(sizes(self.source)[a] for a in self.axes)
        is_short = isinstance(self.count, int) and self.count <= _LONG
        self.is_long = call.dtype == "float32" and not is_short

    def stage(self, reducer: Reducer, element: Callable[..., Expr], part: str = "") -> te.Tensor:
        """The elements reduced; `element` takes the indices of the input. An axis of one element is none to reduce,
        which would keep those beside it from being one axis in memory."""
        extents = sizes(self.source)
        long = [a for a in self.axes if extents[a] != 1]
        reduced = self.call.reduce_axes(extents[a] for a in long)

        def value(*indices: Expr) -> Expr:
            rest = iter(indices)
            places = [
                next(rest) if self.keeps or a not in self.axes else 0 for a in range(len(self.source.shape))
            ]
            for axis, variable in zip(long, reduced, strict=True):
                places[axis] = variable.var
            return reducer(element(*places), reduced)

        return self.call.stage(self.call.shape, value, part)

    def apply(self, function: Callable[[Expr], Expr], inner: te.Tensor) -> te.Tensor:
        """A function of every result."""
        return self.call.stage(self.call.shape, lambda *i: function(inner(*i)))

    def result_indices(self, indices: Sequence[Expr]) -> list[Expr]:
        """Indices of the result from those of the input."""
        if self.keeps:
            return [0 if a in self.axes else i for a, i in enumerate(indices)]
        return [i for a, i in enumerate(indices) if a not in self.axes]


def _reduce(
    reducer: Reducer,
    inner: Callable[[Expr], Expr] = lambda x: x,
    outer: Callable[[Expr], Expr] | None = None,
) -> Lowering:
    """A reduction of a function of every element, and perhaps a function of the result; many float32 numbers are added
    in float64."""

    def lower(call: TensorCall) -> te.Tensor:
        reduction = _Reduction(call)
        is_wide = reducer is reduce_sum and reduction.is_long

        def element(*indices: Expr) -> Expr:
            value = inner(tirx.convert(reduction.source(*indices)))
            return value.astype("float64") if is_wide else value

        if outer is None and not is_wide:
            return reduction.stage(reducer, element)
        result = reduction.stage(reducer, element, "sum")
        finish = outer or (lambda x: x)
        return reduction.apply(lambda x: finish(x.astype(call.dtype)), result)

    return lower


def _extreme(reducer: Reducer) -> Lowering:
    """The largest or smallest; truth values are ordered as numbers."""

    def lower(call: TensorCall) -> te.Tensor:
        reduction = _Reduction(call)
        if call.dtype != "bool":
            return reduction.stage(reducer, reduction.source)
        numbers = reduction.stage(reducer, lambda *i: reduction.source(*i).astype("int8"), "number")
        return reduction.apply(lambda x: tirx.NE(x, tirx.const(0, "int8")), numbers)

    return lower


def largest(call: TensorCall, axes: Sequence[int]) -> te.Tensor:
    """The largest number along axes."""
    reduction = _Reduction(call, axes)
    return reduction.stage(reduce_max, reduction.source)


def mean(call: TensorCall, axes: Sequence[int] | None = None) -> te.Tensor:
    """The mean along axes, by default those of the attribute; many float32 numbers are added in float64."""
    reduction = _Reduction(call, axes)

    def share_of(x: Expr) -> Expr:
        dtype = dtype_of(tirx.convert(x))
        if dtype.startswith("float"):
            return x * call.reciprocal(reduction.count)
        return divide(x, as_number(reduction.count, dtype))

    if reduction.is_long:
        count = reduction.count
        share = 1 / as_number(count if isinstance(count, int) else te.max(count, 1), "float64")
        sums = reduction.stage(reduce_sum, lambda *i: reduction.source(*i).astype("float64"), "sum")
        return reduction.apply(lambda x: (x * share).astype("float32"), sums)
    return reduction.apply(share_of, reduction.stage(reduce_sum, reduction.source, "sum"))


def _log_sum_exp(call: TensorCall) -> te.Tensor:
    """Lowered by the largest, unless that is infinite."""
    reduction = _Reduction(call)
    source = reduction.source
    largest = reduction.stage(reduce_max, source, "max")
    shift = reduction.apply(lambda x: tirx.Select(tirx.isfinite(x), x, call.constant(0)), largest)
    sums = reduction.stage(reduce_sum, lambda *i: exp(source(*i) - shift(*reduction.result_indices(i))), "sum")
    return call.stage(call.shape, lambda *i: log(sums(*i)) + shift(*i))


_QUADRATIC = 32
"""Elements of a running sum up to which adding all of them anew for each, by vectors, is as fast as one loop."""


def _running_sum(call: TensorCall) -> te.Tensor:
    """Each result adds all elements before it: quadratic in the axis, but free of any order of the results."""
    x = call.source(0)
    (axis,) = call.ints("axis")
    extent = sizes(x)[axis]
    if not isinstance(extent, int) or extent > _QUADRATIC:
        raise NotLowered(f"a running sum of {extent} elements, which a loop adds one after the other")
    (k,) = call.reduce_axes([extent])
    exclusive, reverse = call.integer("exclusive", 0), call.integer("reverse", 0)

    def element(*indices: Expr) -> Expr:
        here = indices[axis]
        before, after = (here, k.var) if reverse else (k.var, here)
        counts = tirx.LT(before, after) if exclusive else tirx.LE(before, after)
        value = x(*indices[:axis], k.var, *indices[axis + 1 :])
        return te.sum(tirx.Select(counts, value, call.constant(0)), axis=k)

    return call.stage(call.shape, element)


def _position_of(reducer: Reducer) -> Lowering:
    """The first or last place, along the axis, of an element that is as large as the largest."""

    def lower(call: TensorCall) -> te.Tensor:
        x, axis = call.source(0), call.integer("axis", 0) % len(sizes(call.source(0)))
        extent, keeps, last = sizes(x)[axis], call.integer("keepdims", 1), call.integer("select_last_index", 0)
        outside = as_number(-1 if last else extent, "int64")

        def places(indices: Sequence[Expr], place: Expr) -> list[Expr]:
            return [*indices[:axis], place, *indices[axis + 1 if keeps else axis :]]

        (k,) = call.reduce_axes([extent])
        best = call.stage(call.shape, lambda *i: reducer(x(*places(i, k.var)), [k]), "best")
        (k,) = call.reduce_axes([extent])

        def element(*indices: Expr) -> Expr:
            is_best = tirx.EQ(x(*places(indices, k.var)), best(*indices))
            place = tirx.Select(is_best, k.var.astype("int64"), outside)
            return te.max(place, axis=k) if last else te.min(place, axis=k)

        return call.stage(call.shape, element)

    return lower


LOWERINGS: Mapping[str, Lowering] = {
    "ReduceSum": _reduce(reduce_sum),
    "ReduceMean": mean,
    "ReduceMax": _extreme(reduce_max),
    "ReduceMin": _extreme(reduce_min),
    "ReduceProd": _reduce(_reduce_product),
    "ReduceL1": _reduce(reduce_sum, absolute),
    "ReduceL2": _reduce(reduce_sum, square, tirx.sqrt),
    "ReduceSumSquare": _reduce(reduce_sum, square),
    "ReduceLogSum": _reduce(reduce_sum, outer=log),
    "ReduceLogSumExp": _log_sum_exp,
    "CumSum": _running_sum,
    "ArgMax": _position_of(reduce_max),
    "ArgMin": _position_of(reduce_min),
}
