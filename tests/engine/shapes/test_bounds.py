"""Lower bounds of sizes, and what follows from them."""

from __future__ import annotations

import pytest

from eqfuse.engine.shapes.bounds import Bounds
from eqfuse.ir.sizes import Size, number, parse_size

BOUNDS = Bounds({"H": 1})


def size(text: str) -> Size:
    parsed = parse_size(text)
    assert parsed is not None
    return parsed


PADDED = "7*(H//4) - 7*((6*(H//4))//7)"
"""The size of a map that is padded to a multiple of seven."""


@pytest.mark.parametrize(
    ("text", "least"),
    [
        (f"{PADDED} - min({PADDED}, 3)", 0),
        (f"{PADDED} - H//4", 0),
        ("(H + 7)//8 - 2", -1),
        ("H - min(H, 3)", 0),
        ("min(H, 3) - H", None),
    ],
)
def test_an_atom_is_taken_apart_before_those_inside_of_it(text: str, least: int | None) -> None:
    assert BOUNDS.least(size(text)) == least


@pytest.mark.parametrize(("dividend", "quotient"), [("H - 2", "max(H//2, 1) - 1"), ("H", "H//2"), ("H - 3", None)])
def test_quotients_are_rounded_towards_zero(dividend: str, quotient: str | None) -> None:
    assert BOUNDS.divide(size(dividend), number(2)) == (None if quotient is None else size(quotient))
