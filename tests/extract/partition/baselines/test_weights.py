"""Loop nests and weights of operators, AGO's Eq. (1)."""

from __future__ import annotations

from math import log2

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eqfuse.extract.partition.baselines.weights import BIAS, SLOPE, loops, weight, weights
from eqfuse.ir.operation import Attributes, Operation
from eqfuse.ir.types import TensorType

from ..graphs import chain

Shape = tuple[int, ...]


def operation(op: str, *operands: Shape | None, out: Shape | None, attributes: Attributes | None = None) -> Operation:
    types = tuple(TensorType("float32", shape) for shape in operands)
    return Operation.of(op, attributes or {}, types, TensorType("float32", out))


@pytest.mark.parametrize(
    ("op", "operands", "out", "attributes", "expected"),
    [
        ("Conv", [(2, 32, 28, 28), (64, 32, 3, 3)], (2, 64, 28, 28), {}, (2, 64, 28, 28, 32, 3, 3)),
        ("Conv", [(1, 32, 28, 28), (64, 32, 1, 1)], (1, 64, 28, 28), {}, (64, 28, 28, 32)),
        ("Conv", [(1, 32, 28, 28), (32, 1, 3, 3)], (1, 32, 28, 28), {"group": 32}, (32, 28, 28, 3, 3)),
        ("Conv", [(1, 8, 100), (16, 4, 5)], (1, 16, 96), {"group": 2}, (16, 96, 4, 5)),
        ("ConvTranspose", [(1, 8, 5, 5), (8, 4, 2, 2)], (1, 8, 10, 10), {"group": 2}, (8, 10, 10, 4, 2, 2)),
        ("MatMul", [(4, 256, 36), (4, 36, 128)], (4, 256, 128), {}, (4, 256, 128, 36)),
        ("MatMul", [(36,), (36, 128)], (128,), {}, (128, 36)),
        ("Gemm", [(36, 2), (36, 128)], (2, 128), {"transA": 1}, (2, 128, 36)),
        ("QLinearConv", [(1, 8, 9), (), (), (4, 8, 3)], (1, 4, 7), {}, (4, 7, 8, 3)),
        ("Einsum", [(2, 3), (3, 4)], (2, 4), {"equation": "ij, jk -> ik"}, (2, 3, 4)),
        ("Einsum", [(2, 3), (3, 4)], (2, 4), {"equation": "...j,jk->...k"}, (2, 4)),
        ("MaxPool", [(1, 8, 9, 9)], (1, 8, 4, 4), {"kernel_shape": (3, 2)}, (8, 4, 4, 3, 2)),
        ("AveragePool", [(1, 8, 2, 2)], (1, 8, 3, 3), {"kernel_shape": (7, 7)}, (8, 3, 3, 2, 2)),
        ("GlobalAveragePool", [(1, 8, 7, 7)], (1, 8, 1, 1), {}, (8, 7, 7)),
        ("ReduceMean", [(4, 8, 16)], (4, 8, 1), {"axes": (-1,)}, (4, 8, 16)),
        ("ArgMax", [(4, 16)], (4, 1), {"axis": 1}, (4, 16)),
        ("Softmax", [(4, 8, 16)], (4, 8, 16), {}, (4, 8, 16)),
        ("LayerNormalization", [(4, 8, 16), (16,)], (4, 8, 16), {}, (4, 8, 16)),
        ("Add", [(4, 1, 16), (8, 16)], (4, 8, 16), {}, (4, 8, 16)),
        ("Transpose", [(4, 8)], (8, 4), {"perm": (1, 0)}, (8, 4)),
        ("Reshape", [(4, 8)], (1, 32), {}, (32,)),
        ("Relu", [()], (), {}, ()),
        ("Unheard", [(2, 3)], (3, 5), {}, (3, 5)),
    ],
)
def test_loops(op: str, operands: list[Shape], out: Shape, attributes: Attributes, expected: Shape) -> None:
    assert loops(operation(op, *operands, out=out, attributes=attributes)) == expected


def test_an_unknown_rank_is_one_loop() -> None:
    assert len(loops(operation("Relu", None, out=None))) == 1


def test_an_empty_tensor_has_no_loop_where_it_is_empty() -> None:
    assert loops(operation("Relu", (0, 4), out=(0, 4))) == (4,)


def test_the_weight_is_linear_in_the_product_of_logarithms() -> None:
    convolution = operation("Conv", (1, 32, 28, 28), (64, 32, 3, 3), out=(1, 64, 28, 28))
    product = 6 * log2(28) * log2(28) * 5 * log2(3) * log2(3)
    assert weight(convolution) == pytest.approx(SLOPE * product + BIAS)


def test_an_operator_without_loops_has_a_weight() -> None:
    assert weight(operation("Relu", (1, 1), out=(1, 1))) == pytest.approx(SLOPE + BIAS)


@given(st.lists(st.integers(1, 64), max_size=4), st.integers(2, 64))
def test_one_more_loop_never_makes_an_operator_lighter(shape: list[int], extent: int) -> None:
    flat, deep = tuple(shape), (*shape, extent)
    assert weight(operation("Relu", deep, out=deep)) >= weight(operation("Relu", flat, out=flat))


def test_weights_of_members_come_in_their_order() -> None:
    graph = chain("Relu", "Exp", "Softmax")
    everything = weights(graph)
    assert weights(graph, [2, 0]) == (everything[2], everything[0])
