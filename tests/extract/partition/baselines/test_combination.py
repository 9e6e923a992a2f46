"""Table 3 of DNNFusion: the 25 cells, and what the prose says of all of them."""

from __future__ import annotations

from itertools import product

import pytest

from eqfuse.extract.partition.baselines.combination import TABLE, Colour, Combination, combine
from eqfuse.extract.partition.baselines.mapping_types import MappingType

ONE, REORGANIZE, SHUFFLE, COPIED, MANY = MappingType
GREEN, YELLOW, RED = Colour

CELLS = [
    (ONE, ONE, ONE, GREEN),
    (ONE, COPIED, COPIED, GREEN),
    (ONE, MANY, MANY, GREEN),
    (ONE, REORGANIZE, REORGANIZE, GREEN),
    (ONE, SHUFFLE, SHUFFLE, GREEN),
    (COPIED, ONE, COPIED, GREEN),
    (COPIED, COPIED, COPIED, YELLOW),
    (COPIED, MANY, None, RED),
    (COPIED, REORGANIZE, COPIED, YELLOW),
    (COPIED, SHUFFLE, COPIED, YELLOW),
    (MANY, ONE, MANY, GREEN),
    (MANY, COPIED, MANY, YELLOW),
    (MANY, MANY, None, RED),
    (MANY, REORGANIZE, MANY, YELLOW),
    (MANY, SHUFFLE, MANY, YELLOW),
    (REORGANIZE, ONE, REORGANIZE, GREEN),
    (REORGANIZE, COPIED, COPIED, YELLOW),
    (REORGANIZE, MANY, MANY, YELLOW),
    (REORGANIZE, REORGANIZE, REORGANIZE, GREEN),
    (REORGANIZE, SHUFFLE, REORGANIZE, GREEN),
    (SHUFFLE, ONE, SHUFFLE, GREEN),
    (SHUFFLE, COPIED, COPIED, YELLOW),
    (SHUFFLE, MANY, MANY, YELLOW),
    (SHUFFLE, REORGANIZE, REORGANIZE, GREEN),
    (SHUFFLE, SHUFFLE, SHUFFLE, GREEN),
]


@pytest.mark.parametrize(("first", "second", "result", "colour"), CELLS)
def test_cell(first: MappingType, second: MappingType, result: MappingType | None, colour: Colour) -> None:
    assert combine(first, second) == Combination(result, colour)


def test_the_table_has_no_other_cells() -> None:
    assert TABLE.keys() == {(first, second) for first, second, _, _ in CELLS} == set(product(MappingType, repeat=2))


def test_the_results_agree_whichever_pair_is_fused_first() -> None:
    """So the type of a group does not depend on the order in which a chain was fused, wherever both orders exist."""
    for first, second, third in product(MappingType, repeat=3):
        left, right = combine(first, second).result, combine(second, third).result
        if left is not None and right is not None:
            assert combine(left, third).result == combine(first, right).result
