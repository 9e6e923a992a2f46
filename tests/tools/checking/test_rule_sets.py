"""Sets of new rules: rules/careless_*.egg are wrong, each for one reason, rules/right_*.egg are well-known rewrites."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from eqfuse.rules.records import Rule, RuleFile, read_file
from eqfuse.tools.checking.check import check_rule, rules_as_written, scratch_for

FILES = {path.stem: read_file(path) for path in sorted((Path(__file__).parent / "rules").glob("*_*.egg"))}


def cases(kind: str) -> list[object]:
    """The rules of the files of a kind, as their authors wrote them."""
    files = [file for name, file in FILES.items() if name.startswith(kind)]
    return [pytest.param(file, rule, id=rule.name) for file, rule in rules_as_written(files)]


def test_names_are_distinct() -> None:
    names = Counter(rule.name for file in FILES.values() for rule in file.rules)
    assert [name for name, count in names.items() if count > 1] == []


@pytest.mark.representatives(2)
@pytest.mark.parametrize(("file", "rule"), cases("careless"))
def test_careless_rule_is_refuted(file: RuleFile, rule: Rule) -> None:
    verdict = check_rule(rule, scratch_for(file))
    assert verdict.kind == "refuted", verdict


@pytest.mark.representatives(2)
@pytest.mark.parametrize(("file", "rule"), cases("right"))
def test_right_rewrite_is_accepted(file: RuleFile, rule: Rule) -> None:
    verdict = check_rule(rule, scratch_for(file))
    assert verdict.kind in ("proved", "proved-if", "tested"), verdict
