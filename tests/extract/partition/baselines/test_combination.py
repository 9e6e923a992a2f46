"""Table 3 of DNNFusion: the 25 cells, and what the prose says of all of them."""

from __future__ import annotations

from collections import Counter
from itertools import product

import pytest

from eqfuse.extract.partition.baselines.combination import TABLE, Colour, Combination, combine
from eqfuse.extract.partition.baselines.mapping_types import MappingType

ONE, REORGANIZE, SHUFFLE, COPIED, MANY = MappingType
GREEN, YELLOW, RED = Colour
MOVING = (REORGANIZE, SHUFFLE)

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


def test_every_pair_has_a_cell() -> None:
    assert TABLE.keys() == set(product(MappingType, repeat=2))


def test_23_cells_are_green_or_yellow_as_there_are_23_rules_of_code_generation() -> None:
    colours = Counter(cell.colour for cell in TABLE.values())
    assert colours == {GREEN: 13, YELLOW: 10, RED: 2}


def test_only_a_red_cell_has_no_result() -> None:
    assert all((cell.result is None) == (cell.colour is RED) for cell in TABLE.values())


@pytest.mark.parametrize("other", list(MappingType))
def test_one_to_one_takes_the_type_of_the_other_for_nothing(other: MappingType) -> None:
    assert combine(ONE, other) == combine(other, ONE) == Combination(other, GREEN)


@pytest.mark.parametrize(("first", "second"), list(product(MOVING, (COPIED, MANY))))
def test_what_only_moves_takes_the_type_of_the_other_at_a_price(first: MappingType, second: MappingType) -> None:
    assert combine(first, second) == combine(second, first) == Combination(second, YELLOW)


def test_the_results_agree_whichever_pair_is_fused_first() -> None:
    """So the type of a group does not depend on the order in which a chain was fused, wherever both orders exist."""
    for first, second, third in product(MappingType, repeat=3):
        left, right = combine(first, second).result, combine(second, third).result
        if left is not None and right is not None:
            assert combine(left, third).result == combine(first, right).result
