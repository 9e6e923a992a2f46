"""Device files: every shipped one loads, and a bad one names its file and field."""

from __future__ import annotations

from pathlib import Path

import pytest

from eqfuse.costmodels.device import DIRECTORY, Device, device_names, load_device
from eqfuse.costmodels.device_file import DeviceError

FILE = (DIRECTORY / "x86-64-v4.toml").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", device_names())
def test_shipped_device_loads(name: str) -> None:
    assert load_device(name).name == name


@pytest.mark.parametrize("name", device_names())
def test_bandwidth_never_grows_with_the_footprint(name: str) -> None:
    device = load_device(name)
    rates = [device.bandwidth(2**n) for n in range(34)]
    assert rates == sorted(rates, reverse=True)


def test_peak_counts_two_flops_per_fused_multiply_add() -> None:
    device = Device("d", 1, 256, 2, 1e9, (), 1e9, 0.0, 0.0)
    assert device.peak_flops == 2 * 2 * 8 * 1e9


def test_a_file_elsewhere_loads_by_path(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(FILE, encoding="utf-8")
    assert load_device(path).cores == load_device("x86-64-v4").cores


def test_the_host_is_the_machine_that_compiles() -> None:
    assert (load_device("host").mtriple, load_device("host").mcpu, load_device("host").mattr) == ("", "", ())


@pytest.mark.parametrize("name", ["arm-cortex-a57", "arm-cortex-a76", "armv8-neon", "snapdragon865"])
def test_arm_devices_name_their_target(name: str) -> None:
    device = load_device(name)
    assert (device.mtriple, device.mattr[0], device.lanes) == ("aarch64-linux-gnu", "+neon", 4)
    assert (device.dot_product == "sdot") == ("+dotprod" in device.mattr)


def test_unknown_name_lists_those_that_exist() -> None:
    with pytest.raises(DeviceError, match=r"no device 'no-such'; use one of arm-cortex-a57, arm-cortex-a76, .*host"):
        load_device("no-such")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("cores  ", "core_s ", "field core_s: unknown"),
        ("vector_bits = { value = 512", "vector_bits = { value = 0", r"field vector_bits\.value: .* a positive number"),
        ("clock       = { value = 3.0e9", 'clock = { value = "3 GHz"', r"field clock\.value: .* a number, got str"),
        ("clock       = { value = 3.0e9", "clock = { value = inf", r"field clock\.value: .* a finite number"),
        ("clock       = { value = 3.0e9", "clock = { value = nan", r"field clock\.value: .* a positive number"),
        ("value = 2,", "value = 2.5,", r"field cores\.value: expected a whole number"),
        ('origin = "measured"', 'origin = "guessed"', r"field clock\.origin: .* documented, .*, got 'guessed'"),
        ("size      = { value = 49152", "size = { value = 99999999", "the caches must go from the smallest"),
        ("shared    = false", 'shared = "no"', r"field caches\[0\].shared: expected true or false"),
        ("level     = 1", "level = 1\nline = 48", r"field caches\[0\].line: expected a table, .*; write { value"),
        ("level     = 1", "level = 1\nline = { value = 48, origin = 'assumed' }", r".*\[0\]: line must be a power"),
        ("level     = 1", "level = 1\nways = { value = 1e6, origin = 'assumed' }", r".*\[0\]: size must hold at"),
        ('mcpu    = "x86-64-v4"', "mcpu = 'a b'", "field mcpu: expected one word"),
        ('mattr   = ["-prefer-256-bit"]', "mattr = '+neon'", "field mattr: expected a list"),
        ("level     = 1", "", r"field caches\[0\].level: missing"),
        ("[[caches]]", "[[caches", "not a TOML file"),
    ],
)
def test_malformed_file_is_named_with_its_field(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = tmp_path / "bad.toml"
    assert old in FILE
    path.write_text(FILE.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(DeviceError, match=rf"bad\.toml: {message}"):
        load_device(path)
