"""Lower bounds of symbols, and of the polynomials that are made of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ...ir.sizes import ZERO, Atom, Size, TooComplex, exact_quotient, extremum, floor_divide, number, rebuild, symbol

_DEEPEST = 6
"""Floors, mins and maxes that are expanded for one bound; each doubles the work."""


@dataclass(frozen=True)
class Bounds:
    """Lower bounds of symbols by name; a symbol that has none is at least 0."""

    lowest: Mapping[str, int] = field(default_factory=dict)

    def least(self, size: Size) -> int | None:
        """A number that `size` is never below; None if none is known."""
        if size.number is not None:
            return size.number
        try:
            return _least(self._shift(size), _DEEPEST)
        except TooComplex:
            return None

    def is_at_least(self, size: Size, bound: int) -> bool:
        """Whether `size` is known to be `bound` or more."""
        least = self.least(size)
        return least is not None and least >= bound

    def may_be_empty(self, size: Size) -> bool:
        """Whether a size may be 0 with every symbol at least 1 of which the user does not say that it may be 0."""
        assumed = {a.text: 1 for a in size.atoms() if a.kind == "symbol"}
        return not Bounds({**assumed, **self.lowest}).is_at_least(size, 1)

    def is_ordered(self, smaller: Size, larger: Size) -> bool:
        """Whether `smaller` is known to be at most `larger`."""
        return self.is_at_least(larger - smaller, 0)

    def minimum(self, *sizes: Size) -> Size:
        """The least of some sizes, without those that are known not to be."""
        return self._extremum("min", sizes)

    def maximum(self, *sizes: Size) -> Size:
        """The greatest of some sizes, without those that are known not to be."""
        return self._extremum("max", sizes)

    def _extremum(self, kind: str, sizes: tuple[Size, ...]) -> Size:
        kept: list[Size] = []
        for size in dict.fromkeys(sizes):
            if any(self._decides(kind, other, size) for other in kept):
                continue
            kept = [other for other in kept if not self._decides(kind, size, other)]
            kept.append(size)
        return extremum(kind, kept)

    def _decides(self, kind: str, winner: Size, loser: Size) -> bool:
        return self.is_ordered(winner, loser) if kind == "min" else self.is_ordered(loser, winner)

    def divide(self, dividend: Size, divisor: Size) -> Size | None:
        """The quotient of integers in ONNX, rounded towards zero; None if the rounding depends on the sizes."""
        quotient = exact_quotient(dividend, divisor)
        if quotient is not None or not divisor.terms:
            return quotient
        if self.is_at_least(dividend, 0) and self.is_at_least(divisor, 0):
            return floor_divide(dividend, divisor)
        if (steps := divisor.number) is not None and steps > 0 and self.is_at_least(dividend, 1 - steps):
            return self.maximum(floor_divide(dividend, divisor), ZERO)
        return None

    def _shift(self, size: Size) -> Size:
        if not self.lowest:
            return size
        return rebuild(size, lambda name: symbol(name) + number(self.lowest[name]) if self.lowest.get(name) else None)


def _least(size: Size, depth: int) -> int | None:
    """A lower bound if every symbol is 0 or more.

    An atom is expanded before those inside of it, of which some may then cancel: `X - min(X, 3)` is `X - X`.
    """
    apart = {factors[0]: c for factors, c in size.terms if len(factors) == 1 and factors[0].kind != "symbol"}
    inside = {inner for atom in apart for part in atom.parts for inner in part.atoms()}
    for atom, coefficient in apart.items():
        if atom not in inside:
            if depth == 0:
                return None
            bounds = [take(size, atom, coefficient, depth) for take in (_least_without, _least_apart)]
            return max((bound for bound in bounds if bound is not None), default=None)
    is_bounded = all(c > 0 and all(_is_natural(a, depth) for a in f) for f, c in size.terms if f)
    return size.constant if is_bounded else None


def _is_natural(atom: Atom, depth: int) -> bool:
    """Whether an atom is never below zero."""
    if atom.kind == "symbol":
        return True
    least = _least_of_atom(atom, depth - 1) if depth else None
    return least is not None and least >= 0


def _least_of_atom(atom: Atom, depth: int) -> int | None:
    bounds = [_least(part, depth) for part in atom.parts]
    if atom.kind == "floor":
        divisor = atom.parts[1].number
        return None if divisor is None or bounds[0] is None else bounds[0] // divisor
    numbers = [bound for bound in bounds if bound is not None]
    if atom.kind == "max":
        return max(numbers, default=None)
    return min(numbers) if len(numbers) == len(bounds) else None


def _least_apart(size: Size, atom: Atom, coefficient: int, depth: int) -> int | None:
    """A bound from that of an atom, which stands with a coefficient above 0, and that of all else."""
    if coefficient < 0:
        return None
    own = _least_of_atom(atom, depth - 1)
    rest = _least(size - Size((((atom,), coefficient),)), depth - 1)
    return None if own is None or rest is None else coefficient * own + rest


def _least_without(size: Size, atom: Atom, coefficient: int, depth: int) -> int | None:
    """A polynomial without the atom that is not above `size`."""
    rest = size - Size((((atom,), coefficient),))
    if atom.kind == "floor":
        dividend, divisor = atom.parts
        steps = divisor.number
        if steps is None:
            return None
        most = dividend - number(steps - 1) if coefficient > 0 else dividend  # steps * floor is between these
        least = _least(rest.scale(steps) + most.scale(coefficient), depth - 1)
        return None if least is None else -(-least // steps)
    bounds = [_least(rest + part.scale(coefficient), depth - 1) for part in atom.parts]
    numbers = [bound for bound in bounds if bound is not None]
    if (atom.kind == "max") == (coefficient > 0):  # any of the parts is not above it
        return max(numbers, default=None)
    return min(numbers) if len(numbers) == len(bounds) else None
