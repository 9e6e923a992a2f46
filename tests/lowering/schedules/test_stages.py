"""Functions in stages compute what the whole computes, and estimates tell vectors from loops without any."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tvm import te, topi

from eqfuse.lowering.schedules import Draft, Trace, apply_rule, fallback, list_candidates, mark_constants
from eqfuse.lowering.schedules.base.draft import BETWEEN
from eqfuse.lowering.schedules.base.extents import TYPICAL
from eqfuse.lowering.schedules.estimate import estimate_cycles, least_cycles
from eqfuse.lowering.schedules.rules.fallback import plain
from eqfuse.lowering.schedules.rules.pointwise import pointwise

from .functions import ARM, HOST, SERVER, check, of_one

pytestmark = pytest.mark.usefixtures("shared_by_threads")


def exchange(x: te.Tensor, name: str = "exchanged") -> te.Tensor:
    return te.compute((*x.shape[:-2], x.shape[-1], x.shape[-2]), lambda *i: x(*i[:-2], i[-1], i[-2]), name=name)


def exchanged_sum(shape: tuple[int, int, int]) -> Any:
    """A Transpose that is added to another tensor; a softmax of the sum, and its Transpose."""
    x = te.placeholder((shape[0], shape[2], shape[1]), name="x")
    other = te.placeholder(shape, name="other")
    return te.create_prim_func([x, other, exchange(topi.nn.softmax(topi.add(exchange(x), other), -1), "y")])


def gated_product(rows: int, depth: int, columns: int) -> Any:
    """A product by constants, a half of which gates the other."""
    a = te.placeholder((rows, depth), name="a")
    w, b = te.placeholder((depth, 2 * columns), name="w"), te.placeholder((2 * columns,), name="b")
    k = te.reduce_axis((0, depth), name="k")
    product = te.compute((rows, 2 * columns), lambda i, j: te.sum(a(i, k) * w(k, j), axis=k), name="product")
    biased = te.compute(product.shape, lambda i, j: product(i, j) + b(j), name="biased")
    gate = te.compute((rows, columns), lambda i, j: te.tanh(biased(i, j + columns)), name="gate")
    gated = te.compute((rows, columns), lambda i, j: biased(i, j) * gate(i, j), name="gated")
    return mark_constants(te.create_prim_func([a, w, b, gated]), (1, 2))


@pytest.mark.parametrize("threads", [pytest.param(1, marks=pytest.mark.conformance), 2])
def test_what_precedes_and_follows_is_moved_in_stages_of_its_own(threads: int) -> None:
    scheduled = check(exchanged_sum((2, 32, 64)), "stages (transposition + rows + transposition)", threads=threads)
    assert not scheduled.repack


def turned_product(rows: int, depth: int) -> Any:
    """Products of rows by the rows of a matrix, which a Transpose in front turns, scaled."""
    a, w = te.placeholder((4, rows, depth), name="a"), te.placeholder((4, 50, depth), name="w")
    turned, k = exchange(w), te.reduce_axis((0, depth), name="k")
    c = te.compute((4, rows, 50), lambda n, i, j: te.sum(a(n, i, k) * turned(n, k, j), axis=k), name="c")
    return te.create_prim_func([a, w, te.compute(c.shape, lambda *i: c(*i) * 0.125, name="scaled")])


def test_what_a_product_reads_turned_is_turned_in_a_stage_of_its_own() -> None:
    check(turned_product(50, 64), "stages (transposition + contraction)")


@pytest.mark.parametrize("rows", [1, 3])
def test_for_few_rows_of_a_product_nothing_is_turned(rows: int) -> None:
    check(turned_product(rows, 64), "rows")


@pytest.mark.parametrize("channels", [24, 64])
def test_what_a_block_computes_of_a_map_with_other_axes_last_is_turned_before(channels: int) -> None:
    x, gain = te.placeholder((1, channels, 16, 16), name="x"), te.placeholder((channels,), name="gain")
    scaled = te.compute((1, 16, 16, channels), lambda n, i, j, c: x(n, c, i, j) * gain(c), name="scaled")
    y = te.compute(scaled.shape, lambda *i: te.tanh(scaled(*i)) + scaled(*i), name="y")
    check(te.create_prim_func([x, gain, y]), "stages (transposition + pointwise)")


def _mix(before: te.Tensor, last: te.Tensor, name: str) -> te.Tensor:
    return te.compute((), lambda: before() * 0.5 + te.abs(last()), name=name)


def test_numbers_beside_the_maps_leave_the_cuts_to_these() -> None:
    """Eight scalars, each made of the two before, hand over less than any map."""
    x, other = te.placeholder((2, 64, 32), name="x"), te.placeholder((2, 32, 64), name="other")
    first = te.placeholder((), name="first")
    scalars = [first, first]
    for number in range(8):
        scalars.append(_mix(scalars[-2], scalars[-1], f"scalar{number}"))
    shifted = te.compute(other.shape, lambda *i: other(*i) + scalars[-1](), name="shifted")
    turned = exchange(topi.nn.softmax(topi.add(exchange(x), shifted), -1), "y")
    function = te.create_prim_func([x, other, first, turned])
    check(function, "stages (transposition + fallback + rows + transposition)")


def test_the_last_tile_of_a_stage_does_not_read_its_own_results() -> None:
    x, other = te.placeholder((48, 28), name="x"), te.placeholder((28, 48), name="other")
    y = te.compute((28, 48), lambda i, j: x(47 - j, i) + other(i, j) * other(i, 0), name="y")
    k = te.reduce_axis((0, 48), name="k")
    largest = te.compute((28,), lambda i: te.max(y(i, k), axis=k), name="largest")
    function = te.create_prim_func([x, other, te.compute((28, 48), lambda i, j: y(i, j) - largest(i), name="z")])
    text = check(function, "stages (pointwise + rows)", device=SERVER).schedule.mod["main"].script()
    assert "vectorized" in text


def test_constants_of_a_stage_are_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    for limit in ("FAR", "CLEARLY", "FEWEST_CYCLES"):  # stages, whatever the estimates say
        monkeypatch.setattr(f"eqfuse.lowering.schedules.{limit}", 0.0)
    scheduled = check(gated_product(40, 33, 41), "stages (contraction + pointwise)", device=SERVER)
    assert [packing.parameter for packing in scheduled.repack] == [1]


def test_a_function_that_a_rule_does_well_is_not_cut() -> None:
    check(of_one((64, 96), lambda x: topi.nn.softmax(x, -1)), "rows")


def test_rules_that_are_not_wanted_are_left_out() -> None:
    function = exchanged_sum((2, 32, 64))
    found = []
    for without in ((), ("stages",), ("stages", "pointwise"), ("rows",)):
        best = next(list_candidates(function, HOST, 1, with_rules=True, without=without))(Trace())
        assert best is not None
        found.append(best.rule)
    assert found[0] == "stages (transposition + rows + transposition)"
    assert not any(rule.startswith("stages") for rule in found[1:3])
    assert "rows" not in found[3]


@pytest.mark.parametrize("device", [HOST, SERVER, ARM])
def test_vectors_are_estimated_to_take_less(device: Any) -> None:
    function = of_one((64, 96), topi.nn.relu, topi.negative)
    vectors, loops = apply_rule(pointwise, Draft.of(function, device)), apply_rule(plain, Draft.of(function, device))
    assert vectors is not None
    assert loops is not None
    least = least_cycles(function, device)
    assert least <= estimate_cycles(vectors.schedule.mod["main"], device)
    assert estimate_cycles(vectors.schedule.mod["main"], device) < estimate_cycles(loops.schedule.mod["main"], device)


def test_elements_that_lie_apart_are_estimated_to_take_longer() -> None:
    def estimate(*steps: Any) -> float:
        scheduled = apply_rule(fallback, Draft.of(of_one((64, 96), *steps), SERVER))
        assert scheduled is not None
        return estimate_cycles(scheduled.schedule.mod["main"], SERVER)

    assert estimate(exchange, topi.negative) > 4 * estimate(topi.negative)


def test_lines_that_evict_each_other_are_estimated_to_take_longer() -> None:
    """Rows that are a page apart share one set of a first cache of 32 KiB and 8 ways."""
    cache = replace(HOST.caches[0], size=32 << 10, ways=8, line=64)
    device = replace(HOST, caches=(cache, *HOST.caches[1:]))

    def cycles_of(width: int) -> float:
        x = te.placeholder((1, 64, width), name="x")
        draft = Draft.of(te.create_prim_func([x, exchange(x)]), device)
        loop = draft.loops(draft.blocks()[0])[-1]
        draft.schedule.vectorize(draft.schedule.split(loop, [None, 16])[-1])
        return estimate_cycles(draft.function, device) / width

    assert cycles_of(1024) > 3 * cycles_of(1024 + 16)


def colours(height: int, width: Any, channels: int, outputs: int, kernel: int) -> Any:
    """A convolution of a map stored channels last, without a border."""
    x = te.placeholder((1, height + kernel - 1, width + kernel - 1, channels), name="x")
    w = te.placeholder((outputs, channels, kernel, kernel), name="w")
    c = te.reduce_axis((0, channels), name="c")
    r, s = (te.reduce_axis((0, kernel), name=name) for name in "rs")

    def element(n: Any, i: Any, j: Any, o: Any) -> Any:
        return te.sum(x(n, i + r, j + s, c) * w(o, c, r, s), axis=[c, r, s])

    y = te.compute((1, height, width, outputs), element, name="y")
    return mark_constants(te.create_prim_func([x, w, y]), (1,))


@pytest.mark.parametrize("threads", [1, 2])
def test_a_convolution_of_few_outputs_has_vectors_along_its_pixels(threads: int) -> None:
    scheduled = check(colours(35, 37, 16, 3, 5), "stages (transposition + contraction)", SERVER, threads)
    assert [repack.parameter for repack in scheduled.repack] == [1]


def test_a_convolution_of_few_outputs_and_free_width_has_vectors_along_its_pixels() -> None:
    function = colours(35, te.var("w"), 16, 3, 5).with_attr(TYPICAL, {"w": 64})
    best = next(iter(list_candidates(function, SERVER, 1, with_rules=True)))(Trace())
    assert best is not None
    assert best.rule == "stages (transposition + contraction)"


def test_a_convolution_whose_outputs_fill_a_vector_reads_its_map_as_it_is() -> None:
    check(colours(12, 20, 16, 16, 5), "contraction", SERVER)


def deep_product(rows: Any) -> Any:
    """A product of a depth of 640 by constants, and Relu."""
    a, w = te.placeholder((rows, 640), name="a"), te.placeholder((640, 64), name="w")
    k = te.reduce_axis((0, 640), name="k")
    product = te.compute((rows, 64), lambda i, j: te.sum(a(i, k) * w(k, j), axis=k), name="product")
    return mark_constants(te.create_prim_func([a, w, topi.nn.relu(product)]), (1,))


def with_second_cache(kilobytes: int) -> Any:
    first, second, *others = HOST.caches
    return replace(HOST, caches=(first, replace(second, size=kilobytes << 10), *others))


@pytest.mark.parametrize(("kilobytes", "rule"), [(64, "stages (contraction + channels)"), (4096, "contraction")])
def test_a_deep_sum_is_added_up_in_parts_whose_weights_stay_near(kilobytes: int, rule: str) -> None:
    check(deep_product(96), rule, with_second_cache(kilobytes))


def test_a_deep_sum_of_free_rows_is_added_up_in_parts() -> None:
    function = deep_product(te.var("n")).with_attr(TYPICAL, {"n": 1})
    best = next(iter(list_candidates(function, with_second_cache(64), 1, with_rules=True)))(Trace())
    assert best is not None
    assert best.rule.startswith("stages (contraction + ")


@pytest.mark.parametrize(("phases", "rule"), [(1, "stages (contraction + channels)"), (4, "contraction")])
def test_weights_of_one_phase_are_those_that_have_to_stay_near(phases: int, rule: str) -> None:
    """A transposed convolution has sums for each phase of its stride, which read a part of the weights each."""
    depth = 640 // phases
    a, w = te.placeholder((96 + phases, depth), name="a"), te.placeholder((640, 32), name="w")
    k = te.reduce_axis((0, depth), name="k")
    product = te.compute(
        (phases, 96, 32), lambda p, i, j: te.sum(a(i + p, k) * w(p * depth + k, j), axis=k), name="product"
    )
    check(mark_constants(te.create_prim_func([a, w, topi.nn.relu(product)]), (1,)), rule, with_second_cache(80))


@pytest.mark.parametrize("between", [[], [0]])
def test_a_stage_behind_another_divides_no_place_by_a_width_of_free_size(between: list[int]) -> None:
    """What it reads is allocated inside of the function: there rows and columns as one loop are not joined again."""
    shape = (2, 24, te.var("w"))
    x, y = (te.placeholder(shape, name=name) for name in "xy")
    function = te.create_prim_func([x, y, te.compute(shape, lambda *i: x(*i) + y(*i), name="added")])
    marked = function.with_attr(TYPICAL, {"w": 50}).with_attr(BETWEEN, between)
    scheduled = apply_rule(pointwise, Draft.of(marked, SERVER))
    assert scheduled is not None
    text = scheduled.schedule.mod.script()
    assert "% w" not in text
    assert "T.vectorized(16)" in text
