"""Layouts: what is a feature map, how it is stored, what a conversion costs."""

from __future__ import annotations

import pytest

from eqfuse.costmodels.device import DEFAULT, load_device
from eqfuse.extract.partition.layouts.feature_maps import (
    CHANNELS_LAST,
    PLAIN,
    FeatureMaps,
    Layout,
    Role,
    conversion_seconds,
    layouts,
)
from eqfuse.ir.graph import Value
from eqfuse.ir.types import TensorType

from ..blocks import conv, transformer
from ..graphs import Builder, Shape

HOST = load_device(DEFAULT)
BLOCKED = Layout("blocked", 16)


def feature_map(*shape: int) -> Value:
    return Value("x", TensorType("float32", shape))


def role(op: str, source: Shape, result: Shape, **attributes: int | str | tuple[int, ...]) -> Role:
    builder = Builder()
    builder.op(op, builder.input(*source), shape=result, **attributes)
    return FeatureMaps(builder.graph()).roles[0]


def stored(layout: Layout, shape: Shape) -> Layout:
    """How the input of a convolution is stored."""
    builder = Builder()
    x = builder.input(*shape)
    builder.op("Conv", x, builder.constant(8, 8, 1, 1), shape=shape)
    return FeatureMaps(builder.graph()).stored(layout, x)


def test_blocks_are_as_long_as_a_vector() -> None:
    assert layouts(load_device("arm-cortex-a76")) == (PLAIN, CHANNELS_LAST, Layout("blocked", 4))


def test_a_layout_reads_as_a_word() -> None:
    assert [str(layout) for layout in layouts(HOST)] == ["plain", "channels last", "blocked by 16"]


# --- feature maps


def test_a_transformer_has_no_feature_maps() -> None:
    assert FeatureMaps(transformer()).values == frozenset()


def test_what_is_computed_element_by_element_around_a_convolution_are_feature_maps() -> None:
    builder = Builder()
    x = builder.input(1, 8, 4, 4)
    before = builder.op("Relu", x)
    y = conv(builder, before, 8)
    after = builder.op("Add", y, builder.constant(1, 8, 1, 1))
    assert FeatureMaps(builder.graph()).values == {x, before, y, after}


def test_what_a_reshape_makes_of_a_feature_map_is_none() -> None:
    builder = Builder()
    flat = builder.op("Reshape", conv(builder, builder.input(1, 8, 4, 4), 8), shape=(1, 16, 8))
    assert flat not in FeatureMaps(builder.graph()).values


@pytest.mark.parametrize("op", ["Relu", "Concat", "Softmax", "ReduceMean"])
def test_operators_that_work_on_any_layout(op: str) -> None:
    assert role(op, (1, 8, 4, 4), (1, 8, 4, 4)) is Role.ANY


@pytest.mark.parametrize("op", ["MatMul", "DepthToSpace", "NonZero"])
def test_operators_that_work_on_plain_maps_only(op: str) -> None:
    assert role(op, (1, 8, 4, 4), (1, 2, 8, 8)) is Role.PLAIN


@pytest.mark.parametrize(
    ("op", "result", "expected"),
    [
        ("Reshape", (1, 8, 16), Role.ANY),
        ("Reshape", (8, 1, 4, 4), Role.PLAIN),
        ("Flatten", (1, 128), Role.PLAIN),
        ("Resize", (1, 8, 8, 8), Role.ANY),
        ("Resize", (1, 16, 4, 4), Role.PLAIN),
    ],
)
def test_whether_the_channels_stay(op: str, result: Shape, expected: Role) -> None:
    assert role(op, (1, 8, 4, 4), result) is expected


@pytest.mark.parametrize(("perm", "expected"), [((0, 1, 3, 2), Role.ANY), ((0, 2, 3, 1), Role.PLAIN)])
def test_whether_a_transpose_moves_the_channels(perm: tuple[int, ...], expected: Role) -> None:
    assert role("Transpose", (1, 4, 4, 4), (1, 4, 4, 4), perm=perm) is expected


def test_nothing_is_known_of_an_opaque_operator() -> None:
    builder = Builder()
    builder.node("Conv", [builder.input(1, 8, 4, 4)], [(1, 8, 4, 4)], is_opaque=True)
    assert FeatureMaps(builder.graph()).roles == (Role.PLAIN,)


# --- storage


@pytest.mark.parametrize(("channels", "block"), [(32, 16), (24, 8), (12, 4)])
def test_blocks_are_as_long_as_the_channels_fill(channels: int, block: int) -> None:
    assert stored(BLOCKED, (1, channels, 4, 4)) == Layout("blocked", block)


@pytest.mark.parametrize("channels", [3, "channels"])
def test_channels_that_fill_no_block_are_plain(channels: int | str) -> None:
    assert stored(BLOCKED, (1, channels, 4, 4)) == PLAIN


def test_channels_last_are_so_whatever_their_number() -> None:
    assert stored(CHANNELS_LAST, (1, 3, 4, 4)) == CHANNELS_LAST


def test_what_is_no_feature_map_is_plain() -> None:
    builder = Builder()
    x = builder.input(2, 16, 8)
    builder.op("Relu", x)
    assert FeatureMaps(builder.graph()).stored(CHANNELS_LAST, x) == PLAIN


# --- conversions


def test_a_map_of_one_pixel_is_the_same_in_all_layouts() -> None:
    value = feature_map(1, 32, 1, 1)
    assert [conversion_seconds(value, PLAIN, layout, HOST) for layout in layouts(HOST)] == [0.0, 0.0, 0.0]


def test_one_block_of_channels_is_channels_last() -> None:
    assert conversion_seconds(feature_map(1, 16, 4, 4), BLOCKED, CHANNELS_LAST, HOST) == 0.0


@pytest.mark.parametrize("shape", [(1, 32, 8), (1, 32, 8, 8), (2, 32, 2, 8, 8)])
@pytest.mark.parametrize("source", layouts(HOST))
@pytest.mark.parametrize("target", layouts(HOST))
def test_a_conversion_costs_a_launch_and_the_bytes(shape: tuple[int, ...], source: Layout, target: Layout) -> None:
    value = feature_map(*shape)
    least = HOST.launch_overhead + 2 * value.extent.bytes / HOST.bandwidth(2 * value.extent.bytes)
    assert conversion_seconds(value, source, target, HOST) >= (least if source != target else 0.0)


def test_an_empty_map_costs_nothing() -> None:
    assert conversion_seconds(feature_map(0, 32, 8, 8), PLAIN, BLOCKED, HOST) == 0.0
