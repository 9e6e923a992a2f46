"""Reading, selecting and joining rule files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from eqfuse.rules.loader import RuleSet, load_rules, prelude
from eqfuse.rules.places import shipped_files
from eqfuse.rules.records import read_file
from eqfuse.rules.vocabulary import Precision
from eqfuse.support.errors import RuleError, UsageError

HERE = Path(__file__).parent
PASS = HERE / "pass"

CATALOGUE = """\
; x = x
; @property identity
; @sound {sound}
; @example (Relu (Relu x)) => (Relu x)
(rewrite (Relu (Relu x)) (Relu x) :ruleset simplify :name "test-{sound}")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """One rule of each soundness, in a file of that name."""
    for sound in ("exact", "real", "approx"):
        (tmp_path / f"{sound}.egg").write_text(CATALOGUE.format(sound=sound), encoding="utf-8")
    return tmp_path


def own(rules: RuleSet, folder: Path) -> list[str]:
    return [rule.name for rule in rules.rules if folder in rule.path.parents]


def test_a_record_is_read() -> None:
    rule = read_file(PASS / "commutes.egg").rules[0]
    assert (rule.name, rule.topic, rule.ruleset, rule.formula) == (
        "test-distribute",
        "commutes",
        "explore",
        "a*b + a*c = a*(b + c)",
    )
    assert (rule.properties, rule.sound, rule.requires, rule.source, rule.example, rule.commutes) == (
        ("distributive", "linear"),
        "real",
        "none",
        "DNNFusion Table 4, row 5",
        "(Add (Mul a b) (Mul a c)) => (Mul a (Add b c))",
        ("Add", "Mul"),
    )
    assert (rule.path, rule.line, rule.column) == (PASS / "commutes.egg", 8, 1)


def test_mirrored_variants_follow_their_rule_and_keep_its_record() -> None:
    first, *others = read_file(PASS / "commutes.egg").rules
    assert [rule.name for rule in others] == [f"test-distribute~{i}" for i in (1, 2, 3)]
    assert {(rule.base, rule.formula, rule.line) for rule in others} == {(first.name, first.formula, first.line)}


def test_declarations_are_kept_apart() -> None:
    file = read_file(PASS / "declarations.egg")
    assert [d.text for d in file.declarations] == ["(relation positive (T))"]


@pytest.mark.parametrize(
    ("precision", "expected"),
    [
        ("exact", ["test-exact"]),
        ("real", ["test-exact", "test-real"]),
        ("fast", ["test-approx", "test-exact", "test-real"]),
    ],
)
def test_precision_admits_by_soundness(precision: Precision, expected: list[str], folder: Path) -> None:
    assert own(load_rules([folder], precision=precision), folder) == expected


@pytest.mark.parametrize(
    ("tag", "only", "skip"),
    [
        ("test-real", ["test-real"], ["test-exact"]),
        ("real", ["test-real"], ["test-exact"]),
        ("identity", ["test-exact", "test-real"], []),
    ],
)
def test_only_and_skip_by_name_topic_and_property(tag: str, only: list[str], skip: list[str], folder: Path) -> None:
    assert own(load_rules([folder], only=[tag]), folder) == only
    assert own(load_rules([folder], skip=[tag]), folder) == skip


def test_rules_that_derive_facts_stay() -> None:
    rules = load_rules([PASS / "declarations.egg"], precision="exact", only=["fold"], skip=["declarations"])
    assert own(rules, PASS) == ["test.positive"]


def test_an_unknown_tag_gets_a_suggestion() -> None:
    wanted = r"no rule, topic, property or soundness is called 'identiy'; did you mean identity\?"
    with pytest.raises(UsageError, match=wanted):
        load_rules(skip=["identiy"])


def test_problems_stop_the_loading() -> None:
    with pytest.raises(RuleError, match=r"arity\.egg:7:26: Add takes 2 arguments, not 1$"):
        load_rules([HERE / "fail" / "arity.egg"])


def test_rules_by_name_also_as_egglog_reports_them() -> None:
    rules = load_rules([PASS / "birewrite.egg"])
    assert rules.by_name["test-matmul=>"] is rules.by_name["test-matmul"]


def test_shipped_files_come_in_the_order_of_their_paths() -> None:
    paths = [file.path for file in shipped_files()]
    assert paths == sorted(paths)


def test_the_program_loads_after_the_prelude(analyses: Any) -> None:
    analyses.run(load_rules([PASS]).program)


def test_a_loaded_rule_rewrites(analyses: Any) -> None:
    analyses.run(load_rules([PASS / "rewrite.egg"], only=["test-relu-twice"]).program)
    analyses.run('(Relu (Relu (Var "x"))) (run simplify 1)')
    assert analyses.holds('(= (Relu (Relu (Var "x"))) (Relu (Var "x")))')


def test_the_prelude_declares_before_it_derives() -> None:
    program = prelude()
    assert program.index("(ruleset analysis)") < program.index("(rule (")
