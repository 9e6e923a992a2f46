"""Exceptions of other libraries as one line."""

from __future__ import annotations

import pytest

from eqfuse.support.errors import describe_error


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("two\n  lines"), "ValueError: two lines"),
        (KeyError(), "KeyError"),
        (RuntimeError("x" * 900 + " and the reason"), f"RuntimeError: ...{'x' * 285} and the reason"),
    ],
)
def test_it_has_its_kind_and_the_end_of_its_message(error: Exception, text: str) -> None:
    assert describe_error(error) == text
