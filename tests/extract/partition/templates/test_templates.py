"""Which operators each template takes, and which kernels the costs then choose."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

import numpy as np
import pytest
from onnx import helper

from eqfuse.costmodels.device import load_device
from eqfuse.extract.partition.groups import partition_of
from eqfuse.extract.partition.search.confirmation import confirm_kernels, count_as_drawn, kernels_of_groups
from eqfuse.extract.partition.search.methods import partition_by
from eqfuse.extract.partition.templates.kernel_graph import KernelGraph
from eqfuse.extract.partition.templates.kernels import KernelModel
from eqfuse.extract.partition.templates.operator_set import OperatorSet, without_border_views
from eqfuse.ir.graph import OperatorGraph

from ....lowering.schedules import product_models
from ....lowering.small_models import graph_of, model, weights
from ..graphs import chain

SERVER = load_device("x86-64-v4")


def template(graph: OperatorGraph, members: Sequence[int], threads: int = 1) -> str | None:
    """The template of some operators."""
    found = KernelModel(graph, SERVER, threads=threads).template(tuple(members))
    return found.name if found is not None else None


def kernels(graph: OperatorGraph) -> list[str]:
    """The groups of the cheapest partition, by the types of their operators."""
    partition = partition_by("joint", graph, KernelModel(graph, SERVER))
    return [" ".join(graph.operators[m].op for m in members) for members in partition.members]


# --- costs


def test_rows_cost_more_than_their_vectors() -> None:
    def seconds(rows: int, length: int) -> float:
        nodes = [helper.make_node("Softmax", ["x"], ["y"])]
        graph = graph_of(model(nodes, {"x": (rows, length)}, {"y": (rows, length)}))
        return KernelModel(graph, SERVER).kernel((0,))

    assert seconds(512, 17) > 2.0 * seconds(68, 128)


def transposed_product(perm: Sequence[int], heads: int) -> OperatorGraph:
    """A product of 64 by 96, by heads, and a transposition behind it."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Reshape", ["a", "sizes"], ["b"]),
        helper.make_node("Transpose", ["b"], ["y"], perm=perm),
    ]
    sizes = np.array([64, heads, 96 // heads])
    result = [int(sizes[axis]) for axis in perm]
    return graph_of(model(nodes, {"x": (64, 16)}, {"y": result}, w=weights(16, 96), sizes=sizes))


def test_a_product_that_scatters_its_rows_costs_more_than_one_that_moves_them() -> None:
    graphs = (transposed_product((1, 0, 2), 6), transposed_product((1, 2, 0), 6), transposed_product((1, 0, 2), 8))
    rows, columns, straddling = (KernelModel(graph, SERVER).kernel((0, 1, 2)) for graph in graphs)
    cycles = 64 * 96 / SERVER.clock
    assert columns > rows + 0.5 * cycles
    assert straddling > rows + 0.5 * cycles


# --- one anchor op


def residual() -> OperatorGraph:
    """0 Conv, 1 Relu, 2 Conv, 3 Sigmoid, 4 Add, 5 Conv, 6 Flatten."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "w"], ["c"]),
        helper.make_node("Sigmoid", ["b"], ["s"]),
        helper.make_node("Add", ["c", "s"], ["d"]),
        helper.make_node("Conv", ["d", "w"], ["e"]),
        helper.make_node("Flatten", ["e"], ["y"]),
    ]
    return graph_of(model(nodes, {"x": (1, 64, 15, 15)}, {"y": (1, 14400)}, w=weights(64, 64, 1, 1)))


def test_element_wise_operators_go_behind_the_anchor_and_views_by_themselves() -> None:
    assert kernels(residual()) == ["Conv Relu", "Conv Sigmoid Add", "Conv", "Flatten"]


def one_operator(op: str, *inputs: str, result: Sequence[int], **attributes: object) -> OperatorGraph:
    """A product of 16 by 32, and an operator behind it."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node(op, ["a", *inputs], ["b"], **attributes)]
    nodes.append(helper.make_node("Relu", ["b"], ["y"]))
    return graph_of(model(nodes, {"x": (16, 8), "z": (4, 16, 32)}, {"y": result}, w=weights(8, 32)))


@pytest.mark.parametrize(
    ("graph", "members", "is_kernel"),
    [
        (one_operator("Sigmoid", result=(16, 32)), (0, 1, 2), True),
        (one_operator("Add", "z", result=(4, 16, 32)), (0, 1, 2), False),  # it would be computed four times
        (one_operator("Transpose", result=(32, 16), perm=[1, 0]), (0, 1), True),
        (one_operator("Transpose", result=(32, 16), perm=[1, 0]), (0, 1, 2), False),  # from memory, not from registers
        (one_operator("Softmax", result=(16, 32), axis=0), (0, 1), False),  # columns of what is made row by row
    ],
)
def test_what_may_follow_a_product(graph: OperatorGraph, members: tuple[int, ...], is_kernel: bool) -> None:
    assert (template(graph, members) is not None) == is_kernel


def test_operators_without_a_lowering_stay_alone() -> None:
    graph = chain("Relu", "Exp", "Neg")
    assert KernelModel(graph, SERVER, alone=[1]).kernels((0, 1, 2)) == ((0,), (1,), (2,))


# --- views


def test_views_at_the_border_are_no_part_of_a_kernel() -> None:
    graph = chain("Reshape", "Relu", "Reshape", "Sigmoid", "Flatten")
    cut = without_border_views(KernelGraph(graph, SERVER), (0, 1, 2, 3, 4))
    assert (cut.front, cut.core, cut.behind) == ((0,), (1, 2, 3), (4,))
    assert list(cut.parts) == [(0,), (1, 2, 3), (4,)]
    kept = without_border_views(KernelGraph(graph, SERVER, views_apart=False), (0, 1, 2, 3, 4))
    assert kept.core == (0, 1, 2, 3, 4)


def test_views_of_feature_maps_that_a_kernel_moves_stay_in_it() -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"]),
        helper.make_node("Reshape", ["a", "groups"], ["b"]),
        helper.make_node("Transpose", ["b"], ["c"], perm=[0, 2, 1, 3, 4]),
        helper.make_node("Reshape", ["c", "planes"], ["d"]),
        helper.make_node("Conv", ["d", "w"], ["y"]),
    ]
    stored = {"groups": np.array([1, 2, 32, 7, 7]), "planes": np.array([1, 64, 7, 7]), "w": weights(64, 64, 1, 1)}
    graph = graph_of(model(nodes, {"x": (1, 64, 7, 7)}, {"y": (1, 64, 7, 7)}, **stored))
    assert without_border_views(KernelGraph(graph, SERVER), (1, 2, 3)).core == (1, 2, 3)
    assert template(graph, (1, 2, 3)) == "movement"


# --- chains of convolutions


def inverted_residual(size: int, output: str = "y") -> OperatorGraph:
    """Pointwise with relu, depthwise, pointwise: 0 1, 2 and 3."""
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "w2"], ["c"], group=96, pads=[1, 1, 1, 1]),
        helper.make_node("Conv", ["c", "w3"], ["y"]),
    ]
    shapes = {"y": (1, 16, size, size), "b": (1, 96, size, size)}
    stored = {"w1": weights(96, 16, 1, 1), "w2": weights(96, 1, 3, 3), "w3": weights(16, 96, 1, 1)}
    outputs = {name: shapes[name] for name in dict.fromkeys(("y", output))}
    return graph_of(model(nodes, {"x": (1, 16, size, size)}, outputs, **stored))


@pytest.mark.parametrize(
    ("output", "members", "name"),
    [
        ("y", (0, 1, 2), "convolution_chain"),
        ("y", (2, 3), "convolution_chain"),
        ("b", (0, 1, 2), None),  # others read the first map, too
        ("y", (0, 1, 2, 3), "convolution_chain"),
        ("y", (2,), "window"),
        ("y", (3,), "product"),
    ],
)
def test_chains_of_convolutions(output: str, members: tuple[int, ...], name: str | None) -> None:
    assert template(inverted_residual(112, output), members) == name


def test_an_inverted_residual_is_one_kernel_where_its_maps_do_not_fit_the_second_cache() -> None:
    assert kernels(inverted_residual(112)) == ["Conv Relu Conv Conv"]
    assert kernels(inverted_residual(14)) == ["Conv Relu", "Conv", "Conv"]


def windows(channels: int, size: int) -> OperatorGraph:
    """Two depthwise convolutions with relu: 0 1, 2 3."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], group=channels, pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "w"], ["c"], group=channels, pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["y"]),
    ]
    shape = (1, channels, size, size)
    return graph_of(model(nodes, {"x": shape}, {"y": shape}, w=weights(channels, 1, 3, 3)))


def test_windows_that_copy_no_border_stay_apart() -> None:
    assert kernels(windows(192, 28)) == ["Conv Relu", "Conv Relu"]


def test_a_window_pays_for_its_border_where_it_copies_it() -> None:
    within = KernelGraph(windows(192, 28), SERVER)
    assert OperatorSet(within, (2,)).bordering == 0.0
    assert OperatorSet(within, (1, 2)).bordering > 0.0  # the relu in front of it makes what it reads


@pytest.mark.parametrize(
    ("second", "attributes", "name"),
    [
        (weights(16, 96, 3, 3), {"pads": [1, 1, 1, 1]}, None),  # minimal filters make it faster by itself
        (weights(16, 96, 3, 3), {"pads": [1, 1, 1, 1], "strides": [2, 2]}, "convolution_chain"),
        (weights(16, 24, 1, 1), {"group": 4}, None),
    ],
    ids=["3x3", "3x3 with stride", "groups"],
)
def test_what_a_convolution_may_be_joined_with(second: np.ndarray, attributes: dict[str, object], name: str) -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["a"]),
        helper.make_node("Conv", ["a", "w2"], ["y"], **attributes),
    ]
    size = 28 if "strides" in attributes else 56
    shapes = {"x": (1, 16, 56, 56)}, {"y": (1, 16, size, size)}
    assert template(graph_of(model(nodes, *shapes, w1=weights(96, 16, 1, 1), w2=second)), (0, 1)) == name


def test_refused_chains_stay_apart_and_another_is_joined() -> None:
    graph = inverted_residual(112)
    costs = KernelModel(graph, SERVER)
    chosen = partition_by("joint", graph, costs)
    asked: list[tuple[int, ...]] = []

    def refuse_first(partition: object, joined: object) -> list[tuple[int, ...]]:
        assert isinstance(joined, dict)
        asked.extend(joined)
        return [members for members in joined if members == asked[0]]

    confirmed = confirm_kernels(chosen, costs, refuse_first, 10.0)
    assert confirmed.count == 2
    assert asked[0] not in confirmed.members
    assert confirm_kernels(chosen, KernelModel(graph, SERVER), lambda partition, joined: tuple(joined), 10.0).count == 3


# --- a pooling behind a convolution


def convolution_and_pooling(
    op: str = "MaxPool", output: str = "y", size: int | str = 56, **attributes: object
) -> OperatorGraph:
    """0 Conv, 1 Relu, 2 the pooling, 3 Mul."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node(op, ["b"], ["c"], **{"kernel_shape": [2, 2], "strides": [2, 2], **attributes}),
        helper.make_node("Mul", ["c", "s"], ["y"]),
    ]
    outputs = dict.fromkeys(("y", output), (1, 64, None, None))
    stored = {"w": weights(64, 64, 3, 3), "s": weights(1)}
    return graph_of(model(nodes, {"x": (1, 64, size, 56)}, outputs, **stored))


def test_a_filtered_convolution_takes_the_pooling_behind_it() -> None:
    assert kernels(convolution_and_pooling()) == ["Conv Relu MaxPool Mul"]
    assert template(convolution_and_pooling("AveragePool"), range(4)) == "pooled_convolution"


@pytest.mark.parametrize(
    "graph",
    [
        convolution_and_pooling(strides=[1, 1]),
        convolution_and_pooling(kernel_shape=[3, 3], strides=[3, 3]),
        convolution_and_pooling(pads=[1, 1, 0, 0]),
        convolution_and_pooling(ceil_mode=1, size=55),
        convolution_and_pooling(output="b"),
        convolution_and_pooling(size="h"),
    ],
    ids=["overlap", "windows of three", "pads", "windows beyond the map", "another reader", "dynamic size"],
)
def test_other_poolings_stay_apart(graph: OperatorGraph) -> None:
    assert template(graph, range(4)) is None


# --- chains of products


def attention(output: str = "y") -> OperatorGraph:
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
    inputs = {"q": (2, 64, 32), "k": (2, 64, 32), "v": (2, 64, 32), "m": (1, 1, 64)}
    outputs = {"y": (64, 2, 32), "p": (2, 64, 64)}
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


@pytest.mark.parametrize(
    ("output", "members", "name"),
    [
        ("y", (2, 3, 4, 5, 6), "product_chain"),
        ("y", (2, 3, 4), "product_chain"),
        ("y", (0, 2, 3, 4, 5, 6), None),  # the mask is not computed by rows of the scores
        ("y", (1, 2, 3, 4, 5, 6), None),  # nor are keys transposed: rows would become columns
        ("p", (2, 3, 4, 5), None),  # others read the scores
        ("p", (2, 3, 4), "product_chain"),
    ],
)
def test_attention(output: str, members: tuple[int, ...], name: str | None) -> None:
    assert template(attention(output), members) == name


def quantised_attention(scale: float) -> OperatorGraph:
    """0 MatMul, 1 QuantizeLinear, 2 DequantizeLinear, 3 Softmax, 4 QuantizeLinear, 5 DequantizeLinear, 6 MatMul."""
    nodes = [
        helper.make_node("MatMul", ["x", "keys"], ["a"]),
        helper.make_node("QuantizeLinear", ["a", "scale", "zero"], ["b"]),
        helper.make_node("DequantizeLinear", ["b", "scale", "zero"], ["c"]),
        helper.make_node("Softmax", ["c"], ["d"], axis=-1),
        helper.make_node("QuantizeLinear", ["d", "scale", "zero"], ["e"]),
        helper.make_node("DequantizeLinear", ["e", "scale", "zero"], ["f"]),
        helper.make_node("MatMul", ["f", "values"], ["y"]),
    ]
    stored = {"scale": np.array(scale, np.float32), "zero": np.array(3, np.uint8)}
    ports = {"x": (2, 64, 16), "keys": (2, 16, 64), "values": (2, 64, 16)}
    return graph_of(model(nodes, ports, {"y": (2, 64, 16)}, **stored))


def test_bytes_between_products_stay_in_the_chain() -> None:
    graph = quantised_attention(0.01)
    assert template(graph, range(7)) == "product_chain"
    assert template(graph, range(1, 7)) is None


def test_attention_to_many_keys_is_one_kernel() -> None:
    assert len(kernels(graph_of(product_models.attention(4, 2048, 2048, 64).model))) == 1


def test_a_scale_of_1_divides_nothing() -> None:
    costs = [KernelModel(quantised_attention(scale), SERVER).kernel((1,)) for scale in (1.0, 0.5)]
    assert costs[0] < costs[1]


@pytest.mark.parametrize(
    ("rows", "size", "hidden", "is_one"),
    [(128, 128, 512, False), (512, 768, 3072, False), (1, 128, 512, True)],  # where each tile would read all weights
)
def test_products_and_normalisation(rows: int, size: int, hidden: int, is_one: bool) -> None:
    assert (len(kernels(perceptron(rows, size, hidden))) == 1) == is_one


def test_a_chain_has_rows_for_every_thread() -> None:
    graph = perceptron(1, 128, 512)
    assert template(graph, range(5)) == "product_chain"
    assert template(graph, range(5), threads=2) is None


# --- rows


def layer_norm(axis: int) -> OperatorGraph:
    """0 ReduceMean, 1 Sub, 2 Mul, 3 ReduceMean, 4 Sqrt, 5 Div."""
    nodes = [
        helper.make_node("ReduceMean", ["x"], ["m"], axes=[axis]),
        helper.make_node("Sub", ["x", "m"], ["c"]),
        helper.make_node("Mul", ["c", "c"], ["s"]),
        helper.make_node("ReduceMean", ["s"], ["v"], axes=[axis]),
        helper.make_node("Sqrt", ["v"], ["d"]),
        helper.make_node("Div", ["c", "d"], ["y"]),
    ]
    return graph_of(model(nodes, {"x": (64, 128)}, {"y": (64, 128)}))


def test_reductions_along_one_row_are_one_kernel() -> None:
    assert template(layer_norm(-1), range(6)) == "row_chain"
    assert template(layer_norm(0), range(6)) is None


# --- groups as they were drawn


def test_groups_that_no_template_takes_are_cut_and_the_others_stay() -> None:
    graph = residual()
    costs = KernelModel(graph, SERVER)
    drawn = partition_of(graph, [0, 0, 0, 0, 0, 0, 1], "drawn")
    cut = kernels_of_groups(drawn, costs, 10.0)
    assert [" ".join(graph.operators[m].op for m in members) for members in cut.members] == [
        "Conv Relu", "Conv Sigmoid Add", "Conv", "Flatten",
    ]  # fmt: skip
    assert count_as_drawn(drawn, cut, costs) == 1
    assert all(costs.launched(members) < inf for members in cut.members)


# --- extremes


def quantised_dynamically(axes: Sequence[int] | None = None) -> OperatorGraph:
    """0 MatMul, 1 Relu, 2 ReduceMax and 3 ReduceMin over the axes, by default all, 4 Sub, 5 Div of all elements."""
    chosen = {} if axes is None else {"axes": list(axes)}
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("ReduceMax", ["b"], ["h"], keepdims=0, **chosen),
        helper.make_node("ReduceMin", ["b"], ["l"], keepdims=0, **chosen),
        helper.make_node("Sub", ["h", "l"], ["r"]),
        helper.make_node("Div", ["b", "r"], ["y"]),
    ]
    return graph_of(model(nodes, {"x": (64, 8)}, {"y": (64, 32)}, w=weights(8, 32)))


def test_extremes_of_all_elements_join_what_makes_them() -> None:
    assert kernels(quantised_dynamically()) == ["MatMul Relu ReduceMax ReduceMin Sub", "Div"]


@pytest.mark.parametrize(
    ("graph", "members"),
    [
        (quantised_dynamically([0]), (0, 1, 2)),  # a maximum of each column
        (quantised_dynamically(), (2, 3, 4)),  # of what another kernel makes
        (quantised_dynamically(), (0, 1, 2, 3, 4, 5)),  # each quotient waits for all elements
    ],
)
def test_extremes_that_no_store_finds(graph: OperatorGraph, members: tuple[int, ...]) -> None:
    assert template(graph, members) != "extremes"
