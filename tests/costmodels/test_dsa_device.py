"""Accelerator files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from eqfuse.costmodels.device_file import DeviceError
from eqfuse.costmodels.dsa_device import DIRECTORY, Dataflow, dsa_device_names, load_dsa_device, single_cluster

TEXT = (DIRECTORY / "stcp920.toml").read_text(encoding="utf-8")


def test_four_accelerators_come_with_the_project() -> None:
    assert dsa_device_names() == ["edge-npu", "goya", "stcp920", "stcp920-1mb"]


@pytest.mark.parametrize("name", dsa_device_names())
def test_each_loads(name: str) -> None:
    assert load_dsa_device(name).name == name


def test_stcp920_is_as_printed() -> None:
    device = load_dsa_device("stcp920")
    assert (device.clusters, device.cores, len(device.units)) == (4, 8, 3)
    assert (device.local_buffer, device.global_buffer, device.ddr_bandwidth) == (64 << 10, 8 << 20, 136e9)


def test_the_variant_differs_in_its_local_buffers_and_in_what_they_make_faster() -> None:
    printed, larger = load_dsa_device("stcp920"), load_dsa_device("stcp920-1mb")
    differing = [f for f in vars(printed) if getattr(printed, f) != getattr(larger, f)]
    assert differing == ["name", "local_buffer", "weight_buffer", "joins_samples"]
    assert larger.local_buffer == 1 << 20


def test_a_unit_of_a_cluster_is_there_once() -> None:
    goya = load_dsa_device("goya")
    matrix, vector = goya.units
    device = replace(goya, units=(replace(matrix, per="cluster", rows=128, columns=64), vector))
    assert [device.count(unit) for unit in device.units] == [1, 8]
    assert device.peak_macs == device.clock * 128 * 64


def test_matrix_units_choose_among_all_dataflows() -> None:
    units = [unit for name in dsa_device_names() for unit in load_dsa_device(name).units if unit.kind == "matrix"]
    assert [unit.dataflows for unit in units] == [tuple(Dataflow)] * 4


def test_what_a_file_does_not_say(tmp_path: Path) -> None:
    path = tmp_path / "device.toml"
    left_out = ("dma_channels", "core_dma_channels", "dataflows")
    lines = [line for line in TEXT.splitlines() if not line.startswith(left_out)]
    path.write_text("\n".join(lines), encoding="utf-8")
    device = load_dsa_device(path)
    assert (device.dma_channels, device.core_dma_channels) == (8, 4)
    assert device.units[0].dataflows == (Dataflow.OUTPUT_STATIONARY,)


def test_an_array_loads_ahead_if_its_file_says_so(tmp_path: Path) -> None:
    path = tmp_path / "device.toml"
    path.write_text(TEXT.replace('kind    = "matrix"', 'kind = "matrix"\nloads_ahead = true'), encoding="utf-8")
    assert [unit.loads_ahead for unit in load_dsa_device(path).units] == [True, False, False]
    assert not any(unit.loads_ahead for unit in load_dsa_device("stcp920").units)


def test_a_single_cluster_has_its_share_of_ddr() -> None:
    device = single_cluster(load_dsa_device("stcp920"))
    assert (device.clusters, device.ddr_bandwidth, device.ddr_capacity) == (1, 34e9, 4 << 30)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("clusters = { value = 4", "clusters = { value = 0", "field clusters.value: expected a positive number"),
        ("{ value = 65536, origin", "{ value = 65536, from", "field local_buffer.origin: missing; write { value ="),
        ("value = 16384", "value = 65536", "the 65536 bytes of weight_buffer do not leave room in the 65536 bytes"),
        ("value = 8388608", "value = 1024", "the 65536 bytes of local_buffer do not leave room in the 1024 bytes"),
        ("alignment        = { value = 64", "alignment = { value = 48", "alignment must be a power of two"),
        ('kind    = "matrix"', 'kind = "tensor"', "field units[0].kind: expected one of matrix, vector_mac, vector"),
        ('name    = "VME"', 'name = "MME"', "two units have the same name"),
        ('["os", "ws", "is"]', '["os", "rs"]', "units[0].dataflows.value[1]: expected one of os, ws, is, got 'rs'"),
        ('["os", "ws", "is"]', '["os", "os"]', "field units[0].dataflows: each dataflow must be listed once"),
        ('["os", "ws", "is"], origin', '["os"], from', "field units[0].dataflows.origin: missing"),
        ('kind    = "matrix"', 'kind = "vector"', "field units[0]: a unit of kind 'vector' has no dataflows"),
        (
            'kind    = "vector"\nrows    = { value = 64, origin = "assumed" }',
            'kind = "vector"\nrows = { value = 64, origin = "assumed" }\nint8 = { value = 2, origin = "assumed" }',
            "field units[2]: a unit of kind 'vector' multiplies no integers of 8 bits; leave int8 out",
        ),
        (
            'kind    = "vector"\n',
            'kind = "vector"\nloads_ahead = true\n',
            "field units[2]: a unit of kind 'vector' keeps no operands that it could load ahead; leave that out",
        ),
        ("cores    =", "kerne =", "field kerne: unknown"),
        ("[[units]]", "[[other]]", "field other: unknown"),
    ],
)
def test_impossible_figures_are_named(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = tmp_path / "device.toml"
    assert old in TEXT
    path.write_text(TEXT.replace(old, new), encoding="utf-8")
    with pytest.raises(DeviceError) as caught:
        load_dsa_device(path)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_unknown_accelerator_names_the_known() -> None:
    with pytest.raises(DeviceError, match=r"no device 'dsa-9'; use one of edge-npu, goya, stcp920, stcp920-1mb"):
        load_dsa_device("dsa-9")
