"""Chains of matrix products as one kernel: right, nothing computed twice, and only a tile of rows between products."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te

from eqfuse.lowering.schedules import Draft, apply_rule
from eqfuse.lowering.schedules.intensive.product_chain import product_chain

from ..functions import ARM, HOST, count_multiply_adds, matmul
from ..product_models import Case, attention, kept_bytes, norm_between, perceptron, projection, two_gemms, two_products

CASES = {
    "attention": attention(2, 64, 48, 32),
    "attention of odd sizes": attention(3, 37, 45, 17),
    "attention of long rows": attention(2, 50, 197, 16, mask=False),
    "attention of one row": attention(4, 1, 45, 16),
    "attention of two rows": attention(1, 2, 33, 8),
    "perceptron": perceptron(48, 32, 64),
    "perceptron of odd sizes": perceptron(37, 17, 45),
    "perceptron of one row": perceptron(1, 24, 40),
    "perceptron and norm": perceptron(50, 32, 64, norm=True),
    "projection and norm": projection(33, 20, 48),
    "projection and norm of odd sizes": projection(13, 7, 45),
    "norm between products": norm_between(37, 20, 197, 24),
    "norm between products of one row": norm_between(1, 20, 45, 24),
    "two products": two_products(24, 16, 32, 48),
    "two products in a batch": two_products(19, 8, 21, 33, batch=(3,)),
    "two gemms": two_gemms(20, 12, 40, 24),
}


@pytest.mark.representatives(2)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", CASES)
def test_as_onnx_runtime(name: str, threads: int) -> None:
    case = CASES[name]
    np.testing.assert_allclose(case.run(threads), case.reference(), rtol=2e-4, atol=2e-5)


@pytest.mark.representatives(1)
@pytest.mark.parametrize("case", [attention(4, 196, 196, 16), attention(2, 49, 49, 20)])
def test_for_vectors_of_four(case: Case) -> None:
    np.testing.assert_allclose(case.run(device=ARM), case.reference(), rtol=2e-4, atol=2e-5)


@pytest.mark.representatives(3)
@pytest.mark.parametrize(
    ("case", "expected"),
    [
        (attention(2, 64, 48, 32), 2 * 64 * 48 * 32 * 2),
        (perceptron(48, 32, 64), 48 * 32 * 64 * 2),
        (projection(32, 32, 48), 32 * 32 * 48),
        (two_products(24, 16, 32, 48, batch=(2,)), 2 * 24 * 32 * (16 + 48)),
    ],
)
@pytest.mark.parametrize("threads", [1, 2])
def test_nothing_is_computed_twice(case: Case, expected: int, threads: int) -> None:
    assert count_multiply_adds(case.schedule(threads)) == expected


def test_of_a_prime_number_of_rows_only_the_last_tile_overlaps() -> None:
    products = 197 * 64 * 32 * 2
    assert products < count_multiply_adds(attention(1, 197, 64, 32).schedule()) < 1.1 * products


@pytest.mark.representatives(1)
@pytest.mark.parametrize(
    ("case", "whole"),
    [(attention(4, 256, 128, 32), 4 * 256 * 128), (perceptron(512, 32, 256), 512 * 256)],
)
def test_between_products_there_is_a_tile(case: Case, whole: int) -> None:
    assert kept_bytes(case.schedule()) < 4 * whole / 8


def test_weights_of_both_products_are_packed() -> None:
    assert len({repack.parameter for repack in perceptron(48, 32, 64).schedule().repack}) == 2


def test_one_product_alone_is_no_chain() -> None:
    assert apply_rule(product_chain, Draft.of(matmul(16, 32, 64), HOST)) is None


def test_rows_that_another_product_needs_whole_are_not_tiled() -> None:
    """A (B C): each row of the result needs all of B C."""
    a, b, c = (te.placeholder(shape, name=name) for name, shape in (("a", (8, 16)), ("b", (16, 4)), ("c", (4, 32))))
    j, k = te.reduce_axis((0, 4), name="j"), te.reduce_axis((0, 16), name="k")
    inner = te.compute((16, 32), lambda i, o: te.sum(b[i, j] * c[j, o], axis=j), name="inner")
    outer = te.compute((8, 32), lambda i, o: te.sum(a[i, k] * inner[k, o], axis=k), name="outer")
    chain = apply_rule(product_chain, Draft.of(te.create_prim_func([a, b, c, outer]), HOST))
    assert chain is None or count_multiply_adds(chain) == 16 * 32 * 4 + 8 * 32 * 16
