"""Choosing by measurement: the choice from given times, the candidates that are timed, and one real run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import count, islice
from math import inf
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper

import eqfuse
from eqfuse.cli.parser import build_parser
from eqfuse.costmodels.measuring.profile import ProfileDatabase
from eqfuse.driver.measure import NOTICEABLE, ORIGINAL, TimedCandidate, choose, choose_finalists
from eqfuse.driver.options import MEASURE_SECONDS
from eqfuse.engine.verification.baseline import draw_typical
from eqfuse.lowering.running.onnx_runtime import are_enough, read_profile, subtract_profiling
from eqfuse.lowering.running.turns import Estimate, take_turns
from eqfuse.support.errors import EqfuseError

from ..engine.models import model, value


def candidate(name: str, layers: int, ratio: float, width: float = 0.002, problem: str = "") -> TimedCandidate:
    return TimedCandidate(name, layers, Estimate(ratio, ratio - width, ratio + width, 50), problem)


@pytest.mark.parametrize(
    ("candidates", "name"),
    [
        ([candidate("a", 9, 0.9), candidate("b", 9, 0.8)], "b"),
        ([candidate("a", 9, 0.8), candidate("b", 7, 0.805)], "b"),
        ([candidate("a", 9, 0.8), candidate("b", 7, 0.83)], "a"),
        ([candidate("a", 12, 0.8), candidate("b", 7, 1.0)], "a"),
        ([candidate("a", 9, 1.0), candidate("b", 8, 1.003)], "b"),
        ([candidate("a", 9, 1.02), candidate("b", 10, 0.995)], None),
        ([candidate("a", 9, 0.9, width=0.2)], None),
        ([candidate("a", 9, 0.9, width=inf)], None),
        ([TimedCandidate("a", 3, None, "does not run")], None),
        ([], None),
    ],
    ids=["fastest", "smaller of equal", "faster than smaller", "faster with more", "smaller", "neither", "noise",
         "too few pairs", "not timed", "none"],
)  # fmt: skip
def test_the_fastest_beyond_noise_is_chosen_else_the_smallest_that_is_not_slower(
    candidates: Sequence[TimedCandidate], name: str | None
) -> None:
    chosen = choose(10, candidates)
    assert (chosen.name if chosen is not None else None) == name


@pytest.mark.parametrize(
    ("candidates", "names"),
    [
        ([candidate("a", 9, 0.8), candidate("b", 8, 0.81), candidate("c", 7, 0.9)], "ab"),
        ([candidate("a", 12, 0.8), *(candidate(name, 9, 0.81) for name in "bcd")], "abc"),
        ([candidate("a", 9, 1.0), candidate("b", 7, 1.0, width=0.1), candidate("c", 12, 0.995)], "ba"),
        ([candidate("a", 9, 1.2)], ""),
        ([TimedCandidate("a", 9, None)], ""),
    ],
    ids=["near the fastest", "the fastest first", "smaller", "slower", "not timed"],
)
def test_what_may_be_best_is_timed_again(candidates: Sequence[TimedCandidate], names: str) -> None:
    assert "".join(each.name for each in choose_finalists(10, candidates)) == names


RATIOS = st.lists(st.floats(0.5, 1.5), min_size=1, max_size=40)


@given(st.lists(st.tuples(st.integers(1, 20), RATIOS), max_size=5))
def test_no_candidate_is_chosen_that_may_be_slower(drawn: list[tuple[int, list[float]]]) -> None:
    candidates = [TimedCandidate(str(n), layers, Estimate.of(ratios)) for n, (layers, ratios) in enumerate(drawn)]
    chosen = choose(10, candidates)
    if chosen is not None:
        assert chosen.ratio is not None
        assert chosen.ratio.upper <= 1 + NOTICEABLE
        assert chosen.layers < 10 or chosen.ratio.upper < 1


@given(RATIOS)
def test_the_limits_of_a_median_hold_it_and_are_unknown_for_few_numbers(ratios: list[float]) -> None:
    estimate = Estimate.of(ratios)
    assert estimate.lower <= estimate.median == median(ratios) <= estimate.upper
    assert (estimate.upper == inf) == (len(ratios) < 7)


def test_limits_hold_the_true_median_99_times_in_a_hundred() -> None:
    generator = np.random.default_rng(0)
    estimates = [Estimate.of(list(generator.gamma(2.0, size=30))) for _ in range(2000)]
    hits = sum(each.lower <= 1.67834699 <= each.upper for each in estimates)
    assert 0.985 < hits / len(estimates) < 0.998


def test_timing_ends_once_the_median_is_known_or_above_the_limit() -> None:
    assert are_enough([1.0] * 8, inf)
    assert are_enough([1.2, 1.4] * 8, 1.01)
    assert not are_enough([1.2, 1.4] * 8, 1.3)
    assert not are_enough([1.0] * 6, inf)


def test_turns_reverse_their_order() -> None:
    called: list[str] = []
    contestants = {name: partial(called.append, name) for name in "ab"}
    turns = list(islice(take_turns(contestants, warm_up=0), 3))
    assert "".join(called) == "abbaab"
    assert all(set(turn) == {"a", "b"} for turn in turns)


# --- inputs


def save(folder: Path, nodes: Sequence[onnx.NodeProto], shape: Sequence[int | str], **weights: Any) -> Path:
    stored = {name: np.asarray(array, np.float32) for name, array in weights.items()}
    path = folder / "in.onnx"
    onnx.save(model(nodes, [value("x", shape)], [value("y", [None] * len(shape))], stored), path)
    return path


@pytest.mark.parametrize(("width", "expected"), [(128, (1, 128)), (8, (2, 8))])
def test_inputs_have_the_sizes_that_costs_assume_where_the_model_takes_them(
    tmp_path: Path, width: int, expected: tuple[int, ...]
) -> None:
    path = save(tmp_path, [helper.make_node("Add", ["x", "w"], ["y"])], ["n", "m"], w=np.ones((1, width)))
    feeds = draw_typical(path, (), 0)
    assert feeds["x"].shape == expected


# --- the search


@pytest.fixture(autouse=True)
def own_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Measurements of these tests are not the user's."""
    monkeypatch.setattr("eqfuse.costmodels.measuring.profile.database_path", lambda kind: tmp_path / f"{kind}.db")


def wasteful(folder: Path) -> Path:
    """Two Relu in a row, a MatMul, and a Mul whose factor could be in its weights: rules of two topics change it."""
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("MatMul", ["b", "w"], ["c"]),
        helper.make_node("Mul", ["c", "factor"], ["y"]),
    ]
    return save(folder, nodes, [4, 4], w=np.random.default_rng(0).standard_normal((4, 4)), factor=1.7)


class FakeContest:
    """Takes times from a table by the operators of a model, and keeps what was asked."""

    ratios: Mapping[tuple[str, ...], float] = {}
    default = 1.2

    def __init__(self, *_: object) -> None:
        self.timed: list[tuple[str, ...]] = []

    def __enter__(self) -> FakeContest:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def input_shapes(self, seconds: float) -> dict[str, tuple[int, ...]]:
        return {"x": (4, 4)}

    def time_pairs(self, model: Path, seconds: float, limit: float) -> tuple[float, ...]:
        operators = tuple(node.op_type for node in onnx.load(model).graph.node)
        ratio = self.ratios.get(operators, self.default)
        return tuple(ratio + 0.001 * (n % 3) for n in range(30))

    def profile(self, model: Path, seconds: float) -> dict[str, tuple[float, ...]]:
        raise EqfuseError("no profile here")


@pytest.fixture
def contest(monkeypatch: pytest.MonkeyPatch) -> type[FakeContest]:
    kind = type("Contest", (FakeContest,), {})
    monkeypatch.setattr("eqfuse.driver.measure.RuntimeContest", kind)
    return kind


def written(path: Path) -> list[str]:
    return [node.op_type for node in onnx.load(path).graph.node]


def test_the_original_is_written_where_all_candidates_are_slower(tmp_path: Path, contest: type[FakeContest]) -> None:
    result = eqfuse.optimize(wasteful(tmp_path), tmp_path / "out.onnx", measure=5, verify=False)
    assert result.timings is not None
    assert result.timings.chosen == ORIGINAL
    assert written(tmp_path / "out.onnx") == ["Relu", "Relu", "MatMul", "Mul"]
    assert result.after.layers == result.before.layers == 4


@pytest.mark.conformance
def test_a_group_of_rules_is_left_out_where_that_is_faster(tmp_path: Path, contest: type[FakeContest]) -> None:
    contest.ratios = {("Relu", "MatMul"): 0.95, ("Relu", "MatMul", "Mul"): 0.7}
    result = eqfuse.optimize(wasteful(tmp_path), tmp_path / "out.onnx", measure=20, verify=False)
    assert result.timings is not None
    assert "without" in result.timings.chosen
    assert written(tmp_path / "out.onnx") == ["Relu", "MatMul", "Mul"]
    names = [each.name for each in result.timings.candidates]
    assert names[0] == "roofline of x86-64-v4"
    assert len(set(names)) == len(names)


def test_no_candidate_is_made_once_the_budget_is_used(
    tmp_path: Path, contest: type[FakeContest], monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks = count(0.0, 100.0)
    monkeypatch.setattr("eqfuse.support.deadlines.time.monotonic", lambda: next(ticks))
    contest.default = 0.9
    result = eqfuse.optimize(wasteful(tmp_path), measure=5, verify=False, time_limit=1e9)
    assert result.timings is not None
    assert [each.name for each in result.timings.candidates] == [result.timings.chosen]


# --- real runs


def test_a_real_run_says_what_was_timed_and_keeps_the_times_of_operators(tmp_path: Path) -> None:
    result = eqfuse.optimize(wasteful(tmp_path), tmp_path / "out.onnx", measure=1)
    timings = result.timings
    assert timings is not None
    assert (timings.input_shapes, timings.threads, timings.clock) == ({"x": (4, 4)}, 1, "cpu")
    first = timings.candidates[0]
    assert first.ratio is not None
    assert first.ratio.count >= 1
    assert result.verification is not None
    assert result.verification.status == "passed"
    measured = " ".join(each.subgraph for each in ProfileDatabase.open().all(device="host"))
    assert "Relu(" in measured
    assert "MatMul(" in measured


def test_an_original_that_does_not_run_is_one_line(tmp_path: Path) -> None:
    nodes = [helper.make_node("Gather", ["x", "far"], ["y"]), helper.make_node("Relu", ["y"], ["z"])]
    onnx.save(model(nodes, [value("x", ["n"])], [value("z", [])], {"far": np.array(10**6)}), tmp_path / "in.onnx")
    with pytest.raises(EqfuseError, match=r"in\.onnx: nothing was measured: .*; --inputs gives other inputs$"):
        eqfuse.optimize(tmp_path / "in.onnx", measure=1, verify=False)


def test_a_profile_is_read_without_what_holds_other_kernels() -> None:
    events = [("a_kernel_time", "Add", 50), ("a_kernel_time", "Add", 3), ("b_kernel_time", "If", 9), ("a_fence", "", 1)]
    text = json.dumps([{"cat": "Node", "name": n, "dur": d, "args": {"op_name": op}} for n, op, d in events])
    times = read_profile(text)
    assert list(times) == ["a"]
    assert times["a"] == pytest.approx([50.5e-6, 3.5e-6])


@given(st.lists(st.floats(3e-6, 1e-3), min_size=1, max_size=9), st.floats(0, 2e-6), st.integers(2, 5))
def test_what_profiling_adds_is_subtracted(seconds: list[float], added: float, runs: int) -> None:
    times = {str(n): (each + added,) * runs for n, each in enumerate(seconds)}
    corrected = subtract_profiling(times, runs, sum(seconds))
    for n, each in enumerate(seconds):
        assert corrected[str(n)] == pytest.approx([each] * (runs - 1))


@pytest.mark.parametrize(
    ("arguments", "seconds"),
    [
        (["--measure", "in.onnx", "out.onnx"], MEASURE_SECONDS),
        (["--measure", "12", "in.onnx", "out.onnx"], 12.0),
        (["in.onnx", "out.onnx", "--measure"], MEASURE_SECONDS),
        (["in.onnx", "--measure=3", "out.onnx"], 3.0),
        (["in.onnx", "out.onnx"], None),
    ],
)
def test_seconds_to_measure_may_be_left_out(arguments: list[str], seconds: float | None) -> None:
    parsed = build_parser().parse_args(["optimize", *arguments])
    assert (parsed.measure, parsed.model, parsed.out) == (seconds, Path("in.onnx"), Path("out.onnx"))
