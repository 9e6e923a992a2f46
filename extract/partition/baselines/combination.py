"""What two operators fused give, and whether it pays: DNNFusion's Table 3.

DNNFusion (Niu et al., PLDI 2021), section 3.2. The results are those printed. The colours are given by the prose:

- green: One-to-One with anything; Reorganize and Shuffle with each other;
- yellow: Reorganize or Shuffle with One-to-Many or Many-to-Many, in either order; Many-to-Many, then One-to-Many;
- red: One-to-Many, then Many-to-Many; Many-to-Many, then Many-to-Many.

The prose is silent on One-to-Many with One-to-Many, which is yellow here: legal (a result is printed), but as a Resize
of a Resize may compute the inner elements again, it is not profitable without question. Section 4.4.1 counts 23
code generation rules, "one rule corresponding to a green or yellow cell": 25 cells, of which 2 are red, as here.

Where the printed table and the prose disagree:

- "Reorganize and Shuffle [...] cannot transform others", and both "have the same" impedance, yet the table lets
  Reorganize decide over Shuffle, in either order, where footnote 1 would have the more complex Shuffle. Of the three
  only the table is right about the elements: a permutation of axes and a reshape are together a 1-1 relation of the
  elements, which is the definition of Reorganize, but no permutation of axes.
- "One-to-Many and Many-to-Many have the same capability" and each decides the result "solely", yet the table gives
  Many-to-Many for Many-to-Many, then One-to-Many. Both cannot decide; footnote 1 does, and it agrees with the table.
- The prose calls Conv "Many-to-One"; section 3.1 counts that as Many-to-Many.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from .mapping_types import MappingType


class Colour(Enum):
    """Green: fuse. Yellow: fuse if it is faster. Red: do not fuse."""

    GREEN = "green"
    YELLOW = "yellow"
    RED = "red"


@dataclass(frozen=True, slots=True)
class Combination:
    """One cell: the type of the fused operator (None in a red one) and the colour."""

    result: MappingType | None
    colour: Colour


_ORDER = (
    MappingType.ONE_TO_ONE,
    MappingType.ONE_TO_MANY,
    MappingType.MANY_TO_MANY,
    MappingType.REORGANIZE,
    MappingType.SHUFFLE,
)
"""Rows (first operator) and columns (second operator), as printed."""

_RESULTS = dict(zip(("1-1", "1-M", "M-M", "Reo", "Shu"), _ORDER, strict=True))
_COLOURS = {colour.value[0]: colour for colour in Colour}

_PRINTED = """
1-1:g  1-M:g  M-M:g  Reo:g  Shu:g
1-M:g  1-M:y  -:r    1-M:y  1-M:y
M-M:g  M-M:y  -:r    M-M:y  M-M:y
Reo:g  1-M:y  M-M:y  Reo:g  Reo:g
Shu:g  1-M:y  M-M:y  Reo:g  Shu:g
"""


def _cell(text: str) -> Combination:
    result, colour = text.split(":")
    return Combination(_RESULTS.get(result), _COLOURS[colour])


TABLE: Mapping[tuple[MappingType, MappingType], Combination] = {
    (first, second): _cell(text)
    for first, row in zip(_ORDER, _PRINTED.strip().splitlines(), strict=True)
    for second, text in zip(_ORDER, row.split(), strict=True)
}


def combine(first: MappingType, second: MappingType) -> Combination:
    """An operator of type `second` fused behind one of type `first`, whose output it reads."""
    return TABLE[first, second]
