"""Rules as text, with records."""

from __future__ import annotations

import pytest

from eqfuse.rules.sexpr import Form, Node
from eqfuse.tools.discovery.candidates import Guards
from eqfuse.tools.discovery.discover import Draft, file_text, law, properties, stem, write_formula
from eqfuse.tools.discovery.language import parse_term

ONE = "(Full (vec-empty) 1.0 t)"


def sides(text: str) -> tuple[Node, Node]:
    """The two terms that stand one behind the other."""
    pair = parse_term(f"(pair {text})")
    assert isinstance(pair, Form)
    return pair.items[1], pair.items[2]


def draft(text: str, guards: Guards | None = None, both: bool = False, commutes: str = "") -> Draft:
    left, right = sides(text)
    return Draft("trial", left, right, guards or Guards(), both, "exact", frozenset(commutes.split()))


@pytest.mark.parametrize(
    ("text", "formula"),
    [
        ("(Mul a (Add b c))", "a * (b + c)"),
        (f"(Sub {ONE} (Neg a))", "1 - (-a)"),
        ("(Reciprocal (Mul a b))", "1/(a * b)"),
        ("(Exp (ReduceSum (Abs a) axes k))", "exp(sum(|a|))"),
        ('(BitShift a (Full (vec-empty) v t) "LEFT")', "a << v"),
        ("(Max a (Sqrt b))", "max(a, sqrt(b))"),
    ],
)
def test_a_formula(text: str, formula: str) -> None:
    assert write_formula(parse_term(text)) == formula


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("(Mul a b) (Mul b a)", "commutative"),
        ("(ReduceProd (Exp a) axes k) (Exp (ReduceSum a axes k))", "commutative"),
        ("(Mul (Mul a b) c) (Mul (Mul a c) b)", "associative"),
        ("(Mul (Abs a) (Abs b)) (Abs (Mul a b))", "associative"),
        ("(Add (Mul a b) (Mul a c)) (Mul (Add b c) a)", "distributive"),
        ("(Add (ReduceSum a axes k) (ReduceSum b axes k)) (ReduceSum (Add a b) axes k)", "linear"),
        ("(Abs (Abs a)) (Abs a)", "identity"),
        ("(Abs (Neg a)) (Abs a)", "strength"),
    ],
)
def test_a_property(text: str, name: str) -> None:
    assert properties(*sides(text)) == name


def test_the_conditions_of_a_rule() -> None:
    guards = Guards(floating=True, same_shape=True, nonneg=frozenset("b"), nonzero=frozenset("ab"))
    assert draft(f"(Mul a (Mul b {ONE})) a", guards).conditions() == [
        "(= t (dtype a))",
        "(= (shape a) (shape b))",
        "(floating a)",
        "(nonneg b)",
        "(nonzero a)",
        "(nonzero b)",
    ]


def test_an_example_has_the_signs_that_the_rule_asks_for() -> None:
    signed = draft("(Sqrt (Mul a a)) a", Guards(nonneg=frozenset("a")))
    assert signed.example() == "(Sqrt (Mul (Exp a) (Exp a))) => (Exp a)"


def test_a_record_is_read_back() -> None:
    rule = draft("(Sqrt (Mul a a)) a", Guards(nonneg=frozenset("a"))).rule()
    assert (rule.name, rule.formula, rule.sound, rule.requires) == ("trial", "sqrt(a * a) = a", "exact", "a >= 0")
    assert (rule.properties, rule.source) == (("identity",), "discovered")


def test_a_rule_in_both_directions() -> None:
    assert draft("(Mul (Mul a b) c) (Mul (Mul a c) b)", both=True).command().startswith("(birewrite ")


def test_mirror_images_of_a_one_way_rule() -> None:
    assert draft("(Sqrt (Mul a (Exp b))) (Exp b)", commutes="Mul").rule().commutes == ("Mul",)
    assert draft("(Sqrt (Add a (Exp b))) (Exp b)", commutes="Mul").rule().commutes == ()
    assert draft("(Mul (Mul a b) c) (Mul (Mul a c) b)", both=True, commutes="Mul").rule().commutes == ()


def test_names() -> None:
    assert stem(sides("(Mul (Sqrt a) (Mul b b)) a")[0]) == "discovered-mul-sqrt"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("(Mul a b) (Mul b a)", "commutative"),
        ("(Mul a b) (Mul a b)", ""),
        ("(Sub a b) (Sub b a)", ""),
        ("(Mul (Mul a b) c) (Mul (Mul a c) b)", "associative"),
        ("(Mul (Mul a b) a) (Mul (Mul a a) b)", ""),
        ("(Mul (Abs a) (Abs b)) (Abs (Mul a b))", ""),
    ],
)
def test_a_law_over_everything(text: str, name: str) -> None:
    assert law(*sides(text)) == name


def test_a_file_without_rules_is_its_head() -> None:
    assert file_text([], ("one", "two")) == "; one\n; two\n"
