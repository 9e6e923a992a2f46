"""Which terms are enumerated, and which of them make pairs."""

from __future__ import annotations

import pytest

from eqfuse.support.errors import UsageError
from eqfuse.tools.discovery.candidates import Enumeration
from eqfuse.tools.discovery.language import ONE, apply, build_terms, choose_domains, parse_term


def enumerate_terms(*operators: str, size: int) -> tuple[Enumeration, list[str]]:
    """The enumeration of the first domain, and the pairs of its last level as text."""
    terms = Enumeration(choose_domains(operators)[0], seed=0)
    levels = [terms.level(n) for n in range(size + 1)]
    return terms, [f"{pair.left} {'=' if pair.both else '=>'} {pair.right}" for pair in levels[-1]]


def test_a_float_operator_has_one_domain() -> None:
    assert [(d.dtype, d.operators) for d in choose_domains(["Mul", "Exp", "Mul"])] == [("float32", ("Mul", "Exp"))]


def test_a_shift_is_looked_at_on_unsigned_integers() -> None:
    assert [(d.dtype, set(d.needed)) for d in choose_domains(["ReduceSum", "BitShift"])] == [
        ("float32", {"ReduceSum"}),
        ("uint32", {"BitShift"}),
    ]


def test_a_logical_operator_is_looked_at_on_truth_values() -> None:
    assert [d.dtype for d in choose_domains(["And"])] == ["bool"]


def test_products_have_the_leaf_one() -> None:
    assert parse_term(ONE) in choose_domains(["Mul"])[0].leaves
    assert parse_term(ONE) not in choose_domains(["Add"])[0].leaves


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Mull", "there is no operator 'Mull'; did you mean Mul?"),
        ("reducesum", "did you mean ReduceSum?"),
        ("Conv", "Conv cannot be enumerated"),
        ("MatMul", "MatMul cannot be enumerated"),
        ("Less", "Less cannot be enumerated"),
    ],
)
def test_an_operator_that_cannot_be_enumerated(name: str, message: str) -> None:
    with pytest.raises(UsageError, match=message.replace("?", r"\?")):
        choose_domains([name])


def test_attributes_are_left_open() -> None:
    assert str(apply("ReduceSum", (parse_term("a"),))) == "(ReduceSum a axes k)"


def test_terms_grow_by_one_operator() -> None:
    domain = choose_domains(["Mul", "Exp"])[0]
    smaller = {0: [parse_term("a")], 1: [parse_term("(Exp a)")]}
    assert set(map(str, build_terms(domain, smaller, 2))) == {"(Mul a (Exp a))", "(Mul (Exp a) a)", "(Exp (Exp a))"}


def test_commutativity_comes_first() -> None:
    pairs = enumerate_terms("Mul", size=1)[1]
    assert pairs[0] == "(Mul a b) => (Mul b a)"


def test_a_pair_leads_to_the_cheaper_side() -> None:
    pairs = enumerate_terms("Mul", "Add", size=3)[1]
    assert "(Add (Mul a b) (Mul a c)) => (Mul (Add b c) a)" in pairs


def test_a_pair_of_equal_cost_goes_both_ways() -> None:
    assert "(Mul (Mul a b) c) = (Mul (Mul a c) b)" in enumerate_terms("Mul", size=2)[1]


def test_terms_that_are_equal_on_positive_numbers_make_a_pair() -> None:
    assert "(Sqrt (Mul a a)) => a" in enumerate_terms("Mul", "Sqrt", size=2)[1]


def test_pairs_that_differ_in_names_only_come_once() -> None:
    pairs = enumerate_terms("Mul", "Add", size=2)[1]
    assert len(pairs) == len(set(pairs))


def test_larger_terms_are_built_of_one_term_of_each_class() -> None:
    terms, _ = enumerate_terms("Abs", size=2)
    assert "(Abs (Abs a))" not in map(str, terms.first[2])
