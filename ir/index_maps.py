"""Index maps: the elements of its operands from which an element of an operator's result is computed.

An operator is a nest of loops: one for each axis of its result, and one for each axis that it reduces. An operand is
read, along each of its axes, at a quasi-affine expression of these loops, as by the indexing maps of MLIR's linalg.
Mapping types, pattern kinds, loop nests, operand boxes, tile shifts and batch axes are all derived from these maps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from itertools import count
from math import prod
from operator import itemgetter

from .operation import Attributes

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Axis:
    """The position along an axis of the result."""

    number: int
    extent: int


@dataclass(frozen=True, slots=True)
class Reduction:
    """Every position of a loop that the operator reduces; loops are numbered behind the axes of the result.

    `beside` is an axis of the result if the element at its own position is also read by itself, as a Softmax does.
    """

    number: int
    extent: int
    beside: Axis | None = None


@dataclass(frozen=True, slots=True)
class Sum:
    """A constant and multiples of other positions. Positions outside of the operand read no element (padding)."""

    start: int
    terms: tuple[tuple[int, Index], ...] = ()


@dataclass(frozen=True, slots=True)
class Quotient:
    """A position divided by a number, rounded down."""

    position: Index
    divisor: int


@dataclass(frozen=True, slots=True)
class Remainder:
    """The remainder of a position divided by a number."""

    position: Index
    modulus: int


@dataclass(frozen=True, slots=True)
class Resized:
    """About the same place along an axis that had `before` elements: `taps` elements around it are read."""

    axis: Axis
    before: int
    taps: int


@dataclass(frozen=True, slots=True)
class Unknown:
    """A position between 0 and `extent` that depends on these axes of the result in a way that is not written out.

    `repeats`: several elements of the result may read the same position; `is_data`: data decide on the position.
    """

    axes: tuple[Axis, ...]
    extent: int
    repeats: bool = True
    is_data: bool = True


Index = Axis | Reduction | Sum | Quotient | Remainder | Resized | Unknown
ZERO = Sum(0)
OperandMap = tuple[Index, ...]
"""One expression for each axis of the operand."""


@dataclass(frozen=True, slots=True)
class IndexMaps:
    """The axes of a result, and the map of each operand: None if no element of it is read, or it is absent.

    `shapes` are those of the operands.
    """

    result: tuple[Axis, ...]
    operands: tuple[OperandMap | None, ...]
    shapes: tuple[Shape | None, ...] = ()

    @property
    def reductions(self) -> tuple[Reduction, ...]:
        """The loops that are reduced, each once, in the order of their numbers."""
        loops = (loop for operand in self.operands for index in operand or () for loop in loops_of(index))
        reductions = {loop.number: loop for loop in loops if isinstance(loop, Reduction)}
        return tuple(reductions[number] for number in sorted(reductions))


@dataclass(frozen=True, slots=True)
class OperatorCall:
    """An operator applied to operands of known shapes (None: absent), asked for its result `number`."""

    attributes: Attributes
    operands: tuple[Shape | None, ...]
    results: tuple[Shape, ...]
    number: int = 0

    @property
    def data(self) -> Shape:
        """The shape of the first operand; () if it is absent."""
        return (self.operands[0] if self.operands else None) or ()

    @property
    def axes(self) -> tuple[Axis, ...]:
        """The axes of the result that is asked for."""
        return tuple(Axis(number, extent) for number, extent in enumerate(self.results[self.number]))

    def operand(self, number: int) -> Shape | None:
        """The shape of an operand; None if it is absent."""
        return self.operands[number] if number < len(self.operands) else None

    def integer(self, name: str, default: int) -> int:
        """An attribute that is one integer, alone or in a list (the axis of CumSum)."""
        value = self.attributes.get(name, default)
        if isinstance(value, tuple) and len(value) == 1:
            return value[0]
        return value if isinstance(value, int) else default

    def integers(self, name: str) -> tuple[int, ...]:
        """A list attribute; () if it is missing."""
        value = self.attributes.get(name, ())
        return value if isinstance(value, tuple) else ()

    def axis(self, default: int) -> int:
        """The attribute ``axis``, counted from the outermost axis of the first operand."""
        return self.integer("axis", default) % max(1, len(self.data))


MakeIndexMaps = Callable[[OperatorCall], IndexMaps | None]
"""The index maps of a call; None if its shapes do not fit or nothing is known of it."""


def index_maps(make: MakeIndexMaps, call: OperatorCall) -> IndexMaps | None:
    """The index maps of a call; None if its shapes do not fit its attributes, or nothing is known of it."""
    try:
        maps = make(call)
    except (ValueError, IndexError):
        return None
    if maps is None:
        return None
    operands = (*maps.operands, *[None] * len(call.operands))[: len(call.operands)]
    return IndexMaps(maps.result, operands, call.operands)


def loops_of(index: Index) -> Iterator[Axis | Reduction]:
    """The loops that a position depends on."""
    match index:
        case Axis() | Reduction():
            yield index
        case Sum(_, terms):
            for _, term in terms:
                yield from loops_of(term)
        case Quotient(position, _) | Remainder(position, _):
            yield from loops_of(position)
        case Resized(axis, _, _):
            yield axis
        case Unknown(axes):
            yield from axes


def sum_of(start: int, *terms: tuple[int, Index]) -> Index:
    """``start + factor * position + ...``; a position that is always 0 is left out, a single one stands for itself."""
    if start == 0 and len(terms) == 1 and terms[0][0] == 1:
        return terms[0][1]
    kept = tuple((factor, term) for factor, term in terms if any(loop.extent > 1 for loop in loops_of(term)))
    if start == 0 and len(kept) == 1 and kept[0][0] == 1:
        return kept[0][1]
    return Sum(start, kept)


def aligned_map(shape: Shape, axes: Sequence[Axis]) -> OperandMap:
    """An operand that is broadcast to `axes`: aligned from the last one, axes of one element are repeated.

    Raises ValueError if the shapes do not fit.
    """
    if len(shape) > len(axes):
        raise ValueError(f"an operand of rank {len(shape)} is not broadcast to rank {len(axes)}")
    own = axes[len(axes) - len(shape) :]
    if any(extent not in (1, axis.extent) for extent, axis in zip(shape, own, strict=True)):
        raise ValueError(f"shape {shape} is not broadcast to {[axis.extent for axis in own]}")
    return tuple(axis if axis.extent == extent else ZERO for extent, axis in zip(shape, own, strict=True))


def broadcast_maps(call: OperatorCall) -> IndexMaps:
    """Every operand is aligned with the result and broadcast to it."""
    axes = call.axes
    return IndexMaps(axes, tuple(None if shape is None else aligned_map(shape, axes) for shape in call.operands))


def first_operand_maps(call: OperatorCall) -> IndexMaps:
    """The first operand is read element by element; scalars beside it do not choose elements."""
    return IndexMaps(call.axes, (call.axes, *(None for _ in call.operands[1:])))


def channel_maps(call: OperatorCall) -> IndexMaps:
    """The first operand is read element by element, the others by the channel, which is axis 1."""
    axes = call.axes
    return IndexMaps(axes, (axes, *(None if shape is None else axes[1:2] for shape in call.operands[1:])))


def along_axis_maps(call: OperatorCall) -> IndexMaps:
    """The attribute ``axis`` of the first operand is read whole: Softmax, CumSum."""
    return whole_maps(call, (call.axis(-1),), lambda shape: ())


def whole_maps(call: OperatorCall, whole: Iterable[int], others: Callable[[Shape], OperandMap]) -> IndexMaps:
    """The first operand is read element by element, and whole along some axes; `others` maps the operands beside it."""
    axes, indices = call.axes, list[Index](call.axes)
    for place in whole:
        indices[place] = Reduction(len(axes) + place, call.data[place], axes[place])
    beside = (None if shape is None else others(shape) for shape in call.operands[1:])
    return IndexMaps(axes, (tuple(indices), *beside))


def reduced_maps(call: OperatorCall, reduced: Set[int]) -> IndexMaps:
    """Axes of the first operand are reduced; in the result they have one element, or are not there."""
    axes, rank = call.axes, len(call.data)
    kept = iter(axes if len(axes) == rank else (*axes, *[None] * rank))
    indices: list[Index] = []
    for place, extent in enumerate(call.data):
        axis = next(kept) if len(axes) == rank or place not in reduced else None
        indices.append(Reduction(len(axes) + place, extent) if place in reduced or axis is None else axis)
    return IndexMaps(axes, (tuple(indices), *(None for _ in call.operands[1:])))


def mixing_maps(call: OperatorCall) -> IndexMaps:
    """Every element of the result may depend on every element of the operands."""
    axes, number = call.axes, count(len(call.axes))
    operands = (None if o is None else tuple(Reduction(next(number), extent) for extent in o) for o in call.operands)
    return IndexMaps(axes, tuple(operands))


def reshaped_map(source: Shape, axes: Sequence[Axis]) -> OperandMap:
    """An operand of shape `source` read in row-major order by axes of as many elements."""
    indices: list[Index] = []
    for (a, b), (c, d) in axis_groups(source, [axis.extent for axis in axes]):
        if (b - a, d - c) == (1, 1):
            indices.append(axes[c])
            continue
        below = [prod(axis.extent for axis in axes[place + 1 : d]) for place in range(c, d)]
        number = sum_of(0, *zip(below, axes[c:d], strict=True))
        for place in range(a, b):
            divisor = prod(source[place + 1 : b])
            digit = Quotient(number, divisor) if divisor > 1 else number
            outermost = all(extent == 1 for extent in source[a:place])
            indices.append(ZERO if source[place] == 1 else digit if outermost else Remainder(digit, source[place]))
    return tuple(indices)


def axis_groups(source: Sequence[int], target: Sequence[int]) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """The smallest groups of neighbouring axes with as many elements in both shapes: their first and last axes + 1."""
    i = j = 0
    while i < len(source) or j < len(target):
        a, c, left, right = i, j, 1, 1
        while True:
            if (left <= right and i < len(source)) or j == len(target):
                left *= source[i]
                i += 1
            else:
                right *= target[j]
                j += 1
            if left == right or (i == len(source) and j == len(target)):
                break
        yield (a, i), (c, j)


IntervalOf = Callable[[Sequence[tuple[int, int]]], tuple[int, int]]
"""The first position and the one past the last, each axis of the result running over an interval."""


def interval_of(index: Index) -> IntervalOf:
    """The positions that an expression takes, as a function of the intervals of the axes."""
    match index:
        case Axis(number, _):
            return itemgetter(number)
        case Reduction(_, extent, _) | Unknown(_, extent):
            everything = 0, extent
            return lambda intervals: everything
        case Sum(start, terms):
            parts = [(factor, interval_of(term)) for factor, term in terms]

            def of_sum(intervals: Sequence[tuple[int, int]]) -> tuple[int, int]:
                first = last = start
                for factor, position in parts:
                    low, high = position(intervals)
                    ends = factor * low, factor * (high - 1)
                    first, last = first + min(ends), last + max(ends)
                return first, last + 1

            return of_sum
        case Quotient(position, divisor):
            dividend = interval_of(position)

            def of_quotient(intervals: Sequence[tuple[int, int]]) -> tuple[int, int]:
                low, high = dividend(intervals)
                return low // divisor, (high - 1) // divisor + 1

            return of_quotient
        case Remainder(position, modulus):
            dividend = interval_of(position)

            def of_remainder(intervals: Sequence[tuple[int, int]]) -> tuple[int, int]:
                low, high = dividend(intervals)
                is_one_period = low // modulus == (high - 1) // modulus
                return (low % modulus, (high - 1) % modulus + 1) if is_one_period else (0, modulus)

            return of_remainder
        case Resized(axis, before, _):

            def of_resized(intervals: Sequence[tuple[int, int]]) -> tuple[int, int]:
                low, high = intervals[axis.number]
                return low * before // axis.extent - REACH, -(-high * before // axis.extent) + REACH

            return of_resized


REACH = 3
"""The most elements beyond its place that a resized element reads: cubic 2, and 1 for the rounding of places."""
