"""Rewrites that ask for what rules of the same file derive."""

from __future__ import annotations

from pathlib import Path

import pytest

from eqfuse.rules.records import read_file
from eqfuse.tools.checking.check import check_rule, scratch_for
from eqfuse.tools.checking.verdict import Verdict

from .conftest import RECORD

OF_EXP = '(rule ((= e (Exp x))) ((above e)) :ruleset analysis :name "own.exp")'
OF_SIGMOID = '(rule ((= e (Sigmoid x))) ((above e)) :ruleset analysis :name "own.sigmoid")'
OF_NEG = '(rule ((= e (Neg x))) ((above e)) :ruleset analysis :name "own.neg")'
OF_A_SUM = '(rule ((= e (Add a b)) (above a) (above b)) ((above e)) :ruleset analysis :name "own.sum")'
OF_NOTHING = '(rule ((= e (Tanh x)) (= 1 2)) ((above e)) :ruleset analysis :name "own.nothing")'


def verdict(folder: Path, *deriving: str) -> Verdict:
    """The verdict on abs(x) = x if x is derived to be above zero."""
    path = folder / "own.egg"
    record = RECORD.format(sound="exact", example="(Abs (Exp x)) => (Exp x)")
    rule = '(rewrite (Abs x) x :when ((above x)) :ruleset simplify :name "own")'
    path.write_text("\n".join(("(relation above (T))", *deriving, f"{record}{rule}")), encoding="utf-8")
    file = read_file(path)
    return check_rule(file.rules[-1], scratch_for(file))


@pytest.mark.parametrize(
    "further",
    [
        pytest.param((), id="one"),
        pytest.param((OF_SIGMOID,), id="two", marks=pytest.mark.conformance),
        pytest.param((OF_A_SUM,), id="recursive", marks=pytest.mark.conformance),
    ],
)
def test_true_facts_make_a_true_rule(further: tuple[str, ...], tmp_path: Path) -> None:
    assert verdict(tmp_path, OF_EXP, *further).accepted


def test_a_wrong_fact_makes_a_wrong_rule(tmp_path: Path) -> None:
    """The example never meets it."""
    result = verdict(tmp_path, OF_EXP, OF_NEG)
    assert result.kind == "refuted"
    assert result.counterexample is not None
    assert "Neg" in result.counterexample.sample


@pytest.mark.conformance
def test_a_fact_that_no_sample_has_is_not_relied_upon(tmp_path: Path) -> None:
    result = verdict(tmp_path, OF_EXP, OF_NOTHING)
    assert (result.kind, result.reason) == ("idle", "no sample made it fire on what own.nothing derives")


@pytest.mark.conformance
def test_a_long_chain_of_facts_is_followed(tmp_path: Path) -> None:
    """To the one wrong rule at its end."""
    links = [f'(rule ((link{i} x)) ((link{i - 1} x)) :ruleset analysis :name "own.{i}")' for i in range(1, 6)]
    relations = [f"(relation link{i} (T))" for i in range(6)]
    ends = [f'(rule ((= e ({head} x))) ((link5 e)) :ruleset analysis :name "own.{head}")' for head in ("Exp", "Neg")]
    above = '(rule ((link0 x)) ((above x)) :ruleset analysis :name "own.above")'
    result = verdict(tmp_path, *relations, *links, *ends, above)
    assert result.kind == "refuted"
    assert result.counterexample is not None
    assert "Neg" in result.counterexample.sample
