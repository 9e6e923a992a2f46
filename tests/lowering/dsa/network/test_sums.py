"""Products that are summed up piece by piece, in place."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from eqfuse.ir.graph import OperatorGraph
from eqfuse.lowering.dsa.network.boxes import shape_of
from eqfuse.lowering.dsa.network.graph import Network
from eqfuse.lowering.dsa.network.sums import sum_of_layer, with_products_first
from eqfuse.lowering.dsa.tiles.compiled_kernels import RuntimeTile
from eqfuse.lowering.dsa.tiles.core_parts import CorePart, cut_sum, tile_of
from eqfuse.lowering.dsa.tiles.kernels import first_piece
from eqfuse.lowering.dsa.tiles.local_graph import local_graph

from ..tile_cases import Layer, boxes, of_bytes, part

RANDOM = np.random.default_rng(7)


def weights(*shape: int) -> np.ndarray:
    return (RANDOM.random(shape) - 0.5).astype(np.float32)


def bytes_of(*shape: int) -> np.ndarray:
    """So small that products do not saturate anywhere."""
    return RANDOM.integers(0, 16, shape, np.uint8)


PRODUCTS = {
    "convolution": Layer(
        (
            helper.make_node("Conv", ["x0", "w", "b"], ["s"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
            helper.make_node("Relu", ["s"], ["y"]),
        ),
        ((2, 12, 6, 5),),
        {"w": weights(8, 12, 3, 3), "b": weights(8)},
    ),
    "transposed convolution": Layer(
        (
            helper.make_node("ConvTranspose", ["x0", "w", "b"], ["s"], kernel_shape=[2, 2], strides=[2, 2]),
            helper.make_node("Relu", ["s"], ["y"]),
        ),
        ((1, 12, 3, 4),),
        {"w": weights(12, 6, 2, 2), "b": weights(6)},
    ),
    "product with a residual that is its data": Layer(
        (helper.make_node("MatMul", ["x0", "w"], ["s"]), helper.make_node("Add", ["s", "x0"], ["y"])),
        ((2, 5, 12),),
        {"w": weights(12, 12)},
    ),
    "product of two maps": Layer(
        (helper.make_node("MatMul", ["x0", "x1"], ["s"]), helper.make_node("Add", ["s", "x2"], ["y"])),
        ((2, 3, 5, 12), (2, 3, 12, 8), (2, 1, 5, 8)),
    ),
    "product of two maps, one for all samples": Layer(
        (helper.make_node("MatMul", ["x0", "x1"], ["y"]),), ((2, 5, 12), (12, 8))
    ),
    "convolution of integers": of_bytes(
        "ConvInteger", (2, 12, 6, 5), stored=[bytes_of(8, 12, 3, 3), np.uint8(3), np.uint8(2)], pads=[1] * 4
    ),
    "product alone": Layer((helper.make_node("MatMul", ["x0", "w"], ["y"]),), ((4, 12),), {"w": weights(12, 8)}),
    "transposed weights": Layer(
        (helper.make_node("Gemm", ["x0", "w", "b"], ["y"], transB=1),),
        ((4, 12),),
        {"w": weights(8, 12), "b": weights(8)},
    ),
}


def network_of(layer: Layer) -> Network:
    """The layer with one output, the last value."""
    graph, last = layer.network.graph, layer.nodes[-1].output[0]
    values = tuple(replace(value, is_output=value.name == last) for value in graph.values)
    return Network(OperatorGraph(graph.operators, values), element_size=4)


@pytest.mark.representatives(3)
@settings(max_examples=10)
@given(st.data(), st.sampled_from([1, 2, 3, 4, 12]))
@pytest.mark.parametrize("name", PRODUCTS)
def test_pieces_add_up_to_the_whole(name: str, data: st.DataObject, count: int) -> None:
    layer = PRODUCTS[name]
    network, members = network_of(layer), tuple(range(len(layer.nodes)))
    reduction = sum_of_layer(network, members)
    assert reduction is not None
    (result,) = network.graph.operators[members[-1]].outputs
    box = data.draw(boxes(network.shapes[result]))
    values, names = layer.values, [value.name for value in network.graph.values]
    outside = [v for v in network.needs(members, {result: box}) if network.graph.values[v].producer is None]
    needed = network.needs(members, {result: box})
    constants = {v: needed[v] for v in outside if network.graph.values[v].is_constant}
    whole_part = CorePart({result: box}, {v: needed[v] for v in outside if v not in constants}, constants)
    pieces = list(cut_sum(network, members, whole_part, reduction, count))
    assert len(pieces) == count
    total = np.full(shape_of(box), np.nan, np.float32)
    for each in pieces:
        tile = tile_of(network, members, each)
        operands = tile.inputs[:-1] if each.piece and each.piece.adds else tile.inputs
        read = [part(values[names[v]], own) for v, own in operands]
        read += [total] if len(operands) < len(tile.inputs) else []
        (total,) = RuntimeTile(local_graph(network, first_piece(network, tile)), layer.opset)(read)
    np.testing.assert_allclose(total, part(values[names[result]], box), rtol=2e-5, atol=1e-5)


@pytest.mark.parametrize(
    "nodes",
    [
        (helper.make_node("MatMul", ["x0", "x0"], ["y"]),),
        (helper.make_node("MatMul", ["x0", "x1"], ["s"]), helper.make_node("Add", ["s", "x1"], ["y"])),
    ],
    ids=["of one map with itself", "that another operator adds to"],
)
def test_a_map_that_is_read_twice_is_not_in_pieces(nodes: tuple[onnx.NodeProto, ...]) -> None:
    shapes = ((12, 12),) * (1 if len(nodes) == 1 else 2)
    network = network_of(Layer(nodes, shapes))
    assert sum_of_layer(network, tuple(range(len(nodes)))) is None


def cut(network: Network, room: int) -> list[tuple[int, ...]]:
    return list(with_products_first(network, [tuple(range(len(network.graph)))], room, columns=8))


def test_a_layer_is_cut_where_a_deep_product_begins_and_where_another_shape_does() -> None:
    nodes = (
        helper.make_node("Relu", ["x0"], ["r"]),
        helper.make_node("MatMul", ["r", "w"], ["s"]),
        helper.make_node("Tanh", ["s"], ["t"]),
        helper.make_node("ReduceSum", ["t"], ["y"]),
    )
    network = network_of(Layer(nodes, ((4, 12),), {"w": weights(12, 8)}))
    assert cut(network, room=64) == [(0,), (1, 2), (3,)]


def test_a_product_is_deep_by_all_columns_that_a_softmax_sees() -> None:
    nodes = (helper.make_node("MatMul", ["x0", "w"], ["s"]), helper.make_node("Softmax", ["s"], ["y"], axis=1))
    network = network_of(Layer(nodes, ((4, 12),), {"w": weights(12, 16)}))
    assert cut(network, room=4 * 12 * 8) == [(0,), (1,)]
    assert cut(network, room=4 * 12 * 16) == [(0, 1)]


def test_a_layer_with_light_weights_stays() -> None:
    assert cut(network_of(PRODUCTS["convolution"]), room=1 << 20) == [(0, 1)]
