"""Sub-graphs, curves, tables and pictures of benchmarks/tuning.py."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, astuple
from pathlib import Path
from xml.etree import ElementTree

import onnx
import pytest

from eqfuse.benchmarks import tuning
from eqfuse.benchmarks.latency import Record
from eqfuse.benchmarks.measuring.contestants import Sample
from eqfuse.benchmarks.networks.pairs import PAIRS
from eqfuse.benchmarks.searches import tables as tuning_tables
from eqfuse.benchmarks.searches.budgets import SIZES, STRUCTURES, Row, budget_of, budgets_svg, build, fit
from eqfuse.benchmarks.searches.picture import curves_svg, round_step, run_time_ticks
from eqfuse.benchmarks.searches.results import (
    LONG_PEER,
    PEER,
    REFERENCE,
    TUNED,
    Comparison,
    Point,
    Results,
    Search,
    results_of,
    same_seconds,
    search_of,
)
from eqfuse.benchmarks.searches.search import VARIANTS, Budget, Job
from eqfuse.benchmarks.searches.tables import NETWORK, ORT, SUBGRAPHS

# Points are (trials, seconds, latency); kernels that had not run made the second one rise.
SEARCH = Search((Point(8, 1.0, 2.0), Point(16, 2.0, 5.0), Point(24, 4.0, 4.0), Point(32, 8.0, 3.0)), 32, 1, 2, 9.0)


def comparison(name: str, family: str, **milliseconds: float) -> Comparison:
    """One turn each; names are those of `searches.results`."""
    record = Record(name, family)
    for who, time in milliseconds.items():
        record.samples[globals()[who], 1] = [Sample(1e-3 * time, 1e-3 * time)]
    return Comparison(record, dict.fromkeys((TUNED, PEER, LONG_PEER), SEARCH))


def results(part: str, *comparisons: Comparison) -> Results:
    return Results(part, 32, 2000, 1, comparisons)


@pytest.mark.parametrize("batch", [1, 4])
@pytest.mark.parametrize("name", PAIRS)
def test_sub_graph_has_convolutions_of_the_kinds_in_its_name(name: str, batch: int) -> None:
    model = PAIRS[name](batch)
    onnx.checker.check_model(model, full_check=True)
    groups = [
        next(attribute.i for attribute in node.attribute if attribute.name == "group")
        for node in model.graph.node
        if node.op_type == "Conv"
    ]
    kinds = "_".join("pointwise" if group == 1 else "depthwise" for group in groups)
    assert kinds == name.replace("inverted_residual", "pointwise_depthwise_pointwise")
    assert {value.type.tensor_type.shape.dim[0].dim_value for value in model.graph.output} == {batch}


def test_curve_begins_where_all_of_it_was_measured() -> None:
    assert [point.latency for point in SEARCH.measured] == [5.0, 4.0, 3.0]


def test_nothing_was_measured_of_all_tasks_with_fewer_trials() -> None:
    assert Search((Point(16, 1.0, 2.0),), 16, 0, 32, 9.0).measured == ()


def test_curve_without_points_has_nothing_measured() -> None:
    assert Search((), 3, 3, 3, 1.0).measured == ()


@pytest.mark.parametrize(("trials", "latency"), [(8, None), (23, 5.0), (24, 4.0), (1000, 3.0)])
def test_run_time_after_trials(trials: int, latency: float | None) -> None:
    assert SEARCH.at_trials(trials) == latency


@pytest.mark.parametrize(("seconds", "latency"), [(1.5, None), (2.0, 5.0), (7.9, 4.0), (9.0, 3.0)])
def test_run_time_after_seconds(seconds: float, latency: float | None) -> None:
    assert SEARCH.at_seconds(seconds) == latency


@pytest.mark.parametrize(
    ("latencies", "budget"), [((5.0, 4.0, 3.05, 3.0), 24), ((3.05, 3.0, 3.0), 8), ((3.0, 9.0, 3.0), 24), ((), 0)]
)
def test_a_budget_is_the_trials_after_which_two_percent_are_left(latencies: tuple[float, ...], budget: int) -> None:
    curve = tuple(Point(8 * n, float(n), latency) for n, latency in enumerate(latencies, 1))
    assert budget_of(Search(curve, 64, 0, 1, 9.0)) == budget


def test_the_fit_of_budgets_on_a_line_is_that_line() -> None:
    rows = [Row("Conv", (1, 1, 1), weight, (int(2 * weight + 3),)) for weight in (1.0, 2.0, 5.0)]
    assert astuple(fit(rows)) == pytest.approx((2.0, 3.0, 1.0))


def test_the_picture_of_budgets_has_a_dot_for_each_search() -> None:
    rows = [Row("Conv", (1, 1, 1), 1.0, (8, 16)), Row("Conv + Add", (1, 1, 1), 2.0, (24,))]
    assert budgets_svg(rows).count("<circle") == 3


def test_each_structure_has_its_operators() -> None:
    for behind in STRUCTURES.values():
        operators = [node.op_type for node in build(behind, SIZES[1]).graph.node if node.op_type != "Transpose"]
        assert operators == ["Conv", *behind]


def test_searches_are_compared_when_the_first_is_done() -> None:
    other = Search((Point(8, 5.0, 1.0),), 8, 0, 1, 5.0)
    assert same_seconds([SEARCH, other]) == 5.0


def test_searches_without_a_curve_are_not_compared_by_seconds() -> None:
    assert same_seconds([SEARCH, Search((), 1, 1, 1, 5.0)]) is None


def test_search_survives_json() -> None:
    assert search_of(json.loads(json.dumps(asdict(SEARCH)))) == SEARCH


def test_results_survive_json() -> None:
    found = results(NETWORK, comparison("a", "a", TUNED=1.0, REFERENCE=2.0))
    again = results_of(json.loads(json.dumps(found.as_dict())))
    assert again.as_dict() == found.as_dict()


@pytest.mark.parametrize("part", tuning_tables.PARTS)
def test_tables_of_each_part_are_printed(part: str, capsys: pytest.CaptureFixture[str]) -> None:
    tuning_tables.print_results(results(part, comparison("some_model", "some", TUNED=1.0, REFERENCE=2.0)))
    assert "some_model" in capsys.readouterr().out


def test_long_search_is_of_networks_alone() -> None:
    assert LONG_PEER in tuning.searches_of(NETWORK, 2000)
    assert LONG_PEER not in tuning.searches_of(NETWORK, None)
    assert LONG_PEER not in tuning.searches_of(SUBGRAPHS, 2000)


def test_sub_graphs_come_at_both_batch_sizes() -> None:
    options = argparse.Namespace(part=SUBGRAPHS, only=[], quick=False)
    assert len(tuning.sources(options)) == 2 * len(PAIRS)


def test_unknown_model_is_named() -> None:
    with pytest.raises(SystemExit, match="no model called vgg"):
        tuning.sources(argparse.Namespace(part=ORT, only=["vgg"], quick=False))


def test_finished_search_is_taken_from_its_folder(tmp_path: Path) -> None:
    # A process would fail, for there is no model.
    (tmp_path / "search.json").write_text(json.dumps(asdict(SEARCH)))
    assert Job(TUNED, tmp_path / "absent.onnx", tmp_path, Budget(32, 1, 0)).done() == SEARCH


def test_variants_switch_one_thing_off() -> None:
    assert [(each.intensive, each.reformer) for each in VARIANTS.values()] == [
        (True, True),
        (False, True),
        (True, False),
    ]


def test_picture_has_a_curve_per_search_and_panel() -> None:
    root = ElementTree.fromstring(curves_svg("a < b", {TUNED: SEARCH, PEER: SEARCH}, {REFERENCE: 1.0}))
    lines = [element for element in root.iter() if element.tag.endswith("polyline")]
    assert len(lines) == 4


def test_picture_leaves_out_a_search_without_a_curve() -> None:
    text = curves_svg("a", {TUNED: SEARCH, PEER: Search((), 1, 1, 1, 1.0)}, {})
    assert text.count("<polyline") == 2


def test_ticks_are_round_and_within() -> None:
    assert run_time_ticks(0.0008, 0.0035) == pytest.approx([0.001, 0.002, 0.003])


@pytest.mark.parametrize(("wanted", "step"), [(33.3, 50.0), (2.7, 5.0), (0.3, 0.5), (100.0, 100.0)])
def test_step_is_round(wanted: float, step: float) -> None:
    assert round_step(wanted) == pytest.approx(step)
