"""Sub-graphs, curves, verdicts and pictures of benchmarks/tuning.py."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from xml.etree import ElementTree

import onnx
import pytest

from eqfuse.benchmarks import tuning
from eqfuse.benchmarks.latency import Record
from eqfuse.benchmarks.measuring.contestants import Sample
from eqfuse.benchmarks.networks import AGO
from eqfuse.benchmarks.networks.pairs import PAIRS
from eqfuse.benchmarks.searches import tables as tuning_tables
from eqfuse.benchmarks.searches.picture import curves_svg, round_step, run_time_ticks
from eqfuse.benchmarks.searches.results import (
    LONG_PEER,
    PEER,
    PLAIN,
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
from eqfuse.benchmarks.searches.tables import ARM, NETWORK, ORT, PUBLISHED, SUBGRAPHS, verdicts

# Points are (trials, seconds, latency); kernels that had not run made the second one rise.
SEARCH = Search((Point(8, 1.0, 2.0), Point(16, 2.0, 5.0), Point(24, 4.0, 4.0), Point(32, 8.0, 3.0)), 32, 1, 2, 9.0)


def comparison(name: str, family: str, threads: int = 1, **milliseconds: float) -> Comparison:
    """One turn each; names are those of `searches.results`."""
    record = Record(name, family)
    for who, time in milliseconds.items():
        record.samples[globals()[who], threads] = [Sample(1e-3 * time, 1e-3 * time)]
    return Comparison(record, dict.fromkeys((TUNED, PEER, LONG_PEER), SEARCH))


def results(part: str, *comparisons: Comparison, threads: int = 1) -> Results:
    return Results(part, 32, 2000, threads, comparisons)


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


def test_peer_is_judged_at_equal_trials_and_at_many() -> None:
    found = dict(verdicts(results(NETWORK, comparison("a", "a", TUNED=1.0, PEER=1.4, LONG_PEER=1.1))))
    assert found == {
        "1.40 times as fast as MetaSchedule at 32 trials each, wanted 1.5": False,
        "1.10 times as fast as MetaSchedule after 2000 trials, wanted more than 1": True,
    }


def test_peer_is_judged_once_per_sub_graph_whatever_the_batches() -> None:
    found = results(
        SUBGRAPHS,
        comparison("a_b1", "a", TUNED=1.0, PEER=4.0),
        comparison("a_b4", "a", TUNED=1.0, PEER=4.0),
        comparison("b_b1", "b", TUNED=1.0, PEER=1.0),
    )
    assert tuning_tables.mean_ratio(found, PEER) == pytest.approx(2.0)


def test_mean_of_agos_networks_needs_all_of_them() -> None:
    every = [comparison(name, AGO[name].family, TUNED=1.0, REFERENCE=1.3) for name in AGO]
    mean = "geometric mean on AGO's six networks 1.30, wanted 1.25"
    assert dict(verdicts(results(ORT, *every)))[mean] is True
    assert mean not in dict(verdicts(results(ORT, *every[1:])))


def test_network_that_is_slower_than_onnx_runtime_misses() -> None:
    found = verdicts(results(ORT, comparison("a", "a", TUNED=1.0, REFERENCE=0.9)))
    assert list(found) == [("lowest ratio 0.90 (a), wanted more than 1", False)]


def test_several_threads_are_not_judged_on_a_busy_machine() -> None:
    busy = comparison("a", "a", threads=2, TUNED=1.0, REFERENCE=2.0)
    busy.record.others = 1.0
    assert list(verdicts(results(ORT, busy, threads=2))) == [("lowest ratio 2.00 (a), wanted more than 1", None)]


def test_instructions_are_judged_beside_onnx_runtime_alone() -> None:
    counted = comparison("a", "a")
    counted.instructions = {TUNED: 10, PLAIN: 12, "ONNX Runtime 1.22.1": 25}
    text = "a: 0.40 of the instructions of ONNX Runtime 1.22.1, wanted at most 0.5"
    assert list(verdicts(results(ARM, counted))) == [(text, True)]


def test_nothing_is_judged_by_a_figure_of_an_earlier_run() -> None:
    counted = comparison("a", "a")
    counted.instructions = {TUNED: 10, PUBLISHED: 25}
    assert list(verdicts(results(ARM, counted))) == []


def test_peer_without_schedules_is_none() -> None:
    found = comparison("a", "a", TUNED=1.0, PEER=20.0)
    found.searches[PEER] = Search((), 4, 0, 33, 1.0)
    assert list(verdicts(results(NETWORK, found))) == []


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
