"""The normal form of sizes: laws, and agreement with the numbers that texts and operations stand for."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eqfuse.ir.sizes import (
    ONE,
    ZERO,
    Size,
    TooComplex,
    assume_sizes,
    declared_sizes,
    dimension_size,
    exact_quotient,
    extremum,
    floor_divide,
    neighbour_products,
    number,
    parse_size,
    symbol,
)

NAMES = ("H", "W", "x.0", "a`b")
Sizes = st.fixed_dictionaries({name: st.integers(0, 40) for name in NAMES})


def combine(inner: st.SearchStrategy[Size]) -> st.SearchStrategy[Size]:
    pairs = st.tuples(inner, inner)
    return (
        pairs.map(lambda p: p[0] + p[1])
        | pairs.map(lambda p: p[0] - p[1])
        | pairs.map(lambda p: p[0] * p[1])
        | st.tuples(inner, st.sampled_from((2, 3, 4, -2))).map(lambda p: floor_divide(p[0], number(p[1])))
        | st.tuples(st.sampled_from(("min", "max")), pairs).map(lambda p: extremum(p[0], p[1]))
    )


Polynomials = st.recursive(st.sampled_from(NAMES).map(symbol) | st.integers(-5, 5).map(number), combine, max_leaves=5)
OPERATIONS: dict[str, tuple[Callable[[Size, Size], Size], Callable[[int, int], int]]] = {
    "sum": (lambda a, b: a + b, lambda a, b: a + b),
    "difference": (lambda a, b: a - b, lambda a, b: a - b),
    "product": (lambda a, b: a * b, lambda a, b: a * b),
    "min": (lambda a, b: extremum("min", (a, b)), min),
    "max": (lambda a, b: extremum("max", (a, b)), max),
}


@pytest.mark.parametrize("name", OPERATIONS)
@given(a=Polynomials, b=Polynomials, sizes=Sizes)
def test_operations_compute_what_they_stand_for(name: str, a: Size, b: Size, sizes: dict[str, int]) -> None:
    symbolic, numeric = OPERATIONS[name]
    value = sizes.__getitem__
    assert symbolic(a, b).value(value) == numeric(a.value(value), b.value(value))


@given(shape=st.lists(Polynomials, max_size=5))
def test_products_of_neighbours_are_stated_from_the_last_one_on(shape: list[Size]) -> None:
    products = neighbour_products([shape])
    assert all(None in (a.number, b.number) and product == a * b for (a, b), product in products.items())
    for end in range(1, len(shape)):
        total = shape[end]
        for size in reversed(shape[:end]):
            try:
                product = size * total
            except TooComplex:
                break
            assert None not in (size.number, total.number) or products[size, total] == product
            total = product


@given(a=Polynomials, divisor=st.integers(-7, 7).filter(bool), sizes=Sizes)
def test_quotients_are_rounded_down(a: Size, divisor: int, sizes: dict[str, int]) -> None:
    value = sizes.__getitem__
    assert floor_divide(a, number(divisor)).value(value) == a.value(value) // divisor


@given(a=Polynomials, b=Polynomials, c=Polynomials)
def test_equal_polynomials_have_one_form(a: Size, b: Size, c: Size) -> None:
    assert a + b == b + a
    assert a * b == b * a
    assert a + b - b == a
    assert a * (b + c) == a * b + a * c
    assert extremum("max", (a, b, a)) == extremum("max", (b, a))


@given(a=Polynomials, b=Polynomials)
def test_a_product_divides_evenly_by_its_factors(a: Size, b: Size) -> None:
    assert exact_quotient(a * b, b) == (a if b.terms else None)


@given(a=Polynomials, b=Polynomials)
def test_texts_are_read_as_what_they_were_written_from(a: Size, b: Size) -> None:
    size = a * b
    assert parse_size(str(size)) == size


@given(a=Polynomials, b=Polynomials)
def test_different_polynomials_have_different_texts(a: Size, b: Size) -> None:
    assert (a == b) == (str(a) == str(b))


@given(a=Polynomials, factor=st.integers(1, 8), k=st.integers(0, 9), sizes=Sizes)
def test_symbols_are_replaced_in_atoms_too(a: Size, factor: int, k: int, sizes: dict[str, int]) -> None:
    replaced = a.replace({"H": symbol("k").scale(factor) + ONE})
    assert replaced.value({**sizes, "k": k}.__getitem__) == a.value({**sizes, "H": factor * k + 1}.__getitem__)


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("2*(H+1) - 2", "2*H"),
        ("32k", "32*k"),
        ("((H - 1)//2 + 1 - 1)//2 + 1", "(H + 3)//4"),
        ("(2*H)//4", "H//2"),
        ("floor(H/2) + 1", "H//2 + 1"),
        ("(H*W + W)//W", "H + 1"),
        ("min(H + 3, 5, H)", "min(5, H)"),
        ("max(H, W) * 0", "0"),
        ("DynamicDimension.0 + 1", "`DynamicDimension.0` + 1"),
    ],
)
def test_normal_forms(text: str, normal: str) -> None:
    assert str(parse_size(text)) == normal


def test_a_size_whose_text_grows_without_end_is_too_complex() -> None:
    def nest(depth: int) -> Size:
        inner = nest(depth - 1) if depth else symbol("H")
        return extremum("min" if depth % 2 else "max", [inner * symbol("A"), inner * symbol("B")])

    with pytest.raises(TooComplex):
        nest(30)


@pytest.mark.parametrize("text", ["", "2 +", "H H", "min(", "H % 2", "1/0", "(" * 1500])
def test_what_is_no_size_is_not_parsed(text: str) -> None:
    assert parse_size(text) is None


@pytest.mark.parametrize(
    ("dimension", "size"),
    [
        ("N", 1),
        ("H", 128),
        ("(H + 1)//2", 64),
        ("2*N", 2),
        ("H - W", 1),
        ("H//(H - W)", 128),
        ("no size!", 128),
        (-1, 128),
    ],
)
def test_costs_count_expressions_at_the_sizes_of_their_names(dimension: int | str, size: int) -> None:
    assert dimension_size(dimension) == size


@pytest.mark.parametrize(
    ("names", "expression"),
    [
        (["past", "past + 1"], "past + 1"),
        (["32*k"], "32*k"),
        (["k", "32k + 16"], "32*k + 16"),
        (["batch-size"], "`batch-size`"),
        (["a*b"], "`a*b`"),
        (["1"], "`1`"),
    ],
)
def test_expressions_among_declared_names(names: list[str], expression: str) -> None:
    assert str(parse_size(str(declared_sizes(names)[names[-1]]))) == expression


def test_zero_is_the_empty_polynomial() -> None:
    assert number(0) == ZERO == symbol("H") - symbol("H")


@pytest.mark.parametrize(
    ("shapes", "batches"),
    [
        ([("x.0", 3, "H", "W")], {"x.0"}),
        ([("A", 3, "A", "W")], set()),
        ([("A", 3, "H", "W"), ("H", "A")], {"A"}),
        ([("A", 3), ("batch", 4)], {"batch"}),
        ([("A", 2048)], {"A"}),
        ([("A", 43844, 1)], {"A"}),
        ([("A", "T")], {"A"}),
        ([("A", "T"), ("T", "A")], set()),
        ([("A", "T", 3)], set()),
        ([("sequence_length", 2048)], set()),
        ([("A", "batch", 256)], {"batch"}),
        ([("A",)], set()),
    ],
)
def test_batches_count_once(shapes: list[tuple[int | str, ...]], batches: set[str]) -> None:
    sizes = assume_sizes(shapes)
    assert sizes.keys() == {dimension for shape in shapes for dimension in shape if isinstance(dimension, str)}
    assert {name for name, size in sizes.items() if size == 1} == batches
