"""Which values are feature maps, and what operators do with them."""

from __future__ import annotations

import pytest

from eqfuse.extract.partition.feature_maps import FeatureMaps, Role

from .blocks import conv, transformer
from .graphs import Builder, Shape


def test_a_transformer_has_no_feature_maps() -> None:
    assert FeatureMaps(transformer()).values == frozenset()


def test_what_is_computed_element_by_element_around_a_convolution_are_feature_maps() -> None:
    builder = Builder()
    x = builder.input(1, 8, 4, 4)
    before = builder.op("Relu", x)
    y = conv(builder, before, 8)
    after = builder.op("Add", y, builder.constant(1, 8, 1, 1))
    assert FeatureMaps(builder.graph()).values == {x, before, y, after}


@pytest.mark.parametrize(
    ("mode", "channels", "are_maps"), [("linear", 8, True), ("linear", 3, False), ("nearest", 8, False)]
)
def test_an_interpolation_of_many_channels_makes_and_reads_feature_maps(
    mode: str, channels: int, are_maps: bool
) -> None:
    builder = Builder()
    x = builder.input(1, channels, 4, 4)
    y = builder.op("Resize", x, shape=(1, channels, 8, 8), mode=mode)
    assert FeatureMaps(builder.graph()).values == ({x, y} if are_maps else frozenset())


def test_a_grid_reads_all_channels_of_a_feature_map_at_one_place() -> None:
    builder = Builder()
    x, grid = builder.input(1, 8, 4, 4), builder.input(1, 3, 5, 2)
    y = builder.op("GridSample", x, grid, shape=(1, 8, 3, 5))
    assert FeatureMaps(builder.graph()).values == {x, y}


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
