"""Convolutions by minimal filters: the numbers of a direct convolution, on planes that tiles divide and on others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tvm import te, tirx, topi

from eqfuse.costmodels.device import Device
from eqfuse.lowering.base import decisions
from eqfuse.lowering.compute import floats
from eqfuse.lowering.compute.elementary import between, round_to_integer
from eqfuse.lowering.kernels.channels_last import channels_last
from eqfuse.lowering.schedules import Draft, Scheduled, Trace, apply_rule, mark_constants
from eqfuse.lowering.schedules.base.extents import TYPICAL, typical_sizes
from eqfuse.lowering.schedules.base.winograd_filters import FILTERS, Filter, WinogradWeights, filter_of
from eqfuse.lowering.schedules.rules.contraction import contraction

from ..functions import ARM, HOST, SERVER, TARGET, execute, inputs

pytestmark = pytest.mark.usefixtures("shared_by_threads")

Array = NDArray[np.float32]
SAME = (1, 1, 1, 1)
TOLERANCE = 1e-4
"""Of the largest output."""


@pytest.fixture(autouse=True)
def _nothing_is_ruled_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """However much an option is estimated to cost."""
    monkeypatch.setattr(decisions, "WORST_COST", np.inf)


def convolution(
    shape: tuple[int, ...], outputs: int, pads: tuple[int, ...] = SAME, stride: int = 1, dilation: int = 1
) -> Any:  # fmt: skip
    """A 3x3 convolution of N, C, H, W with relu(. + bias), which are both stored channels last.

    `pads` are top, left, bottom, right.
    """
    x, b = te.placeholder(shape, name="x"), te.placeholder((outputs,), name="b")
    w = te.placeholder((outputs, shape[1], 3, 3), name="w")
    y = topi.nn.conv2d(x, w, stride, list(pads), dilation, "NCHW")
    biased = te.compute(y.shape, lambda n, c, i, j: y(n, c, i, j) + b(c), name="biased")
    return channels_last(mark_constants(te.create_prim_func([x, w, b, topi.nn.relu(biased)]), (1, 2)), {0, 3})


def by(algorithm: str, function: Any, device: Device = HOST, threads: int = 1) -> tuple[Scheduled, Trace]:
    """The schedule for a decision, and all that there was to decide."""
    trace = Trace({"algorithm": algorithm})
    scheduled = apply_rule(contraction, Draft.of(function, device, threads, trace))
    assert scheduled is not None
    return scheduled, trace


def sums(x: Array, w: Array, pads: tuple[int, ...] = SAME) -> NDArray[np.float64]:
    """The convolution itself, of N, H, W, C."""
    top, left, bottom, right = pads
    padded = np.pad(x.astype(np.float64), ((0, 0), (top, bottom), (left, right), (0, 0)))
    height, width = padded.shape[1] - 2, padded.shape[2] - 2
    taps = [(padded[:, i : i + height, j : j + width], w[:, :, i, j]) for i in range(3) for j in range(3)]
    return np.asarray(sum(np.einsum("nhwc,oc->nhwo", part, weights) for part, weights in taps))


def check(
    algorithm: str, function: Any, pads: tuple[int, ...] = SAME, device: Device = HOST, threads: int = 1
) -> Scheduled:
    scheduled, _ = by(algorithm, function, device, threads)
    assert scheduled.rule == "winograd"
    given = inputs(function)
    close(execute(scheduled, given), np.maximum(sums(given[0], given[1], pads) + given[2], 0.0))
    return scheduled


def close(computed: Array, expected: NDArray[np.float64]) -> None:
    assert np.abs(computed - expected).max() <= TOLERANCE * np.abs(expected).max()


@pytest.mark.representatives(2)
@pytest.mark.parametrize("algorithm", ["winograd 2", "winograd 4"])
@pytest.mark.parametrize(
    ("size", "channels", "outputs"),
    [(7, 32, 32), (13, 48, 192), (14, 64, 32), (27, 32, 128), (55, 16, 64), (56, 16, 32), (4, 512, 16), (3, 16, 16)],
)
def test_a_plane_of_each_size(algorithm: str, size: int, channels: int, outputs: int) -> None:
    check(algorithm, convolution((1, channels, size, size), outputs))


@pytest.mark.representatives(2)
@pytest.mark.parametrize("algorithm", ["winograd 2", "winograd 4"])
@pytest.mark.parametrize("pads", [(0, 0, 0, 0), (0, 1, 2, 0), (2, 2, 2, 2), (1, 0, 0, 3)])
def test_padding_of_each_side(algorithm: str, pads: tuple[int, ...]) -> None:
    check(algorithm, convolution((1, 16, 13, 10), 32, pads), pads)


def test_the_larger_of_two_maps_which_asks_for_nan() -> None:
    x, w = te.placeholder((1, 16, 9, 9), name="x"), te.placeholder((32, 16, 3, 3), name="w")
    other = te.placeholder((1, 32, 9, 9), name="other")
    y = topi.nn.conv2d(x, w, 1, 1, 1, "NCHW")
    larger = te.compute(y.shape, lambda *i: floats.larger(y(*i), other(*i)), name="larger")
    function = channels_last(mark_constants(te.create_prim_func([x, w, other, larger]), (1,)), {0, 2, 3})
    scheduled, _ = by("winograd 4", function)
    given = inputs(function)
    close(execute(scheduled, given), np.maximum(sums(given[0], given[1]), given[2]))


@pytest.mark.parametrize("algorithm", ["winograd 2", "winograd 4"])
def test_a_result_of_bytes_and_an_addend_of_bytes(algorithm: str) -> None:
    x, w = te.placeholder((1, 16, 9, 9), name="x"), te.placeholder((32, 16, 3, 3), name="w")
    other = te.placeholder((1, 32, 9, 9), "uint8", name="other")
    y = topi.nn.conv2d(x, w, 1, 1, 1, "NCHW")

    def element(*i: Any) -> Any:
        value = y(*i) * 4.0 + other(*i).astype("float32")
        return (round_to_integer(between(value, -128.0, 127.0), "int32") + 128).astype("uint8")

    function = te.create_prim_func([x, w, other, te.compute(y.shape, element)])
    function = channels_last(mark_constants(function, (1,)), {0, 2, 3})
    scheduled, _ = by(algorithm, function)
    assert scheduled.rule == "winograd"
    given = [*inputs(function)[:-1], np.zeros((1, 9, 9, 32), np.uint8)]
    expected = np.clip(np.rint(4.0 * sums(given[0], given[1]) + given[2]), -128, 127) + 128
    steps = np.abs(execute(scheduled, given).astype(np.float64) - expected)
    assert steps.max() <= 1
    assert steps.mean() < 0.01


@pytest.mark.conformance
@pytest.mark.parametrize(("channels", "outputs"), [(24, 40), (20, 12), (5, 7)])
def test_channels_that_whole_vectors_do_not_divide(channels: int, outputs: int) -> None:
    check("winograd 4", convolution((1, channels, 9, 9), outputs))


@pytest.mark.conformance
@pytest.mark.parametrize("threads", [1, 2])
def test_images_of_a_batch(threads: int) -> None:
    check("winograd 4", convolution((3, 16, 22, 18), 32), threads=threads)


@pytest.mark.conformance
def test_narrow_vectors() -> None:
    check("winograd 2", convolution((1, 16, 10, 10), 24), device=ARM)
    check("winograd 4", convolution((1, 16, 11, 11), 24), device=ARM)


@pytest.mark.representatives(1)
@pytest.mark.parametrize("algorithm", ["winograd 2", "winograd 4"])
def test_the_sum_and_its_activation_are_both_outputs(algorithm: str) -> None:
    x, w = te.placeholder((1, 16, 9, 9), name="x"), te.placeholder((32, 16, 3, 3), name="w")
    y = topi.nn.conv2d(x, w, 1, 1, 1, "NCHW")
    function = mark_constants(te.create_prim_func([x, w, y, topi.nn.relu(y)]), (1,))
    scheduled, _ = by(algorithm, channels_last(function, {0, 2, 3}))
    assert scheduled.rule == "winograd"
    x_given, w_given, y_given, relu_given = inputs(channels_last(function, {0, 2, 3}))
    (repack,) = scheduled.repack
    named = scheduled.schedule.mod["main"].with_attr("global_symbol", "main")
    tensors = [tvm.runtime.tensor(each) for each in (x_given, repack(w_given), y_given, relu_given)]
    tvm.compile(tvm.IRModule({"main": named}), target=tvm.target.Target(TARGET))["main"](*tensors)
    expected = sums(x_given, w_given)
    close(tensors[2].numpy(), expected)
    close(tensors[3].numpy(), np.maximum(expected, 0.0))


@pytest.mark.conformance
def test_slabs_of_few_tiles() -> None:
    function = convolution((1, 16, 30, 30), 32)
    scheduled = apply_rule(contraction, Draft.of(function, HOST, 1, Trace({"algorithm": "winograd 4", "slabs": "5"})))
    assert scheduled is not None
    given = inputs(function)
    close(execute(scheduled, given), np.maximum(sums(given[0], given[1]) + given[2], 0.0))


@pytest.mark.conformance
def test_what_follows_may_name_its_parts_and_read_another_map() -> None:
    x, w = te.placeholder((1, 16, 9, 9), name="x"), te.placeholder((32, 16, 3, 3), name="w")
    r = te.placeholder((1, 32, 9, 9), name="r")
    y = topi.nn.conv2d(x, w, 1, 1, 1, "NCHW")

    def element(*i: Any) -> Any:
        value = tirx.Var("value", "float32")
        return tirx.Let(value, y(*i), value / (1.0 + te.exp(-value))) + r(*i)

    function = te.create_prim_func([x, w, r, te.compute(y.shape, element)])
    function = channels_last(mark_constants(function, (1,)), {0, 2, 3})
    given = inputs(function)
    expected = sums(given[0], given[1])
    close(execute(by("winograd 4", function)[0], given), expected / (1.0 + np.exp(-expected)) + given[2])


@pytest.mark.conformance
def test_a_result_with_several_readers() -> None:
    x, w = te.placeholder((1, 16, 9, 9), name="x"), te.placeholder((64, 16, 3, 3), name="w")
    y = topi.nn.conv2d(x, w, 1, 1, 1, "NCHW")
    first = te.compute((1, 32, 9, 9), lambda n, c, i, j: te.max(y(n, c, i, j), 0.0), name="first")
    second = te.compute((1, 32, 9, 9), lambda n, c, i, j: -y(n, c + 32, i, j), name="second")
    function = te.create_prim_func([x, w, first, second])
    function = channels_last(mark_constants(function, (1,)), {0, 2, 3})
    given = inputs(function)
    close(execute(by("winograd 4", function)[0], given), -sums(given[0], given[1])[..., 32:])


def read_backwards() -> Any:
    x, w = te.placeholder((1, 16, 12, 12), name="x"), te.placeholder((32, 16, 3, 3), name="w")
    c, i, j = (te.reduce_axis((0, extent)) for extent in (16, 3, 3))

    def element(n: Any, o: Any, h: Any, v: Any) -> Any:
        return te.sum(x(n, c, h + i, v + j) * w(o, c, 2 - i, 2 - j), axis=[c, i, j])

    function = te.create_prim_func([x, w, te.compute((1, 32, 10, 10), element, name="y")])
    return channels_last(mark_constants(function, (1,)), {0, 2})


def channels_first() -> Any:
    x, w = te.placeholder((1, 16, 12, 12), name="x"), te.placeholder((16, 16, 3, 3), name="w")
    return mark_constants(te.create_prim_func([x, w, topi.nn.conv2d(x, w, 1, 1, 1, "NCHW")]), (1,))


DIRECT = {
    "strides": (convolution((1, 32, 28, 28), 32, SAME, 2, 1), "contraction"),
    "dilations": (convolution((1, 32, 28, 28), 32, SAME, 1, 2), "contraction"),
    "weights read backwards": (read_backwards(), "contraction"),
    "channels first": (channels_first(), "contraction"),
    "weights that are no constant": (mark_constants(convolution((1, 32, 28, 28), 32), (2,)), None),
}


@pytest.mark.parametrize("case", DIRECT)
def test_others_have_no_choice_of_algorithm(case: str) -> None:
    function, rule = DIRECT[case]
    trace = Trace({"algorithm": "winograd 4"})
    scheduled = apply_rule(contraction, Draft.of(function, HOST, 1, trace))
    assert (scheduled.rule if scheduled is not None else None) == rule
    assert "algorithm" not in {site.name for site in trace.sites}


def test_padding_needs_no_copy_of_the_map() -> None:
    scheduled, _ = by("winograd 4", convolution((1, 16, 12, 12), 16))
    assert "pad_temp" not in scheduled.schedule.mod["main"].script()


def test_the_algorithm_is_a_decision_whatever_is_decided() -> None:
    function = convolution((1, 64, 28, 28), 64)
    for algorithm, rule in (("direct", "contraction"), ("winograd 2", "winograd")):
        scheduled, trace = by(algorithm, function)
        assert scheduled.rule == rule
        assert trace.sites[0].name == "algorithm"
        assert trace.sites[0].option.label == algorithm


@pytest.mark.parametrize(("channels", "size", "rule"), [(64, 56, "winograd"), (512, 7, "contraction")])
def test_the_estimate_weighs_products_against_weights(channels: int, size: int, rule: str) -> None:
    scheduled = apply_rule(contraction, Draft.of(convolution((1, channels, size, size), channels), SERVER))
    assert scheduled is not None
    assert scheduled.rule == rule


@pytest.mark.parametrize("filter", FILTERS, ids=lambda f: f"F({f.size}, 3)")
@settings(deadline=None)
@given(data=st.data())
def test_a_filter_in_one_dimension(filter: Filter, data: Any) -> None:
    numbers = st.integers(-8, 8).map(float)
    numbers_in = data.draw(st.lists(numbers, min_size=filter.window, max_size=filter.window))
    taps = data.draw(st.lists(numbers, min_size=3, max_size=3))
    weights = np.array(filter.weights) @ taps
    products = weights * filter.input(numbers_in, lambda value: value)
    outputs = filter.output(list(products), lambda value: value)
    np.testing.assert_allclose(outputs, np.correlate(numbers_in, taps), atol=1e-9)


def test_weights_are_packed_by_columns() -> None:
    array = np.random.default_rng(0).standard_normal((8, 5, 3, 3)).astype(np.float32)
    packing = WinogradWeights(1, 4, 4)
    packed = packing(array)
    left = np.array(filter_of(4).weights)
    assert packed.shape == packing.packed_shape(array.shape) == (2 * 36, 5, 4)
    np.testing.assert_allclose(packed[36 + 8, 3, 2], (left @ array[6, 3] @ left.T)[1, 2], rtol=1e-5)
    assert packing == WinogradWeights(1, 4, 4)
    assert len({packing, WinogradWeights(1, 2, 4)}) == 2


@pytest.mark.parametrize(("size", "threads"), [(2, 2), pytest.param(4, 1, marks=pytest.mark.conformance)])
def test_a_call_decides_about_images_rows_and_columns(size: int, threads: int) -> None:
    shape = (te.var("n"), 5, te.var("h"), te.var("w"))
    function = convolution(shape, 24).with_attr(TYPICAL, {"n": 1, "h": 16, "w": 16})
    scheduled, _ = by(f"winograd {size}", function, threads=threads)
    assert scheduled.rule == "winograd"
    assert typical_sizes(scheduled.schedule.mod["main"]) == {"n": 1, "h": 16, "w": 16}
    compiled = tvm.compile(scheduled.schedule.mod, target=tvm.target.Target(TARGET))["main"]
    generator = np.random.default_rng(0)
    w, b = (generator.standard_normal(each).astype(np.float32) for each in ((24, 5, 3, 3), (24,)))
    (repack,) = scheduled.repack
    for plane in ((1, 1, 1), (1, 4, 3), (2, 9, 6), (1, 61, 70), (3, 1, 40)):
        x = generator.standard_normal((*plane, 5)).astype(np.float32)
        tensors = [tvm.runtime.tensor(a) for a in (x, repack(w), b, np.full((*plane, 24), np.nan, np.float32))]
        compiled(*tensors)
        close(tensors[-1].numpy(), np.maximum(sums(x, w) + b, 0.0))
