"""How many cores share each axis of a tensor (section 3.4)."""

from __future__ import annotations

from collections.abc import Sequence, Set
from math import gcd, prod

from .boxes import Shape

Binding = tuple[int, ...]
"""Per axis, the number of cores that it is divided over; () if nothing was bound yet."""


def plain_binding(shape: Shape, cores: int, kept: Set[int] = frozenset()) -> Binding:
    """Cores allocated greedily from the outermost axis to the inner ones.

    A factor divides the extent of its axis, and the cores that are left (8, 4, 2, 1 of eight), so that loads balance.
    Axes `kept` are bound to none.
    """
    factors: list[int] = []
    for axis, extent in enumerate(shape):
        factor = 1 if axis in kept else gcd(extent, cores)
        factors.append(factor)
        cores //= factor
    return tuple(factors)


def core_count(binding: Sequence[int]) -> int:
    """Cores that a binding uses."""
    return prod(binding)
