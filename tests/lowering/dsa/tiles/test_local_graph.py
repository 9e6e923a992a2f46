from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eqfuse.ir.graph import OperatorGraph
from eqfuse.lowering.base.errors import DsaError
from eqfuse.lowering.dsa.network.graph import Network
from eqfuse.lowering.dsa.tiles.compiled_kernels import RuntimeTile
from eqfuse.lowering.dsa.tiles.local_graph import Tile, local_graph

from ....properties import examples
from ..graphs import Builder
from ..random_graphs import cases
from ..tile_cases import LAYERS, Layer, all_of, assert_tile_is_part, one, tiles


@pytest.mark.representatives(11)
@examples(6)
@given(data=st.data())
@pytest.mark.parametrize("name", LAYERS)
def test_a_tile_is_a_part_of_the_whole(name: str, data: st.DataObject) -> None:
    layer = LAYERS[name]
    tile = data.draw(tiles(layer.network, (0,)))
    assert_tile_is_part(layer.network, tile, local_graph(layer.network, tile), layer.values, layer.opset)


@examples(20)
@given(data=st.data())
def test_a_tile_of_several_operators_is_a_part_of_the_whole(data: st.DataObject) -> None:
    graph, layers, _, _ = data.draw(cases())
    network = Network(with_scales(graph))
    values = evaluated(network.graph)
    first = data.draw(st.integers(0, len(layers) - 1))
    members = tuple(m for layer in layers[first : first + data.draw(st.integers(1, 4))] for m in layer)
    tile = data.draw(tiles(network, members))
    assert_tile_is_part(network, tile, local_graph(network, tile), values, 21)


def with_scales(graph: OperatorGraph) -> OperatorGraph:
    """The graph with a Resize that says by how much."""
    config = json.dumps({"scales": [1.0, 1.0, 2.0, 2.0]})
    operators = (
        replace(o, attributes={**o.attributes, "config": config}) if o.op == "Resize" else o for o in graph.operators
    )
    return OperatorGraph(tuple(operators), graph.values)


def evaluated(graph: OperatorGraph) -> dict[str, np.ndarray]:
    """All values of a graph, of random operands."""
    every = OperatorGraph(graph.operators, tuple(replace(v, is_output=v.producer is not None) for v in graph.values))
    random = np.random.default_rng(0)
    given = (v for v in graph.values if v.producer is None)
    feeds = {v.name: random.standard_normal(v.extent.dimensions).astype(np.float32) for v in given}
    made = (v.name for v in every.values if v.is_output)
    return feeds | dict(zip(made, RuntimeTile(every)(list(feeds.values())), strict=True))


def test_equal_tiles_elsewhere_have_equal_graphs() -> None:
    builder = Builder()
    x = builder.value((4, 8, 16, 16))
    y = builder.relu(builder.conv(x, 8, 3), joined=True)
    network = Network(builder.graph(y))
    found = []
    for sample in (0, 3):
        box = ((sample, sample + 1), (0, 8), (4, 8), (0, 16))
        needed = network.needs((0, 1), {y: box})
        found.append(local_graph(network, Tile((0, 1), tuple((v, needed[v]) for v in (x, 1)), ((y, box),))))
    assert found[0] == found[1]


def test_a_whole_tile_is_the_layer() -> None:
    layer = LAYERS["grouped Conv"]
    operator = layer.network.graph.operators[0]
    (local,) = local_graph(layer.network, all_of(layer.network, (0,), operator.outputs[0])).operators
    assert (local.op, local.attributes) == (operator.op, operator.attributes)


def test_all_of_more_operands_than_rules_know_are_read() -> None:
    layer = LAYERS["Max of three"]
    tile = all_of(layer.network, (0,), layer.network.graph.operators[0].outputs[0])
    assert_tile_is_part(layer.network, tile, local_graph(layer.network, tile), layer.values, layer.opset)


def test_values_come_in_the_order_of_the_tile() -> None:
    layer = LAYERS["Split"]
    operator = layer.network.graph.operators[0]
    boxes = {v: tuple((0, n) for n in layer.network.shapes[v]) for v in (*operator.inputs[:1], *operator.outputs)}
    first, second = operator.outputs
    tile = Tile((0,), ((0, boxes[0]),), ((second, boxes[second]), (first, boxes[first])))
    graph = local_graph(layer.network, tile)
    assert [v.extent.dimensions for v in graph.values if v.is_output] == [(6, 5), (6, 4)]
    assert [v.name for v in graph.values] == ["i0", "o0", "o1"]


def test_one_part_of_a_split_is_a_slice() -> None:
    layer = LAYERS["Split"]
    tile = all_of(layer.network, (0,), layer.network.graph.operators[0].outputs[1])
    assert [o.op for o in local_graph(layer.network, tile).operators] == ["Slice"]


def test_too_little_at_hand_is_refused() -> None:
    layer = LAYERS["Conv"]
    tile = all_of(layer.network, (0,), layer.network.graph.operators[0].outputs[0])
    (value, box), *rest = tile.inputs
    small = replace(tile, inputs=((value, (box[0], box[1], (1, 9), box[3])), *rest))
    with pytest.raises(DsaError, match="needs"):
        local_graph(layer.network, small)


def test_what_reads_beyond_its_part_is_refused() -> None:
    layer: Layer = one("Conv", (1, 1, 2, 2), (1, 1, 1, 1), pads=[0, 0, 3, 0])
    output = layer.network.graph.operators[0].outputs[0]
    box = ((0, 1), (0, 1), (4, 5), (0, 2))
    needed = layer.network.needs((0,), {output: box})
    with pytest.raises(DsaError, match="padding"):
        local_graph(layer.network, Tile((0,), tuple((v, needed[v]) for v in (0, 1)), ((output, box),)))
