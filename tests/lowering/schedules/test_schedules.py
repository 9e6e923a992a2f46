"""Each rule on shapes with and without tails: the schedule computes what the function computes."""

from __future__ import annotations

import platform
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tvm_ffi
from tvm import te, tirx, topi

from eqfuse.costmodels.device import Device, load_device
from eqfuse.costmodels.register_tiles import Tile, register_tiles, tile_cycles
from eqfuse.lowering.base.target import target_of
from eqfuse.lowering.compute import elementary
from eqfuse.lowering.schedules import (
    Draft,
    Repack,
    Trace,
    apply_rule,
    fallback,
    list_candidates,
    mark_constants,
    schedule,
)
from eqfuse.lowering.schedules.base.blocks import BlockInfo
from eqfuse.lowering.schedules.base.extents import TYPICAL
from eqfuse.lowering.schedules.base.preparation import find_anchor
from eqfuse.lowering.schedules.rules.contraction import list_plans
from eqfuse.support.processor import X86

from .functions import (
    ARM,
    HOST,
    REFERENCE,
    SERVER,
    Shape,
    check,
    convolution,
    execute,
    inputs,
    layer_norm,
    matmul,
    of_one,
    pool,
    run,
)

pytestmark = pytest.mark.usefixtures("shared_by_threads")


def broadcast_sum() -> Any:
    x, b = te.placeholder((4, 6, 20), name="x"), te.placeholder((6,), name="b")
    return te.create_prim_func([x, b, te.compute(x.shape, lambda i, j, k: x[i, j, k] + b[j])])


def selection_by_booleans() -> Any:
    x, mask = te.placeholder((3, 40), name="x"), te.placeholder((3, 40), "uint8", name="mask")
    selected = te.compute(
        x.shape, lambda i, j: tirx.Select(tirx.NE(mask[i, j], tirx.const(0, "uint8")), x[i, j], -x[i, j])
    )
    return te.create_prim_func([x, mask, selected])


def maximum_from_minus_infinity(x: te.Tensor) -> te.Tensor:
    k = te.reduce_axis((0, 64), name="k")
    lowest = te.const(float("-inf"), "float32")
    largest = te.comm_reducer(lambda a, b: te.max(a, b), lambda dtype: lowest, name="largest")
    return te.compute((3,), lambda i: largest(x[i, k], axis=k), name="y")


@pytest.mark.representatives(2)
@pytest.mark.parametrize("shape", [(64, 32), (3, 5, 7), (1,), (2, 3, 4, 33), (17,), (1, 2, 28, 28)])
def test_pointwise_chain(shape: Shape) -> None:
    check(of_one(shape, topi.nn.relu, topi.negative, topi.exp), "pointwise")


@pytest.mark.parametrize("shape", [(32, 49, 49), (1, 7, 9, 3)])
def test_vectors_run_along_two_axes_whose_elements_no_vector_divides(shape: Shape) -> None:
    """The last vector of a map overlaps the one before; no element of it is found by a division."""
    text = check(of_one(shape, topi.nn.relu), "pointwise").schedule.mod["main"].script()
    assert "vectorized" in text
    assert not {"//", "%"} & set(text.split())


@pytest.mark.representatives(2)
@pytest.mark.parametrize(
    "function",
    [
        of_one((4, 65, 129), topi.nn.relu, topi.negative),
        of_one((1, 7, 9), lambda x: topi.transpose(x, (0, 2, 1)), topi.negative),
        of_one((1, 3, 14, 14), lambda x: topi.nn.pad(x, [0, 0, 1, 1], [0, 0, 1, 2])),
        of_one((2, 3, 5, 7), lambda x: topi.nn.pad(x, [0, 0, 1, 1], [0, 0, 1, 2])),
        broadcast_sum(),
        selection_by_booleans(),
    ],
    ids=["chain", "small transposition", "padding", "small padding", "broadcast", "booleans"],
)
@pytest.mark.parametrize("threads", [1, 2])
def test_pointwise(function: Any, threads: int) -> None:
    check(function, "pointwise", threads=threads)


def test_what_a_named_value_was_inlined_into_goes_to_one_place_only() -> None:
    """TVM refuses to inline a name into two places, and the rule would be left."""

    def rectify(x: te.Tensor) -> te.Tensor:
        value = tirx.Var("value", "float32")
        return te.compute(x.shape, lambda *i: tirx.Let(value, x(*i), tirx.Select(value < 0.0, value * 0.1, value)))

    check(of_one((4, 40), rectify, topi.negative, lambda x: x * x + x, topi.negative), "pointwise")


def test_what_a_costly_value_was_inlined_into_is_not_computed_for_each_column() -> None:
    """A gate of one row, `x * sigmoid(x)`, is cheap but for what it is multiplied with."""
    x, w = te.placeholder((1, 64), name="x"), te.placeholder((64, 40), name="w")
    gate = te.compute(x.shape, lambda i, j: elementary.exp(x(i, j)), name="gate")
    gated = te.compute(x.shape, lambda i, j: x(i, j) * gate(i, j), name="gated")
    k = te.reduce_axis((0, 64), name="k")
    product = te.compute((1, 40), lambda i, j: te.sum(gated(i, k) * w(k, j), axis=k), name="product")
    function = mark_constants(te.create_prim_func([x, w, topi.nn.relu(product)]), (1,))
    scheduled = check(function, "contraction")
    assert scheduled.schedule.get_sblock("gated") is not None


def test_a_transposition_in_front_of_arithmetic_is_a_stage_of_its_own() -> None:
    function = of_one((2, 48, 32), lambda x: topi.transpose(x, (0, 2, 1)), topi.negative)
    check(function, "stages (transposition + pointwise)")


@pytest.mark.representatives(2)
@pytest.mark.parametrize("shape", [(5, 128), (2, 3, 100), (3, 7), (2, 197), (1, 1000), (6, 49), (4, 25)])
def test_softmax(shape: Shape) -> None:
    check(of_one(shape, lambda x: topi.nn.softmax(x, -1)), "rows")


@pytest.mark.representatives(1)
@pytest.mark.parametrize("shape", [(4, 96), (2, 3, 33), (1, 5)])
def test_layer_norm(shape: Shape) -> None:
    check(layer_norm(shape), "rows")


@pytest.mark.parametrize(("height", "width"), [(6, 6), (6, 4)])
def test_rows_that_are_normalised_in_another_order_than_they_are_written(height: int, width: int) -> None:
    """Of a square plane both orders have the same extents: a row was written with the sum of another one."""
    x = te.placeholder((1, height, width, 40), name="x")
    k = te.reduce_axis((0, 40), name="k")
    total = te.compute((1, width, height), lambda n, w, h: te.sum(x[n, h, w, k], axis=k), name="total")
    y = te.compute(x.shape, lambda n, h, w, c: x[n, h, w, c] - total[n, w, h] * 0.025, name="y")
    check(te.create_prim_func([x, y]), "rows")


def test_rows_that_read_the_sums_of_others_are_no_rows() -> None:
    x, k = te.placeholder((6, 6, 40), name="x"), te.reduce_axis((0, 40), name="k")
    total = te.compute((6, 6), lambda i, j: te.sum(x[i, j, k], axis=k), name="total")
    y = te.compute(x.shape, lambda i, j, c: x[i, j, c] * total[i, j] - total[j, i], name="y")
    function = te.create_prim_func([x, y])
    scheduled = schedule(function, HOST, 1)
    assert scheduled.rule != "rows"
    arrays = inputs(function)
    np.testing.assert_allclose(execute(scheduled, arrays), run(function, arrays, REFERENCE), rtol=1e-4, atol=1e-5)


@pytest.mark.representatives(2)
@pytest.mark.parametrize(
    ("function", "rule"),
    [
        (of_one((1, 8, 7, 7), lambda x: topi.sum(x, (2, 3), keepdims=True), topi.nn.relu), "rows"),
        (of_one((2, 3, 8, 8), lambda x: topi.sum(x, (2, 3), keepdims=True), topi.nn.relu), "rows"),
        (of_one((1, 1, 5, 13), lambda x: topi.sum(x, (2, 3), keepdims=True), topi.nn.relu), "rows"),
        (of_one((3, 64), maximum_from_minus_infinity), "rows"),
        (of_one((6, 5, 40), lambda x: topi.sum(x, 0)), "channels"),
        (of_one((6, 5, 40), lambda x: topi.sum(x, 1)), "channels"),
    ],
)
def test_reductions(function: Any, rule: str) -> None:
    check(function, rule, threads=2)


@pytest.mark.representatives(2)
@pytest.mark.parametrize("sizes", [(16, 32, 64), (7, 33, 24), (1, 40, 10), (5, 3, 1), (13, 24, 100)])
def test_matmul_with_packed_weights(sizes: tuple[int, int, int]) -> None:
    assert check(matmul(*sizes), "contraction").repack


@pytest.mark.representatives(2)
@pytest.mark.parametrize(
    ("function", "threads", "packs"),
    [
        (matmul(16, 32, 64, flip=True), 1, True),
        (matmul(6, 9, 37, flip=True), 1, True),
        (matmul(48, 40, 96), 2, True),
        (matmul(48, 40, 96, flip=True), 2, True),
        (matmul(12, 16, 32, batch=(2, 3), constant=False), 1, False),
        (matmul(7, 5, 19, batch=(3,), constant=False), 1, False),
        (matmul(9, 8, 16, constant=False), 1, False),
    ],
)
def test_matmul(function: Any, threads: int, packs: bool) -> None:
    assert bool(check(function, "contraction", threads=threads).repack) == packs


@pytest.mark.representatives(2)
@pytest.mark.parametrize(
    ("shape", "outputs", "kernel", "stride", "pad"),
    [
        ((1, 16, 14, 14), 32, 1, 1, 0),
        ((2, 8, 56, 5), 24, 1, 1, 0),
        ((1, 5, 13, 11), 7, 3, 1, 1),
        ((1, 8, 9, 9), 32, 3, 2, 1),
        ((1, 3, 32, 32), 16, 7, 2, 3),
        ((2, 16, 7, 7), 48, 3, 1, 1),
        ((1, 4, 20, 40), 6, 1, 2, 0),
    ],
)
def test_convolution(shape: Shape, outputs: int, kernel: int, stride: int, pad: int) -> None:
    check(convolution(shape, outputs, kernel, stride, pad), "contraction")


@pytest.mark.parametrize("last", [0, 1])
def test_a_product_that_is_split(last: int) -> None:
    a, b, k = te.placeholder((14, 24), name="a"), te.placeholder((24, 48), name="b"), te.reduce_axis((0, 24), name="k")
    product = te.compute((14, 48), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="product")
    first = te.compute((14, 32), lambda i, j: te.max(product[i, j], 0.0), name="first")
    second = te.compute((14, 16), lambda i, j: te.max(product[i, j + 32], 0.0), name="second")
    parts = [first, second]
    check(mark_constants(te.create_prim_func([a, b, parts[1 - last], parts[last]]), (1,)), "contraction", threads=2)


def test_convolution_without_epilogue() -> None:
    check(convolution((1, 8, 12, 12), 16, 3, pad=1, epilogue=False), "contraction", threads=2)


@pytest.mark.representatives(1)
@pytest.mark.parametrize(("shape", "group"), [((1, 8, 10, 18), 2), ((1, 12, 7, 7), 4)])
def test_grouped_convolution(shape: Shape, group: int) -> None:
    function = convolution(shape, shape[1], 3, pad=1, group=group)
    check(function, "contraction")


@pytest.mark.representatives(1)
@pytest.mark.parametrize(
    ("shape", "kernel", "stride"),
    [
        ((1, 6, 14, 14), 3, 1),
        ((1, 5, 7, 7), 3, 1),
        ((2, 3, 17, 33), 5, 1),
        ((1, 4, 16, 16), 3, 2),
        ((1, 4, 15, 9), 3, 2),
    ],
)
def test_depthwise_convolution(shape: Shape, kernel: int, stride: int) -> None:
    check(convolution(shape, shape[1], kernel, stride, kernel // 2, group=shape[1]), "window")


@pytest.mark.representatives(2)
@pytest.mark.parametrize(
    ("kernel", "stride", "pad", "kind"), [(3, 2, 1, "max"), (2, 2, 0, "max"), (3, 1, 1, "avg"), (3, 1, 1, "max")]
)
@pytest.mark.parametrize("shape", [(1, 4, 16, 16), (1, 3, 9, 21)])
def test_pool(shape: Shape, kernel: int, stride: int, pad: int, kind: str) -> None:
    check(pool(shape, kernel, stride, pad, kind), "window", threads=2)


def test_pixels_become_one_axis() -> None:
    scheduled = check(convolution((1, 8, 12, 12), 16, 1), "contraction", threads=2)
    assert "// 12" in scheduled.schedule.mod["main"].script()


def test_narrow_vectors() -> None:
    check(convolution((1, 8, 12, 12), 12, 3, pad=1), "contraction", ARM)
    check(matmul(9, 20, 28), "contraction", ARM)


def test_repack_cuts_and_orders() -> None:
    weights = np.arange(4 * 3 * 2).reshape(4, 3, 2)
    repack = Repack(0, 0, 2, (0, 2, 1))
    packed = repack(weights)
    assert packed.shape == repack.packed_shape((4, 3, 2)) == (2, 2, 3, 2)
    assert packed[1, 0, 2, 1] == weights[3, 2, 0]
    assert repack.index_map(3, 2, 0) == [1, 0, 2, 1]


def test_register_tiles_do_not_spill() -> None:
    tiles = list(register_tiles(64, 256, HOST, window=False))
    assert max(t.rows * t.vectors + t.vectors + 1 for t in tiles) <= HOST.vector_registers


def test_columns_of_a_result_whose_lines_evict_each_other_have_narrower_tiles() -> None:
    """Lines that are a page apart share one set, of which each is stored to again for the next row."""
    cache = replace(HOST.caches[0], size=32 << 10, ways=8, line=64)
    device = replace(HOST, caches=(cache, *HOST.caches[1:]))

    def columns(stride: int) -> int:
        tiles = register_tiles(64, 64, device, window=False)
        return min(tiles, key=lambda tile: tile_cycles(tile, 64, 64, 32, device, stride)).columns

    assert columns(4096) <= cache.ways < columns(4096 + cache.line)


def test_columns_that_the_first_cache_does_not_hold_are_used_by_more_rows() -> None:
    def best(depth: int) -> Tile:
        tiles = register_tiles(32, 256, SERVER, window=False)
        return min(tiles, key=lambda tile: tile_cycles(tile, 32, 256, depth, SERVER))

    near, far = best(16), best(4096)
    assert far.vectors / (far.rows * far.vectors) < near.vectors / (near.rows * near.vectors)


def test_rows_are_pixels_that_share_cache_lines() -> None:
    """Eight rows along the depth of a map with channels first would fill a tile, but lie on eight lines."""
    x, w = te.placeholder((12, 8, 16, 16), name="x"), te.placeholder((64, 12, 3, 3), name="w")
    c, i, j = (te.reduce_axis((0, size), name=name) for size, name in ((12, "c"), (3, "i"), (3, "j")))
    y = te.compute((8, 14, 14, 64), lambda *p: te.sum(x(c, p[0], p[1] + i, p[2] + j) * w(p[3], c, i, j), [c, i, j]))
    draft = Draft.of(mark_constants(te.create_prim_func([x, w, topi.nn.relu(y)]), (1,)), SERVER)
    pair = find_anchor(draft, BlockInfo.is_product_sum)
    assert pair is not None
    width, columns = 2, 3
    best = min(list_plans(draft, *pair), key=lambda plan: plan.cycles)
    assert (best.row, best.column) == (width, columns)


def test_a_tail_that_overlaps_is_not_computed_in_place() -> None:
    x = te.placeholder((197, 96), name="x")
    k = te.reduce_axis((0, 96))
    total = te.compute((197,), lambda i: te.sum(x(i, k) * x(i, k), axis=k), name="total")
    factor = te.compute((197,), lambda i: 1.0 / te.sqrt(total(i) + 1.0), name="factor")
    function = te.create_prim_func([x, te.compute((197, 96), lambda i, j: x(i, j) * factor(i), name="y")])
    arrays = inputs(function)
    computed = execute(apply_rule(fallback, Draft.of(function, HOST)), arrays)
    np.testing.assert_allclose(computed, run(function, arrays, REFERENCE), rtol=1e-4, atol=1e-5)


@pytest.mark.representatives(1)
@pytest.mark.parametrize("channels", [12, 32, 17])
def test_means_over_pixels_are_shared_by_channels(channels: int) -> None:
    x = te.placeholder((1, 60, 60, channels), name="x")
    h, w = te.reduce_axis((0, 60)), te.reduce_axis((0, 60))
    total = te.compute((1, channels), lambda n, c: te.sum(x(n, h, w, c), axis=[h, w]), name="total")
    y = te.compute((1, channels, 1, 1), lambda n, c, *_: total(n, c) / 3600.0, name="y")
    function = te.create_prim_func([x, y])
    arrays = inputs(function)
    computed = execute(apply_rule(fallback, Draft.of(function, HOST, 2)), arrays)
    np.testing.assert_allclose(computed, run(function, arrays, REFERENCE), rtol=1e-4, atol=1e-5)


def test_threads_share_few_planes_of_padding_row_by_row() -> None:
    scheduled = check(convolution((1, 3, 112, 112), 16, 3, 2, 1), "contraction", threads=2)
    extents = re.findall(r"parallel\((\d+)\)", scheduled.schedule.mod["main"].script())
    assert len(extents) == 2
    assert all(int(extent) >= 8 * 2 for extent in extents)


@pytest.mark.parametrize("threads", [1, 2])
def test_channels_that_fill_a_word_with_a_computed_value_are_unrolled(threads: int) -> None:
    """Colours in planes become words with a fourth channel, whose pixels threads share row by row."""
    x, z = te.placeholder((1, 3, 12, 20), name="x"), te.placeholder((), name="z")

    def element(n: Any, h: Any, w: Any, c: Any) -> Any:
        inside = tirx.all(c < 3, h >= 1, h < 13, w >= 1, w < 21)
        return tirx.if_then_else(inside, x(n, c, h - 1, w - 1) * 2.0, z())

    function = mark_constants(te.create_prim_func([x, z, te.compute((1, 14, 22, 4), element, name="y")]), ())
    scheduled = check(function, "pointwise", threads=threads)
    loops: list[Any] = []
    tvm_ffi.structural_walk(scheduled.schedule.mod["main"].body, [(tirx.For, loops.append)])
    kinds = {(int(loop.extent), loop.kind) for loop in loops}
    assert {(4, tirx.ForKind.UNROLLED), (22, tirx.ForKind.SERIAL)} <= kinds


def test_a_guard_in_steps_of_several_rows_moves_in_all_blocks() -> None:
    """On vectors of four, 196 rows in tiles of 20 are guarded by their fours."""
    check(matmul(196, 24, 44, batch=(2,), constant=False), "contraction", ARM)
    check(matmul(24, 20, 196), "contraction", ARM)


@pytest.mark.parametrize(("depth", "is_unrolled"), [(4, True), (16, False)])
def test_a_reduction_that_does_not_fit_the_registers_keeps_a_loop(depth: int, is_unrolled: bool) -> None:
    scheduled = schedule(matmul(784, depth, 64), load_device("x86-64-v3"))
    assert scheduled.rule == "contraction"
    assert (f"T.unroll({depth})" in scheduled.schedule.mod["main"].script()) == is_unrolled


LEVELS: dict[str, tuple[str, Callable[[], Any]]] = {
    "convolution": ("contraction", lambda: convolution((1, 16, 7, 9), 32, 3, pad=1)),
    "depthwise": ("window", lambda: convolution((1, 32, 9, 9), 32, 3, pad=1, group=32)),
    "product": ("contraction", lambda: matmul(5, 24, 40)),
    "reduction": ("rows", lambda: layer_norm((6, 40))),
    "pool": ("window", lambda: pool((1, 16, 9, 9), 3, 2, 1)),
}


@pytest.mark.skipif(platform.machine() != X86, reason="about x86-64")
@pytest.mark.representatives(2)
@pytest.mark.parametrize("name", LEVELS)
@pytest.mark.parametrize("level", ["x86-64-v2", "x86-64-v3", "x86-64-v4"])
def test_every_level_of_the_processor_that_this_machine_has(level: str, name: str) -> None:
    target = target_of(level, threads=1)
    if target.missing:
        pytest.skip(f"this machine has no {', '.join(target.missing)}")
    rule, function = LEVELS[name]
    check(function(), rule, load_device(level), target=target.description)


@pytest.mark.representatives(1)
@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["square last", "maximum last"])
@pytest.mark.parametrize("threads", [1, 2])
def test_rows_with_a_reduction_that_is_an_output(order: tuple[int, int], threads: int) -> None:
    """The last vector of a row of 79 is masked, so that what the maximum is of is a row of its own."""
    x, k = te.placeholder((256, 79), name="x"), te.reduce_axis((0, 79), name="k")
    bent = te.compute((256, 79), lambda i, j: elementary.tanh(x(i, j)), name="bent")
    largest = te.compute((256,), lambda i: te.max(bent[i, k], axis=k), name="largest")
    squared = te.compute((256,), lambda i: largest[i] * largest[i], name="squared")
    outputs = (largest, squared)
    check(te.create_prim_func([x, *(outputs[number] for number in order)]), "rows", threads=threads)


def test_rows_whose_mean_keeps_its_axis_are_rows_where_two_blocks_leave() -> None:
    x, k = te.placeholder((2, 9, 40), name="x"), te.reduce_axis((0, 40), name="k")
    total = te.compute((2, 9, 1), lambda i, j, _: te.sum(x[i, j, k], axis=k), name="total")
    moved = te.compute(x.shape, lambda i, j, c: x[i, j, c] - total[i, j, 0], name="moved")
    squared = te.compute(x.shape, lambda i, j, c: moved[i, j, c] * moved[i, j, c], name="squared")
    check(te.create_prim_func([x, moved, squared]), "rows")


def test_a_short_reduction_of_free_length_keeps_a_loop() -> None:
    """16 steps would be unrolled, but that is only what there usually are."""
    depth = te.var("k")
    a, b, k = te.placeholder((40, depth), name="a"), te.placeholder((depth, 15), name="b"), te.reduce_axis((0, depth))
    product = te.compute((40, 15), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="product")
    scheduled = schedule(te.create_prim_func([a, b, product]).with_attr(TYPICAL, {"k": 16}), HOST)
    assert scheduled.rule == "contraction"
    generator = np.random.default_rng(0)
    left, right = (generator.standard_normal(shape).astype(np.float32) for shape in ((40, 21), (21, 15)))
    result = execute(scheduled, [left, right, np.full((40, 15), np.nan, np.float32)])
    np.testing.assert_allclose(result, left @ right, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("is_whole", [False, True])
def test_sums_of_nothing_are_zero(is_whole: bool) -> None:
    """A loop that does not run writes no first value."""
    length = te.var("k")
    x, i, k = te.placeholder((5, length), name="x"), te.reduce_axis((0, 5)), te.reduce_axis((0, length))
    rows = te.compute((5,), lambda i: te.sum(x[i, k], axis=k), name="rows")
    whole = te.compute((), lambda: te.sum(x[i, k], axis=[i, k]), name="whole")
    function = te.create_prim_func([x, whole if is_whole else rows])
    (plainest,) = list_candidates(function, HOST, 1, with_rules=False)
    for scheduled in (schedule(function, HOST), plainest(Trace())):
        assert scheduled is not None
        result = np.full(() if is_whole else 5, np.nan, np.float32)
        np.testing.assert_array_equal(execute(scheduled, [np.zeros((5, 0), np.float32), result]), 0)


@pytest.mark.parametrize(("device", "products"), [(SERVER, "72"), (ARM, "288")])
def test_less_is_unrolled_where_each_product_broadcasts(device: Device, products: str) -> None:
    trace = Trace()
    schedule(matmul(64, 96, 64), device, 1, trace)
    assert [site.option.label for site in trace.sites if site.name == "unroll"] == [products]


def test_vectors_along_places_that_are_computed_stay_in_their_row() -> None:
    """Rows and columns as one loop would take a division for each element."""
    x = te.placeholder((4, 9, 10), name="x")

    def element(c: Any, h: Any, w: Any) -> Any:
        return x(c, (h.astype("float32") * 0.45).astype("int32"), (w.astype("float32") * 0.5).astype("int32"))

    scheduled = check(te.create_prim_func([x, te.compute((4, 18, 20), element, name="y")]), "pointwise")
    assert "//" not in scheduled.schedule.mod.script()
