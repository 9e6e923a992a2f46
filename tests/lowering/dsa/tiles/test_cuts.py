"""Tiles of products that are too deep for the buffer of weights, and who makes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from eqfuse.costmodels.dsa_device import DsaDevice, load_dsa_device, single_cluster
from eqfuse.costmodels.systolic import Product
from eqfuse.lowering.dsa.codegen.compiler import accelerator_network, for_splitting
from eqfuse.lowering.dsa.codegen.generator import Plan, plan_program
from eqfuse.lowering.dsa.network.boxes import shape_of, size
from eqfuse.lowering.dsa.program.instructions import Level
from eqfuse.lowering.dsa.schedule.variants import FULL, Variant
from eqfuse.lowering.dsa.tiles.core_parts import CorePart, LayerParts, tile_of
from eqfuse.lowering.dsa.tiles.cuts import Cut, Guesses, Moved, Moving, Passing, Pieced, TileCycles, cycles_of
from eqfuse.lowering.dsa.tiles.tiling import Tiling

from ...small_models import model
from ..scheduled import schedule
from ..small_networks import scheduled_parts

DEVICE = single_cluster(load_dsa_device("stcp920"))
FOR_GB = replace(FULL, split_for=Level.GB)


def random_weights(*shape: int) -> np.ndarray[Any, Any]:
    """Rules see through weights that are all alike."""
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def convolution(channels: int, results: int, size: int, samples: int = 2) -> onnx.ModelProto:
    """Of 3 x 3, between layers that leave its data and its result in the GB."""
    windows = {"kernel_shape": [3, 3], "pads": [1] * 4}
    nodes = [
        helper.make_node("MaxPool", ["x"], ["a"], **windows),
        helper.make_node("Conv", ["a", "w"], ["b"], **windows),
        helper.make_node("MaxPool", ["b"], ["y"], **windows),
    ]
    shapes = [(samples, number, size, size) for number in (channels, results)]
    return model(nodes, {"x": shapes[0]}, {"y": shapes[1]}, w=random_weights(results, channels, 3, 3))


def product(rows: int, depth: int, columns: int) -> onnx.ModelProto:
    nodes = [
        helper.make_node("Softmax", ["x"], ["a"]),
        helper.make_node("MatMul", ["a", "w"], ["b"]),
        helper.make_node("Softmax", ["b"], ["y"]),
    ]
    return model(nodes, {"x": (rows, depth)}, {"y": (rows, columns)}, w=random_weights(depth, columns))


def planned(source: onnx.ModelProto, device: DsaDevice = DEVICE, variant: Variant = FOR_GB) -> Plan:
    """With floats of two bytes."""
    graph, layers, _ = scheduled_parts(source)
    network = accelerator_network(graph, layers, device, 2)
    found = schedule(network.graph, network.layers, for_splitting(device, variant), element_size=2)
    return plan_program(replace(found, device=device), variant)


def work_of_tile(plan: Plan, step: LayerParts, tile: CorePart) -> list[Product]:
    kernel = plan.sharing.kernels.kernel(tile_of(plan.schedule.network, step.layer, tile))
    return [product_ for work in kernel.work for product_ in work.products]


def multiplying(plan: Plan) -> tuple[LayerParts, Sequence[CorePart]]:
    """The only step that multiplies matrices, and the first core's tiles of it."""
    pairs = zip(plan.residence.flow.steps, (tiled.cores[0] for tiled in plan.residence.tiles), strict=True)
    (found,) = ((step, tiles) for step, tiles in pairs if work_of_tile(plan, step, tiles[0]))
    return found


def use_of_array(plan: Plan) -> float:
    """The share of its multiply-accumulates that the array of a core does while it computes."""
    step, tiles = multiplying(plan)
    (array,) = (unit for unit in DEVICE.units if unit.kind == "matrix")
    done = sum(each.macs for tile in tiles for each in work_of_tile(plan, step, tile))
    return done / array.operations / sum(plan.sharing.cycles(step.layer, tile) for tile in tiles)


def rows_of_first_core(plan: Plan) -> int:
    """Those of its product; channels are the columns."""
    step, _ = multiplying(plan)
    (core,) = step.cores[:1]
    assert core is not None
    samples, _, height, width = shape_of(core.made[step.primary])
    return samples * height * width


@pytest.mark.parametrize(
    "source", [convolution(256, 256, 14), product(1024, 768, 768), product(1024, 479, 1024)],
    ids=["window", "plain", "prime"],
)  # fmt: skip
def test_tiles_of_a_deep_product_keep_the_array_busy(source: onnx.ModelProto) -> None:
    """Pieces of its reduction are nearly whole folds of the array, and have many rows."""
    plan = planned(source)
    assert use_of_array(plan) > 0.4


def attention(tokens: int, width: int) -> onnx.ModelProto:
    """Scores of four heads times values, both of which come from the GB."""
    nodes = [
        helper.make_node("Softmax", ["p"], ["a"]),
        helper.make_node("Softmax", ["v"], ["b"]),
        helper.make_node("MatMul", ["a", "b"], ["c"]),
        helper.make_node("Softmax", ["c"], ["y"]),
    ]
    shapes = {"p": (2, 4, tokens, tokens), "v": (2, 4, tokens, width)}
    return model(nodes, shapes, {"y": shapes["v"]})


def test_tiles_of_a_product_of_two_maps_keep_the_array_busy() -> None:
    """With all of the values of 512 tokens in LB there is room for a few rows."""
    plan = planned(attention(512, 64))
    assert use_of_array(plan) > 0.4
    _, tiles = multiplying(plan)
    assert {len(tile.constants) for tile in tiles} == {0}
    assert all(tile.piece is not None for tile in tiles)


def test_weights_of_tiles_arrive_while_others_are_computed() -> None:
    plan = planned(convolution(256, 256, 14))
    network, (_, tiles) = plan.schedule.network, multiplying(plan)
    for tile in tiles:
        weights = sum(network.bytes(value, box) for value, box in tile.constants.items())
        assert 0 < weights <= DEVICE.weight_buffer // 2


def test_cores_share_columns_of_a_product_with_few_rows_if_its_data_comes_from_the_gb() -> None:
    """A tile of few rows is filled and drained as long as one of many."""
    assert rows_of_first_core(planned(convolution(512, 512, 7, 4))) == 4 * 7 * 7


def test_the_place_of_a_sum_is_free_once_it_was_moved_out() -> None:
    tile = TileCycles(400.0, weights=Moving(10.0), read=Moving(10.0), written=Moving(100.0))
    whole, pieces = (cycles_of(Cut((1,), (4,), pieces=count), tile) for count in (1, 4))
    assert pieces - whole > 4 * tile.written.all


def test_all_that_moves_shares_the_port_of_an_lb() -> None:
    moving = Moving(100.0, 80.0)
    tile = TileCycles(computing=100.0, weights=moving, read=moving, written=moving)
    faster = TileCycles(computing=100.0, weights=Moving(100.0), read=Moving(100.0), written=Moving(100.0))
    ways = [cycles_of(Cut((1,), (100,)), each) for each in (tile, faster)]
    assert ways[0] > ways[1] > 100 * tile.computing


def scores(tokens: int, width: int) -> onnx.ModelProto:
    """Of attention with twelve heads: queries times keys, both of which come from the GB."""
    nodes = [
        helper.make_node("Softmax", ["x1"], ["queries"]),
        helper.make_node("Softmax", ["x2"], ["keys"], axis=2),
        helper.make_node("MatMul", ["queries", "keys"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["y"]),
    ]
    shapes = {"x1": (2, 12, tokens, width), "x2": (2, 12, width, tokens)}
    return model(nodes, shapes, {"y": (2, 12, tokens, tokens)})


def test_a_product_of_two_maps_is_cut_along_rows_and_columns() -> None:
    """LB does not hold all keys of a head twice, beside the scores of many queries."""
    plan = planned(scores(256, 64))
    step, tiles = multiplying(plan)
    *_, rows, columns = shape_of(tiles[0].made[step.primary])
    assert rows >= 16
    assert columns < 256


def test_pieces_of_a_sum_fill_half_of_the_buffer_of_weights() -> None:
    """Only the last one has a bias beside its weights."""
    _, tiles = multiplying(planned(convolution(256, 256, 14)))
    product_, *_ = (box for tile in tiles[:1] for box in tile.constants.values())
    assert DEVICE.weight_buffer // 2 - 2 * size(product_) < 64 * 9 * 2


def test_a_lookup_is_one_transfer_if_its_rows_fit() -> None:
    """Each transfer from DDR takes longer to begin than to move a row."""
    nodes = [helper.make_node("Gather", ["table", "ids"], ["y"])]
    source = model(nodes, {"ids": (256,)}, {"y": (256, 64)}, ["ids"], table=random_weights(4096, 64))
    assert planned(source).residence.tiles[-1].count == 1


def pieced(random: np.random.Generator) -> Pieced:
    """A tile of a deep product in some pieces, of any costs."""
    columns, rows, pieces, is_held, may_be_whole = random.integers((1, 1, 1, 0, 0), (5, 5, 4, 2, 2)).tolist()
    cut = Cut((1, columns), (rows, 1), is_held=bool(is_held))
    times = [Moving(float(cycles), cycles / 2) for cycles in random.integers(1, 2000, 5)]
    weights, *moved = times
    sizes = random.integers(64, 999, 4).tolist()
    data, whole, rest, made = (Moved(size_, each) for size_, each in zip(sizes, moved, strict=True))
    return Pieced(cut, pieces, int(random.integers(1, 2000)), weights, data, whole, rest, made, bool(may_be_whole))


def guessed(tile: Pieced, rows_first: bool, is_whole: bool) -> tuple[float, int, Cut]:
    """About the cycles of one way, and the bytes that pass through for two tiles."""
    is_held = tile.cut.is_held and not rows_first
    cut = replace(
        tile.cut, rows_first=rows_first, pieces=tile.pieces, is_held=is_held, is_brought_whole=is_whole
    )
    brought, each = tile.whole_data if is_whole else tile.data, tile.pieces if cut.brings_pieces else 1
    read = brought.cycles * each + tile.rest.cycles
    cycles = float(cycles_of(cut, TileCycles(tile.computing, tile.weights, read, tile.made.cycles)))
    times = min(2, cut.count * each)
    kept = (tile.rest.bytes + tile.made.bytes) * (times if tile.pieces == 1 else 1)
    return cycles, kept + brought.bytes * times, cut


def test_ways_to_cut_a_deep_product_come_by_their_cycles() -> None:
    """Those that are too large for the room are left out, and data of one piece alone is not brought whole."""
    random = np.random.default_rng(0)
    tiles = [pieced(random) for _ in range(40)]
    ways = [
        guessed(tile, rows_first, is_whole)
        for tile in tiles
        for is_whole in ((False, True) if tile.may_be_whole and tile.pieces > 1 else (False,))
        for rows_first in (False, True)
    ]
    room = 2000
    expected = [cut for _, size_, cut in sorted(ways, key=lambda way: way[0]) if size_ <= room]
    assert 0 < len(expected) < len(ways)
    assert list(Guesses(tiles).fitting(room)) == expected


def test_tiles_are_few_if_each_waits_for_ddr() -> None:
    """With the bias, which comes with the last piece, weights of two whole folds exceed their room by a little. Without
    a thought of it, ways of a hundred tiles did not fit, and one of 810 was the best that was left."""
    nodes = [
        helper.make_node("Softmax", ["x"], ["a"]),
        helper.make_node("Gemm", ["a", "w", "b"], ["c"]),
        helper.make_node("Softmax", ["c"], ["y"]),
    ]
    weights = {"w": random_weights(768, 768), "b": random_weights(768)}
    source = model(nodes, {"x": (512, 768)}, {"y": (512, 768)}, **weights)
    _, tiles = multiplying(planned(source, variant=replace(FOR_GB, fastest=Level.DDR, next=Level.DDR)))
    assert len(tiles) < 150


def test_tiles_depend_on_the_room_not_on_what_was_asked_before() -> None:
    device = single_cluster(load_dsa_device("stcp920-1mb"))
    plan = planned(attention(512, 64), device)
    steps = tuple(plan.residence.flow.steps)
    number = next(n for n, tiled in enumerate(plan.residence.tiles) if work_of_tile(plan, steps[n], tiled.cores[0][0]))
    tile = plan.residence.tiles[number].cores[0][0]
    passing = Passing(frozenset((min(tile.inputs), *tile.made)), frozenset())
    used, *fresh = (Tiling(plan.sharing, steps, device, FULL.pipeline) for _ in range(3))
    rooms = [device.activation_buffer * share // 64 for share in range(64, 20, -1)]
    found = {room: used.step(number, room, passing) for room in rooms}
    for tiling, room in zip(fresh, (rooms[0], rooms[-1]), strict=True):
        assert tiling.step(number, room, passing) == found[room]
