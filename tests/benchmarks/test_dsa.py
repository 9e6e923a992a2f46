"""Means, choices and tables of benchmarks/dsa.py, and a small network through all that it does."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from eqfuse.benchmarks import dsa
from eqfuse.benchmarks.accelerators import cell as dsa_cell
from eqfuse.benchmarks.accelerators.cell import OptimisedNetwork, Run, Stage, cached, command, measured, optimised
from eqfuse.benchmarks.accelerators.graphturbo import MODELS, TABLE2
from eqfuse.benchmarks.accelerators.tables import (
    Failure,
    Results,
    ablation_table,
    all_tables,
    batch_table,
    bound_table,
    limit,
    markdown,
    scopes_table,
    seconds_table,
    stage_table,
    throughput_table,
    use_table,
)
from eqfuse.benchmarks.dsa import Cell, cells_of, chosen, last_line, read_results, run_process, samples_of, together
from eqfuse.costmodels.dsa_device import DIRECTORY, load_dsa_device
from eqfuse.lowering.base.errors import DsaError

CLUSTERS = 4
STAGES = [
    Stage(size="56x56", share=0.5, occupied={"mme": 0.8, "vector": 0.25}),
    Stage(size="", share=0.25, occupied={"mme": 0.5, "vector": 0.0}),
]


def figures(seconds: float, ddr: int = 1, mme: float = 50.0) -> Mapping[str, Any]:
    bound = {"mme": mme, "traffic": 40.0}
    return {
        "seconds": seconds,
        "cycles": 100.0,
        "scopes": {"ddr": ddr, "gb": 2, "lb": 3},
        "lower_bound": {**bound, "cycles": max(bound.values()), "ratio": max(bound.values()) / 100},
        "scheduled_bound": {"mme": 60.0, "vector": 75.0},
        "occupied": {"mme": 0.6, "vector": 0.75},
    }


def run(label: str, variant: str, samples: int, throughput: float, **more: Any) -> Run:
    seconds = CLUSTERS * samples / throughput
    parts = {"GB": 20, "LB": 3000}
    found = figures(seconds, **more)
    return Run(label, variant, samples, throughput, 10, STAGES, parts, found, 5.0, 4.0, 1.0, 1_500_000_000)


def results(*found: Run | Failure) -> Results:
    runs = tuple(each for each in found if isinstance(each, Run))
    return Results("small", CLUSTERS, runs, tuple(each for each in found if isinstance(each, Failure)))


FAILED = Failure("G", "full", 32, "DsaError: no room", "-m cell G")


def rows(table: str) -> dict[str, list[str]]:
    """By their first cells."""
    cells = ([cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines())
    return {first: others for first, *others in cells}


def test_best_run_has_the_highest_throughput() -> None:
    slow, fast = run("A", "full", 2, 10.0), run("A", "full", 16, 20.0)
    assert results(slow, fast).best("A", "full") == fast


def test_of_equal_runs_the_one_with_fewer_samples_is_best() -> None:
    many, few = run("A", "full", 16, 10.0), run("A", "full", 2, 10.0)
    assert results(many, few).best("A", "full") == few


def test_samples_that_do_not_share_the_batch_of_table_2_are_not_best() -> None:
    own, larger = run("B", "full", 8, 10.0), run("B", "full", 16, 20.0)
    assert results(own, larger).best("B", "full") == own


def test_approach_that_failed_has_no_best_run() -> None:
    assert results(FAILED).best("G", "full") is None


def test_speed_up_compares_each_at_its_best() -> None:
    found = results(run("A", "tvm", 2, 10.0), run("A", "tvm", 16, 5.0), run("A", "full", 16, 30.0))
    assert found.speed_up("A", "full", "tvm") == 3.0


def test_printed_speed_up_compares_each_with_the_samples_of_table_2() -> None:
    found = results(run("A", "tvm", 2, 10.0), run("A", "tvm", 16, 15.0), run("A", "full", 16, 30.0))
    assert found.printed_speed_up("A") == 3.0


def test_labels_with_failures_alone_keep_their_row() -> None:
    found = results(run("A", "full", 16, 10.0), FAILED)
    assert rows(throughput_table(found))["G MobileNet-v2"] == ["1,416", "-", "-", "-", "-"]


def test_throughput_says_which_number_of_samples_was_best() -> None:
    table = rows(throughput_table(results(run("A", "tvm", 2, 1000.0), run("A", "full", 16, 4000.0))))
    assert table["A ResNet-50"] == ["1,064", "1,000 (2)", "4,000 (16)", "4.00x", "-", "4.00x"]


def test_means_of_throughput_are_over_the_models_that_have_both() -> None:
    pairs = [run("A", "tvm", 16, 1.0), run("A", "full", 16, 2.0), run("B", "tvm", 8, 1.0), run("B", "full", 8, 8.0)]
    table = rows(throughput_table(results(*pairs, run("C", "full", 4, 5.0))))
    assert table["arithmetic mean"][-3:-1] == ["5.00x", "-"]
    assert table["geometric mean"][-3:-1] == ["4.00x", "-"]


def test_ablation_divides_steps_by_those_before() -> None:
    found = [run("A", variant, 16, t) for variant, t in (("tvm", 1.0), ("lb", 4.0), ("instances", 6.0))]
    table = rows(ablation_table(results(*found)))
    row = dict(zip(table["model"], table["A ResNet-50"], strict=True))
    assert (row["lb"], row["instances"], row["instances / lb"], row["full"]) == ("4.00x", "6.00x", "1.50x", "-")


def test_scopes_stand_beside_those_of_table_3() -> None:
    row = rows(scopes_table(results(run("A", "full", 16, 1.0))))["A ResNet-50"]
    assert row == ["16", "0 / 1 / 1", "20 / 2 / 11", "3000 / 3 / 284"]


def test_scopes_are_of_the_samples_that_table_2_prints() -> None:
    found = results(run("A", "full", 2, 5.0), run("A", "full", 16, 1.0))
    assert rows(scopes_table(found))["A ResNet-50"][0] == "16"


def test_seconds_to_schedule_are_without_the_simulation() -> None:
    found = rows(seconds_table(results(run("A", "full", 16, 1.0))))["A ResNet-50"]
    assert found == ["16", "4.0", "1.0", "4.0", "1.5", "139", "102"]


def test_bound_table_has_both_ratios_and_the_units() -> None:
    row = rows(bound_table(results(run("A", "full", 16, 1.0))))["A ResNet-50"]
    assert row[3:] == ["mme", "0.50", "0.75", "75%", "-", "60%"]


def test_use_of_the_units_is_shown_by_samples() -> None:
    found = results(run("A", "graphturbo", 16, 2.0), run("A", "graphturbo", 8, 1.0), run("B", "graphturbo", 8, 1.0))
    lines = use_table(found).splitlines()[2:]
    assert lines == ["| A ResNet-50 | 8 | 1 | 75% | - | 60% |", "| A ResNet-50 | 16 | 2 | 75% | - | 60% |"]


def test_use_of_the_units_is_shown_by_stages_at_the_samples_of_table_2() -> None:
    lines = stage_table(results(run("A", "graphturbo", 8, 1.0), run("A", "graphturbo", 16, 2.0))).splitlines()[2:]
    assert lines == ["| 56x56 | 50% | 25% | - | 80% |", "| none | 25% | 0% | - | 50% |"]


def test_a_single_number_of_samples_makes_no_table_of_use() -> None:
    assert use_table(results(run("A", "graphturbo", 16, 2.0), run("A", "full", 8, 2.0))) == ""


@pytest.mark.parametrize(("mme", "name"), [(50.0, "mme"), (30.0, "traffic")])
def test_limit_is_what_makes_the_bound(mme: float, name: str) -> None:
    assert limit(run("A", "full", 16, 1.0, mme=mme)) == name


def test_batches_of_table_1_take_so_many_iterations() -> None:
    lines = batch_table(results(run("B", "full", 8, 4000.0))).splitlines()
    assert "| GraphTurbo (full) | 64 | 2 | 8 | 4,000 | 4,052 | 16.00 | 15.34 |" in lines


def test_without_the_sizes_of_table_1_there_is_no_such_table() -> None:
    assert batch_table(results(run("A", "full", 16, 1.0))) == ""


def test_failures_are_listed_with_their_command() -> None:
    assert "- G full, 32 sample(s): DsaError: no room (`-m cell G`)" in all_tables(results(FAILED)).splitlines()


def test_numbers_are_aligned_to_the_right() -> None:
    assert markdown(("a", "b"), [("x", "1")]) == "| a | b |\n| --- | ---: |\n| x | 1 |"


@pytest.mark.parametrize(("every", "expected"), [(False, [2, 16]), (True, [1, 2, 4, 8, 16])])
def test_samples_to_try_share_the_batch_evenly(every: bool, expected: list[int]) -> None:
    assert samples_of("A", CLUSTERS, every) == expected


def test_table_1_adds_the_sizes_that_are_missing() -> None:
    found = cells_of(["B"], ["full"], CLUSTERS, table1=True)
    assert sorted(cell.samples for cell in found) == [2, 4, 8, 16]


def test_table_1_adds_no_variant() -> None:
    assert {cell.variant for cell in cells_of(["B"], ["gb"], CLUSTERS, table1=True)} == {"gb"}


def test_unknown_label_is_refused_by_name() -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="no label called Z"):
        chosen("A,Z", TABLE2, "label")


@pytest.mark.parametrize(("text", "code", "expected"), [
    ("Traceback\n  x\nValueError: y\n\n", 1, "ValueError: y"), ("", -9, "killed by signal 9"), ("", 3, "exit code 3"),
])  # fmt: skip
def test_last_line_says_how_a_process_ended(text: str, code: int, expected: str) -> None:
    assert last_line(text, code) == expected


def test_process_that_does_not_end_is_stopped() -> None:
    assert run_process([sys.executable, "-c", "import time; time.sleep(60)"], 0.1)[1] == "not done within 0.1 s"


def test_written_figures_are_read_back(tmp_path: Path) -> None:
    found = results(run("A", "full", 16, 1.0), FAILED)
    (tmp_path / "x.json").write_text(json.dumps(asdict(found)))
    assert read_results(tmp_path / "x.json") == found


def test_later_files_replace_failures_of_earlier_ones() -> None:
    again = run("G", "full", 32, 1.0)
    assert together([results(FAILED), results(again)]) == results(again)


def test_runs_of_a_later_file_replace_the_failure_to_optimise() -> None:
    without, again = Failure("G", None, None, "problem", "-m cell G"), run("G", "full", 32, 1.0)
    assert together([results(without), results(again)]) == results(again)


# --- a small network


def classifier(batch: int) -> onnx.ModelProto:
    """Two convolutions, the second with a residual, and a product."""
    generator = np.random.default_rng(0)
    shapes = {"w1": (8, 3, 3, 3), "w2": (8, 8, 3, 3), "w3": (8, 10)}
    weights = [onnx.numpy_helper.from_array(generator.standard_normal(s, np.float32), n) for n, s in shapes.items()]
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["a"], pads=[1] * 4),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "w2"], ["c"], pads=[1] * 4),
        helper.make_node("Add", ["b", "c"], ["d"]),
        helper.make_node("GlobalAveragePool", ["d"], ["e"]),
        helper.make_node("Flatten", ["e"], ["f"]),
        helper.make_node("MatMul", ["f", "w3"], ["y"]),
    ]
    ports = [
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
        for name, shape in (("x", (batch, 3, 12, 12)), ("y", (batch, 10)))
    ]
    graph = helper.make_graph(nodes, "classifier", ports[:1], ports[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture(scope="module")
def network() -> OptimisedNetwork:
    return optimised(classifier(4), "stcp920-1mb")


def test_products_keep_the_axis_of_samples_if_the_device_says_so() -> None:
    """Joined with the rows it could not be divided among instances."""
    weights = [numpy_helper.from_array(np.ones(shape, "f4"), name) for name, shape in (("w", (32, 48)), ("b", (48,)))]
    nodes = [helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Add", ["m", "b"], ["y"])]
    ports = [helper.make_tensor_value_info(n, 1, shape) for n, shape in (("x", (4, 16, 32)), ("y", (4, 16, 48)))]
    graph = helper.make_graph(nodes, "rows", ports[:1], ports[1:], weights)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    found = {name: {each.op for each in optimised(proto, name).graph.operators} for name in ("stcp920", "stcp920-1mb")}
    assert found == {"stcp920": {"Reshape", "Gemm"}, "stcp920-1mb": {"MatMul", "Add"}}


def test_layers_are_the_fused_ones(network: OptimisedNetwork) -> None:
    assert len(network.layers) < len(network.graph)
    assert sorted(index for layer in network.layers for index in layer) == list(range(len(network.graph)))


@pytest.mark.parametrize("variant", ["tvm", "full"])
@pytest.mark.parametrize("samples", [2, 4])
def test_throughput_is_that_of_all_clusters(network: OptimisedNetwork, variant: str, samples: int) -> None:
    found = measured(network, load_dsa_device("stcp920-1mb"), variant, samples, "small", check=True)
    assert found.throughput == pytest.approx(CLUSTERS * samples / found.seconds)


def test_same_network_gives_the_same_figures(network: OptimisedNetwork) -> None:
    first, second = (measured(network, load_dsa_device("stcp920-1mb"), "full", 4, "small", False) for _ in "ab")
    assert (first.figures, first.instructions) == (second.figures, second.instructions)


def test_batch_that_cannot_be_had_is_an_error(network: OptimisedNetwork) -> None:
    with pytest.raises(DsaError, match="batch"):
        measured(network, load_dsa_device("stcp920-1mb"), "full", -1, "small", False)


def test_optimised_model_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[int] = []

    def build(batch: int) -> onnx.ModelProto:
        built.append(batch)
        return classifier(batch)

    monkeypatch.setitem(MODELS, "G", replace(TABLE2["G"], build=build))
    assert cached("G", "stcp920", tmp_path) == cached("G", "stcp920", tmp_path)
    assert built == [TABLE2["G"].graphturbo]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """The classifier in the place of MobileNet."""
    monkeypatch.setitem(MODELS, "G", replace(TABLE2["G"], build=classifier, graphturbo=4))


@pytest.mark.usefixtures("small")
def test_figures_of_an_earlier_process_are_kept(tmp_path: Path) -> None:
    first = dsa_cell.kept("G", "stcp920", tmp_path, "full", 2, check=False)
    assert dsa_cell.kept("G", "stcp920", tmp_path, "full", 2, check=False) == first


@pytest.mark.usefixtures("small")
def test_figures_of_other_samples_are_made_anew(tmp_path: Path) -> None:
    found = [Run(**json.loads(dsa_cell.kept("G", "stcp920", tmp_path, "full", n, check=False))) for n in (2, 4)]
    assert [each.samples for each in found] == [2, 4]


def test_what_is_kept_is_of_one_device_as_it_is(tmp_path: Path) -> None:
    text = (DIRECTORY / "stcp920.toml").read_text(encoding="utf-8")
    places = []
    for clock in ("1.0e9", "2.0e9"):
        (tmp_path / "own.toml").write_text(text.replace("1.0e9", clock))
        places.append(dsa_cell.kept_file(tmp_path, "G", str(tmp_path / "own.toml"), ("costmodels",)))
    assert places[0] != places[1]


def test_parts_of_instances_are_at_least_as_many_as_values(network: OptimisedNetwork) -> None:
    found = measured(network, load_dsa_device("stcp920"), "full", 4, "small", check=False)
    assert sum(found.parts.values()) >= sum(found.figures["scopes"].values()) > 0


@pytest.mark.conformance
def test_process_of_a_cell_prints_its_figures(tmp_path: Path) -> None:
    output, problem = run_process(command("F", "stcp920-1mb", tmp_path, "tvm", 64), 100)
    assert problem is None
    assert Run(**json.loads(output)).samples == 64


@pytest.mark.conformance
def test_cell_that_fails_is_a_failure_that_others_survive(tmp_path: Path) -> None:
    options = dsa.parser().parse_args(["--cache", str(tmp_path), "--json", str(tmp_path / "out.json")])
    found = dsa.all_results([Cell("F", "tvm", -1), Cell("F", "tvm", 64)], CLUSTERS, options)
    assert [each.samples for each in found.failures] == [-1]
    assert [each.samples for each in found.runs] == [64]
    assert read_results(tmp_path / "out.json") == found
