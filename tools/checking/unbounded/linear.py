"""Products of matrices: sums of products along one axis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import z3

from .layout import elementwise
from .tensors import Applied, Binder, Expression, Index, NoMeaning, Parameter, Reduced, Site, Tensor, broadcast
from .world import Number


def matmul(site: Site, a: Tensor, b: Tensor) -> Tensor:
    """Matrices in the last two axes, the others broadcast. An operand of rank 1 is a row on the left, a column on the
    right, and leaves no axis."""
    row, column = (_is_vector(site, x) for x in (a, b))
    first = _with_axis(a, z3.IntVal(1)) if row else a
    second = _with_axis(b, z3.IntVal(0)) if column else b
    whole = _matrices(site, first, second)
    if row:
        whole = _without_axis(whole, z3.IntVal(1))
    return _without_axis(whole, z3.IntVal(0)) if column else whole


def _is_vector(site: Site, x: Tensor) -> bool:
    """Whether a tensor has rank 1."""
    site.require(x.rank >= 1)
    return site.world.decide(x.rank == 1)


def _with_axis(x: Tensor, new: Number) -> Tensor:
    """With an axis of size 1 at a place counted from the back."""
    return Tensor(
        x.rank + 1,
        lambda at: z3.If(at == new, 1, x.size(z3.If(at < new, at, at - 1))),
        lambda index: x.element(lambda at: index(z3.If(at < new, at, at + 1))),
        type=x.type,
    )


def _without_axis(x: Tensor, gone: Number) -> Tensor:
    return Tensor(
        x.rank - 1,
        lambda at: x.size(z3.If(at < gone, at, at + 1)),
        lambda index: x.element(lambda at: z3.If(at == gone, z3.IntVal(0), index(z3.If(at < gone, at, at - 1)))),
    )


def _matrices(site: Site, a: Tensor, b: Tensor) -> Tensor:
    stacks = [Tensor(x.rank - 2, _stack_size(x), lambda index: Parameter(0.0)) for x in (a, b)]
    rank, size = broadcast(site, *stacks)
    depth, columns, rows = a.size(z3.IntVal(0)), b.size(z3.IntVal(0)), a.size(z3.IntVal(1))
    site.require(depth == b.size(z3.IntVal(1)))

    def element(index: Index) -> Expression:
        binder = Binder(z3.IntVal(1), lambda at: at == 0, lambda at: depth, site.world.function("at"), z3.IntVal(0))
        step = binder.at(z3.IntVal(0))
        left = a.element(_matrix_index(a, index, index(z3.IntVal(1)), step))
        right = b.element(_matrix_index(b, index, step, index(z3.IntVal(0))))
        return Reduced("add", (binder,), Applied("Mul", (left, right)), a.type)

    return Tensor(rank + 2, lambda at: z3.If(at == 0, columns, z3.If(at == 1, rows, size(at - 2))), element)


def _stack_size(x: Tensor) -> Index:
    return lambda at: x.size(at + 2)


def _matrix_index(x: Tensor, index: Index, row: Number, column: Number) -> Index:
    return lambda at: z3.If(at == 0, column, z3.If(at == 1, row, z3.If(x.size(at) == 1, z3.IntVal(0), index(at))))


def _transposed(site: Site, x: Tensor, flag: Number) -> Tensor:
    known = z3.simplify(flag)
    if not z3.is_int_value(known):
        raise NoMeaning("a matrix that may be transposed")
    if not known.as_long():
        return x
    return Tensor(
        x.rank,
        lambda at: x.size(1 - at),
        lambda index: x.element(lambda at: index(1 - at)),
        type=x.type,
    )


def _gemm(
    site: Site,
    a: Tensor,
    b: Tensor,
    c: Tensor | None,
    alpha: Parameter,
    beta: Parameter,
    ta: Number,
    tb: Number,
) -> Tensor:
    site.require(z3.And(a.rank == 2, b.rank == 2))
    whole = _matrices(site, _transposed(site, a, ta), _transposed(site, b, tb))
    whole = _scaled(whole, alpha)
    if c is None:
        return whole
    result = elementwise(site, "Add", [whole, _scaled(c, beta)], ())
    site.require(result.rank == 2)
    site.require_all(result.rank, lambda at: result.size(at) == whole.size(at))
    return result


def _scaled(x: Tensor, factor: Parameter) -> Tensor:
    if factor.value == 1.0:
        return x
    return Tensor(x.rank, x.size, lambda index: Applied("Mul", (x.element(index), factor)), type=x.type)


MEANINGS: dict[str, Callable[..., Any]] = {"MatMul": matmul, "Gemm": _gemm}
