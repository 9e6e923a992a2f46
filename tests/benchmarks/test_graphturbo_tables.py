"""The models of GraphTurbo's Table 2 are of the sizes that its labels say, at any batch; its tables fit together."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest

from eqfuse.benchmarks.accelerators.graphturbo import TABLE1, TABLE2, TABLE3, TABLE4
from eqfuse.engine.onnx.model import read
from eqfuse.engine.operator_graph import operator_graph
from eqfuse.engine.shapes.inference import infer
from eqfuse.ir.operators.linear import depth
from eqfuse.lowering.base.interface import inputs_of
from eqfuse.lowering.base.ports import random_inputs

from ..onnx_runtime import outputs_of

QUICK = ("G", "I", "J")
SLOW = tuple(label for label in TABLE2 if label not in QUICK)
ALL = [*QUICK, *(pytest.param(label, marks=pytest.mark.conformance) for label in SLOW)]
CLUSTERS = 4
PRODUCTS = ("Conv", "Gemm", "MatMul")
MULTIPLY_ADDS = {"A": 4.09e9, "B": 11.2e9, "D": 123e9, "G": 301e6, "H": 17.56e9, "I": 2.83e9}
"""A, G, H and I as torchvision documents them, BERT by 12 n w^2 + 2 n^2 w for each layer of width w."""
CONVENTIONAL = [pytest.param(x, marks=[] if x in QUICK else pytest.mark.conformance) for x in MULTIPLY_ADDS]

Array = npt.NDArray[Any]


@lru_cache(maxsize=2 * len(QUICK))
def built(label: str, batch: int = 1) -> onnx.ModelProto:
    return TABLE2[label].build(batch)


def inputs(label: str, batch: int, seed: int) -> dict[str, Array]:
    return random_inputs(inputs_of(read(built(label, batch))), seed)


def output(label: str, batch: int, given: dict[str, Array]) -> Array:
    return outputs_of(built(label, batch), given)[0]


@pytest.mark.representatives(2)
@pytest.mark.parametrize("label", ALL)
def test_model_is_valid_and_its_shapes_fit(label: str) -> None:
    onnx.checker.check_model(built(label, 2), full_check=True)


@pytest.mark.parametrize("label", ALL)
def test_batch_is_outermost_in_every_input_and_output(label: str) -> None:
    graph = built(label, 2).graph
    assert {value.type.tensor_type.shape.dim[0].dim_value for value in (*graph.input, *graph.output)} == {2}


@pytest.mark.representatives(1)
@pytest.mark.parametrize("label", ALL)
def test_samples_of_a_batch_do_not_touch_each_other(label: str) -> None:
    given = inputs(label, 2, 0)
    alone = output(label, 1, {name: array[1:] for name, array in given.items()})
    np.testing.assert_allclose(output(label, 2, given)[1:], alone, rtol=1e-3, atol=1e-4)


@pytest.mark.representatives(2)
@pytest.mark.parametrize("label", ALL)
def test_output_depends_on_every_input(label: str) -> None:
    given, others = inputs(label, 1, 0), inputs(label, 1, 1)
    found = output(label, 1, given)
    largest = float(np.abs(found).max())
    assert 0.01 < largest < 100
    for name, array in others.items():
        assert np.abs(output(label, 1, {**given, name: array}) - found).max() > 0.003 * largest


@pytest.mark.parametrize("label", CONVENTIONAL)
def test_multiply_adds_are_the_documented_ones(label: str) -> None:
    model = read(built(label))
    products = [o for o in operator_graph(model, infer(model)).operations if o.op in PRODUCTS]
    found = sum(o.output.elements * depth(o) for o in products)
    assert found == pytest.approx(MULTIPLY_ADDS[label], rel=0.02)


def test_tables_have_the_same_labels() -> None:
    assert "".join(TABLE2) == "".join(TABLE3) == "".join(TABLE4) == "ABCDEFGHIJ"


@pytest.mark.parametrize("label", TABLE2)
def test_clusters_together_have_the_whole_batch(label: str) -> None:
    assert TABLE2[label].batch == CLUSTERS * TABLE2[label].graphturbo


def test_rows_of_table_1_allocate_their_batches_to_four_clusters() -> None:
    assert all(row.batch == CLUSTERS * row.iterations * row.per_cluster for row in TABLE1)


def test_table_1_and_table_2_agree_on_bert_128() -> None:
    best = max((row for row in TABLE1 if row.approach == "TVM"), key=lambda row: row.throughput)
    assert (best.per_cluster, best.throughput) == (TABLE2["B"].tvm, TABLE2["B"].throughput)
