"""Sizes in whole units of alignment."""

from __future__ import annotations


def round_up(size: int, alignment: int) -> int:
    """The least multiple of `alignment` that is not below `size`."""
    return -(-size // alignment) * alignment
