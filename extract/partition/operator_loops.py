"""Which loops of a kernel an operator makes one, and which of them a tile has to hold whole (see loops.py).

It follows from the operator's index maps: an axis that is read element by element is the same loop on both sides; axes
that a Reshape regroups are split at the same places; a reduced axis, and one that is read at other places, is not
tiled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from math import prod

from ...ir import index_maps
from ...ir.index_maps import Index, IndexMaps, OperandMap, Quotient, Reduction, Remainder, Sum, Unknown, loops_of
from .loops import Axes, Axis, Loops


@dataclass(frozen=True)
class OperandUse:
    """The axes of an operand, whether the kernel computes it, and whether that is expensive: from an anchor op of the
    kernel, so that it should not be computed twice."""

    axes: Axes
    is_inside: bool
    is_expensive: bool


@dataclass(frozen=True)
class _Digit:
    """A part of a position along an axis of the result: ``position // divisor % size``."""

    axis: int
    divisor: int
    size: int


class OperatorLoops:
    """The demands of one result of an operator on loops, computed once for all kernels that the operator may join."""

    def __init__(self, maps: IndexMaps) -> None:
        self.maps = maps
        self._is_reduction = bool(maps.reductions)
        self._operands = tuple(
            None if operand is None else _OperandLoops.of(operand, shape or (), maps)
            for operand, shape in zip(maps.operands, maps.shapes, strict=True)
        )

    def result_axes(self, uses: Sequence[OperandUse | None], loops: Loops) -> Axes:
        """The axes of the result, as loops that its operands share.

        Raises Misaligned if they are split at different places.
        """
        uniting = _Uniting(self.maps, loops)
        pairs = [(o, use) for o, use in zip(self._operands, uses, strict=True) if o is not None and use is not None]
        for operand, use in pairs:
            uniting.unite_operand(operand, use)
        for operand, use in pairs:
            if use.is_expensive or (use.is_inside and self._is_reduction):
                uniting.complete_repeated(operand)
        return uniting.result()


@dataclass(frozen=True, slots=True)
class _OperandLoops:
    """The axes of an operand that have more than one element: those that are read element by element, with their axes
    of the result; neighbours that a Reshape regroups; and all others. `repeated` are axes of the result that it does
    not have."""

    plain: tuple[tuple[int, int], ...]
    regrouped: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]
    others: tuple[tuple[int, Index], ...]
    repeated: tuple[int, ...]

    @classmethod
    def of(cls, operand: OperandMap, shape: index_maps.Shape, maps: IndexMaps) -> _OperandLoops:
        long = [(place, index) for place, (index, n) in enumerate(zip(operand, shape, strict=True)) if n != 1]
        plain = [(p, i.number) for p, i in long if isinstance(i, index_maps.Axis) and i.extent == shape[p]]
        rest = [(p, i) for p, i in long if not (isinstance(i, index_maps.Axis) and i.extent == shape[p])]
        regrouped = [
            (tuple(p for p, _ in group), tuple(sorted(numbers)))
            for numbers, group in groupby(rest, key=lambda pair: _flat_axes(pair[1]))
            if numbers
        ]
        others = [(p, i) for p, i in rest if not _flat_axes(i)]
        read = frozenset[int]().union(*map(_axes_of, operand))
        repeated = tuple(axis.number for axis in maps.result if axis.number not in read)
        return cls(tuple(plain), tuple(regrouped), tuple(others), repeated)


class _Uniting:
    """The axes of a result that are known so far, and the loops that are reduced."""

    def __init__(self, maps: IndexMaps, loops: Loops) -> None:
        self.maps, self.loops = maps, loops
        self.axes: dict[int, Axis] = {}
        self.reduced: dict[int, Axis] = {}

    def result(self) -> Axes:
        return tuple([self._axis(number) for number in range(len(self.maps.result))])

    def complete_repeated(self, operand: _OperandLoops) -> None:
        self.loops.complete(*map(self._axis, operand.repeated))

    def unite_operand(self, operand: _OperandLoops, use: OperandUse) -> None:
        for place, number in operand.plain:
            self._set(number, use.axes[place])
        for places, numbers in operand.regrouped:
            self._regroup(numbers, tuple(use.axes[place] for place in places))
        digits: dict[int, dict[_Digit, Axis]] = {}
        for place, index in operand.others:
            own, parts = use.axes[place], _digits(index)
            if parts and prod(digit.size for digit in parts) == self.loops.size(own):
                for digit, axis in zip(parts, self.loops.regroup((own,), [d.size for d in parts]), strict=True):
                    digits.setdefault(digit.axis, {})[digit] = axis
            else:
                self._unite(index, own, use)
        for number, axis_digits in digits.items():
            self._join_digits(number, axis_digits)

    def _axis(self, number: int) -> Axis:
        if number not in self.axes:
            self.axes[number] = self.loops.axis(self.maps.result[number].extent)
        return self.axes[number]

    def _set(self, number: int, axis: Axis) -> None:
        if number in self.axes:
            self.loops.unite(self.axes[number], axis)
        else:
            self.axes[number] = axis

    def _regroup(self, numbers: Sequence[int], axes: Axes) -> None:
        """Axes of an operand and of the result that are the same elements in the same order."""
        extents = [self.maps.result[number].extent for number in numbers]
        for number, axis in zip(numbers, self.loops.regroup(axes, extents), strict=True):
            self._set(number, axis)

    def _unite(self, index: Index, own: Axis, use: OperandUse) -> None:
        if isinstance(index, Reduction):
            self.loops.unite(self.reduced.setdefault(index.number, own), own)
            self.loops.complete(own)
            if index.beside is not None:
                self._set(index.beside.number, own)
            return
        size, numbers = self.loops.size(own), sorted(_axes_of(index))
        is_same = len(numbers) == 1 and size == self.maps.result[numbers[0]].extent
        if (stride := _step_of_separate_windows(index)) and size == self.maps.result[numbers[0]].extent * stride:
            place, window = self.loops.regroup((own,), (size // stride, stride))
            self.loops.complete(window)
            self._set(numbers[0], place)
        elif isinstance(index, Unknown) and index.is_data:
            self.loops.complete(own)
        elif is_same and (not use.is_inside or not _reaches(index)):
            self._set(numbers[0], own)
        elif use.is_inside or not _reaches(index):
            self.loops.complete(own, *map(self._axis, numbers))

    def _join_digits(self, number: int, digits: dict[_Digit, Axis]) -> None:
        """An axis of the result from all its digits; if some are not read (a Tile), it is not tiled."""
        extent = self.maps.result[number].extent
        if prod(digit.size for digit in digits) == extent:
            outermost_first = sorted(digits, key=lambda digit: digit.divisor, reverse=True)
            self._set(number, tuple(loop for digit in outermost_first for loop in digits[digit]))
        else:
            self.loops.complete(self._axis(number), *digits.values())


def _axes_of(index: Index) -> frozenset[int]:
    """The axes of the result, of more than one element, that a position depends on or lies beside."""
    loops = (loop.beside if isinstance(loop, Reduction) else loop for loop in loops_of(index))
    return frozenset(loop.number for loop in loops if loop is not None and loop.extent > 1)


def _flat_axes(index: Index) -> frozenset[int]:
    """The axes that make the flat position of a Reshape of which an index is a digit; empty for others."""
    while isinstance(index, Quotient | Remainder):
        index = index.position
        if isinstance(index, Sum) and index.start == 0 and _is_without_reductions(index):
            return _axes_of(index)
    return frozenset()


def _digits(index: Index) -> list[_Digit]:
    """The digits, outermost first, of a position that is a mixed-radix number of them; [] for others."""
    match index:
        case index_maps.Axis(number, extent):
            return [_Digit(number, 1, extent)]
        case Quotient(index_maps.Axis(number, extent), divisor) if extent % divisor == 0:
            return [_Digit(number, divisor, extent // divisor)]
        case Remainder(index_maps.Axis(number, _), modulus):
            return [_Digit(number, 1, modulus)]
        case Remainder(Quotient(index_maps.Axis(number, _), divisor), modulus):
            return [_Digit(number, divisor, modulus)]
        case Sum(0, terms):
            digits: list[_Digit] = []
            for factor, term in sorted(terms, key=lambda pair: pair[0]):
                if prod(digit.size for digit in digits) != factor or not (parts := _digits(term)):
                    return []
                digits = [*parts, *digits]
            return digits
    return []


def _step_of_separate_windows(index: Index) -> int:
    """The stride of windows that lie side by side, from the first element on; 0 for others."""
    match index:
        case Sum(0, ((stride, index_maps.Axis()), (1, Reduction(_, extent)))) if 1 < extent <= stride:
            return stride
        case Sum(0, ((stride, index_maps.Axis()),)) if stride > 1:
            return stride
    return 0


def _reaches(index: Index) -> bool:
    """Whether several elements along an axis, or others than those of equal place, make one of the result."""
    return not isinstance(index, Sum | Unknown) or not _is_without_reductions(index)


def _is_without_reductions(index: Index) -> bool:
    return not any(isinstance(loop, Reduction) for loop in loops_of(index))
