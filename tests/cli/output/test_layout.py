"""Tables fit the columns that there are, and nothing of a cell is lost."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from onnx import helper

from eqfuse.cli.render import lay_out

from ..command_line import CommandLine

NARROWEST = 24
"""Columns below which a table with a label and a figure may be wider than asked for."""
LETTERS = st.text(st.sampled_from("ab/_.0\u4e2d\u0301"), max_size=60)
CELLS = st.lists(LETTERS, max_size=5).map(" ".join)


@st.composite
def tables(draw: st.DrawFn) -> list[list[str]]:
    columns = draw(st.integers(1, 9))
    return draw(st.lists(st.lists(CELLS, min_size=columns, max_size=columns), min_size=1, max_size=5))


def width_of(text: str) -> int:
    marks = sum(unicodedata.combining(each) > 0 for each in text)
    return len(text) - marks + sum(unicodedata.east_asian_width(each) in "FW" for each in text)


@example([["", "", "", "", "", "", "0000000"]], 0, 24)
@given(tables(), st.integers(0, 3), st.integers(NARROWEST, 200))
def test_no_line_is_wider_than_the_terminal(table: list[list[str]], left: int, width: int) -> None:
    assert [line for line in lay_out(table, left, width) if width_of(line) > width] == []


@given(tables(), st.integers(NARROWEST, 200))
def test_no_letter_is_lost(table: list[list[str]], width: int) -> None:
    def letters(texts: Sequence[str]) -> list[str]:
        return sorted(set("".join(texts)) - {" ", "\u2500"})

    assert letters(lay_out(table, 1, width)) == letters([cell for row in table for cell in row])


@given(tables())
def test_without_a_width_a_row_is_one_line(table: list[list[str]]) -> None:
    lines = lay_out(table, 1, None)
    assert len(lines) == len(table) + (1 if any(table[0]) else -1)


def test_words_and_numbers_with_their_units_stay_whole() -> None:
    rows = [("", "a long heading"), ("name", "9.516 MB and many more")]
    assert lay_out(rows, 1, 18) == [
        "            a long",
        "           heading",
        "\u2500" * 18,
        "name      9.516 MB",
        "          and many",
        "              more",
    ]


def test_columns_that_do_not_fit_follow_below() -> None:
    rows = [("name", "first", "second"), ("x", "1" * 12, "2" * 12), ("y", "3", "4")]
    assert lay_out(rows, 1, 24) == [
        "name          first",
        "\u2500" * 19,
        "x      111111111111",
        "y                 3",
        "",
        "name         second",
        "\u2500" * 19,
        "x      222222222222",
        "y                 4",
    ]


NAME = "/model/encoder/layer.0/attention/self/query/a_very_long_name_of_a_value_in_a_model"


@pytest.mark.representatives(13)
@pytest.mark.parametrize(
    "arguments",
    [
        ("optimize", "in.onnx", "-v", "--partition", "ago"),
        ("inspect", "in.onnx", "--partition", "ago"),
        ("verify", "in.onnx", "in.onnx"),
        ("diff", "in.onnx", "other.onnx"),
        ("rules", "list", "--topic", "gemm"),
        ("rules", "operators"),
        ("rules", "check", "wrong.egg"),
        ("rules", "stats", "in.onnx", "--unused"),
        ("rules", "explain", "in.onnx"),
        ("device", "list"),
    ],
    ids=lambda arguments: " ".join(arguments),
)
@pytest.mark.parametrize("columns", [80, 40])
def test_every_table_fits(
    eqfuse: CommandLine, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], columns: int
) -> None:
    nodes = [
        helper.make_node("Relu", ["x"], [f"{NAME}_1"], name=f"{NAME}_2"),
        helper.make_node("Relu", [f"{NAME}_1"], ["y"], name=f"{NAME}_3"),
    ]
    eqfuse.model("in.onnx", nodes)
    eqfuse.model("other.onnx", [helper.make_node("Abs", ["x"], ["y"])])
    eqfuse.rule("wrong.egg", '(rewrite (Add a b) (Mul a b) :ruleset explore :name "wrong-with-a-name-that-is-long")')
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = eqfuse.run(*arguments).out.splitlines()
    rules = [index for index, line in enumerate(lines) if line and set(line) == {"\u2500"}]
    assert rules
    assert max(len(lines[index]) for index in rules) <= columns
    for index in rules:
        below = lines[index + 1 :]
        assert max(map(len, below[: below.index("")])) <= columns
