"""The roofline's orderings: each test is a fact about kernels, on every shipped device."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eqfuse.costmodels.device import Device, device_names, load_device
from eqfuse.costmodels.roofline import kernels, seconds
from eqfuse.ir.operation import Attributes, Operation
from eqfuse.ir.types import TensorType

UNITS = {"product", "vector", "scalar", "run"}


@pytest.fixture(params=device_names())
def device(request: pytest.FixtureRequest) -> Device:
    return load_device(request.param)


def f32(*shape: int) -> TensorType:
    return TensorType("float32", shape)


def time(device: Device, op: str, operands: list[TensorType], output: TensorType, **attributes: object) -> float:
    known: Attributes = {k: v for k, v in attributes.items() if isinstance(v, int | float | str | tuple)}
    return seconds(Operation.of(op, known, tuple(operands), output), device)


def conv(device: Device, channels: int, group: int, side: int = 28) -> float:
    x, weight = f32(1, channels, side, side), f32(channels, channels // group, 3, 3)
    return time(device, "Conv", [x, weight], x, group=group, kernel_shape=(3, 3))


def test_the_table_has_only_positive_figures() -> None:
    assert all(k.value > 0 and k.depth >= 0 and k.unit in UNITS for k in kernels().values())


def test_a_view_costs_its_overhead(device: Device) -> None:
    assert time(device, "Reshape", [f32(64, 64)], f32(4096)) == device.view_overhead


def test_a_tiny_operator_costs_hardly_more_than_its_launch(device: Device) -> None:
    assert device.launch_overhead < time(device, "Add", [f32(4), f32(4)], f32(4)) < 1.1 * device.launch_overhead


def test_depthwise_is_faster_but_less_efficient_than_dense(device: Device) -> None:
    assert conv(device, 64, 1) / 64 < conv(device, 64, 64) < conv(device, 64, 1)


def test_channels_that_do_not_fill_a_vector_waste_it(device: Device) -> None:
    narrow = device.lanes + 1
    assert conv(device, narrow, 1) > 1.3 * conv(device, device.lanes, 1) * (narrow / device.lanes) ** 2


def test_a_matmul_of_one_row_is_bound_by_the_weight(device: Device) -> None:
    weight = f32(4096, 4096)
    moved = 4 * (4096 * 4096 + 2 * 4096)
    expected = moved / device.bandwidth(moved) + device.launch_overhead
    assert time(device, "MatMul", [f32(1, 4096), weight], f32(1, 4096)) == pytest.approx(expected)


def test_erf_costs_more_than_add_on_as_many_elements(device: Device) -> None:
    x = f32(128, 128)
    assert time(device, "Erf", [x], x) > time(device, "Add", [x, x], x)


def test_a_transpose_of_long_runs_is_cheaper_than_of_single_elements(device: Device) -> None:
    x = f32(16, 16, 16, 48)
    heads = time(device, "Transpose", [x], x, perm=(0, 2, 1, 3))
    assert heads < time(device, "Transpose", [x], x, perm=(3, 1, 2, 0))


@pytest.mark.parametrize(
    ("beside", "perm", "among", "longer"),
    [((120, 4, 20), (1, 0, 2), (3, 1, 0, 2), (120, 4, 20, 1)), ((80, 120), (1, 0), (2, 1, 0), (80, 1, 120))],
)
def test_a_transpose_by_which_axes_of_size_one_move_with_others_is_dearer(
    device: Device, beside: tuple[int, ...], perm: tuple[int, ...], among: tuple[int, ...], longer: tuple[int, ...]
) -> None:
    """The runtime sees neither the longer run nor that a single axis of the others moves."""
    alone, both = f32(*beside), f32(*longer)
    least = time(device, "Transpose", [alone], alone, perm=perm)
    assert time(device, "Transpose", [both], both, perm=among) > 2 * least


def test_a_transpose_of_axes_of_size_one_is_a_copy(device: Device) -> None:
    x, y = f32(1, 64, 64), f32(64, 1, 64)
    copy = 2 * 4 * 64 * 64 / device.bandwidth(2 * 4 * 64 * 64) + device.launch_overhead
    assert time(device, "Transpose", [x], y, perm=(1, 0, 2)) == pytest.approx(copy, rel=0.01)


def test_rows_of_many_groups_are_added_up_faster_than_those_of_one(device: Device) -> None:
    groups = time(device, "ReduceSum", [f32(128, 128, 24)], f32(128, 24), axes=(1,), keepdims=0)
    one = time(device, "ReduceSum", [f32(1, 128 * 128, 24)], f32(1, 24), axes=(1,), keepdims=0)
    apart = time(device, "ReduceSum", [f32(128, 8, 16, 24)], f32(8, 24), axes=(0, 2), keepdims=0)
    assert groups < 0.6 * one
    assert apart == pytest.approx(one, rel=0.1)


def test_gathering_columns_costs_more_than_rows(device: Device) -> None:
    data, picks = f32(128, 128), TensorType("int64", (128,))
    rows = time(device, "Gather", [data, picks], data, axis=0)
    assert rows < time(device, "Gather", [data, picks], data, axis=1)


def test_slicing_with_a_step_costs_more_than_without(device: Device) -> None:
    half = {"axes": (1,), "starts": (0,)}
    plain = time(device, "Slice", [f32(128, 128)], f32(128, 64), steps=(1,), ends=(64,), **half)
    assert plain < time(device, "Slice", [f32(128, 128)], f32(128, 64), steps=(2,), ends=(128,), **half)


def test_a_pointwise_conv_to_fewer_channels_goes_before_the_upsampling(device: Device) -> None:
    small, large, weight = (1, 256, 32, 32), (1, 256, 64, 64), f32(32, 256, 1, 1)
    after = time(device, "Resize", [f32(*small)], f32(*large), mode="linear")
    after += time(device, "Conv", [f32(*large), weight], f32(1, 32, 64, 64))
    before = time(device, "Conv", [f32(*small), weight], f32(1, 32, 32, 32))
    before += time(device, "Resize", [f32(1, 32, 32, 32)], f32(1, 32, 64, 64), mode="linear")
    assert before < after / 2


def test_a_faster_clock_never_makes_it_slower(device: Device) -> None:
    assert conv(replace(device, clock=2 * device.clock), 64, 1) < conv(device, 64, 1)
