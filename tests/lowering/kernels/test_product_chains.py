"""Which kernels become one with several matrix products."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from onnx import helper

from eqfuse.costmodels.device import load_device
from eqfuse.extract.partition.kernels import Members
from eqfuse.ir.graph import OperatorGraph
from eqfuse.lowering.kernels.product_chains import join_chains, order_kernels

from ..small_models import graph_of, model, weights

HOST = load_device("host")


def attention(rows: int = 64, output: str = "y") -> OperatorGraph:
    """0 Relu (the mask), 1 Transpose (the keys), 2 MatMul, 3 Add, 4 Softmax, 5 MatMul, 6 Transpose."""
    nodes = [
        helper.make_node("Relu", ["m"], ["mask"]),
        helper.make_node("Transpose", ["k"], ["kt"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["q", "kt"], ["s"]),
        helper.make_node("Add", ["s", "mask"], ["t"]),
        helper.make_node("Softmax", ["t"], ["p"], axis=-1),
        helper.make_node("MatMul", ["p", "v"], ["o"]),
        helper.make_node("Transpose", ["o"], ["y"], perm=[1, 0, 2]),
    ]
    inputs = {"q": (2, rows, 32), "k": (2, 64, 32), "v": (2, 64, 32), "m": (1, 1, 64)}
    outputs = {"y": (rows, 2, 32), "p": (2, rows, 64)}
    return graph_of(model(nodes, inputs, {name: outputs[name] for name in dict.fromkeys(("y", output))}))


def perceptron(rows: int, size: int, hidden: int) -> OperatorGraph:
    """0 MatMul, 1 Relu, 2 MatMul, 3 Add, 4 LayerNormalization."""
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("MatMul", ["b", "w2"], ["c"]),
        helper.make_node("Add", ["c", "x"], ["d"]),
        helper.make_node("LayerNormalization", ["d", "gain"], ["y"], axis=-1),
    ]
    stored = {"w1": weights(size, hidden), "w2": weights(hidden, size), "gain": weights(size)}
    return graph_of(model(nodes, {"x": (rows, size)}, {"y": (rows, size)}, **stored))


def join(graph: OperatorGraph, kernels: Sequence[Sequence[int]], threads: int = 1) -> tuple[Members, ...]:
    return join_chains(graph, kernels, HOST, threads, lambda members: True)


APART = ((0, 1, 2, 3), (4,), (5, 6))


def test_attention_is_one_kernel_without_its_mask_and_the_transposition_of_columns() -> None:
    assert join(attention(), APART) == ((0,), (1,), (2, 3, 4, 5, 6))
    assert join_chains(attention(), APART, HOST, 1, lambda members: False) == APART


def test_scores_that_others_read_are_a_kernel_of_their_own() -> None:
    assert (5, 6) in join(attention(output="p"), APART)


@pytest.mark.parametrize(
    ("rows", "size", "hidden", "threads", "is_one"),
    [
        (128, 128, 512, 1, True),
        (512, 768, 3072, 1, False),  # each tile would read the weights from memory
        (1, 128, 512, 1, True),
        (1, 128, 512, 2, False),  # one row for two threads
    ],
)
def test_products_and_normalisation(rows: int, size: int, hidden: int, threads: int, is_one: bool) -> None:
    kernels = ((0, 1), (2, 3), (4,)) if hidden == 512 else ((0, 1), (2, 3, 4))
    expected = ((0, 1, 2, 3, 4),) if is_one else kernels
    assert join(perceptron(rows, size, hidden), kernels, threads) == expected


@pytest.mark.parametrize("kernels", [((4,), (3,), (2,), (1,), (0,)), ((2, 3), (4,), (0, 1))])
def test_kernels_come_after_those_they_read(kernels: tuple[Members, ...]) -> None:
    assert order_kernels(perceptron(8, 8, 8), kernels) == sorted(kernels)
    assert order_kernels(perceptron(8, 8, 8), [(0, 2), (1,)]) is None  # kernels that need each other
