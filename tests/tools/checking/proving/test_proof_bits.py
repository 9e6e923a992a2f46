"""Proofs about whole numbers of a few bits."""

from __future__ import annotations

import numpy as np
import pytest

from eqfuse.ir.operators.arithmetic import Array, Unsupported
from eqfuse.tools.checking.proving.arithmetics import Bits
from eqfuse.tools.checking.proving.equality import Assumption, Proof, leaf_array, prove_equal

SIGNED, UNSIGNED = Bits(8), Bits(8, signed=False)


def leaf(name: str, shape: tuple[int, ...] = (), arithmetic: Bits = SIGNED) -> Array:
    return leaf_array(name, shape, "int32", arithmetic)


def total(x: Array) -> Array:
    return SIGNED.reduce("add", x, (0,), True)


def shifted(x: Array, direction: str) -> Array:
    return SIGNED.apply(f"shift_{direction}", x, leaf("s"))


def test_sum_commutes_with_left_shift() -> None:
    x = leaf("x", (3,))
    assert prove_equal(total(shifted(x, "left")), shifted(total(x), "left"), (), SIGNED) == Proof("proved")


def test_sum_does_not_commute_with_right_shift() -> None:
    x = leaf("x", (2,))
    proof = prove_equal(total(shifted(x, "right")), shifted(total(x), "right"), (), SIGNED)
    assert (proof.outcome, set(proof.counterexample)) == ("refuted", {"s", "x[0]", "x[1]"})


def test_product_distributes() -> None:
    x, y, z = leaf("x"), leaf("y"), leaf("z")
    left = SIGNED.apply("multiply", x, SIGNED.apply("add", y, z))
    right = SIGNED.apply("add", SIGNED.apply("multiply", x, y), SIGNED.apply("multiply", x, z))
    assert prove_equal(left, right, (), SIGNED).outcome == "proved"


def test_quotient_times_divisor_is_refuted() -> None:
    x, y = leaf("x"), leaf("y")
    left = SIGNED.apply("multiply", SIGNED.apply("divide", x, y), y)
    proof = prove_equal(left, x, (), SIGNED)
    assert (proof.outcome, proof.failure) == ("refuted", "value")


def test_division_by_zero_is_undefined() -> None:
    x = leaf("x")
    proof = prove_equal(SIGNED.apply("divide", x, x), SIGNED.constant(1, x), (), SIGNED)
    assert (proof.outcome, proof.failure) == ("refuted", "left-undefined")


@pytest.mark.parametrize(
    ("arithmetic", "assumptions", "needs"),
    [(SIGNED, (Assumption("nonneg", "x"),), True), (UNSIGNED, (Assumption("nonneg", "x"),), False)],
)
def test_absolute_value_of_what_is_not_negative(
    arithmetic: Bits, assumptions: tuple[Assumption, ...], needs: bool
) -> None:
    x = leaf("x", (), arithmetic)
    assert prove_equal(arithmetic.apply("absolute", x), x, assumptions, arithmetic) == Proof("proved", needs=needs)


def test_value_of_a_leaf_is_assumed() -> None:
    x = leaf("x")
    proof = prove_equal(SIGNED.apply("add", x, x), SIGNED.constant(6, x), (Assumption("value", "x", 3.0),), SIGNED)
    assert proof == Proof("proved", needs=True)


def test_functions_of_fractions_are_unsupported() -> None:
    with pytest.raises(Unsupported):
        SIGNED.apply("exp", leaf("x"))


@pytest.mark.parametrize("value", [0.5, 128, -129])
def test_constants_outside_of_the_range_are_unsupported(value: float) -> None:
    with pytest.raises(Unsupported):
        SIGNED.constant(value, np.zeros(()))
