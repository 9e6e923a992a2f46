"""What `--json` prints is versioned, and an error is an object, too."""

from __future__ import annotations

import json

import pytest

from eqfuse import __version__
from eqfuse.support.version import JSON_SCHEMA

from ..command_line import CommandLine

HEAD = {"eqfuse_version": __version__, "schema": JSON_SCHEMA}


@pytest.mark.parametrize("command", ["optimize", "inspect"])
def test_an_object_begins_with_versions(eqfuse: CommandLine, command: str) -> None:
    printed = json.loads(eqfuse.run(command, eqfuse.small(), "--json").out)
    assert dict(list(printed.items())[:2]) == HEAD


def test_a_result_names_its_model(eqfuse: CommandLine) -> None:
    assert json.loads(eqfuse.run("optimize", eqfuse.small("m.onnx"), "--json").out)["model"].endswith("m.onnx")


def test_an_error_is_an_object_and_a_line(eqfuse: CommandLine) -> None:
    said = eqfuse.run("inspect", "none.onnx", "--json")
    assert json.loads(said.out) == {**HEAD, "error": said.error, "exit_code": said.code}
    assert said.code == 1
