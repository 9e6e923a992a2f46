"""Bytes that one operator reads and writes."""

from __future__ import annotations

from dataclasses import dataclass

from ..ir.operation import Operation
from ..ir.operators import VIEWS

UNMOVED = VIEWS | {"Dropout"}
"""Operators that move no bytes."""

_SHAPES = frozenset(("Shape", "Size", "ConstantOfShape"))
_PICKING = frozenset(("Slice", "Gather", "GatherElements", "GatherND"))


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes read and written, each counted once, without regard to the contents of caches."""

    read: int
    written: int

    @property
    def total(self) -> int:
        """Bytes read plus bytes written: the footprint."""
        return self.read + self.written


NOTHING = Traffic(0, 0)


def traffic(operation: Operation) -> Traffic:
    """Bytes moved by one run of `operation`.

    Slice and Gather read as many bytes of their data as they write; a Split, whose output type is unknown, writes as
    many as it reads; a Concat moves its operands, except earlier links of the same chain.
    """
    op, operands, written = operation.op, operation.operands, operation.output.bytes
    if op in UNMOVED:
        return NOTHING
    if op in _SHAPES:
        return Traffic(0, written)
    if op == "Concat":
        moved = sum([o.bytes for o in operands]) - continued_bytes(operation)
        return Traffic(moved, moved)
    if op == "Split":
        read = operation.operand(0).bytes
        return Traffic(read, read)
    if op in _PICKING:
        read = min(operation.operand(0).bytes, written)
        return Traffic(read + sum([o.bytes for o in operands[1:]]), written)
    return Traffic(sum([o.bytes for o in operands]), written)


def continued_bytes(operation: Operation) -> int:
    """Bytes of the operands of a Concat that are earlier links of its chain, already counted there."""
    return sum([o.bytes for o, more in zip(operation.operands, operation.continued, strict=False) if more])
