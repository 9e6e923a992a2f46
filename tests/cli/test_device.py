"""``eqfuse device``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from eqfuse.costmodels.device import device_names, host_device, load_device
from eqfuse.costmodels.device_file import CacheTable, DeviceFile

from .command_line import CommandLine


@pytest.fixture(autouse=True)
def nothing_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    host_device.cache_clear()


def test_list_has_every_device_and_this_machine(eqfuse: CommandLine) -> None:
    records = json.loads(eqfuse.run("device", "list", "--json").out)["devices"]
    assert [record["name"] for record in records] == device_names()
    assert all(record["digest"] == load_device(record["name"]).digest for record in records)


def test_show_prints_a_file_that_is_the_same_device(eqfuse: CommandLine) -> None:
    (eqfuse.folder / "mine.toml").write_text(eqfuse.run("device", "show").out, encoding="utf-8")
    assert load_device(eqfuse.folder / "mine.toml").digest != ""
    shown = json.loads(eqfuse.run("device", "show", "mine.toml", "--json").out)
    host = json.loads(eqfuse.run("device", "show", "host", "--json").out)
    assert {**shown, "name": "", "digest": ""} == {**host, "name": "", "digest": ""}


def test_detect_starts_a_device_file(eqfuse: CommandLine) -> None:
    """The file is complete, comments included, and other commands accept it."""
    text = eqfuse.run("device", "detect").out
    fields = {*DeviceFile.__struct_fields__, *CacheTable.__struct_fields__} - {"caches"}
    assert all(f"\n{field} = " in f"\n{text}" for field in fields)
    (eqfuse.folder / "my.toml").write_text(text.replace("cores = { value = ", "cores = { value = 1"), encoding="utf-8")
    assert load_device(eqfuse.folder / "my.toml").cores >= 10
    outcome = eqfuse.run("optimize", eqfuse.small(), "-o", "out.onnx", "--device", "my.toml", "--cost", "roofline")
    assert (outcome.code, outcome.err) == (0, "")


def test_show_of_an_unknown_device_lists_those_there_are(eqfuse: CommandLine) -> None:
    outcome = eqfuse.run("device", "show", "no-such")
    assert (outcome.code, "use one of arm-cortex-a57" in outcome.err) == (2, True)


def test_measure_replaces_figures_until_they_are_forgotten(
    eqfuse: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eqfuse.costmodels.measuring.measure._ROUNDS", 3)
    monkeypatch.setenv("CC", "gcc -m64")  # with an option, as it is in many builds
    measured = json.loads(eqfuse.run("device", "measure", "--json").out)
    again = json.loads(eqfuse.run("device", "show", "--json").out)
    assert measured == again
    assert 2e8 < measured["clock"] < 1e10
    assert measured["dram_bandwidth"] <= measured["caches"][0]["bandwidth"]
    assert "clock = { value = " in eqfuse.run("device", "show").out
    assert "eqfuse device measure" in eqfuse.run("device", "show").out
    eqfuse.run("device", "measure", "--forget")
    assert "eqfuse device measure" not in eqfuse.run("device", "show").out
