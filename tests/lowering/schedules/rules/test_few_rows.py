"""Products of free size that have fewer rows than a register tile: right for every number, and by vectors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import te, tirx, topi
from tvm.s_tir import stmt as s_stmt

from eqfuse.lowering.kernels.channels_last import channels_last
from eqfuse.lowering.schedules import Draft, Scheduled, apply_rule, mark_constants
from eqfuse.lowering.schedules.base.extents import TYPICAL
from eqfuse.lowering.schedules.base.winograd_filters import WinogradWeights
from eqfuse.lowering.schedules.rules.channels import channels
from eqfuse.lowering.schedules.rules.contraction import FEWER_ROWS, contraction

from ..functions import HOST, SERVER, TARGET, execute

OUTPUTS = 56
DEPTH, WIDTH = 1024, 520


def convolution() -> Any:
    """A 3x3 convolution of stride 2 and free width, its maps stored channels last."""
    x = te.placeholder((1, 5, 3, te.var("w")), name="x")
    w = te.placeholder((OUTPUTS, 5, 3, 3), name="w")
    y = topi.nn.conv2d(x, w, 2, 1, 1, "NCHW")
    function = channels_last(mark_constants(te.create_prim_func([x, w, topi.nn.relu(y)]), (1,)), {0, 2})
    return function.with_attr(TYPICAL, {"w": 64})


@pytest.fixture(scope="module")
def product() -> Scheduled:
    scheduled = apply_rule(contraction, Draft.of(convolution(), HOST))
    assert scheduled is not None
    return scheduled


@pytest.fixture(scope="module")
def compiled(product: Scheduled) -> Any:
    return tvm.compile(product.schedule.mod, target=tvm.target.Target(TARGET))["main"]


@pytest.mark.representatives(3)
@pytest.mark.parametrize("width", range(1, 36))
def test_every_number_of_rows(product: Scheduled, compiled: Any, width: int) -> None:
    generator = np.random.default_rng(width)
    x = generator.standard_normal((1, 3, width, 5)).astype(np.float32)
    w = generator.standard_normal((OUTPUTS, 5, 3, 3)).astype(np.float32)
    (repack,) = product.repack
    result = np.full((1, 2, (width + 1) // 2, OUTPUTS), np.nan, np.float32)
    tensors = [tvm.runtime.tensor(array) for array in (x, repack(w), result)]
    compiled(*tensors)
    padded = np.pad(x.astype(np.float64), ((0, 0), (1, 1), (1, 1), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (1, 2))[:, ::2, ::2]
    expected = np.maximum(np.einsum("nhwcij,ocij->nhwo", windows, w), 0.0)
    np.testing.assert_allclose(tensors[-1].numpy(), expected, atol=1e-4)


def test_threads_share_a_free_batch_and_columns_that_overlap() -> None:
    """40 columns in tiles of 16 or 32, whose guard TVM writes with the extent of the loop that threads share."""
    n, w = te.var("n"), te.var("w")
    x, k = te.placeholder((n, 5, 8, w), name="x"), te.placeholder((OUTPUTS, 5, 8, 3), name="k")
    y = topi.nn.conv2d(x, k, 1, (0, 1, 0, 1), 1, "NCHW")
    turned = te.compute((w, n, OUTPUTS), lambda t, b, o: y[b, o, 0, t])
    function = channels_last(mark_constants(te.create_prim_func([x, k, turned]), (1,)), {0})
    scheduled = apply_rule(contraction, Draft.of(function.with_attr(TYPICAL, {"n": 1, "w": 128}), HOST, 2))
    assert scheduled is not None
    (repack,) = scheduled.repack
    compiled = tvm.compile(scheduled.schedule.mod, target=tvm.target.Target(TARGET))["main"]
    generator = np.random.default_rng(0)
    maps = generator.standard_normal((3, 8, 21, 5)).astype(np.float32)
    weights = generator.standard_normal((OUTPUTS, 5, 8, 3)).astype(np.float32)
    result = np.full((21, 3, OUTPUTS), np.nan, np.float32)
    tensors = [tvm.runtime.tensor(array) for array in (maps, repack(weights), result)]
    compiled(*tensors)
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(maps, ((0, 0), (0, 0), (1, 1), (0, 0))), 3, 2)
    np.testing.assert_allclose(tensors[-1].numpy(), np.einsum("nhwcj,ochj->wno", windows, weights), atol=1e-4)


def test_weights_outside_of_a_small_map_are_not_read(product: Scheduled, compiled: Any) -> None:
    """They would make a sum of zeros and NaN, which is NaN."""
    x = np.random.default_rng(0).standard_normal((1, 3, 1, 5)).astype(np.float32)
    w = np.full((OUTPUTS, 5, 3, 3), np.nan, np.float32)
    w[..., 1] = 1.0
    (repack,) = product.repack
    tensors = [tvm.runtime.tensor(array) for array in (x, repack(w), np.full((1, 2, 1, OUTPUTS), np.nan, np.float32))]
    compiled(*tensors)
    assert np.isfinite(tensors[-1].numpy()).all()


def test_blocks_are_seen_at_the_typical_sizes_of_their_draft() -> None:
    draft = Draft.of(convolution(), HOST)
    usual, larger = (
        [list(map(int, block.extents)) for block in each.blocks()]
        for each in (draft, draft.with_attribute(TYPICAL, {"w": 256}))
    )
    assert usual != larger


def list_sums(node: Any, kinds: tuple[int, ...] = (), is_small: bool = False) -> Iterator[tuple[bool, tuple[int, ...]]]:
    """For each block that adds to a sum whether it is in the branch for few rows, and the kinds of loops around it."""
    if isinstance(node, tirx.For):
        yield from list_sums(node.body, (*kinds, int(node.kind)), is_small)
    elif isinstance(node, tirx.IfThenElse):
        yield from list_sums(node.then_case, kinds, is_small)
        if node.else_case is not None:
            yield from list_sums(node.else_case, kinds, True)
    elif isinstance(node, tirx.SeqStmt):
        for part in node.seq:
            yield from list_sums(part, kinds, is_small)
    elif isinstance(node, s_stmt.SBlockRealize):
        yield from list_sums(node.block.body, kinds, is_small)
        if "_update" in str(node.block.name_hint):
            yield is_small, kinds


def test_few_rows_are_computed_by_vectors(product: Scheduled) -> None:
    small = [kinds for is_small, kinds in list_sums(product.schedule.mod["main"].body) if is_small]
    assert small
    assert all(kinds[-1] == tirx.ForKind.VECTORIZED for kinds in small)


@pytest.fixture(scope="module")
def scores() -> Scheduled:
    """Products of the rows of two inputs, as the scores of attention are; their number is free."""
    rows = te.var("n")
    queries, keys = (te.placeholder((2, rows, 20), name=name) for name in ("queries", "keys"))
    turned = te.compute((2, 20, rows), lambda b, k, j: keys(b, j, k), name="turned")
    k = te.reduce_axis((0, 20), name="k")
    y = te.compute((2, rows, rows), lambda b, i, j: te.sum(queries(b, i, k) * turned(b, k, j), axis=k), name="y")
    function = te.create_prim_func([queries, keys, y]).with_attr(TYPICAL, {"n": 60})
    scheduled = apply_rule(channels, Draft.of(function, HOST))
    assert scheduled is not None
    return scheduled


def test_few_scores_are_computed_by_narrow_vectors_without_guards(scores: Scheduled) -> None:
    small = [kinds for is_small, kinds in list_sums(scores.schedule.mod["main"].body) if is_small]
    assert small
    assert all(kinds[-1] == tirx.ForKind.VECTORIZED for kinds in small)


@pytest.mark.parametrize("rows", [1, 3, 4, 6, 17, 33, 70])
def test_every_number_of_scores(scores: Scheduled, rows: int) -> None:
    generator = np.random.default_rng(rows)
    queries, keys = (generator.standard_normal((2, rows, 20)).astype(np.float32) for _ in range(2))
    result = execute(scores, [queries, keys, np.full((2, rows, rows), np.nan, np.float32)])
    np.testing.assert_allclose(result, queries @ keys.transpose(0, 2, 1), atol=1e-4)


def test_weights_stand_behind_transformed_ones() -> None:
    array = np.random.default_rng(0).standard_normal((8, 5, 3, 3)).astype(np.float32)
    packing = WinogradWeights(1, 4, 4, with_direct=True)
    packed = packing(array)
    assert packed.shape == packing.packed_shape(array.shape)
    np.testing.assert_array_equal(packed[: 2 * 36], WinogradWeights(1, 4, 4)(array))
    np.testing.assert_array_equal(packed[2 * 36 + 9 + 5, 3, 2], array[6, 3, 1, 2])


def test_a_sum_over_a_plane_that_is_usually_small_keeps_its_loops() -> None:
    height, width = te.var("h"), te.var("w")
    x = te.placeholder((1, height, width, 32), name="x")
    i, j = te.reduce_axis((0, height), name="i"), te.reduce_axis((0, width), name="j")
    total = te.compute((1, 1, 1, 32), lambda n, a, b, c: te.sum(x(n, i, j, c), axis=[i, j]), name="total")
    y = te.compute(total.shape, lambda *place: total(*place) * 0.5, name="y")
    function = te.create_prim_func([x, y]).with_attr(TYPICAL, {"h": 4, "w": 4})
    scheduled = apply_rule(channels, Draft.of(function, HOST))
    assert scheduled is not None
    compiled = tvm.compile(scheduled.schedule.mod, target=tvm.target.Target(TARGET))["main"]
    array = np.random.default_rng(0).standard_normal((1, 5, 7, 32)).astype(np.float32)
    tensors = [tvm.runtime.tensor(each) for each in (array, np.zeros((1, 1, 1, 32), np.float32))]
    compiled(*tensors)
    np.testing.assert_allclose(tensors[-1].numpy()[0, 0, 0], 0.5 * array.sum(axis=(0, 1, 2)), rtol=1e-4, atol=1e-4)


@pytest.fixture(scope="module")
def layer() -> Scheduled:
    """A layer, whose weights the first cache does not hold, of a batch that is usually of one row. The device has
    registers for tiles of more than `FEWER_ROWS`."""
    x, w = te.placeholder((te.var("n"), DEPTH), name="x"), te.placeholder((WIDTH, DEPTH), name="w")
    k = te.reduce_axis((0, DEPTH), name="k")
    y = te.compute((x.shape[0], WIDTH), lambda i, j: te.sum(x[i, k] * w[j, k], axis=k), name="y")
    function = mark_constants(te.create_prim_func([x, w, topi.nn.relu(y)]), (1,)).with_attr(TYPICAL, {"n": 1})
    scheduled = apply_rule(contraction, Draft.of(function, SERVER))
    assert scheduled is not None
    return scheduled


def test_many_rows_share_each_load_of_a_weight_though_one_is_usual(layer: Scheduled) -> None:
    """With tiles of one or two rows, weights that no cache holds were read once for each of them."""
    least: list[int] = []

    def note(condition: Any) -> None:
        least.extend(int(side) for side in (condition.a, condition.b) if isinstance(side, tirx.IntImm))

    tvm_ffi.structural_walk(layer.schedule.mod["main"].body, [(tirx.LE, note)])
    assert max(least) > max(FEWER_ROWS)


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 9, 16, 33])
def test_every_number_of_rows_of_a_layer(layer: Scheduled, rows: int) -> None:
    generator = np.random.default_rng(rows)
    x, w = (generator.standard_normal((n, DEPTH)).astype(np.float32) for n in (rows, WIDTH))
    result = execute(layer, [x, w, np.full((rows, WIDTH), np.nan, np.float32)])
    np.testing.assert_allclose(result, np.maximum(x @ w.T, 0), atol=1e-3)
