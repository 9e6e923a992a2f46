"""The derived device of this machine."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from eqfuse.costmodels import host
from eqfuse.costmodels.device import DIRECTORY, Device, host_device, load_device
from eqfuse.costmodels.host import HostMeasurements, forget_measurements, host_figures, keep_measurements
from eqfuse.support.errors import UsageError
from eqfuse.support.processor import CacheLevel, ProcessorModel

CACHES = (CacheLevel(1, 64 << 10, 8, 64), CacheLevel(2, 1 << 20, 16, 128))


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine of the class x86-64-v3 with five cores and two caches, nothing measured on it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setattr(host, "processor_level", lambda: "x86-64-v3")
    monkeypatch.setattr(host, "processor_model", ProcessorModel)
    monkeypatch.setattr(host, "available_cores", lambda: 5)
    monkeypatch.setattr(host, "cache_levels", lambda: CACHES)


def detect_host() -> Device:
    host_device.cache_clear()
    device = load_device("host")
    host_device.cache_clear()
    return device


def test_the_system_says_cores_and_caches_and_the_class_the_rest() -> None:
    device, class_ = detect_host(), load_device("x86-64-v3")
    assert (device.name, device.cores, device.mtriple, device.mcpu) == ("host", 5, "", "")
    assert [(c.level, c.size, c.ways, c.line) for c in device.caches] == [(1, 64 << 10, 8, 64), (2, 1 << 20, 16, 128)]
    assert (device.vector_bits, device.vector_registers, device.clock) == (256, 16, class_.clock)
    assert [c.bandwidth for c in device.caches] == [c.bandwidth for c in class_.caches[:2]]


@pytest.mark.parametrize(
    ("level", "bits", "registers"), [("x86-64-v4", 512, 32), ("x86-64-v3", 256, 16), ("x86-64-v2", 128, 16)]
)
def test_vectors_are_those_of_the_instruction_set(
    monkeypatch: pytest.MonkeyPatch, level: str, bits: int, registers: int
) -> None:
    monkeypatch.setattr(host, "processor_level", lambda: level)
    assert (detect_host().vector_bits, detect_host().vector_registers) == (bits, registers)


def test_an_arm_host_has_a_class_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    assert host_figures(DIRECTORY).class_name == "arm64"
    assert detect_host().cores == 5


def test_a_processor_of_no_class_is_said_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "processor_level", lambda: None)
    with pytest.raises(UsageError, match=r"this processor \(x86_64\) is neither x86-64 with SSE4.2 nor 64-bit Arm"):
        detect_host()


@pytest.mark.parametrize(
    "caches",
    [
        (),
        (CacheLevel(1, 1 << 20, 8, 64), CacheLevel(2, 32 << 10, 8, 64)),
        (CacheLevel(1, 32 << 10, 8, 48),),
        (CacheLevel(1, 64, 8, 64),),
    ],
)
def test_caches_that_cannot_be_are_those_of_the_class(
    monkeypatch: pytest.MonkeyPatch, caches: tuple[CacheLevel, ...]
) -> None:
    monkeypatch.setattr(host, "cache_levels", lambda: caches)
    assert [c.size for c in detect_host().caches] == [c.size for c in load_device("x86-64-v3").caches]


def test_a_virtual_machine_does_not_have_all_of_its_hosts_last_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "cache_levels", lambda: (*CACHES, CacheLevel(3, 300 << 20, 20, 64)))
    assert detect_host().caches[2].size == load_device("x86-64-v3").caches[2].size


@pytest.mark.parametrize(("model", "ports"), [(17, 1.0), (2, 2.0)])
def test_a_microarchitecture_has_figures_of_its_own(monkeypatch: pytest.MonkeyPatch, model: int, ports: float) -> None:
    """Zen 4 executes 512 bits as two halves; another model of its family is not Zen 4."""
    monkeypatch.setattr(host, "processor_level", lambda: "x86-64-v4")
    monkeypatch.setattr(host, "processor_model", lambda: ProcessorModel("AuthenticAMD", 25, model))
    assert load_device("x86-64-v4").fma_ports == 2.0
    assert detect_host().fma_ports == ports
    assert host_figures(DIRECTORY).figures["clock"].origin == "assumed"


def test_a_microarchitecture_without_the_instruction_set_has_the_figures_of_the_class(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where a hypervisor hides AVX-512, what is said of it does not hold."""
    monkeypatch.setattr(host, "processor_model", lambda: ProcessorModel("AuthenticAMD", 25, 17))
    assert detect_host().fma_ports == load_device("x86-64-v3").fma_ports


def test_measurements_replace_the_figures_of_the_class_until_they_are_forgotten() -> None:
    before = detect_host()
    keep_measurements(HostMeasurements({"clock": 5e9, "dram_bandwidth": 2e10}, {1: 3e11, 2: 1e11}))
    measured = detect_host()
    assert (measured.clock, measured.dram_bandwidth) == (5e9, 2e10)
    assert [cache.bandwidth for cache in measured.caches] == [3e11, 1e11]
    assert measured.digest != before.digest
    forget_measurements()
    assert detect_host() == before


@pytest.mark.parametrize("text", ["", "[]", '{"figures": {"clock": "fast"}}', '{"figures": {"clock": -1}}', "\0"])
def test_a_damaged_file_of_measurements_counts_as_none(text: str) -> None:
    before = detect_host()
    path = keep_measurements(HostMeasurements({"clock": 5e9}, {}))
    path.write_text(text, encoding="utf-8")
    assert detect_host() == before


def test_measurements_of_another_processor_are_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    before = detect_host()
    keep_measurements(HostMeasurements({"clock": 5e9}, {}))
    monkeypatch.setattr(host, "processor_identity", lambda: "another one")
    assert detect_host() == before


def test_every_figure_states_its_origin() -> None:
    keep_measurements(HostMeasurements({"clock": 5e9}, {1: 3e11}))
    table = tomllib.loads(host_figures(DIRECTORY).text())
    origins = {name: entry["origin"] for name, entry in table.items() if isinstance(entry, dict)}
    assert origins["cores"] == "detected"
    assert origins["vector_bits"] == "documented"
    assert origins["clock"] == "measured"
    assert origins["dram_bandwidth"] == "assumed"
    assert [cache["bandwidth"]["origin"] for cache in table["caches"]] == ["measured", "assumed"]
    assert json.dumps(table)
