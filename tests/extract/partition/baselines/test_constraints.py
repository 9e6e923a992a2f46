"""The registers and the cache that a fused kernel needs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from eqfuse.costmodels.choices import DEFAULT_DEVICE
from eqfuse.costmodels.device import DIRECTORY, Cache, Device, load_device
from eqfuse.costmodels.device_file import VECTOR_REGISTERS, DeviceError
from eqfuse.extract.partition.baselines.fusion_plan import fits, kept_bytes, live_registers
from eqfuse.extract.partition.baselines.mapping_types import mapping_types
from eqfuse.ir.graph import OperatorGraph

from ..graphs import Builder, chain

DEVICE = load_device(DEFAULT_DEVICE)
LINE = 'vector_registers = { value = 32, origin = "documented" }'


def wide_sum(count: int) -> OperatorGraph:
    """All of `count` results of one input first, then their sum."""
    builder = Builder()
    x = builder.input(4, 4)
    parts = [builder.op("Relu", x) for _ in range(count)]
    total = parts[0]
    for part in parts[1:]:
        total = builder.op("Add", total, part)
    return builder.graph()


def test_a_chain_needs_two_registers() -> None:
    assert live_registers(chain("Relu", "Exp", "Neg", "Abs"), range(4)) == 2


def test_values_that_wait_stay_in_registers() -> None:
    assert live_registers(wide_sum(5), range(9)) == 6


def test_a_value_dies_where_it_is_read_last() -> None:
    builder = Builder()
    x = builder.input(4)
    y = builder.op("Add", builder.op("Relu", x), x)
    builder.op("Exp", builder.op("Neg", y))
    assert live_registers(builder.graph(), range(4)) == 3


def all_fits(graph: OperatorGraph, device: Device) -> bool:
    return fits(graph, mapping_types(graph), range(len(graph)), device)


def all_kept_bytes(graph: OperatorGraph) -> int:
    return kept_bytes(graph, mapping_types(graph), range(len(graph)))


def test_a_kernel_that_spills_does_not_fit() -> None:
    graph = wide_sum(20)
    assert all_fits(graph, replace(DEVICE, vector_registers=21))
    assert not all_fits(graph, replace(DEVICE, vector_registers=20))


def test_a_row_that_is_computed_for_a_softmax_is_kept() -> None:
    assert all_kept_bytes(chain("Relu", "Softmax", "Exp", shape=(16, 8))) == 4 * 8


def test_a_row_that_is_read_from_memory_is_not_kept() -> None:
    assert all_kept_bytes(chain("Softmax", "Exp", shape=(16, 8))) == 0


def test_element_wise_operators_keep_nothing() -> None:
    assert all_kept_bytes(chain("Relu", "Exp", "Transpose", shape=(16, 8))) == 0


def test_a_convolution_keeps_what_one_of_its_results_sums_over() -> None:
    builder = Builder()
    image = builder.op("Relu", builder.input(1, 8, 14, 14))
    builder.op("Conv", image, builder.constant(16, 8, 3, 3), shape=(1, 16, 12, 12))
    assert all_kept_bytes(builder.graph()) == 4 * 8 * 3 * 3


def test_rows_that_overflow_the_core_s_own_cache_do_not_fit() -> None:
    graph = chain("Relu", "Softmax", shape=(2, 1024))
    shared = Cache(2, 1 << 20, 1e9, True)
    assert all_fits(graph, replace(DEVICE, caches=(Cache(1, 4096, 1e9, False), shared)))
    assert not all_fits(graph, replace(DEVICE, caches=(Cache(1, 4095, 1e9, False), shared)))


def test_without_a_cache_of_its_own_a_core_has_no_limit() -> None:
    assert all_fits(chain("Relu", "Softmax", shape=(2, 1024)), replace(DEVICE, caches=()))


@pytest.mark.parametrize("name", ["x86-64-v4", "arm-cortex-a76", "snapdragon865"])
def test_shipped_devices_have_32_vector_registers(name: str) -> None:
    assert load_device(name).vector_registers == 32


def device_with(tmp_path: Path, line: str) -> Path:
    text = (DIRECTORY / "x86-64-v4.toml").read_text(encoding="utf-8")
    assert LINE in text
    path = tmp_path / "mine.toml"
    path.write_text(text.replace(LINE, line), encoding="utf-8")
    return path


def test_a_device_that_does_not_say_has_the_fewest_registers(tmp_path: Path) -> None:
    assert load_device(device_with(tmp_path, "")).vector_registers == VECTOR_REGISTERS == 16


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (LINE.replace("32", "0"), ".value: expected a positive number; write { value = NUMBER, origin ="),
        (LINE.replace("32", "2.5"), ".value: expected a whole number"),
        (LINE.replace("32", "true"), ".value: expected a number, got bool"),
        ("vector_registers = 32", ": expected a table, got int; write { value = NUMBER, origin ="),
    ],
)
def test_a_malformed_register_count_is_named(tmp_path: Path, line: str, message: str) -> None:
    with pytest.raises(DeviceError, match=rf"mine\.toml: field vector_registers{message}"):
        load_device(device_with(tmp_path, line))
