"""Rules that are checked in several processes."""

from __future__ import annotations

import operator
from pathlib import Path

import pytest

from eqfuse.rules.places import analysis_files, shipped_files
from eqfuse.rules.records import RuleFile, read_file
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
OPERATORS = ("Abs", "Relu", "Floor")


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


def test_the_analyses_may_be_named_by_any_path(monkeypatch: pytest.MonkeyPatch, file: RuleFile) -> None:
    """As in `eqfuse rules check rules` in a clone, whose paths are relative."""
    monkeypatch.chdir(analysis_files()[0].path.parents[2])
    files = [*map(read_file, sorted(Path("rules/analysis").glob("*.egg"))), file]
    assert [v.kind for v in check_files(files, chosen={"own-abs"}, use_cache=False)] == ["proved"]


def test_an_index_out_of_range_is_a_fault_of_egglog(tmp_path: Path) -> None:
    """egglog panics there; the other rules of the file have their verdicts."""
    path = tmp_path / "own.egg"
    condition = ":when ((= s (vec-set (shape a) 9 1))) :ruleset"
    dying = RULE.format("Abs", "abs").replace(":ruleset", condition)
    path.write_text(f"{dying}\n{RULE.format('Relu', 'relu')}", encoding="utf-8")
    verdict, other = check_files([read_file(path)], use_cache=False, workers=2)
    assert (verdict.kind, other.kind) == ("unchecked", "proved")
    assert "a fault of egglog" in verdict.reason
    assert "ask vec-get for the same index" in verdict.reason


def test_a_variable_may_be_bound_late(tmp_path: Path) -> None:
    """egglog would panic, or crash, at a condition that computes with what the last one binds."""
    path = tmp_path / "own.egg"
    conditions = "(vec-not-contains axes last) (= last (- (vec-length s) 1)) (= s (shape x))"
    rule = f"(rewrite (MatMul (ReduceSum x axes k) w) (ReduceSum (MatMul x w) axes k) :when ({conditions})"
    record = RULE.partition("(rewrite")[0].format("Abs", "abs")
    path.write_text(f'{record}{rule} :ruleset explore :name "own-sum")\n', encoding="utf-8")
    (verdict,) = check_files([read_file(path)], use_cache=False, workers=1)
    assert verdict.kind == "refuted"


def test_a_side_may_compute_with_what_a_condition_binds(tmp_path: Path) -> None:
    """egglog would panic at the left side, which it looks for before it computes conditions."""
    path = tmp_path / "own.egg"
    conditions = "(= p (vec-of 1 0)) (= a (vec-get p 0)) (= (vec-length p) (vec-length (shape x)))"
    sides = "(ReduceSum (Transpose x p) (vec-of a) 0) (ReduceSum x (vec-of 0) 0)"
    record = RULE.partition("(rewrite")[0].format("Abs", "abs").replace("@example", "@example (Relu x) => x\n;")
    path.write_text(f'{record}(rewrite {sides} :when ({conditions}) :ruleset explore :name "own-sum")\n')
    (verdict,) = check_files([read_file(path)], use_cache=False, workers=1)
    assert (verdict.kind, verdict.samples > 0) == ("refuted", True)


def test_a_check_that_fails_is_no_verdict_for_the_rule(file: RuleFile) -> None:
    """A judge that raises stands for what the checker does not expect."""
    verdicts = list(check_files([file], judge=operator.truediv, use_cache=False, workers=2))
    assert {v.kind for v in verdicts} == {"unchecked"}
    assert verdicts[0].reason.startswith("a fault of the checker, not of the rule: please report it with the rule")
    assert "TypeError" in verdicts[0].reason
