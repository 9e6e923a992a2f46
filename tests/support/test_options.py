"""Options of dataclasses: values of other types, names that are none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

from eqfuse.support.options import (
    NotNegativeInteger,
    OptionError,
    Positive,
    check_options,
    options_of,
)


@dataclass(frozen=True)
class Sample:
    """One field of every kind."""

    seconds: Positive
    colour: Literal["red", "green"] = "red"
    seed: NotNegativeInteger = 0
    tolerance: Positive | None = None
    is_loud: bool = False
    files: tuple[Path, ...] = ()
    words: tuple[str, ...] = ()
    shapes: Mapping[str, tuple[int | str, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_options(self)


def test_values_are_brought_to_the_type_of_their_field() -> None:
    options = options_of(
        Sample,
        {
            "seconds": np.float32(2),
            "seed": np.int64(3),
            "tolerance": 1,
            "files": "a.egg",
            "words": ["b", "c"],
            "shapes": {"x": [np.int64(1), "N"]},
        },
    )
    assert options == Sample(2.0, "red", 3, 1.0, False, (Path("a.egg"),), ("b", "c"), {"x": (1, "N")})
    assert type(options.seconds) is float
    assert [type(dimension) for dimension in options.shapes["x"]] == [int, str]


def test_one_path_is_a_sequence_of_one() -> None:
    assert Sample(1.0, files=Path("a")).files == (Path("a"),)
    assert Sample(1.0, files=[Path("a"), "b"]).files == (Path("a"), Path("b"))


NAMES = ("seconds", "colour", "seed", "tolerance", "is_loud", "files", "words", "shapes")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"colour": "blue"}, "colour: 'blue' is not one of red, green"),
        ({"colour": ["red"]}, "colour: ['red'] is not one of red, green"),
        ({"seconds": 0}, "seconds: 0 is not a number above 0"),
        ({"seconds": float("nan")}, "seconds: nan is not a number above 0"),
        ({"seconds": "3"}, "seconds: '3' is not a number"),
        ({"seconds": None}, "seconds: None is not a number"),
        ({"seconds": True}, "seconds: True is not a number"),
        ({"seed": -1}, "seed: -1 is not a number from 0 on"),
        ({"seed": 0.5}, "seed: 0.5 is not a whole number"),
        ({"is_loud": "no"}, "is_loud: 'no' is not True or False"),
        ({"files": 3}, "files: 3 is not a path"),
        ({"files": [3]}, "files: [3] is not a path"),
        ({"shapes": [1, 3]}, "shapes: [1, 3] is not a mapping of names"),
        ({"shapes": {"x": "1,3"}}, "shapes: {'x': '1,3'} is not a sequence"),
        ({"shapes": {"x": (1, None)}}, "shapes: {'x': (1, None)} is not a whole number or a text"),
        ({"words": b"x" * 200}, f"words: b'{78 * 'x'}... is not a text"),
        ({"colur": "red"}, "colur: is no option; did you mean colour?"),
        ({"volume": 3}, "volume: is no option; there are " + ", ".join(NAMES)),
    ],
)
def test_what_cannot_be_used_is_said_in_one_line(given: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError) as refused:
        options_of(Sample, {"seconds": 1.0, **given})
    assert str(refused.value) == message


def test_what_is_missing_is_said() -> None:
    with pytest.raises(OptionError, match="seconds: has to be given"):
        options_of(Sample, {})
