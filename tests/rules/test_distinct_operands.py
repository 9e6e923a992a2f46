"""Terms that have a value twice: egglog matches rows of them that are subsumed."""

from __future__ import annotations

import pytest

from eqfuse.rules.binding import with_distinct_operands
from eqfuse.rules.egglog_bindings import execute, load
from eqfuse.rules.loader import load_rules
from eqfuse.rules.sexpr import read

DECLARED = """
(sort T) (sort Ints (Vec i64)) (constructor W (i64) T) (constructor P (T Ints Ints) T) (constructor C (T T T) T)
(relation matched (T)) (ruleset try) (ruleset hide)
(rule ((= e (P x a b))) ((subsume (P x a b))) :ruleset hide)
(rule ((= e (C x a b))) ((subsume (C x a b))) :ruleset hide)
"""
ROWS = "(P (W 1) (vec-of 1 1) (vec-of 1 1)) (C (W 1) (W 2) (W 2))"


@pytest.mark.parametrize("term", ["(P x a a)", "(P x (vec-of 1 1) (vec-of 1 1))", "(C x a a)"])
@pytest.mark.parametrize("is_hidden", [False, True], ids=["there", "subsumed"])
def test_a_term_with_a_value_twice_matches_what_is_not_subsumed(term: str, is_hidden: bool) -> None:
    (rule,) = read(f"(rule ((= e {term})) ((matched x)) :ruleset try)").forms
    (command,) = with_distinct_operands(rule)
    egraph = load().EGraph()
    execute(egraph, f"{DECLARED} {command} {ROWS} {'(run-schedule hide)' if is_hidden else ''} (run-schedule try)")
    check = "(check (matched (W 1)))"
    execute(egraph, f"(fail {check})" if is_hidden else check)


@pytest.mark.parametrize(
    ("rule", "commands"),
    [
        ("(rewrite (Add x x) (Mul x 2.0))", ["(rewrite (Add x x) (Mul x 2.0))"]),
        ("(rewrite (Where c x x) x)", ["(rewrite (Where c x x~2) x :when ((value-eq x~2 x)))"]),
        (
            '(rewrite (Where c (Neg x) y) x :when ((same x (Where x y y))) :name "n")',
            ['(rewrite (Where c (Neg x) y) x :when ((same x (Where x y y~2)) (value-eq y~2 y)) :name "n")'],
        ),
        (
            '(birewrite (Where c x x) (Neg x) :ruleset explore :name "n")',
            [
                '(rewrite (Where c x x~2) (Neg x) :when ((value-eq x~2 x)) :ruleset explore :name "n=>")',
                '(rewrite (Neg x) (Where c x x) :ruleset explore :name "n<=")',
            ],
        ),
        (
            "(rule ((= e (Where c x x))) ((union e x)))",
            ["(rule ((= e (Where c x x~2)) (value-eq x~2 x)) ((union e x)))"],
        ),
    ],
)
def test_the_commands_of_a_rule(rule: str, commands: list[str]) -> None:
    (form,) = read(rule).forms
    assert list(map(str, with_distinct_operands(form))) == commands


def test_shipped_rules_have_none_left() -> None:
    rules = load_rules(precision="fast", domains=["com.microsoft"]).rules
    changed = [rule for rule in rules if rule.program != rule.text]
    assert {"where-same", "slice-reshape-1"} <= {rule.name for rule in changed}
    for rule in changed:
        for command in read(rule.program).forms:
            assert with_distinct_operands(command) == (command,)
