"""Models in pipes: `-` for the file to read, and for the one to write."""

from __future__ import annotations

import subprocess

import onnx
import pytest

from .command_line import CommandLine


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


def test_one_of_two_models_may_be_in_a_pipe(eqfuse: CommandLine) -> None:
    model = eqfuse.small()
    assert piped(eqfuse, model.read_bytes(), "verify", str(model), "-").returncode == 0


@pytest.mark.parametrize(
    ("content", "arguments", "message"),
    [
        (b"", ("optimize", "-"), "standard input is empty"),
        (b"x", ("verify", "-", "-"), "- is standard input, which has one model"),
        (b"x", ("optimize", "-", "-o", "-", "--json"), "--json and the model would both go to standard output"),
    ],
)
def test_what_no_pipe_can_hold(eqfuse: CommandLine, content: bytes, arguments: tuple[str, ...], message: str) -> None:
    said = piped(eqfuse, content, *arguments)
    assert said.returncode in (1, 2)
    assert said.stderr.decode().startswith(f"eqfuse: error: {message}")
    assert said.stderr.count(b"\n") == 1
    assert said.stdout == b"" or b'"error"' in said.stdout
