"""Other graphs of TOSA have the same results, bit for bit."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from eqfuse.lowering.ethos_u.alternatives import Alternative, alternatives, other_places
from eqfuse.lowering.ethos_u.emission.requantize import Target, add_rescale, clamp, zero_of
from eqfuse.lowering.ethos_u.neighbourhood import around
from eqfuse.lowering.ethos_u.tosa.evaluation import evaluate_graph
from eqfuse.lowering.ethos_u.tosa.graph import Array, Builder, Graph, Tensor

from .networks import emitted, float_model, quantised
from .test_emission import NETWORKS

GENERATOR = np.random.default_rng(5)
STRIDED = "y = Conv<kernel_shape=[1,1], strides=[2,2]>(x, w)"


def convolution(
    builder: Builder, x: Tensor, outputs: int, kernel: Sequence[int] = (1, 1), stride: tuple[int, int] = (1, 1),
    pad: tuple[int, int, int, int] = (0, 0, 0, 0), *, low: float = -np.inf,
) -> Tensor:  # fmt: skip
    batch, height, width, channels = x.shape
    weights = builder.constant(GENERATOR.integers(-99, 99, (outputs, *kernel, channels)), "int8")
    bias = builder.constant(GENERATOR.integers(-999, 999, outputs), "int32")
    rows = (height + pad[0] + pad[1] - kernel[0]) // stride[0] + 1
    columns = (width + pad[2] + pad[3] - kernel[1]) // stride[1] + 1
    sums = builder.add(
        "CONV2D", [x, weights, bias, zero_of(builder, 3), zero_of(builder, 0)], "int32",
        (batch, rows, columns, outputs), pad=pad, stride=stride, dilation=(1, 1), local_bound=False, acc_type="int32",
    )  # fmt: skip
    rounded = add_rescale(builder, sums, GENERATOR.uniform(1e-3, 4e-3, outputs), 0, 5, "int8")
    return clamp(builder, rounded, Target(0.1, 5, low=low))


def random_feed(graph: Graph) -> dict[str, Array]:
    return {name: GENERATOR.integers(-128, 128, graph.tensors[name].shape, np.int8) for name in graph.inputs}


def same_results(graph: Graph) -> list[Alternative]:
    """The alternatives, each compared with the graph on random integers, and in its neighbourhood."""
    feed = random_feed(graph)
    expected = evaluate_graph(graph, feed)
    assert all(len(np.unique(array)) > 1 for array in expected.values())
    found = [each for each in (*alternatives(graph), *other_places(graph)) if each.graph is not None]
    for other in found:
        assert other.graph is not None
        made = evaluate_graph(other.graph, feed)
        for name, array in expected.items():
            np.testing.assert_array_equal(made[name], array, err_msg=other.label)
        before, after = around(graph, other.graph)
        assert {*before.inputs} == {*after.inputs}
        near = random_feed(before)
        assert all(graph.tensors[name.removesuffix(" from outside")].dtype == "int8" for name in near)
        made = evaluate_graph(after, near)
        for name, array in evaluate_graph(before, near).items():
            np.testing.assert_array_equal(made[name], array, err_msg=other.label)
    return found


@given(
    channels=st.integers(1, 4), width=st.integers(4, 16), kernel=st.integers(1, 5), stride=st.integers(1, 3),
    left=st.integers(0, 2), right=st.integers(0, 2), bounded=st.booleans(),
)  # fmt: skip
def test_columns_are_channels(
    channels: int, width: int, kernel: int, stride: int, left: int, right: int, bounded: bool
) -> None:
    assume(width + left + right >= kernel and (width + left + right - kernel) % stride == 0)
    builder = Builder()
    x = builder.input("x", "int8", (1, 5, width, channels))
    low = 0.0 if bounded else -np.inf
    made = convolution(builder, x, 3, (2, kernel), (1, stride), (0, 1, left, right), low=low)
    same_results(builder.finish([made]))


def test_a_strided_convolution_of_an_image_reads_pairs() -> None:
    builder = Builder()
    x = builder.input("x", "int8", (1, 8, 8, 3))
    found = same_results(builder.finish([convolution(builder, x, 4, (3, 3), (2, 2), (1, 0, 1, 0))]))
    assert "2 columns of x as channels" in [each.label for each in found]


def test_channels_of_a_concatenation_change_places() -> None:
    builder = Builder()
    x = builder.input("x", "int8", (1, 4, 4, 9))
    parts = [convolution(builder, x, depth, (1, 1)) for depth in (2, 3, 4)]
    joined = builder.add("CONCAT", parts, "int8", (1, 4, 4, 9), axis=3)
    scaled = add_rescale(builder, joined, np.linspace(0.5, 1.5, 9), 5, 5, "int8")
    found = same_results(builder.finish([convolution(builder, scaled, 4)]))
    assert sum("in the order" in each.label for each in found) == 5
    assert any("3 convolutions of x as one" in each.label for each in found)


def test_merged_convolutions_are_sliced() -> None:
    builder = Builder()
    x = builder.input("x", "int8", (1, 4, 4, 9))
    first, second = (convolution(builder, x, depth, low=0.0) for depth in (2, 3))
    found = same_results(builder.finish([convolution(builder, first, 4), second]))
    (merged,) = (each.graph for each in found if "as one" in each.label and each.graph is not None)
    assert [each.op for each in merged.operators].count("CONV2D") == 2


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_have_the_same_results(name: str, tmp_path: Path) -> None:
    made, _ = emitted(quantised(float_model(*NETWORKS[name]), tmp_path))
    same_results(made.graph)


def test_a_mean_is_summed_in_three_ways(tmp_path: Path) -> None:
    made, _ = emitted(quantised(float_model("y = GlobalAveragePool(x)", (1, 4, 2, 3), {}), tmp_path))
    found = same_results(made.graph)
    assert {each.label.partition(" by ")[2] for each in found} >= {"reductions", "a matrix product"}


def test_parts_of_normalisations_have_other_ways(tmp_path: Path) -> None:
    text = "a = MatMul(x, w) b = Softmax<axis=-1>(a) y = LayerNormalization<axis=-1>(b, g, h)"
    weights = {"w": (16, 7), "g": (7,), "h": (7,)}
    made, _ = emitted(quantised(float_model(text, (1, 5, 16), weights), tmp_path))
    found = same_results(made.graph)
    assert {each.label.partition(" by ")[2] for each in found} >= {"a convolution", "halves"}
    parts = [each.label for each in found if "in parts of" in each.label]
    assert any(label.endswith(", copied") for label in parts)
    assert any(not label.endswith(", copied") for label in parts)


def test_a_map_that_is_cut_for_strides_is_read_whole(tmp_path: Path) -> None:
    made, _ = emitted(quantised(float_model(STRIDED, (1, 4, 8, 8), {"w": (6, 4, 1, 1)}), tmp_path))
    assert any("all of x read for" in each.label for each in same_results(made.graph))


def test_a_pointwise_convolution_reads_rows_of_other_lengths() -> None:
    builder = Builder()
    x = builder.input("x", "int8", (2, 6, 4, 5))
    found = same_results(builder.finish([convolution(builder, x, 7, low=0.0)]))
    assert {"as 1 rows of 24", "as 24 rows of 1", "as 3 rows of 8"} <= {each.label.partition(" ")[2] for each in found}


def test_inputs_are_copied_as_maps_of_several_depths() -> None:
    builder = Builder()
    x = builder.input("x", "int8", (1, 8, 16, 3))
    found = same_results(builder.finish([convolution(builder, x, 4, (3, 3), (2, 2), (1, 0, 1, 0))]))
    labels = [each.label for each in found]
    assert {"x copied by CLAMP as 1 x 8 x 3 x 16", "x copied by MAX_POOL2D as 1 x 8 x 16 x 3"} <= {*labels}
    assert any("copied" in each and "columns" in each for each in labels)


@pytest.mark.parametrize("what", ["rows", "columns"])
def test_products_of_two_maps_are_summed_row_by_row(what: str, tmp_path: Path) -> None:
    text, shape, weights = NETWORKS["attention"]
    made, _ = emitted(quantised(float_model(text, shape, weights), tmp_path))
    labels = [each.label for each in same_results(made.graph)]
    assert any(" by 9 " in each and each.endswith(what) for each in labels)
    assert "1 products of feature maps in 4 parts" in labels


def test_scales_are_tables(tmp_path: Path) -> None:
    made, _ = emitted(quantised(float_model(*NETWORKS["concat"]), tmp_path))
    assert any(each.label.endswith("by a table") for each in same_results(made.graph))
