"""Arrays of symbolic scalars: reductions and matrix products."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from ....ir.operators.arithmetic import Arithmetic, Array


def mapped(function: Callable[..., Any], *operands: Array) -> Array:
    """A function of scalars on broadcast arrays."""
    return np.asarray(np.frompyfunc(function, len(operands), 1)(*operands), dtype=object)


def reduced(many: Callable[[Sequence[Any]], Any], x: Array, axes: tuple[int, ...], keepdims: bool) -> Array:
    """The elements along `axes`, put together by a function of all of them."""
    axes = tuple(a % x.ndim for a in axes)
    kept = [a for a in range(x.ndim) if a not in axes]
    rows = np.transpose(x, (*kept, *axes)).reshape((prod(x.shape[a] for a in kept), prod(x.shape[a] for a in axes)))
    result = np.empty(len(rows), dtype=object)
    for i, row in enumerate(rows):
        result[i] = many(list(row))
    return result.reshape(
        [n for a, n in enumerate(x.shape) if a in kept]
        if not keepdims
        else [1 if a in axes else n for a, n in enumerate(x.shape)]
    )


def matrix_product(arithmetic: Arithmetic, a: Array, b: Array) -> Array:
    """By products and sums; operands of rank 1 are a row and a column."""
    left = a[None, :] if a.ndim == 1 else a
    right = b[:, None] if b.ndim == 1 else b
    products = arithmetic.apply("multiply", left[..., :, :, None], right[..., None, :, :])
    result = arithmetic.reduce("add", products, (products.ndim - 2,), False)
    if b.ndim == 1:
        result = result[..., 0]
    return result if a.ndim > 1 else result[..., 0] if b.ndim == 1 else result[..., 0, :]
