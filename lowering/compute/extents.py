"""Extents of a kernel's tensors: numbers, and expressions of the variables that stand for dynamic sizes.

A variable is the size of a dimension of one of the kernel's tensors, from whose shape compiled code takes it. Sizes of
what is computed and used up inside of the kernel are expressions of these.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

from tvm import sym, te, tirx

from ...ir.sizes import Atom, Size, dimension_as_size, dimension_size, exact_quotient
from ...ir.types import Dimension, TensorType
from ..base.errors import LoweringError

Extent = Any
"""A number (``int``), or an expression of TVM of 32 bits."""


class UnknownExtent(LoweringError):
    """A size that does not follow from the shapes of a kernel's tensors."""


@dataclass
class Extents:
    """The extents of one kernel; dimensions of one size have the same expression."""

    expressions: dict[Size, Extent] = field(default_factory=dict)

    @staticmethod
    def of(types: Iterable[TensorType | None]) -> Extents:
        """Extents with a variable for each dynamic size of tensors of these types, unless it is a multiple of an
        earlier one."""
        extents = Extents()
        for type_ in types:
            for dimension in (type_.shape or ()) if type_ is not None else ():
                size = dimension_as_size(dimension)
                if size is not None and size.number is None and size not in extents.expressions:
                    extents.expressions[size] = extents._multiple_or_variable(size)
        return extents

    @property
    def variables(self) -> dict[str, Size]:
        """The sizes that variables stand for, by the variables' names."""
        values = ((value, size) for size, value in self.expressions.items())
        return {str(value.name): size for value, size in values if isinstance(value, tirx.Var)}

    def typical_sizes(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """The numbers that the variables count if the dynamic dimensions have these `sizes`, or assumed ones."""
        return {name: dimension_size(str(size), sizes) for name, size in self.variables.items()}

    def shape(self, type_: TensorType | None) -> tuple[Extent, ...]:
        """The extents of a tensor, () if nothing is known of its rank. Raises UnknownExtent."""
        return tuple(map(self.extent, (type_.shape or ()) if type_ is not None else ()))

    def extent(self, dimension: Dimension) -> Extent:
        """The number or expression of a dimension. Raises UnknownExtent."""
        if isinstance(dimension, int):
            return dimension
        size = dimension_as_size(dimension)
        if size is None:
            raise UnknownExtent(f"a dimension {dimension} that is not known before the run")
        return self._express(size)

    def _multiple_or_variable(self, size: Size) -> Extent:
        """A number of times a variable, if the size is that; else a variable of its own."""
        for other, value in self.expressions.items():
            quotient = exact_quotient(size, other) if isinstance(value, tirx.Var) else None
            if quotient is not None and quotient.number is not None:
                return value * quotient.number
        return tirx.Var(f"d{len(self.variables)}", "int32")

    def _express(self, size: Size) -> Extent:
        if size.number is not None:
            return size.number
        if size not in self.expressions:
            self.expressions[size] = self._derive(size)
        return self.expressions[size]

    def _derive(self, size: Size) -> Extent:
        """The extent from sizes that differ by a number, a factor or fewer terms, from its symbols, or from its
        terms."""
        known = [(other, value) for other, value in self.expressions.items() if isinstance(value, tirx.Var)]
        for other, value in known:
            if (distance := (size - other).number) is not None:
                return value + distance
        if (atom := size.atom) is not None:
            return self._derive_atom(atom, known)
        for other, value in known:
            quotient = exact_quotient(size, other)
            if quotient is not None:
                return value * self._express(quotient)
        shorter = ((size - other, value) for other, value in known)
        for rest, value in ((rest, value) for rest, value in shorter if len(rest.terms) < len(size.terms)):
            try:
                return value + self._express(rest)
            except UnknownExtent:
                continue
        terms = []
        for factors, coefficient in size.terms:
            parts = [self._express(Size((((factor,), 1),))) for factor in factors]
            terms.append(reduce(lambda a, b: a * b, parts, coefficient))
        return reduce(lambda a, b: a + b, terms)

    def _derive_atom(self, atom: Atom, known: Sequence[tuple[Size, Any]]) -> Extent:
        if atom.kind == "symbol":
            for other, value in known:
                symbol = Size((((atom,), 1),))
                factor = next((c for f, c in other.terms if f == (atom,)), 0)
                rest = (other - symbol.scale(factor)).number if factor else None
                if rest is not None:
                    return (value - rest) // factor if factor > 1 else value - rest
            raise UnknownExtent(f"a size {atom.text} that no tensor of the kernel has")
        parts = [self._express(part) for part in atom.parts]
        if atom.kind == "floor":
            return parts[0] // parts[1]
        return reduce(te.min if atom.kind == "min" else te.max, parts)


def is_number(extent: Extent, value: int) -> bool:
    """Whether an extent is that number, whatever the sizes of a call."""
    return isinstance(extent, int) and extent == value


def may_differ(first: Extent, second: Extent) -> bool:
    """Whether two extents are different, as far as numbers and equal expressions tell."""
    return first is not second and not (isinstance(first, int) and isinstance(second, int) and first == second)


def are_unequal(first: Extent, second: Extent) -> bool:
    """Whether two extents differ for every call."""
    return isinstance(first, int) and isinstance(second, int) and first != second


def product(extents: Iterable[Extent]) -> Extent:
    """The number of elements."""
    return reduce(lambda a, b: b if is_number(a, 1) else a if is_number(b, 1) else a * b, extents, 1)


def simplify(extent: Extent) -> Extent:
    """The extent as a number, if it is one whatever the sizes of a call; else in its simplest form."""
    simple = extent if isinstance(extent, int) else sym.Analyzer().simplify(extent)
    return int(simple) if isinstance(simple, tirx.IntImm) else simple


def as_number(extent: Extent, dtype: str) -> Any:
    """The extent as an expression of an element type."""
    return tirx.const(extent, dtype) if isinstance(extent, int) else extent.astype(dtype)
