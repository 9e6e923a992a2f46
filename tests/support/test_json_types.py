"""JSON that does not fit its types: one line with the path of the field."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, TypedDict

import pytest
from msgspec import Meta

from eqfuse.support.json_types import JsonFieldError, convert_json, parse_json


@dataclass(frozen=True)
class Part:
    size: Annotated[int, Meta(ge=1)]
    name: str = ""


@dataclass(frozen=True)
class Whole:
    parts: tuple[Part, ...]
    versions: dict[str, str]


Comparison = TypedDict("Comparison", {"speed-up": Part})


def test_what_fits_is_an_object() -> None:
    content = {"parts": [{"size": 2}], "versions": {"a": "b"}}
    assert convert_json(content, Whole) == Whole((Part(2),), {"a": "b"})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([], "must be an object, not []"),
        ({"parts": []}, "field versions: missing"),
        ({"parts": 3, "versions": {}}, "field parts: must be a list, not 3"),
        ({"parts": [{"size": 1}, {}], "versions": {}}, "field parts[1].size: missing"),
        ({"parts": [{"size": 0}], "versions": {}}, "field parts[0].size: must be at least 1, not 0"),
        ({"parts": [{"size": True}], "versions": {}}, "field parts[0].size: must be a whole number, not True"),
        ({"parts": [{"size": 1, "width": 2}], "versions": {}}, "field parts[0].width: unknown"),
        ({"parts": [], "versions": {"a": 1}}, "field versions[...]: must be a text, not another value"),
    ],
)
def test_what_does_not_fit_is_named(content: object, message: str) -> None:
    with pytest.raises(JsonFieldError) as raised:
        convert_json(content, Whole)
    assert str(raised.value) == message


def test_a_name_that_is_no_word_is_found() -> None:
    with pytest.raises(JsonFieldError, match=r"^field speed-up: must be an object, not 2\.0$"):
        convert_json({"speed-up": 2.0}, Comparison)


@pytest.mark.parametrize("text", ["", "{", "NaN", "[" * 100_000])
def test_what_is_no_json(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_json(text)
