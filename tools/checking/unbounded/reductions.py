"""Reductions over any axes, and products of matrices: an element is made from all elements along some axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import z3

from .axes import axes_of
from .layout import drop_axes, elementwise, mirror
from .logic import choice, conjunction, implication
from .tensors import (
    Applied,
    Binder,
    Count,
    Expression,
    Index,
    NoMeaning,
    Parameter,
    Reduced,
    Side,
    Tensor,
    Total,
    broadcast,
)
from .vectors import Vector
from .world import Number, plain

Each = Callable[[Expression], Expression]
"""A function that is applied to each element before the reduction."""
_NONEMPTY = ("maximum", "minimum")
"""Reductions that have no value for no elements."""


def _reduce(side: Side, x: Tensor, axes: Vector, keepdims: Number, total: Total, each: Each) -> Tensor:
    """Reduce a tensor over axes."""
    if x.joined is not None and total in ("add", "multiply"):
        of_parts = _reduce_parts(side, x, axes, keepdims, total, each)
        if of_parts is not None:
            return of_parts
    keep = _flag(keepdims, "keepdims is neither 0 nor 1")
    gone, rank = axes_of(axes, x.rank, side), x.rank

    def among(at: Number) -> Any:
        return conjunction(at >= 0, at < rank, gone.has(mirror(rank, at)))

    if total in _NONEMPTY:
        side.require_all(rank, lambda at: implication(among(at), x.size(at) >= 1))
    outer, inner = drop_axes(rank, gone)

    def element(index: Index) -> Expression:
        only = axes.items[0] if axes.items is not None and len(axes.items) == 1 else None
        binders = [_binder_over(side, x, part.has, only) for part in gone.parts or (gone,)]
        place: Index = lambda at: index(at if keep else outer(at))  # noqa: E731
        return Reduced(total, tuple(binders), each(x.element(_positions(x, binders, place))), x.type)

    if keep:
        return Tensor(rank, lambda at: choice(among(at), 1, x.size(at)), element)
    return Tensor(rank - gone.count, lambda at: x.size(inner(at)), element)


def _reduce_parts(side: Side, x: Tensor, axes: Vector, keepdims: Number, total: Total, each: Each) -> Tensor | None:
    """Reduce two joined tensors one by one, if the axis along which they are joined is among the axes.

    The positions of the whole are those of the first part and, moved by its size, those of the second; a sum over a
    disjoint union is the sum of the sums (by induction over the second part).
    """
    assert x.joined is not None
    gone = axes_of(axes, x.rank, side)
    if not side.world.follows(gone.has(mirror(x.rank, x.joined.axis))):
        return None
    one, other = (_reduce(side, part, axes, keepdims, total, each) for part in (x.joined.first, x.joined.second))
    head = "Add" if total == "add" else "Mul"
    return Tensor(one.rank, one.size, lambda index: Applied(head, (one.element(index), other.element(index))))


def _binder_over(side: Side, x: Tensor, has: Callable[[Number], Any], only: Number | None = None) -> Binder:
    """A position along each of some axes of a tensor, which count from the first one."""
    rank = x.rank
    return Binder(
        rank,
        lambda front: conjunction(front >= 0, front < rank, has(front)),
        lambda front: x.size(mirror(rank, front)),
        side.world.function("at"),
        only,
    )


def _positions(x: Tensor, binders: Sequence[Binder], place: Index) -> Index:
    """The position in a tensor: along the axes of a binder that of the binder, along the rest `place`."""

    def index(at: Number) -> Number:
        front = mirror(x.rank, at)
        result = place(at)
        for binder in binders:
            result = choice(binder.among(front), binder.at(front), result)
        return result

    return index


def _flag(number: Number, problem: str) -> bool:
    """A number that is 0 or 1 in each case of a proof. Raises NoMeaning."""
    value = z3.simplify(number)
    if not z3.is_int_value(value):
        raise NoMeaning(problem)
    return bool(value.as_long())


def _identity(expression: Expression) -> Expression:
    return expression


def _apply(head: str) -> Each:
    return lambda body: Applied(head, (body, body) if head == "Mul" else (body,))


def _reduction(total: Total, each: Each = _identity) -> Callable[..., Tensor]:
    return lambda side, x, axes, keepdims: _reduce(side, x, axes, keepdims, total, each)


def _function_of_sum(head: str, each: Each) -> Callable[..., Tensor]:
    def compute(side: Side, x: Tensor, axes: Vector, keepdims: Number) -> Tensor:
        whole = _reduce(side, x, axes, keepdims, "add", each)
        return Tensor(whole.rank, whole.size, lambda index: Applied(head, (whole.element(index),)))

    return compute


def _mean(side: Side, x: Tensor, axes: Vector, keepdims: Number) -> Tensor:
    """The sum divided by the number of positions, of which there is at least one."""
    gone, rank = axes_of(axes, x.rank, side), x.rank

    def among(at: Number) -> Any:
        return conjunction(at >= 0, at < rank, gone.has(mirror(rank, at)))

    side.require_all(rank, lambda at: implication(among(at), x.size(at) >= 1))
    undivided = Tensor(x.rank, x.size, x.element, type=x.type)
    whole = _reduce(side, undivided, axes, keepdims, "add", _identity)

    def element(index: Index) -> Expression:
        total = whole.element(index)
        assert isinstance(total, Reduced)
        return Applied("Div", (total, Count(total.binders, x.type)))

    return Tensor(whole.rank, whole.size, element)


def _softmax(side: Side, x: Tensor, axis: Number) -> Tensor:
    """exp(x), divided by its sum along the axis."""
    sum_at = _sum_of_exponentials(side, x, axis)
    return Tensor(x.rank, x.size, lambda index: Applied("Div", (Applied("Exp", (x.element(index),)), sum_at(index))))


def _log_softmax(side: Side, x: Tensor, axis: Number) -> Tensor:
    sum_at = _sum_of_exponentials(side, x, axis)

    def element(index: Index) -> Expression:
        total = sum_at(index)
        return Applied("Sub", (x.element(index), Applied("Log", (total,))))

    return Tensor(x.rank, x.size, element)


def _sum_of_exponentials(side: Side, x: Tensor, axis: Number) -> Callable[[Index], Expression]:
    """The sum of exp(x) along an axis, through a position."""
    side.require(conjunction(axis >= 0, axis < x.rank))
    front = plain(mirror(x.rank, plain(mirror(x.rank, axis))))

    def sum_at(index: Index) -> Expression:
        binder = _binder_over(side, x, lambda at: at == front, front)
        return Reduced("add", (binder,), Applied("Exp", (x.element(_positions(x, [binder], index)),)), x.type)

    return sum_at


def _global_pool(total: Total) -> Callable[[Side, Tensor], Tensor]:
    """A reduction over all axes after the first two; these axes stay, with size 1."""

    def compute(side: Side, x: Tensor) -> Tensor:
        rank = x.rank
        side.require(rank >= 3)
        side.require_all(rank - 2, lambda at: x.size(at) >= 1)

        def element(index: Index) -> Expression:
            binder = _binder_over(side, x, lambda front: front >= 2)
            whole = Reduced(total, (binder,), x.element(_positions(x, [binder], index)), x.type)
            return Applied("Div", (whole, Count((binder,), x.type))) if total == "add" else whole

        return Tensor(rank, lambda at: choice(at < rank - 2, 1, x.size(at)), element)

    return compute


# --- products of matrices: sums of products along one axis


def _matmul(side: Side, a: Tensor, b: Tensor) -> Tensor:
    """Matrices in the last two axes, the others broadcast. An operand of rank 1 is a row on the left, a column on the
    right, and leaves no axis."""
    row, column = (_is_vector(side, x) for x in (a, b))
    first = _insert_axis(a, z3.IntVal(1)) if row else a
    second = _insert_axis(b, z3.IntVal(0)) if column else b
    whole = _multiply_matrices(side, first, second)
    if row:
        whole = _remove_axis(whole, z3.IntVal(1))
    return _remove_axis(whole, z3.IntVal(0)) if column else whole


def _is_vector(side: Side, x: Tensor) -> bool:
    side.require(x.rank >= 1)
    return side.world.decide(x.rank == 1)


def _insert_axis(x: Tensor, new: Number) -> Tensor:
    """Insert an axis of size 1 at a place counted from the back."""
    return Tensor(
        x.rank + 1,
        lambda at: choice(at == new, 1, x.size(choice(at < new, at, at - 1))),
        lambda index: x.element(lambda at: index(choice(at < new, at, at + 1))),
        type=x.type,
    )


def _remove_axis(x: Tensor, gone: Number) -> Tensor:
    return Tensor(
        x.rank - 1,
        lambda at: x.size(choice(at < gone, at, at + 1)),
        lambda index: x.element(lambda at: choice(at == gone, z3.IntVal(0), index(choice(at < gone, at, at - 1)))),
    )


def _multiply_matrices(side: Side, a: Tensor, b: Tensor) -> Tensor:
    def stack(x: Tensor) -> Tensor:
        """The axes in front of the last two."""
        return Tensor(x.rank - 2, lambda at: x.size(at + 2), lambda index: Parameter(0.0))

    rank, size = broadcast(side, stack(a), stack(b))
    depth, columns, rows = a.size(z3.IntVal(0)), b.size(z3.IntVal(0)), a.size(z3.IntVal(1))
    side.require(depth == b.size(z3.IntVal(1)))

    def element(index: Index) -> Expression:
        binder = Binder(z3.IntVal(1), lambda at: at == 0, lambda at: depth, side.world.function("at"), z3.IntVal(0))
        step = binder.at(z3.IntVal(0))
        left = a.element(_matrix_index(a, index, index(z3.IntVal(1)), step))
        right = b.element(_matrix_index(b, index, step, index(z3.IntVal(0))))
        return Reduced("add", (binder,), Applied("Mul", (left, right)), a.type)

    return Tensor(rank + 2, lambda at: choice(at == 0, columns, choice(at == 1, rows, size(at - 2))), element)


def _matrix_index(x: Tensor, index: Index, row: Number, column: Number) -> Index:
    return lambda at: choice(at == 0, column, choice(at == 1, row, choice(x.size(at) == 1, z3.IntVal(0), index(at))))


def _gemm(
    side: Side,
    a: Tensor,
    b: Tensor,
    c: Tensor | None,
    alpha: Expression,
    beta: Expression,
    transpose_a: Number,
    transpose_b: Number,
) -> Tensor:
    side.require(conjunction(a.rank == 2, b.rank == 2))
    whole = _multiply_matrices(side, _transpose_if(a, transpose_a), _transpose_if(b, transpose_b))
    whole = _multiply(whole, alpha)
    if c is None:
        return whole
    result = elementwise(side, "Add", [whole, _multiply(c, beta)], ())
    side.require(result.rank == 2)
    side.require_all(result.rank, lambda at: result.size(at) == whole.size(at))
    return result


def _transpose_if(x: Tensor, flag: Number) -> Tensor:
    if not _flag(flag, "a matrix that may be transposed"):
        return x
    return Tensor(
        x.rank,
        lambda at: x.size(1 - at),
        lambda index: x.element(lambda at: index(1 - at)),
        type=x.type,
    )


def _multiply(x: Tensor, factor: Expression) -> Tensor:
    """Multiply by a number; the rule may have computed it from others."""
    if isinstance(factor, Parameter) and factor.value == 1.0:
        return x
    return Tensor(x.rank, x.size, lambda index: Applied("Mul", (x.element(index), factor)), type=x.type)


MEANINGS: dict[str, Callable[..., Any]] = {
    "ReduceSum": _reduction("add"),
    "ReduceProd": _reduction("multiply"),
    "ReduceMax": _reduction("maximum"),
    "ReduceMin": _reduction("minimum"),
    "ReduceMean": _mean,
    "ReduceL1": _reduction("add", _apply("Abs")),
    "ReduceSumSquare": _reduction("add", _apply("Mul")),
    "ReduceL2": _function_of_sum("Sqrt", _apply("Mul")),
    "ReduceLogSum": _function_of_sum("Log", _identity),
    "ReduceLogSumExp": _function_of_sum("Log", _apply("Exp")),
    "GlobalAveragePool": _global_pool("add"),
    "GlobalMaxPool": _global_pool("maximum"),
    "Softmax": _softmax,
    "LogSoftmax": _log_softmax,
    "MatMul": _matmul,
    "Gemm": _gemm,
}
