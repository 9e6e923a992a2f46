"""Layouts: which values are feature maps, how they are stored, what a conversion costs."""

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


@pytest.mark.parametrize(
    ("op", "result", "perm", "expected"),
    [
        *((op, (1, 8, 4, 4), None, Role.ANY) for op in ("Relu", "Concat", "Softmax", "ReduceMean")),
        *((op, (1, 2, 8, 8), None, Role.PLAIN) for op in ("MatMul", "DepthToSpace", "NonZero")),
        ("Reshape", (1, 8, 16), None, Role.ANY),  # the channels stay
        ("Reshape", (8, 1, 4, 4), None, Role.PLAIN),
        ("Flatten", (1, 128), None, Role.PLAIN),
        ("Resize", (1, 8, 8, 8), None, Role.ANY),
        ("Resize", (1, 16, 4, 4), None, Role.PLAIN),
        ("Transpose", (1, 8, 4, 4), (0, 1, 3, 2), Role.ANY),
        ("Transpose", (1, 4, 4, 8), (0, 2, 3, 1), Role.PLAIN),
    ],
)
def test_roles(op: str, result: Shape, perm: tuple[int, ...] | None, expected: Role) -> None:
    builder = Builder()
    builder.op(op, builder.input(1, 8, 4, 4), shape=result, **({} if perm is None else {"perm": perm}))
    assert FeatureMaps(builder.graph()).roles[0] is expected


def test_nothing_is_known_of_an_opaque_operator() -> None:
    builder = Builder()
    builder.node("Conv", [builder.input(1, 8, 4, 4)], [(1, 8, 4, 4)], is_opaque=True)
    assert FeatureMaps(builder.graph()).roles == (Role.PLAIN,)


# --- storage


@pytest.mark.parametrize(
    ("layout", "channels", "expected"),
    [
        *((BLOCKED, channels, Layout("blocked", block)) for channels, block in [(32, 16), (24, 8), (12, 4)]),
        *((BLOCKED, channels, PLAIN) for channels in (3, "channels")),  # they fill no block
        (CHANNELS_LAST, 3, CHANNELS_LAST),
    ],
)
def test_blocks_are_as_long_as_the_channels_fill(layout: Layout, channels: int | str, expected: Layout) -> None:
    assert stored(layout, (1, channels, 4, 4)) == expected


def test_what_is_no_feature_map_is_plain() -> None:
    builder = Builder()
    x = builder.input(2, 16, 8)
    builder.op("Relu", x)
    assert FeatureMaps(builder.graph()).stored(CHANNELS_LAST, x) == PLAIN


# --- conversions


@pytest.mark.parametrize(
    ("shape", "source", "target"),
    [
        *(((1, 32, 1, 1), PLAIN, layout) for layout in layouts(HOST)),  # one pixel
        ((1, 16, 4, 4), BLOCKED, CHANNELS_LAST),  # one block
        ((0, 32, 8, 8), PLAIN, BLOCKED),  # no elements
    ],
)
def test_a_conversion_that_moves_no_element_costs_nothing(shape: Shape, source: Layout, target: Layout) -> None:
    assert conversion_seconds(feature_map(*shape), source, target, HOST) == 0.0


@pytest.mark.parametrize("shape", [(1, 32, 8), (1, 32, 8, 8), (2, 32, 2, 8, 8)])
@pytest.mark.parametrize("source", layouts(HOST))
@pytest.mark.parametrize("target", layouts(HOST))
def test_a_conversion_costs_a_launch_and_the_bytes(shape: tuple[int, ...], source: Layout, target: Layout) -> None:
    value = feature_map(*shape)
    least = HOST.launch_overhead + 2 * value.extent.bytes / HOST.bandwidth(2 * value.extent.bytes)
    assert conversion_seconds(value, source, target, HOST) >= (least if source != target else 0.0)
