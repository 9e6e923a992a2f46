"""Convolutions by minimal filters: the numbers of a direct convolution, on planes that tiles divide and on others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tvm import te, tirx, topi

from eqfuse.costmodels.device import Device
from eqfuse.lowering.kernels.channels_last import channels_last
from eqfuse.lowering.schedules import Draft, Scheduled, Trace, decisions, mark_constants
from eqfuse.lowering.schedules.contraction import contraction
from eqfuse.lowering.schedules.winograd.filters import FILTERS, Filter, WinogradWeights, filter_of

from ..functions import ARM, HOST, SERVER, run

pytestmark = pytest.mark.usefixtures("shared_by_threads")

Array = NDArray[np.float32]
Pads = tuple[int, int, int, int]
SAME: Pads = (1, 1, 1, 1)
TOLERANCE = 1e-4
"""Of the largest output."""


@pytest.fixture(autouse=True)
def _nothing_is_ruled_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """However much an option is estimated to cost."""
    monkeypatch.setattr(decisions, "WORST_COST", np.inf)


def convolution(
    shape: tuple[int, ...], outputs: int, pads: Pads = SAME, stride: int = 1, dilation: int = 1
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
    found = contraction(Draft.of(function, device, threads, trace))
    assert found is not None
    return found, trace


def arrays(function: Any) -> list[Array]:
    """Numbers for all parameters, but NaN for the last, which is the output."""
    generator = np.random.default_rng(0)
    shapes = [tuple(int(d) for d in p.shape) for p in function.params]
    return [*(generator.standard_normal(s).astype(np.float32) for s in shapes[:-1]), np.full(shapes[-1], np.nan, "f4")]


def computed(scheduled: Scheduled, given: list[Array]) -> Array:
    """What the schedule makes of them, its constants packed."""
    packed: list[Any] = list(given)
    for packing in scheduled.repack:
        shape = packing.packed_shape(packed[packing.parameter].shape)
        packed[packing.parameter] = packing(packed[packing.parameter])
        assert packed[packing.parameter].shape == shape
    found: Array = run(scheduled.schedule.mod["main"], packed)
    return found


def sums(x: Array, w: Array, pads: Pads = SAME) -> NDArray[np.float64]:
    """The convolution itself, of N, H, W, C."""
    top, left, bottom, right = pads
    padded = np.pad(x.astype(np.float64), ((0, 0), (top, bottom), (left, right), (0, 0)))
    height, width = padded.shape[1] - 2, padded.shape[2] - 2
    taps = [(padded[:, i : i + height, j : j + width], w[:, :, i, j]) for i in range(3) for j in range(3)]
    return np.asarray(sum(np.einsum("nhwc,oc->nhwo", part, weights) for part, weights in taps))


def check(algorithm: str, function: Any, pads: Pads = SAME, device: Device = HOST, threads: int = 1) -> Scheduled:
    scheduled, _ = by(algorithm, function, device, threads)
    assert scheduled.rule == "winograd"
    given = arrays(function)
    close(computed(scheduled, given), np.maximum(sums(given[0], given[1], pads) + given[2], 0.0))
    return scheduled


def close(found: Array, expected: NDArray[np.float64]) -> None:
    assert np.abs(found - expected).max() <= TOLERANCE * np.abs(expected).max()


@pytest.mark.representatives(3)
@pytest.mark.parametrize("algorithm", ["winograd 2", "winograd 4"])
@pytest.mark.parametrize(
    ("size", "channels", "outputs"),
    [(7, 32, 32), (13, 48, 192), (14, 64, 32), (27, 32, 128), (55, 16, 64), (56, 16, 32), (4, 512, 16), (3, 16, 16)],
)
def test_a_plane_of_each_size(algorithm: str, size: int, channels: int, outputs: int) -> None:
    check(algorithm, convolution((1, channels, size, size), outputs))


@pytest.mark.representatives(3)
@pytest.mark.parametrize("algorithm", ["winograd 2", "winograd 4"])
@pytest.mark.parametrize("pads", [(0, 0, 0, 0), (0, 1, 2, 0), (2, 2, 2, 2), (1, 0, 0, 3)])
def test_padding_of_each_side(algorithm: str, pads: Pads) -> None:
    check(algorithm, convolution((1, 16, 13, 10), 32, pads), pads)


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


@pytest.mark.conformance
def test_slabs_of_few_tiles() -> None:
    function = convolution((1, 16, 30, 30), 32)
    scheduled = contraction(Draft.of(function, HOST, 1, Trace({"algorithm": "winograd 4", "slabs": "5"})))
    assert scheduled is not None
    given = arrays(function)
    close(computed(scheduled, given), np.maximum(sums(given[0], given[1]) + given[2], 0.0))


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
    given = arrays(function)
    expected = sums(given[0], given[1])
    close(computed(by("winograd 4", function)[0], given), expected / (1.0 + np.exp(-expected)) + given[2])


@pytest.mark.conformance
def test_a_result_with_several_readers() -> None:
    x, w = te.placeholder((1, 16, 9, 9), name="x"), te.placeholder((64, 16, 3, 3), name="w")
    y = topi.nn.conv2d(x, w, 1, 1, 1, "NCHW")
    first = te.compute((1, 32, 9, 9), lambda n, c, i, j: te.max(y(n, c, i, j), 0.0), name="first")
    second = te.compute((1, 32, 9, 9), lambda n, c, i, j: -y(n, c + 32, i, j), name="second")
    function = te.create_prim_func([x, w, first, second])
    function = channels_last(mark_constants(function, (1,)), {0, 2, 3})
    given = arrays(function)
    close(computed(by("winograd 4", function)[0], given), -sums(given[0], given[1])[..., 32:])


@pytest.mark.parametrize(("stride", "dilation"), [(2, 1), (1, 2)])
def test_others_are_computed_directly(stride: int, dilation: int) -> None:
    scheduled, trace = by("winograd 4", convolution((1, 32, 28, 28), 32, SAME, stride, dilation))
    assert scheduled.rule == "contraction"
    assert "algorithm" not in {site.name for site in trace.sites}


def test_weights_that_are_read_backwards_are_not_transformed() -> None:
    x, w = te.placeholder((1, 16, 12, 12), name="x"), te.placeholder((32, 16, 3, 3), name="w")
    c, i, j = (te.reduce_axis((0, extent)) for extent in (16, 3, 3))

    def element(n: Any, o: Any, h: Any, v: Any) -> Any:
        return te.sum(x(n, c, h + i, v + j) * w(o, c, 2 - i, 2 - j), axis=[c, i, j])

    function = te.create_prim_func([x, w, te.compute((1, 32, 10, 10), element, name="y")])
    trace = Trace({"algorithm": "winograd 4"})
    contraction(Draft.of(channels_last(mark_constants(function, (1,)), {0, 2}), HOST, 1, trace))
    assert "algorithm" not in {site.name for site in trace.sites}


def test_padding_needs_no_copy_of_the_map() -> None:
    scheduled, _ = by("winograd 4", convolution((1, 16, 12, 12), 16))
    assert "pad_temp" not in scheduled.schedule.mod["main"].script()


def test_weights_that_are_no_constant_are_not_transformed() -> None:
    trace = Trace({"algorithm": "winograd 4"})
    contraction(Draft.of(mark_constants(convolution((1, 32, 28, 28), 32), (2,)), HOST, 1, trace))
    assert "algorithm" not in {site.name for site in trace.sites}


def test_feature_maps_with_their_channels_first_are_computed_directly() -> None:
    x, w = te.placeholder((1, 16, 12, 12), name="x"), te.placeholder((16, 16, 3, 3), name="w")
    function = mark_constants(te.create_prim_func([x, w, topi.nn.conv2d(x, w, 1, 1, 1, "NCHW")]), (1,))
    assert by("winograd 4", function)[0].rule == "contraction"


def test_the_algorithm_is_a_decision_whatever_is_decided() -> None:
    function = convolution((1, 64, 28, 28), 64)
    for algorithm, rule in (("direct", "contraction"), ("winograd 2", "winograd")):
        scheduled, trace = by(algorithm, function)
        assert scheduled.rule == rule
        assert trace.sites[0].name == "algorithm"
        assert trace.sites[0].option.label == algorithm


@pytest.mark.parametrize(("channels", "size", "rule"), [(64, 56, "winograd"), (512, 7, "contraction")])
def test_the_estimate_weighs_products_against_weights(channels: int, size: int, rule: str) -> None:
    scheduled = contraction(Draft.of(convolution((1, channels, size, size), channels), SERVER))
    assert scheduled is not None
    assert scheduled.rule == rule


@pytest.mark.parametrize("filter", FILTERS, ids=lambda f: f"F({f.size}, 3)")
@settings(deadline=None)
@given(data=st.data())
def test_a_filter_in_one_dimension(filter: Filter, data: Any) -> None:
    numbers = st.integers(-8, 8).map(float)
    inputs = data.draw(st.lists(numbers, min_size=filter.window, max_size=filter.window))
    taps = data.draw(st.lists(numbers, min_size=3, max_size=3))
    weights = np.array(filter.weights) @ taps
    products = weights * filter.input(inputs, lambda value: value)
    found = filter.output(list(products), lambda value: value)
    np.testing.assert_allclose(found, np.correlate(inputs, taps), atol=1e-9)


def test_weights_are_packed_by_columns() -> None:
    array = np.random.default_rng(0).standard_normal((8, 5, 3, 3)).astype(np.float32)
    packing = WinogradWeights(1, 4, 4)
    packed = packing(array)
    left = np.array(filter_of(4).weights)
    assert packed.shape == packing.packed_shape(array.shape) == (2 * 36, 5, 4)
    np.testing.assert_allclose(packed[36 + 8, 3, 2], (left @ array[6, 3] @ left.T)[1, 2], rtol=1e-5)
    assert packing == WinogradWeights(1, 4, 4)
    assert len({packing, WinogradWeights(1, 2, 4)}) == 2
