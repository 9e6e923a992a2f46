"""Files in pipes: `-` for the file to read, and for the one to write."""

from __future__ import annotations

import io
import json
import subprocess

import numpy as np
import onnx
import pytest

from ..command_line import CommandLine


def piped(eqfuse: CommandLine, content: bytes, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    """A command that gets the content as standard input."""
    environment = eqfuse.environment()
    return subprocess.run(
        eqfuse.command(*arguments), input=content, capture_output=True, cwd=eqfuse.folder, env=environment, timeout=600
    )


def test_a_model_goes_through_a_pipe(eqfuse: CommandLine) -> None:
    model = eqfuse.small()
    said = piped(eqfuse, model.read_bytes(), "optimize", "-", "-o", "-")
    assert said.returncode == 0, said.stderr
    result = onnx.load_from_string(said.stdout)
    assert [node.op_type for node in result.graph.node] == ["Relu", "Add"]


def test_a_part_goes_through_a_pipe(eqfuse: CommandLine) -> None:
    said = piped(eqfuse, eqfuse.small().read_bytes(), "extract", "-", "--to", "first", "-o", "-")
    assert [node.op_type for node in onnx.load_from_string(said.stdout).graph.node] == ["Relu"]


def test_the_file_that_stands_for_a_stream_is_not_shown(eqfuse: CommandLine) -> None:
    model = eqfuse.small().read_bytes()
    assert json.loads(piped(eqfuse, model, "inspect", "-", "--json").stdout)["model"] == "standard input"
    assert piped(eqfuse, b"(rewrite", "rules", "check", "-").stderr.startswith(b"standard input:1:")


def test_one_of_several_models_may_be_in_a_pipe(eqfuse: CommandLine) -> None:
    model = eqfuse.small()
    assert b"2 models" in piped(eqfuse, model.read_bytes(), "rules", "stats", str(model), "-").stdout


def test_a_report_goes_into_a_pipe(eqfuse: CommandLine) -> None:
    page = piped(eqfuse, eqfuse.small().read_bytes(), "optimize", "-", "--report", "-").stdout
    assert page.startswith(b"<!doctype html>")
    assert b"<h1>standard input</h1>" in page
    assert b"/pipes" not in page  # the folder of the files that stand for streams
    assert eqfuse.files() == ["in.onnx"]


@pytest.mark.conformance
def test_outputs_go_into_a_pipe(eqfuse: CommandLine) -> None:
    eqfuse.small()
    assert eqfuse.run("compile", "in.onnx", "-o", "bundle").code == 0
    said = piped(eqfuse, b"", "run", "bundle", "--random", "1", "--output", "-")
    assert np.load(io.BytesIO(said.stdout))["y"].shape == (2, 3)


def test_one_of_two_models_may_be_in_a_pipe(eqfuse: CommandLine) -> None:
    model = eqfuse.small()
    assert piped(eqfuse, model.read_bytes(), "verify", str(model), "-").returncode == 0


@pytest.mark.parametrize(
    ("content", "arguments", "message"),
    [
        (b"", ("optimize", "-"), "standard input is empty"),
        (b"x", ("verify", "-", "-"), "- is standard input, which has one model"),
        (b"x", ("optimize", "-", "-o", "-", "--json"), "--json and the file would both go to standard output"),
        (b"x", ("optimize", "-", "-o", "-", "--report", "-"), "- is standard output, which takes one file"),
        (b"x", ("rules", "stats", "-", "-"), "- is standard input, which has one model"),
        (b"x", ("compile", "-", "-o", "-"), "output: - is a stream, which cannot be used here"),
        (b"x", ("bench", "-"), "bundle: - is a stream, which cannot be used here"),
    ],
)
def test_what_no_pipe_can_hold(eqfuse: CommandLine, content: bytes, arguments: tuple[str, ...], message: str) -> None:
    said = piped(eqfuse, content, *arguments)
    assert said.returncode in (1, 2)
    assert said.stderr.decode().startswith(f"eqfuse: error: {message}")
    assert said.stderr.count(b"\n") == 1
    assert said.stdout == b"" or b'"error"' in said.stdout
