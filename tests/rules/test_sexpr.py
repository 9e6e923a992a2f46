"""The reader of s-expressions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eqfuse.rules.sexpr import Atom, Form, Node, SexprError, read, walk

SYMBOLS = st.from_regex(r"[A-Za-z_:@?<>=*/+-][A-Za-z0-9_-]{0,6}", fullmatch=True) | st.integers().map(str)
STRINGS = st.text(st.characters(codec="ascii", exclude_characters='"\\'), max_size=8).map('"{}"'.format)
NODES: st.SearchStrategy[Node] = st.recursive(
    (SYMBOLS | STRINGS).map(Atom), lambda inner: st.lists(inner, max_size=4).map(lambda items: Form(tuple(items)))
)


def bare(node: Node) -> Node:
    """The node without positions."""
    return Atom(node.text) if isinstance(node, Atom) else Form(tuple(map(bare, node.items)))


@given(st.lists(NODES, max_size=4))
def test_reads_what_is_printed(nodes: list[Node]) -> None:
    form = Form(tuple(nodes))
    (form_read,) = read(str(form)).forms
    assert bare(form_read) == form


@given(st.lists(NODES, max_size=4))
def test_positions_point_at_the_text(nodes: list[Node]) -> None:
    text = f"; one\n  {Form(tuple(nodes))}"
    document = read(text)
    for node in walk(document.forms[0]):
        end = node.end if isinstance(node, Form) else node.start + len(node.text)
        assert text[node.start : end] == str(node)


def test_position_counts_lines_and_columns_from_one() -> None:
    document = read("(a)\n\n  (b c)")
    assert [document.position(form.start) for form in document.forms] == [(1, 1), (3, 3)]


def test_parentheses_in_comments_and_strings_are_text() -> None:
    assert [str(form) for form in read('; (((\n(a ")") ; )\n(b)').forms] == ['(a ")")', "(b)"]


def test_comment_block_ends_at_a_blank_line() -> None:
    document = read("; far\n\n; near\n;; nearest\n(a) ; behind")
    assert document.comment_block(document.forms[0]) == [Atom("near", 9), Atom("nearest", 17)]


def test_comment_block_ends_at_a_heading() -> None:
    document = read("; far\n; --- heading\n; near\n(a)")
    assert document.comment_block(document.forms[0]) == [Atom("near", 22)]


def test_a_comment_behind_a_command_belongs_to_no_other() -> None:
    document = read("(a) ; behind\n(b)")
    assert document.comment_block(document.forms[1]) == []


@pytest.mark.parametrize(
    ("text", "offset", "message"),
    [
        ("(a (b)", 0, "this parenthesis is not closed"),
        ("(a))", 3, "no parenthesis is open here"),
        ('(a "b)', 3, "this string is not closed"),
        ("(a) b", 4, "b stands outside a command"),
    ],
)
def test_errors_say_where(text: str, offset: int, message: str) -> None:
    with pytest.raises(SexprError, match=message) as caught:
        read(text)
    assert caught.value.offset == offset
