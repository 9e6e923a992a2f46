"""Graphs at other batch sizes, against the same model made at that size."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from eqfuse.ir.graph import OperatorGraph
from eqfuse.ir.types import TensorType
from eqfuse.lowering.base.errors import DsaError
from eqfuse.lowering.dsa.network.batches import with_batch

from ..graphs import Builder, resnet50


def attention(batch: int) -> OperatorGraph:
    """Heads of 2 x 4 out of 6 tokens, rows of all sentences in one matrix, and the first token of each at the end."""
    builder = Builder()
    x = builder.value((batch, 6, 8))
    rows = builder.add("Reshape", [x], (6 * batch, 8), shape=(6 * batch, 8))
    rows = builder.gemm(rows, 8)
    heads = builder.add("Reshape", [rows], (batch, 6, 2, 4), shape=(batch, 6, 2, 4))
    left = builder.add("Transpose", [heads], (batch, 2, 6, 4), perm=(0, 2, 1, 3))
    right = builder.add("Transpose", [heads], (batch, 2, 4, 6), perm=(0, 2, 3, 1))
    scores = builder.add("MatMul", [left, right], (batch, 2, 6, 6))
    scores = builder.add("Softmax", [scores], (batch, 2, 6, 6), axis=3)
    mixed = builder.add("MatMul", [scores, left], (batch, 2, 6, 4))
    turned = builder.add("Transpose", [mixed], (2, batch, 6, 4), perm=(1, 0, 2, 3))
    mean = builder.add("ReduceMean", [turned], (batch, 6, 4), axes=(0,), keepdims=0)
    indices = builder.value((), constant=True)
    return builder.graph(builder.add("Gather", [mean, indices], (batch, 4), axis=1))


def network(batch: int) -> OperatorGraph:
    builder, result = resnet50(batch)
    return builder.graph(result)


@pytest.mark.parametrize("made", [attention, network])
def test_it_is_the_graph_of_that_batch(made: object) -> None:
    assert callable(made)
    assert with_batch(made(1), 8) == made(8)
    assert with_batch(made(2), 6) == made(6)


def recurrent(batch: int, layout: int, axis: int) -> OperatorGraph:
    """Eight steps of an LSTM with initial states, of which the outputs of all steps and the last state are used."""
    builder = Builder()
    steps = (batch, 8, 16) if layout else (8, batch, 16)
    outputs = (batch, 8, 1, 4) if layout else (8, 1, batch, 4)
    state = (batch, 1, 4) if layout else (1, batch, 4)
    assert steps[axis] == batch
    x = builder.value(steps)
    weights = [builder.value(shape, constant=True) for shape in ((1, 16, 16), (1, 16, 4), (1, 32))]
    states = [builder.value(state, constant=True) for _ in range(2)]
    operands = [x, *weights, None, *states]
    y = builder.add("LSTM", operands, outputs, state, state, hidden_size=4, layout=layout)
    return builder.graph(builder.relu(y), builder.relu(y + 1))


@pytest.mark.parametrize(("layout", "axis"), [(0, 1), (1, 0)])
def test_the_batch_is_followed_through_the_steps_of_a_sequence(layout: int, axis: int) -> None:
    assert with_batch(recurrent(1, layout, axis), 4, axis) == recurrent(4, layout, axis)
    assert with_batch(recurrent(2, layout, axis), 6, axis) == recurrent(6, layout, axis)


def test_steps_of_a_sequence_are_no_batch() -> None:
    with pytest.raises(DsaError, match="its batch cannot be told from its result"):
        with_batch(recurrent(8, 0, 1), 4, 0)


def test_a_batch_can_shrink() -> None:
    assert with_batch(attention(4), 1) == attention(1)


def test_a_constant_that_is_joined_to_the_batch_is_repeated() -> None:
    """A class token before the patches of an image."""
    builder = Builder()
    x, token = builder.value((1, 4, 8)), builder.value((1, 1, 8), constant=True)
    y = builder.add("Concat", [token, x], (1, 5, 8), axis=1)
    found = with_batch(builder.graph(y), 3)
    assert found.values[token].type == TensorType("float32", (3, 1, 8))


def with_constants(batch: int, queries: int) -> OperatorGraph:
    """Queries of their own for each sample, or the same for all, and positions added to the rows of all samples."""
    builder = Builder()
    x, left = builder.value((batch, 4, 8)), builder.value((queries, 3, 8), constant=True)
    right = builder.add("Transpose", [x], (batch, 8, 4), perm=(0, 2, 1))
    scores = builder.add("MatMul", [left, right], (batch, 3, 4))
    rows = builder.add("Reshape", [scores], (batch * 3, 4), shape=(batch * 3, 4))
    positions, bias = builder.value((batch * 3, 4), constant=True), builder.value((1, 4), constant=True)
    return builder.graph(builder.sum(builder.sum(rows, positions), bias))


@pytest.mark.parametrize(("own", "batch"), [(1, 4), (2, 1), (2, 6), (4, 2)])
def test_a_constant_has_rows_for_each_sample(own: int, batch: int) -> None:
    """Without them operands would not fit each other, and tiles would read all of them."""
    queries = batch if own > 1 else 1
    assert with_batch(with_constants(own, own), batch) == with_constants(batch, queries)


def test_a_constant_in_two_roles_is_refused() -> None:
    builder = Builder()
    x, both = builder.value((2, 2)), builder.value((2, 2), constant=True)
    y = builder.sum(builder.add("MatMul", [x, both], (2, 2)), both)
    with pytest.raises(DsaError, match="tensor 'w1': operators read it both with and without rows for each sample"):
        with_batch(builder.graph(y), 3)


@pytest.mark.parametrize(
    ("op", "shape", "attributes"),
    [
        ("ReduceSum", (4, 8), {"axes": (0,), "keepdims": 0}),
        ("Split", (1, 4, 8), {"axis": 0}),
        ("Softmax", (1, 4, 8), {"axis": 0}),
        ("LayerNormalization", (1, 4, 8), {"axis": 0}),
        ("Pad", (2, 4, 8), {"pads": (1, 0, 0, 0, 0, 0)}),
        ("GatherND", (1, 8), {"batch_dims": 0}),
    ],
)
def test_a_batch_that_gets_lost_names_the_operator(
    op: str, shape: Sequence[int], attributes: dict[str, object]
) -> None:
    builder = Builder()
    y = builder.add(op, [builder.value((1, 4, 8))], shape, **attributes)
    with pytest.raises(DsaError, match="its batch cannot be told from its result"):
        with_batch(builder.graph(y), 2)


def test_inputs_of_different_batches_are_refused() -> None:
    builder = Builder()
    y = builder.sum(builder.value((2, 4)), builder.value((1, 4)))
    with pytest.raises(DsaError, match=r"the inputs have batches \[1, 2\]"):
        with_batch(builder.graph(y), 4)


def test_operands_whose_batches_lie_across_each_other_are_refused() -> None:
    builder = Builder()
    x = builder.value((2, 2))
    turned = builder.add("Transpose", [x], (2, 2), perm=(1, 0))
    with pytest.raises(DsaError, match="its batch cannot be told from its result"):
        with_batch(builder.graph(builder.sum(x, turned)), 4)


@pytest.mark.parametrize("batch", [0, -1])
def test_a_batch_of_nothing_is_refused(batch: int) -> None:
    with pytest.raises(DsaError, match=f"batch {batch}: must be at least 1"):
        with_batch(attention(1), batch)
