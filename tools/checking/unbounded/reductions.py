"""Reductions over any axes: one element is all elements of the operand along them, put together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import z3

from .axes import axes_of
from .layout import dropped, mirrored
from .tensors import Applied, Binder, Count, Expression, Index, NoMeaning, Reduced, Site, Tensor, Total
from .vectors import Vector
from .world import Number, plain

NONEMPTY = ("maximum", "minimum")
"""What has no value for no elements."""


def reduced(
    site: Site, x: Tensor, axes: Vector, keepdims: Number, total: Total, each: Callable[[Expression], Expression]
) -> Tensor:
    """What is left of a tensor; `each` is applied to the elements first."""
    if x.parts is not None and total in ("add", "multiply"):
        joined = _of_parts(site, x, axes, keepdims, total, each)
        if joined is not None:
            return joined
    keep = _flag(keepdims)
    gone, rank = axes_of(axes, x.rank, site), x.rank

    def among(at: Number) -> Any:
        return z3.And(at >= 0, at < rank, gone.has(mirrored(rank, at)))

    if total in NONEMPTY:
        site.require_all(rank, lambda at: z3.Implies(among(at), x.size(at) >= 1))
    outer, inner = dropped(rank, gone)

    def element(index: Index) -> Expression:
        only = axes.items[0] if axes.items is not None and len(axes.items) == 1 else None
        binders = [binder_over(site, x, part.has, only) for part in gone.parts or (gone,)]
        place: Index = lambda at: index(at if keep else outer(at))  # noqa: E731
        return Reduced(total, tuple(binders), each(x.element(positions(x, binders, place))), x.type)

    if keep:
        return Tensor(rank, lambda at: z3.If(among(at), 1, x.size(at)), element)
    return Tensor(rank - gone.count, lambda at: x.size(inner(at)), element)


def binder_over(site: Site, x: Tensor, has: Callable[[Number], Any], only: Number | None = None) -> Binder:
    """A position along each of some axes of a tensor, which count from the first one."""
    rank = x.rank
    return Binder(
        rank,
        lambda front: z3.And(front >= 0, front < rank, has(front)),
        lambda front: x.size(mirrored(rank, front)),
        site.world.function("at"),
        only,
    )


def positions(x: Tensor, binders: Sequence[Binder], place: Index) -> Index:
    """The position in a tensor: that of a binder along its axes, another one along the rest."""

    def index(at: Number) -> Number:
        front = mirrored(x.rank, at)
        result = place(at)
        for binder in binders:
            result = z3.If(binder.among(front), binder.at(front), result)
        return result

    return index


def _flag(keepdims: Number) -> bool:
    known = z3.simplify(keepdims)
    if not z3.is_int_value(known):
        raise NoMeaning("keepdims is neither 0 nor 1")
    return bool(known.as_long())


def _of_parts(
    site: Site, x: Tensor, axes: Vector, keepdims: Number, total: Total, each: Callable[[Expression], Expression]
) -> Tensor | None:
    """Over an axis along which two tensors are joined: that of the one and that of the other, put together.

    The positions of the whole are those of the first part and, moved by its size, those of the second; a sum over a
    disjoint union is the sum of the sums (by induction over the second part).
    """
    first, second, along = x.parts  # type: ignore[misc]
    gone = axes_of(axes, x.rank, site)
    if not site.world.follows(gone.has(mirrored(x.rank, along))):
        return None
    one, other = (reduced(site, part, axes, keepdims, total, each) for part in (first, second))
    head = "Add" if total == "add" else "Mul"
    return Tensor(one.rank, one.size, lambda index: Applied(head, (one.element(index), other.element(index))))


def _same(expression: Expression) -> Expression:
    return expression


def _of(head: str) -> Callable[[Expression], Expression]:
    return lambda body: Applied(head, (body, body) if head == "Mul" else (body,))


def _reduction(total: Total, each: Callable[[Expression], Expression] = _same) -> Callable[..., Tensor]:
    return lambda site, x, axes, keepdims: reduced(site, x, axes, keepdims, total, each)


def _after(head: str, inner: Callable[[Expression], Expression]) -> Callable[..., Tensor]:
    """An element-wise function of a sum."""

    def compute(site: Site, x: Tensor, axes: Vector, keepdims: Number) -> Tensor:
        whole = reduced(site, x, axes, keepdims, "add", inner)
        return Tensor(whole.rank, whole.size, lambda index: Applied(head, (whole.element(index),)))

    return compute


def mean(site: Site, x: Tensor, axes: Vector, keepdims: Number) -> Tensor:
    """The sum over the number of positions, of which there is one at least."""
    gone, rank = axes_of(axes, x.rank, site), x.rank

    def among(at: Number) -> Any:
        return z3.And(at >= 0, at < rank, gone.has(mirrored(rank, at)))

    site.require_all(rank, lambda at: z3.Implies(among(at), x.size(at) >= 1))
    plain = Tensor(x.rank, x.size, x.element, type=x.type)
    whole = reduced(site, plain, axes, keepdims, "add", _same)

    def element(index: Index) -> Expression:
        total = whole.element(index)
        assert isinstance(total, Reduced)
        return Applied("Div", (total, Count(total.binders, x.type)))

    return Tensor(whole.rank, whole.size, element)


def _softmax(site: Site, x: Tensor, axis: Number) -> Tensor:
    """exp(x) over its sum along the axis."""
    along = _along(site, x, axis)

    def element(index: Index) -> Expression:
        return Applied("Div", (Applied("Exp", (x.element(index),)), _sum_along(site, x, along, index, _of("Exp"))))

    return Tensor(x.rank, x.size, element)


def _log_softmax(site: Site, x: Tensor, axis: Number) -> Tensor:
    along = _along(site, x, axis)

    def element(index: Index) -> Expression:
        total = _sum_along(site, x, along, index, _of("Exp"))
        return Applied("Sub", (x.element(index), Applied("Log", (total,))))

    return Tensor(x.rank, x.size, element)


def _along(site: Site, x: Tensor, axis: Number) -> Number:
    site.require(z3.And(axis >= 0, axis < x.rank))
    return plain(mirrored(x.rank, axis))


def _sum_along(
    site: Site, x: Tensor, along: Number, index: Index, each: Callable[[Expression], Expression]
) -> Expression:
    front = plain(mirrored(x.rank, along))
    binder = binder_over(site, x, lambda at: at == front, front)
    return Reduced("add", (binder,), each(x.element(positions(x, [binder], index))), x.type)


def _global(total: Total) -> Callable[[Site, Tensor], Tensor]:
    """Over all axes after the first two, which stay as 1."""

    def compute(site: Site, x: Tensor) -> Tensor:
        rank = x.rank
        site.require(rank >= 3)
        site.require_all(rank - 2, lambda at: x.size(at) >= 1)

        def element(index: Index) -> Expression:
            binder = binder_over(site, x, lambda front: front >= 2)
            whole = Reduced(total, (binder,), x.element(positions(x, [binder], index)), x.type)
            return Applied("Div", (whole, Count((binder,), x.type))) if total == "add" else whole

        return Tensor(rank, lambda at: z3.If(at < rank - 2, 1, x.size(at)), element)

    return compute


MEANINGS: dict[str, Callable[..., Any]] = {
    "ReduceSum": _reduction("add"),
    "ReduceProd": _reduction("multiply"),
    "ReduceMax": _reduction("maximum"),
    "ReduceMin": _reduction("minimum"),
    "ReduceMean": mean,
    "ReduceL1": _reduction("add", _of("Abs")),
    "ReduceSumSquare": _reduction("add", _of("Mul")),
    "ReduceL2": _after("Sqrt", _of("Mul")),
    "ReduceLogSum": _after("Log", _same),
    "ReduceLogSumExp": _after("Log", _of("Exp")),
    "GlobalAveragePool": _global("add"),
    "GlobalMaxPool": _global("maximum"),
    "Softmax": _softmax,
    "LogSoftmax": _log_softmax,
}
