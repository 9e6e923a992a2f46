"""Parts of a model: between values that are named, and the smallest one for which a command fails."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from .command_line import CommandLine

FAILS = """\
import sys, onnx
operators = [node.op_type for node in onnx.load(sys.argv[1]).graph.node]
onnx.checker.check_model(sys.argv[1], full_check=True)
sys.exit("both are here" if {"Exp", "Tanh"} <= set(operators) else 0)
"""


def network(eqfuse: CommandLine) -> Path:
    """x, Relu a, Exp b, Add c (of a and b), Tanh d, Mul y (of d and weights)."""
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Exp", ["a"], ["b"]),
        helper.make_node("Add", ["a", "b"], ["c"]),
        helper.make_node("Tanh", ["c"], ["d"]),
        helper.make_node("Mul", ["d", "w"], ["y"]),
    ]
    return eqfuse.model("in.onnx", nodes, w=np.ones((2, 3)))


def parts(path: Path) -> tuple[list[str], list[str], list[str], list[str]]:
    """Operators, inputs, outputs and weights of a file that is valid."""
    onnx.checker.check_model(path, full_check=True)
    graph = onnx.load(path).graph
    names = ([value.name for value in values] for values in (graph.input, graph.output, graph.initializer))
    return [node.op_type for node in graph.node], *names  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--from", "a", "--to", "d"), (["Exp", "Add", "Tanh"], ["a"], ["d"], [])),
        (("--to", "b"), (["Relu", "Exp"], ["x"], ["b"], [])),
        (("--from", "c"), (["Tanh", "Mul"], ["c"], ["y"], ["w"])),
        (("--from", "a,b", "--to", "c"), (["Add"], ["a", "b"], ["c"], [])),
    ],
)
def test_a_part_between_values(eqfuse: CommandLine, arguments: tuple[str, ...], expected: object) -> None:
    said = eqfuse.run("extract", network(eqfuse), *arguments, "-o", "part.onnx")
    assert said.code == 0, said.err
    assert parts(eqfuse.folder / "part.onnx") == expected


def test_values_that_are_missing_are_named(eqfuse: CommandLine) -> None:
    assert "'nothing'" in eqfuse.fail(2, "extract", network(eqfuse), "--to", "nothing", "-o", "part.onnx")
    assert not (eqfuse.folder / "part.onnx").exists()


def test_values_that_do_not_suffice_are_refused(eqfuse: CommandLine) -> None:
    error = eqfuse.fail(2, "extract", network(eqfuse), "--from", "b", "--to", "c", "-o", "part.onnx")
    assert "'b' do not suffice to compute 'c'; name more values by --from" in error


def test_the_smallest_part_for_which_a_command_fails(eqfuse: CommandLine) -> None:
    script = eqfuse.write("fails.py", FAILS)
    check = f"{sys.executable} {script} {{}}"
    said = eqfuse.run("reduce", network(eqfuse), "--check", check, "--says", "both are here", "-o", "small.onnx")
    assert said.code == 0, said.err
    assert "2 of 5 nodes" in said.out
    operators, inputs, outputs, weights = parts(eqfuse.folder / "small.onnx")
    assert (operators, inputs, weights) == (["Exp", "Tanh"], ["c", "a"], [])
    assert outputs == ["b", "d"]


def test_a_command_that_passes_leaves_nothing_to_reduce(eqfuse: CommandLine) -> None:
    assert "does not end" in eqfuse.fail(1, "reduce", network(eqfuse), "--check", "true", "-o", "small.onnx")
    assert not (eqfuse.folder / "small.onnx").exists()


def test_a_command_that_is_no_program_is_named(eqfuse: CommandLine) -> None:
    assert "no-such-program" in eqfuse.fail(2, "reduce", network(eqfuse), "--check", "no-such-program", "-o", "s.onnx")
