"""Congruence closure, and the equations that it names as the reason."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from eqfuse.engine.egraph.graph import ENode
from eqfuse.tools.explain.congruence import Congruence, Use

LEAVES = 4

Node = tuple[int, int]
Equation = tuple[int, int]


def built(nodes: Sequence[Node], equations: Sequence[tuple[int, Equation]]) -> Congruence:
    """Leaves, then binary terms over earlier ones, then the numbered equations between any two."""
    terms = Congruence()
    leaves = [terms.add(ENode("Var", (str(i),), ())) for i in range(LEAVES)]
    for left, right in nodes:
        leaves.append(terms.add(ENode("f", (), (leaves[left % len(leaves)], leaves[right % len(leaves)]))))
    for number, (left, right) in equations:
        terms.equate(leaves[left % len(leaves)], leaves[right % len(leaves)], number)
    return terms


def equal_by_definition(terms: Congruence, pairs: Sequence[Equation]) -> list[int]:
    """The least member of each term's class, by saturating the definition of a congruence."""
    least = list(range(len(terms.terms)))

    def unite(left: int, right: int) -> None:
        low, high = sorted((least[left], least[right]))
        least[:] = [low if member == high else member for member in least]

    for left, right in pairs:
        unite(left, right)
    changed = True
    while changed:
        changed = False
        seen: dict[tuple[object, ...], int] = {}
        for term, node in enumerate(terms.terms):
            twin = seen.setdefault((node.op, node.attributes, *(least[c] for c in node.children)), term)
            if least[twin] != least[term]:
                unite(twin, term)
                changed = True
    return least


nodes_of = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=12)
equations_of = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=6)


@given(nodes_of, equations_of)
def test_equal_is_what_follows(nodes: list[Node], equations: list[Equation]) -> None:
    terms = built(nodes, list(enumerate(equations)))
    pairs = resolved(nodes, equations)
    assert [terms.find(t) for t in range(len(terms.terms))] == equal_by_definition(terms, pairs)


def resolved(nodes: Sequence[Node], equations: Sequence[Equation]) -> list[Equation]:
    """The equations as pairs of terms."""
    terms = Congruence()
    numbers = [terms.add(ENode("Var", (str(i),), ())) for i in range(LEAVES)]
    for left, right in nodes:
        numbers.append(terms.add(ENode("f", (), (numbers[left % len(numbers)], numbers[right % len(numbers)]))))
    return [(numbers[left % len(numbers)], numbers[right % len(numbers)]) for left, right in equations]


@given(nodes_of, equations_of)
def test_the_reasons_suffice(nodes: list[Node], equations: list[Equation]) -> None:
    terms = built(nodes, list(enumerate(equations)))
    for term in range(len(terms.terms)):
        used = {use.equation for use in terms.explain(term, terms.find(term))}
        fewer = built(nodes, [(i, e) for i, e in enumerate(equations) if i in used])
        assert fewer.find(term) == fewer.find(terms.find(term))


def test_uses_come_in_the_order_of_rewriting() -> None:
    terms = Congruence()
    a, b, c = (terms.add(ENode("Var", (name,), ())) for name in "abc")
    terms.equate(c, b, 0)
    terms.equate(a, b, 1)
    assert terms.explain(a, c) == [Use(1, True), Use(0, False)]


def test_an_operand_is_rewritten_in_its_place() -> None:
    terms = Congruence()
    a, b, c = (terms.add(ENode("Var", (name,), ())) for name in "abc")
    outer = [terms.add(ENode("Exp", (), (x,))) for x in (a, b)]
    terms.equate(outer[1], c, 0)
    terms.equate(a, b, 1)
    assert terms.explain(outer[0], c) == [Use(1, True), Use(0, True)]


def test_a_new_term_joins_the_class_of_its_twin() -> None:
    terms = Congruence()
    a, b = (terms.add(ENode("Var", (name,), ())) for name in "ab")
    first = terms.add(ENode("Exp", (), (a,)))
    terms.equate(a, b, 7)
    second = terms.add(ENode("Exp", (), (b,)))
    assert (terms.find(second), terms.explain(second, first)) == (first, [Use(7, False)])


def test_literals_tell_terms_apart() -> None:
    terms = Congruence()
    x = terms.add(ENode("Var", ("x",), ()))
    assert terms.equal_node(ENode("Cast", ("int64",), (x,))) is None
    term = terms.add(ENode("Cast", ("float32",), (x,)))
    assert terms.equal_node(ENode("Cast", ("int64",), (x,))) is None
    assert terms.equal_node(ENode("Cast", ("float32",), (x,))) == term
