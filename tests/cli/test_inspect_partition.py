"""``eqfuse inspect`` on partitions: those that models record, those it makes, and certificates."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest

from eqfuse.engine.onnx.model import read, write
from eqfuse.engine.operator_graph import operator_graph
from eqfuse.engine.shapes.inference import infer
from eqfuse.extract.partition.annotations.annotate import annotate
from eqfuse.extract.partition.annotations.certificate import certificate_of
from eqfuse.extract.partition.annotations.local_functions import as_functions
from eqfuse.extract.partition.groups import Partition, partition_of

from .command_line import CommandLine


@pytest.fixture
def partitioned(eqfuse: CommandLine) -> Partition:
    """The small model with its first two operators in one group, as out.onnx; with a function, as functions.onnx."""
    model = read(eqfuse.small())
    partition = partition_of(operator_graph(model, infer(model)), (0, 0, 1), "joint")
    write(as_functions(model, partition), eqfuse.folder / "functions.onnx")
    annotate(model, partition)
    write(model, eqfuse.folder / "out.onnx")
    return partition


def rows(printed: str) -> dict[str, list[str]]:
    """The cells of each row of a printed text, by the first."""
    cells = ([c.strip() for c in line.split("  ") if c.strip()] for line in printed.splitlines())
    return {found[0]: found[1:] for found in cells if found}


def edit(path: Path, position: int, number: str | None) -> None:
    """Give a node another group, or none."""
    model = onnx.load(path)
    node = model.graph.node[position]
    del node.metadata_props[:]
    if number is not None:
        node.metadata_props.add(key="eqfuse.group", value=number)
    onnx.save(model, path)


def test_a_model_without_a_partition_shows_none(eqfuse: CommandLine) -> None:
    eqfuse.small()
    assert "partition" not in eqfuse.run("inspect", "in.onnx").out
    assert "partition" not in json.loads(eqfuse.run("inspect", "in.onnx", "--json").out)


@pytest.mark.usefixtures("partitioned")
@pytest.mark.parametrize("name", ["out.onnx", "functions.onnx"])
def test_a_recorded_partition_is_shown(eqfuse: CommandLine, name: str) -> None:
    outcome = eqfuse.run("inspect", name)
    assert outcome.code == 0
    assert f"partition of {name}: joint" in outcome.out
    table = rows(outcome.out)
    assert table["groups"] == ["3", "2", "-33.3 %"]
    assert table["intermediate values"] == ["2", "1", "-50.0 %"]
    assert table["intermediate bytes"] == ["48 B", "24 B", "-50.0 %"]
    assert table["0"][:3] == ["Relu, Relu", "2", "1"]


@pytest.mark.usefixtures("partitioned")
def test_functions_are_shown_as_the_nodes_they_hold(eqfuse: CommandLine) -> None:
    whole, functions = (json.loads(eqfuse.run("inspect", n, "--json").out) for n in ("out.onnx", "functions.onnx"))
    assert functions["operators"] == whole["operators"] == {"Relu": 2, "Add": 1}
    assert functions["flops"] == whole["flops"]


@pytest.mark.usefixtures("partitioned")
def test_json_has_every_group(eqfuse: CommandLine) -> None:
    found = json.loads(eqfuse.run("inspect", "out.onnx", "--json").out)["partition"]
    assert found["method"] == "joint"
    assert found["removed_values"] == 1
    assert found["checked_by"] is None
    assert [group["operators"] for group in found["groups"]] == [["Relu of first", "Relu of second"], ["Add of y"]]
    assert found["partitioned"]["predicted_seconds"] == pytest.approx(
        sum(group["predicted_seconds"] for group in found["groups"])
    )


@pytest.mark.parametrize("method", ["joint", "ago", "dnnfusion", "fuseops", "none"])
def test_a_partition_is_made_by_each_method(eqfuse: CommandLine, method: str) -> None:
    eqfuse.small()
    found = json.loads(eqfuse.run("inspect", "in.onnx", "--partition", method, "--json").out)["partition"]
    assert found["method"] == method
    assert sum(len(group["operators"]) for group in found["groups"]) == 3


@pytest.mark.usefixtures("partitioned")
def test_a_method_asked_for_comes_before_the_recorded_one(eqfuse: CommandLine) -> None:
    assert "partition of out.onnx: none" in eqfuse.run("inspect", "out.onnx", "--partition", "none").out


def test_inspecting_changes_no_file(eqfuse: CommandLine) -> None:
    before = eqfuse.small().read_bytes()
    eqfuse.run("inspect", "in.onnx", "--partition", "joint")
    assert eqfuse.files() == ["in.onnx"]
    assert (eqfuse.folder / "in.onnx").read_bytes() == before


@pytest.mark.usefixtures("partitioned")
@pytest.mark.parametrize("name", ["out.onnx", "functions.onnx"])
def test_z3_checks_the_groups(eqfuse: CommandLine, name: str) -> None:
    assert "certificate: 2 groups, checked by z3" in eqfuse.run("inspect", name, "--certify").out


def test_there_must_be_something_to_certify(eqfuse: CommandLine) -> None:
    eqfuse.small()
    error = eqfuse.fail(2, "inspect", "in.onnx", "--certify")
    assert error == "--certify: in.onnx records no partition; --partition METHOD makes one"


@pytest.mark.parametrize("model", ["in.onnx", "out.onnx"])
def test_a_certificate_is_checked_against_the_model(eqfuse: CommandLine, partitioned: Partition, model: str) -> None:
    eqfuse.write("c.json", certificate_of(partitioned).to_json())
    assert "certificate: 2 groups, checked by its order" in eqfuse.run("inspect", model, "--certificate", "c.json").out
    certified = eqfuse.run("inspect", model, "--certificate", "c.json", "--certify")
    assert "certificate: 2 groups, checked by z3" in certified.out


def test_a_certificate_of_other_groups_is_refused(eqfuse: CommandLine, partitioned: Partition) -> None:
    other = partition_of(partitioned.graph, (0, 1, 1), "joint")
    eqfuse.write("c.json", certificate_of(other).to_json())
    error = eqfuse.run("inspect", "out.onnx", "--certificate", "c.json").error
    assert error == "c.json: group 0, of operator 'Relu of first', is none that the model records"


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ('"version": 1', '"version": 2', "c.json: version: 2 cannot be read, only 1"),
        ('"order": 1', '"order": 0', "c.json: groups[1].order: 0 is the order of groups[0] already"),
        ('"Add of y"', '"Sub of y"', "c.json: groups[1].operators[0]: no operator is called 'Sub of y'"),
        ('"graph": "', '"graph": "0', "c.json: graph: the certificate is of another graph"),
        ('"version"', "version", "c.json: certificate: not JSON"),
    ],
)
def test_a_wrong_certificate_is_refused_by_its_field(
    eqfuse: CommandLine, partitioned: Partition, before: str, after: str, message: str
) -> None:
    eqfuse.write("c.json", certificate_of(partitioned).to_json().replace(before, after, 1))
    assert eqfuse.fail(1, "inspect", "in.onnx", "--certificate", "c.json").startswith(message)


def test_a_certificate_with_a_cycle_names_it(eqfuse: CommandLine, partitioned: Partition) -> None:
    text = certificate_of(partition_of(partitioned.graph, (0, 1, 2), "joint")).to_json()
    rows_ = text.replace('["Relu of first"]', '["Relu of first", "Add of y"]').replace(
        ',\n{"order": 2, "operators": ["Add of y"]}', ""
    )
    eqfuse.write("c.json", rows_)
    error = eqfuse.run("inspect", "in.onnx", "--certificate", "c.json").error
    assert error == "c.json: the groups form a cycle: g0 (Relu of first) -> g1 (Relu of second) -> g0"


@pytest.mark.usefixtures("partitioned")
def test_a_certificate_that_is_not_there(eqfuse: CommandLine) -> None:
    error = eqfuse.run("inspect", "in.onnx", "--certificate", "c.json").error
    assert error == "c.json: cannot be read: No such file or directory"


@pytest.mark.usefixtures("partitioned")
@pytest.mark.parametrize(
    ("number", "message"),
    [
        (None, "out.onnx: node 'Relu of second' has no eqfuse.group; partition it again"),
        ("one", "out.onnx: eqfuse.group of node 'Relu of second' is 'one', not a number; partition it again"),
    ],
)
def test_a_partition_edited_by_hand_is_refused(eqfuse: CommandLine, number: str | None, message: str) -> None:
    edit(eqfuse.folder / "out.onnx", 1, number)
    assert eqfuse.fail(1, "inspect", "out.onnx") == message


@pytest.mark.usefixtures("partitioned")
def test_groups_edited_into_a_cycle_are_refused(eqfuse: CommandLine) -> None:
    edit(eqfuse.folder / "out.onnx", 1, "1")
    edit(eqfuse.folder / "out.onnx", 2, "0")
    assert "the groups form a cycle: g0 (Relu of first) -> g1 (Relu of second) -> g0" in (
        eqfuse.run("inspect", "out.onnx").error
    )


@pytest.mark.usefixtures("partitioned")
def test_quiet_prints_nothing(eqfuse: CommandLine) -> None:
    assert eqfuse.run("inspect", "out.onnx", "-q", "--certify").out == ""


def test_a_certificate_and_a_method_exclude_each_other(eqfuse: CommandLine) -> None:
    eqfuse.small()
    error = eqfuse.fail(2, "inspect", "in.onnx", "--partition", "ago", "--certificate", "c.json")
    assert "not allowed with argument --partition" in error
