"""Discovery from the operators to the rule file."""

from __future__ import annotations

from pathlib import Path

import pytest

from eqfuse.rules.lint import lint_files
from eqfuse.rules.loader import load_rules
from eqfuse.rules.records import read_file
from eqfuse.support.errors import UsageError
from eqfuse.tools.checking.check import check_files
from eqfuse.tools.discovery.candidates import apply_guards
from eqfuse.tools.discovery.discover import (
    MAX_SIZE,
    Deriver,
    Discovered,
    Discovery,
    Options,
    Question,
    discover,
    file_text,
    rule_file,
)

from .table4 import TABLE_4, derives, discovered

CATALOGUE = load_rules()


def formulas(discovery: Discovery) -> list[str]:
    return [one.rule.formula for one in discovery.rules]


def discover_rules(*operators: str, size: int, catalogue: bool = False) -> Discovery:
    return discover(Options(operators, size, CATALOGUE if catalogue else None))


def question(one: Discovered) -> Question:
    draft = one.draft
    left, right = (apply_guards(side, draft.guards) for side in (draft.left, draft.right))
    return Question(left, right, draft.guards, "float32" if draft.guards.floating else "int32")


@pytest.fixture(scope="module")
def products() -> Discovery:
    """Products and absolute values without the catalogue."""
    return discover_rules("Mul", "Abs", size=3)


@pytest.fixture(scope="module")
def opposites() -> Discovery:
    """Opposites and absolute values in terms of two operators, without the catalogue."""
    return discover_rules("Neg", "Abs", size=2)


@pytest.fixture(scope="module")
def beside_the_catalogue() -> Discovery:
    """Products and absolute values, found beside the catalogue."""
    return discover_rules("Mul", "Abs", size=3, catalogue=True)


@pytest.fixture(scope="module")
def single_operators() -> Discovery:
    """Terms of one operator, found beside the catalogue."""
    return discover_rules("Mul", "Abs", size=1, catalogue=True)


def verdicts(folder: Path, discovery: Discovery) -> list[str]:
    path = folder / "discovered.egg"
    path.write_text(rule_file(Options(("Mul", "Abs")), discovery), encoding="utf-8")
    assert lint_files([path]) == []
    return [verdict.kind for verdict in check_files([read_file(path)], use_cache=False, workers=1)]


WITHOUT_THE_CATALOGUE = ["opposites", pytest.param("products", marks=pytest.mark.conformance)]


@pytest.mark.conformance
@pytest.mark.parametrize("found", ["opposites", "products", "beside_the_catalogue"])
def test_the_file_is_accepted_by_the_checker(tmp_path: Path, found: str, request: pytest.FixtureRequest) -> None:
    discovery: Discovery = request.getfixturevalue(found)
    kinds = verdicts(tmp_path, discovery)
    assert len(kinds) == sum(not one.left_out for one in discovery.rules) > 0
    assert {"refuted", "idle"}.isdisjoint(kinds)


@pytest.mark.parametrize("found", WITHOUT_THE_CATALOGUE)
def test_every_rule_was_accepted(found: str, request: pytest.FixtureRequest) -> None:
    assert all(one.verdict.accepted for one in request.getfixturevalue(found).rules)


@pytest.mark.conformance
def test_what_the_catalogue_derives_is_left_out(products: Discovery, beside_the_catalogue: Discovery) -> None:
    deriver = Deriver(CATALOGUE.program)
    assert "|a| * |b| = |a * b|" in formulas(products)
    assert "|a| * |b| = |a * b|" not in formulas(beside_the_catalogue)
    questions = list(map(question, beside_the_catalogue.rules))
    assert deriver.derive("", questions) == [False] * len(questions)


def test_rules_that_the_catalogue_has_are_comments(opposites: Discovery) -> None:
    listed = next(one for one in opposites.rules if one.rule.formula == "|-a| = |a|")
    assert listed.left_out == "The catalogue's abs-neg says the same"
    assert file_text([listed], ()).count("\n(") == 0


@pytest.mark.parametrize("found", WITHOUT_THE_CATALOGUE)
def test_no_rule_follows_from_those_before_it(found: str, request: pytest.FixtureRequest) -> None:
    discovery: Discovery = request.getfixturevalue(found)
    deriver = Deriver("")
    for number, one in enumerate(discovery.rules):
        earlier = "\n".join(other.rule.text for other in discovery.rules[:number])
        assert deriver.derive(earlier, [question(one)]) == [False], one.rule.formula


@pytest.mark.parametrize(
    "found", ["single_operators", pytest.param("beside_the_catalogue", marks=pytest.mark.conformance)]
)
def test_commutativity_beside_the_catalogue_is_no_rule(found: str, request: pytest.FixtureRequest) -> None:
    beside: Discovery = request.getfixturevalue(found)
    assert beside.commuting == ["Mul"]
    assert "a * b = b * a" not in formulas(beside)


HEAD = "; Rules over Mul, Abs in terms of up to 3 operators, found by `eqfuse rules discover`.\n; "
COMMUTATIVE = f"{HEAD}Commutative, which no rule says but @commutes: Mul.\n"


def test_the_file_says_what_was_looked_for(opposites: Discovery, single_operators: Discovery) -> None:
    assert rule_file(Options(("Mul", "Abs")), opposites).startswith(f"{HEAD}Found without the catalogue: ")
    assert rule_file(Options(("Mul", "Abs"), catalogue=CATALOGUE), single_operators) == COMMUTATIVE


@pytest.mark.conformance
def test_an_empty_line_follows_what_the_file_says(beside_the_catalogue: Discovery) -> None:
    text = rule_file(Options(("Mul", "Abs"), catalogue=CATALOGUE), beside_the_catalogue)
    assert text.startswith(f"{COMMUTATIVE}\n")


@pytest.mark.conformance
def test_associativity_beside_the_catalogue_is_a_comment(beside_the_catalogue: Discovery) -> None:
    (regrouped,) = (one for one in beside_the_catalogue.rules if one.rule.formula == "(a * b) * c = (a * c) * b")
    assert regrouped.left_out == "Over everything this would multiply the e-graph"


@pytest.mark.conformance
def test_the_result_is_the_same_every_time() -> None:
    runs = [discover_rules("Mul", "Abs", size=2) for _ in range(2)]
    assert [one.rule.text for one in runs[0].rules] == [one.rule.text for one in runs[1].rules]


def test_rules_of_truth_values() -> None:
    result = discover_rules("And", size=1)
    assert set(formulas(result)) == {"a and b = b and a", "a and a = a"}
    assert result.refuted == 0


@pytest.mark.conformance
def test_a_law_beside_the_catalogue_takes_no_name_of_a_rule() -> None:
    beside = discover_rules("Max", size=2, catalogue=True)
    assert beside.commuting == ["Max"]
    assert "max(max(a, b), a) = max(a, b)" in formulas(beside)


def test_operators_without_rules() -> None:
    assert discover_rules("Exp", size=2).rules == []


@pytest.mark.parametrize("size", [0, MAX_SIZE + 1])
def test_a_size_out_of_range(size: int) -> None:
    with pytest.raises(UsageError, match=f"--size {size}: "):
        discover_rules("Mul", size=size)


@pytest.mark.conformance
def test_rows_of_table_4_that_follow(products: Discovery) -> None:
    rules = "\n".join(one.rule.text for one in products.rules)
    assert [number for number, family in TABLE_4.items() if derives(rules, family)] == ["3", "4", "8"]


@pytest.mark.conformance
def test_the_distributive_rows_of_table_4_follow() -> None:
    rules = discovered(("Mul", "Add"), 3)
    assert [number for number in ("5", "6") if not derives(rules, TABLE_4[number])] == []


@pytest.mark.representatives(4)
@pytest.mark.parametrize("number", TABLE_4)
def test_no_family_is_derived_without_rules(number: str) -> None:
    assert not derives("", TABLE_4[number])
