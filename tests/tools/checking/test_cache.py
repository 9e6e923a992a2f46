"""What the name of a kept verdict depends on."""

from __future__ import annotations

from pathlib import Path

import pytest

from eqfuse.rules.records import parse
from eqfuse.rules.sexpr import read
from eqfuse.tools.checking.cache import CacheKeys

FILE = """\
(relation even (T))
(relation odd (T))
(rule ((= e (Abs x))) ((even e)) :ruleset analysis :name "own.even")
(rule ((= e (Neg x))) ((odd e)) :ruleset analysis :name "own.odd")
(rewrite (Relu x) x :when ((even x)) :ruleset simplify :name "own")
"""


def key(text: str) -> str:
    """The name of the verdict on the last rule of a file."""
    file = parse(Path("own.egg"), read(text))
    return CacheKeys([file]).key(file.rules[-1])


@pytest.mark.parametrize(
    ("before", "after"), [("(Relu x) x", "(Relu x) (Abs x)"), ("(Abs x)", "(Exp x)"), ("even (T)", "even (N)")]
)
def test_what_a_rule_uses_counts(before: str, after: str) -> None:
    assert key(FILE.replace(before, after)) != key(FILE)


@pytest.mark.parametrize(("before", "after"), [("(Neg x)", "(Exp x)"), ("odd (T)", "odd (N)")])
def test_what_it_does_not_use_does_not_count(before: str, after: str) -> None:
    assert key(FILE.replace(before, after)) == key(FILE)
