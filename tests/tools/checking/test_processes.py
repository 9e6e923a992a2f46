"""Rules that are checked in several processes."""

from __future__ import annotations

import operator
from pathlib import Path

import pytest

from eqfuse.rules.places import analysis_files, shipped_files
from eqfuse.rules.records import RuleFile, read_file
from eqfuse.support.errors import RuleError
from eqfuse.tools.checking.check import check_files

RULE = """\
; f(f(f(a))) = f(a)
; @property strength
; @sound exact
; @requires none
; @source derived
; @example ({0} ({0} ({0} a))) => ({0} a)
(rewrite ({0} ({0} ({0} a))) ({0} a) :ruleset explore :name "own-{1}")
"""
OPERATORS = ("Abs", "Relu", "Floor", "Ceil")


@pytest.fixture
def file(tmp_path: Path) -> RuleFile:
    path = tmp_path / "own.egg"
    path.write_text("\n".join(RULE.format(op, op.lower()) for op in OPERATORS), encoding="utf-8")
    return read_file(path)


def test_verdicts_come_in_order(file: RuleFile) -> None:
    verdicts = list(check_files([file], use_cache=False, workers=2))
    assert [(v.rule, v.kind) for v in verdicts] == [(f"own-{op.lower()}", "proved") for op in OPERATORS]


def test_the_analyses_may_be_among_the_files(file: RuleFile) -> None:
    files = [*analysis_files(), *shipped_files(), file]
    verdicts = list(check_files(files, chosen={"own-abs", "relu-relu"}, use_cache=False))
    assert [v.kind for v in verdicts] == ["proved", "proved"]


def test_a_process_that_dies_names_its_rule(tmp_path: Path) -> None:
    """egglog ends the process where an index is out of range."""
    path = tmp_path / "own.egg"
    condition = ":when ((= s (vec-set (shape a) 9 1))) :ruleset"
    path.write_text(RULE.format("Abs", "abs").replace(":ruleset", condition), encoding="utf-8")
    with pytest.raises(RuleError, match=r"own\.egg:7:1: the check of own-abs crashed \("):
        list(check_files([read_file(path)], use_cache=False, workers=2))


def test_a_check_that_fails_is_no_verdict_for_the_rule(file: RuleFile) -> None:
    """A judge that raises stands for what the checker does not expect."""
    verdicts = list(check_files([file], judge=operator.truediv, use_cache=False, workers=2))
    assert {v.kind for v in verdicts} == {"unchecked"}
    assert verdicts[0].reason.startswith("a fault of the checker, not of the rule: please report it with the rule")
    assert "TypeError" in verdicts[0].reason
