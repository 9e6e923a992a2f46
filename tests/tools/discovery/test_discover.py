"""What follows from rules."""

from __future__ import annotations

import pytest

from eqfuse.tools.discovery.candidates import Guards
from eqfuse.tools.discovery.discover import CHUNK, Deriver, Question
from eqfuse.tools.discovery.language import parse_term

COMMUTES = '(rewrite (Mul a b) (Mul b a) :ruleset explore :name "commutes")'
ROOT = '(rewrite (Sqrt (Mul a a)) a :when ((nonneg a)) :ruleset explore :name "root")'
WRONG = '(rewrite (Exp a) (ReduceSum a (vec-of 1) 0) :ruleset explore :name "wrong")'


@pytest.fixture(scope="module")
def deriver() -> Deriver:
    return Deriver("")


def question(left: str, right: str, guards: Guards | None = None) -> Question:
    return Question(parse_term(left), parse_term(right), guards or Guards(), "float32")


TURNED = question("(Exp (Mul a b))", "(Exp (Mul b a))")


def test_what_a_rule_says(deriver: Deriver) -> None:
    assert deriver.derive(COMMUTES, [TURNED, question("(Add a b)", "(Add b a)")]) == [True, False]


def test_a_rule_is_gone_in_the_next_call(deriver: Deriver) -> None:
    deriver.derive(COMMUTES, [TURNED])
    assert deriver.derive("", [TURNED]) == [False]


def test_the_conditions_of_a_question_are_there(deriver: Deriver) -> None:
    asked = [question("(Sqrt (Mul a a))", "a", Guards(nonneg=frozenset("a"))), question("(Sqrt (Mul a a))", "a")]
    assert deriver.derive(ROOT, asked) == [True, False]


def test_more_questions_than_one_e_graph_takes(deriver: Deriver) -> None:
    assert deriver.derive(COMMUTES, [TURNED] * (CHUNK + 1)) == [True] * (CHUNK + 1)


def test_a_conflict_leaves_the_other_questions_alone(deriver: Deriver) -> None:
    assert deriver.derive(f"{COMMUTES}\n{WRONG}", [question("(Exp a)", "a"), question("(Mul a b)", "(Mul b a)")]) == [
        False,
        True,
    ]
