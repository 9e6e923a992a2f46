"""``eqfuse optimize``: what it writes, what it prints, and how it says that a budget was hit."""

from __future__ import annotations

import json
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import helper

from .command_line import CommandLine

EXAMPLE = Path(__file__).parents[2] / "examples" / "demo_model.py"


@pytest.fixture(scope="module")
def vision() -> bytes:
    """A network of the parts of the demo model, at a fraction of its size."""
    specification = spec_from_file_location("demo_model", EXAMPLE)
    assert specification is not None
    assert specification.loader is not None
    module = module_from_spec(specification)
    specification.loader.exec_module(module)
    builder = module.Builder()
    image = builder.input("image", (1, 3, 16, 16))
    fine = module.relu6(builder, module.batch_norm(builder, module.conv(builder, image, 8, kernel=3, stride=2)))
    coarse = module.transformer(builder, module.inverted_residual(builder, fine, 8, stride=2))
    outputs = [module.classifier(builder, coarse), module.segmentation(builder, coarse, fine)]
    content: bytes = builder.model([image], outputs).SerializeToString()
    return content


@pytest.mark.parametrize("form", [("-o",), ("--cost", "flops", "--output"), ("-v",)])
def test_it_writes_a_smaller_model(eqfuse: CommandLine, form: tuple[str, ...]) -> None:
    eqfuse.small()
    outcome = eqfuse.run("optimize", "in.onnx", *form, "out.onnx")
    written = onnx.load(eqfuse.folder / "out.onnx")
    assert outcome.code == 0
    assert [node.op_type for node in written.graph.node] == ["Relu", "Add"]
    onnx.checker.check_model(written, full_check=True)


def test_it_only_reports_without_an_output(eqfuse: CommandLine) -> None:
    eqfuse.small()
    outcome = eqfuse.run("optimize", "in.onnx")
    assert outcome.code == 0
    assert outcome.out.endswith("written: nothing; -o FILE writes the result\n")
    assert eqfuse.files() == ["in.onnx"]


def test_the_summary_says_all_that_matters(eqfuse: CommandLine) -> None:
    eqfuse.small()
    printed = eqfuse.run("optimize", "in.onnx", "out.onnx").out
    expected = (
        "before", "after", "layers", "FLOPs", "intermediate bytes", "weight bytes", "predicted latency",
        "Relu", "relu-relu", "matches", "time", "saturation: saturated after",
        "\nextraction: proven optimal, acyclic (the e-graph has no loops)\n",
        "verification: passed", "differences up to 0 (relative: 0)", "written: out.onnx",
    )  # fmt: skip
    assert [text for text in expected if text not in printed] == []


def test_the_summary_of_a_pipe_fits_80_columns(eqfuse: CommandLine, vision: bytes) -> None:
    eqfuse.write("vision.onnx", vision)
    lines = eqfuse.run("optimize", "vision.onnx", "-v").out.splitlines()
    about_names = ("verification", "branches not covered")
    assert [line for line in lines if len(line) > 80 and not line.startswith(about_names)] == []


def test_file_names_are_printed_as_they_are(eqfuse: CommandLine) -> None:
    eqfuse.small("[bold]:smile:.onnx")
    assert eqfuse.run("optimize", "[bold]:smile:.onnx").out.startswith("[bold]:smile:.onnx\n")


def test_more_is_said_on_demand(eqfuse: CommandLine) -> None:
    """Operators whose count is the same are left out otherwise."""
    eqfuse.small()
    short, long = (eqfuse.run("optimize", "in.onnx", *flags) for flags in ((), ("-v",)))
    assert "Add " not in short.out
    assert "Add " in long.out


def test_json_is_all_that_is_printed(eqfuse: CommandLine) -> None:
    eqfuse.small()
    outcome = eqfuse.run("optimize", "in.onnx", "out.onnx", "--json")
    content = json.loads(outcome.out)
    assert outcome.err == ""
    assert content["output"] == "out.onnx"
    assert (content["before"]["layers"], content["after"]["layers"]) == (3, 2)
    assert content["saturation"]["stop_reason"] == "saturated"
    assert content["extraction"]["acyclicity"] == {"proof": "no loops", "loops": 0, "classes": 0, "reads": 0}
    assert content["verification"]["status"] == "passed"


def test_quiet_prints_nothing_and_replaces_an_earlier_output(eqfuse: CommandLine) -> None:
    eqfuse.small()
    eqfuse.write("out.onnx", "from before")
    outcome = eqfuse.run("optimize", "in.onnx", "out.onnx", "-q")
    assert (outcome.code, outcome.out, outcome.err) == (0, "", "")
    assert len(onnx.load(eqfuse.folder / "out.onnx").graph.node) == 2


@pytest.mark.parametrize("budget", ["--iterations", "--node-limit"])
def test_a_budget_that_was_hit_has_its_exit_code(eqfuse: CommandLine, budget: str) -> None:
    eqfuse.chain(6)
    outcome = eqfuse.run("optimize", "in.onnx", "out.onnx", budget, 1)
    assert outcome.code == 5
    assert "limit after 1 iterations" in outcome.out
    onnx.checker.check_model(onnx.load(eqfuse.folder / "out.onnx"), full_check=True)


def test_the_shape_of_an_input_with_a_colon_can_be_fixed(eqfuse: CommandLine) -> None:
    nodes = [helper.make_node("Identity", ["x"], ["a"]), helper.make_node("Relu", ["a"], ["y"])]
    made = onnx.load(eqfuse.model("in.onnx", nodes, ("batch", 3)))
    made.graph.input[0].name = made.graph.node[0].input[0] = "x:0"
    eqfuse.write("in.onnx", made.SerializeToString())
    assert eqfuse.run("optimize", "in.onnx", "out.onnx", "--input-shapes", "x:0:5,3", "-q").code == 0
    (value,) = onnx.load(eqfuse.folder / "out.onnx").graph.input
    assert [d.dim_value for d in value.type.tensor_type.shape.dim] == [5, 3]


@pytest.mark.representatives(2)
@pytest.mark.parametrize(
    "options",
    [
        ("--device", "arm-cortex-a76"),
        ("--cost", "flops"),
        ("--precision", "exact"),
        ("--precision", "real"),
        ("--precision", "fast"),
    ],
    ids=" ".join,
)
def test_costs_devices_and_precisions(eqfuse: CommandLine, vision: bytes, options: tuple[str, ...]) -> None:
    eqfuse.write("vision.onnx", vision)
    outcome = eqfuse.run("optimize", "vision.onnx", "out.onnx", "--json", "--time-limit", "600", *options)
    content: dict[str, Any] = json.loads(outcome.out)
    assert outcome.code == 0
    assert content["verification"]["status"] == "passed"
    assert content["after"]["predicted"] <= content["before"]["predicted"]
    assert content["before"]["unit"] == ("FLOP" if "flops" in options else "s")
