"""Sizes that are known at the call: in C, and their bounds before the values that they depend on are there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

from ...ir.sizes import ONE, ZERO, Atom, Size, extremum, floor_divide, number, parse_size, symbol

Extent = int | Size
"""A number of elements along an axis: fixed, or of the sizes of a call."""


def size_of(extent: Extent) -> Size:
    """The extent as a polynomial."""
    return extent if isinstance(extent, Size) else number(extent)


def extents_of(shape: Iterable[int | str]) -> tuple[Extent, ...]:
    """The extents of a shape with texts of sizes in it. Raises ValueError for a text that is none."""
    extents: list[Extent] = []
    for extent in shape:
        size = parse_size(extent) if isinstance(extent, str) else number(extent)
        if size is None:
            raise ValueError(extent)
        extents.append(size if size.number is None else size.number)
    return tuple(extents)


def names_in(extents: Iterable[Extent]) -> frozenset[str]:
    """The names of all sizes that occur."""
    return frozenset(name for extent in extents if isinstance(extent, Size) for name in extent.names())


def c_expression(extent: Extent, variables: Mapping[str, str]) -> str:
    """The extent in C; `variables` has the expression of each size that occurs."""
    if isinstance(extent, int):
        return str(extent)
    terms = []
    for atoms, coefficient in extent.terms:
        parts = [_c_atom(atom, variables) for atom in atoms]
        factors = parts if parts and coefficient == 1 else [f"({coefficient})", *parts]
        terms.append(reduce(lambda left, right: f"eqfuse_times({left}, {right})", factors))
    return f"({' + '.join(terms)})" if terms else "0"


def _c_atom(atom: Atom, variables: Mapping[str, str]) -> str:
    if atom.kind == "symbol":
        return variables[atom.text]
    parts = [c_expression(part, variables) for part in atom.parts]
    function = {"floor": "eqfuse_floor", "min": "eqfuse_least", "max": "eqfuse_greatest"}[atom.kind]
    return reduce(lambda left, right: f"{function}({left}, {right})", parts)


# --- bounds


def upper_bound(extent: Extent, bounds: Mapping[str, Size]) -> Extent:
    """The most that an extent can be if each size of `bounds` is from 0 to its bound; other sizes stay symbols."""
    if isinstance(extent, int) or not extent.names() & bounds.keys():
        return extent
    return _bounds_of(extent, bounds)[1]


def _bounds_of(size: Size, bounds: Mapping[str, Size]) -> tuple[Size, Size]:
    """The least and the most that a polynomial can be; atoms are at least 0."""
    low, high = ZERO, ZERO
    for factors, coefficient in size.terms:
        least, most = ONE, ONE
        for atom in factors:
            lower, upper = _bounds_of_atom(atom, bounds)
            least, most = least * lower, most * upper
        low, high = low + (least if coefficient > 0 else most).scale(coefficient), high + (
            most if coefficient > 0 else least
        ).scale(coefficient)
    return low, high


def _bounds_of_atom(atom: Atom, bounds: Mapping[str, Size]) -> tuple[Size, Size]:
    if atom.kind == "symbol":
        if atom.text not in bounds:
            return symbol(atom.text), symbol(atom.text)
        return ZERO, _bounds_of(bounds[atom.text], bounds)[1]
    lows, highs = zip(*(_bounds_of(part, bounds) for part in atom.parts), strict=True)
    if atom.kind == "min" and ONE in highs:
        return extremum("min", lows), ONE  # whether there is an element at all needs no memory of its own
    if atom.kind != "floor":
        return extremum(atom.kind, lows), extremum(atom.kind, highs)
    return floor_divide(lows[0], highs[1]), floor_divide(highs[0], extremum("max", [lows[1], ONE]))


# --- the sizes that the caller's tensors have


@dataclass(frozen=True)
class Solution:
    """The size `name` follows from an axis of an input: `(extent - rest) / factor`."""

    name: str
    port: int
    axis: int
    rest: Size
    factor: int


@dataclass(frozen=True)
class Demand:
    """An axis of an input has the extent that other sizes say."""

    port: int
    axis: int
    extent: Size


def solve_sizes(shapes: Sequence[Sequence[Extent]]) -> list[Solution | Demand]:
    """The sizes and demands that follow from inputs of these shapes, in an order to compute them.

    Raises ValueError with the name of a size that does not follow from them.
    """
    left = [
        Demand(port, axis, extent)
        for port, shape in enumerate(shapes)
        for axis, extent in enumerate(shape)
        if isinstance(extent, Size)
    ]
    known: set[str] = set()
    solved: list[Solution | Demand] = []
    while left:
        for demand in left:
            step = _solve(demand, known)
            if step is not None:
                break
        else:
            raise ValueError(min(left[0].extent.names() - known))
        left.remove(demand)
        solved.append(step)
        if isinstance(step, Solution):
            known.add(step.name)
    return solved


def _solve(demand: Demand, known: set[str]) -> Solution | Demand | None:
    """None if the demand has unknown sizes that it does not tell."""
    unknown = demand.extent.names() - known
    if not unknown:
        return demand
    if len(unknown) > 1:
        return None
    (name,) = unknown
    factors = dict(demand.extent.terms)
    own = tuple(atom for atom in demand.extent.atoms() if atom.kind == "symbol" and atom.text == name)
    factor = factors.get(own, 0)
    rest = demand.extent - symbol(name).scale(factor)
    if factor <= 0 or name in rest.names():
        return None
    return Solution(name, demand.port, demand.axis, rest, factor)
