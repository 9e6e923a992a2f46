"""Sparse matrices that every supported scipy can give to HiGHS."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def sparse_matrix(factors: Sequence[float], rows: Sequence[int], columns: Sequence[int], shape: tuple[int, int]) -> Any:
    """A scipy csr_array with each factor at its row and column.

    Its indices have 32 bits: scipy makes 64-bit ones of Python's integers, which its HiGHS refuses before scipy 1.15.
    """
    import numpy  # here, as scipy: importing them takes longer than most extractions
    from scipy.sparse import csr_array

    places = (numpy.array(rows, dtype=numpy.int32), numpy.array(columns, dtype=numpy.int32))
    return csr_array((numpy.array(factors, dtype=float), places), shape=shape)
