"""Products of matrices. The stage that multiplies is the anchor: batch axes, row, column, and one reduced axis."""

from __future__ import annotations

from collections.abc import Mapping

from tvm import te

from .call import Call, Expr, Lowering, NotLowered, broadcast, read, sizes


def _matmul(call: Call) -> te.Tensor:
    a, b = call.source(0), call.source(1)
    depth, rows, columns = sizes(a)[-1], len(a.shape) > 1, len(b.shape) > 1
    if sizes(b)[-2 if columns else 0] != depth:
        raise NotLowered("the matrices do not fit")
    (k,) = call.reduce_axes([depth])

    def element(*indices: Expr) -> Expr:
        batch = indices[: len(indices) - rows - columns]
        row, column = indices[len(batch) : len(batch) + rows], indices[len(indices) - columns :] if columns else ()
        stack = call.shape[: len(batch)]
        left = a(*broadcast(sizes(a)[: -len((*row, k))], batch, stack), *row, k.var)
        right = b(*broadcast(sizes(b)[: -len((k, *column))], batch, stack), k.var, *column)
        return te.sum(left * right, axis=k)

    return call.stage(call.shape, element, anchor=True)


def _gemm(call: Call) -> te.Tensor:
    a, b, bias = call.source(0), call.source(1), call.optional(2)
    flip_a, flip_b = call.integer("transA", 0), call.integer("transB", 0)
    alpha, beta = call.number("alpha", 1.0), call.number("beta", 1.0)
    (k,) = call.reduce_axes([sizes(a)[0 if flip_a else 1]])

    def product(i: Expr, j: Expr) -> Expr:
        left, right = a(k, i) if flip_a else a(i, k), b(j, k) if flip_b else b(k, j)
        return te.sum(left * right, axis=k)

    result = call.stage(call.shape, product, "product" if bias is not None or alpha != 1.0 else "", anchor=True)
    if bias is None and alpha == 1.0:
        return result

    def epilogue(i: Expr, j: Expr) -> Expr:
        value = _scaled(call, result(i, j), alpha)
        return value if bias is None else value + _scaled(call, read(bias, (i, j), call.shape), beta)

    return call.stage(call.shape, epilogue)


def _scaled(call: Call, x: Expr, factor: float) -> Expr:
    return x if factor == 1.0 else x * call.constant(factor)


LOWERINGS: Mapping[str, Lowering] = {"MatMul": _matmul, "Gemm": _gemm}
