"""Cost models: the features of a candidate, learning from records, and keeping what was learned."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from eqfuse.lowering.base.decisions import DecisionSite, Option
from eqfuse.lowering.tuning import cost_model
from eqfuse.lowering.tuning.cost_model import WORST_SCORE, AnalyticModel, CostModel, LearnedModel, Learner, features_of
from eqfuse.lowering.tuning.records import Record, RecordDatabase

from .landscapes import DEVICE, FEATURES, RUNNER, Landscape, landscape, record


def site(name: str = "tile", chosen: int = 1, costs: tuple[float, ...] = (2.0, 3.0)) -> DecisionSite:
    return DecisionSite(name, tuple(Option(str(k), cost, {"size": float(k)}) for k, cost in enumerate(costs)), chosen)


def draw_records(world: Landscape, count: int, seed: int, task: str = "task") -> list[Record]:
    """Measured candidates at random."""
    random = Random(seed)
    records = []
    for _ in range(count):
        decisions = {site.name: random.choice(site.options).label for site in world.trace({})}
        trace = world.trace(decisions)
        records.append(record(trace, decisions, world.latency(trace, random), task))
    return records


def rank_correlation(model: CostModel, records: list[Record]) -> float:
    scores = model.score([each.features for each in records])
    from scipy.stats import kendalltau  # takes most of a second to load

    return float(kendalltau(scores, [-(each.latency or math.inf) for each in records]).statistic)


@pytest.fixture
def database(tmp_path: Path) -> RecordDatabase:
    return RecordDatabase.open(tmp_path / "tuning.db")


@pytest.fixture
def without_xgboost(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    cost_model.can_learn.cache_clear()
    monkeypatch.setitem(sys.modules, "xgboost", None)
    yield
    cost_model.can_learn.cache_clear()


# --- features


def test_features_name_the_task_and_the_chosen_options() -> None:
    row = features_of({"bytes": 7.0}, [site(), site("order", 0)])
    expected = {
        "task.bytes": 3.0,
        "tile.size": 1.0,
        "tile.cost_ratio": 1.5,
        "order.size": 0.0,
        "order.cost_ratio": 1.0,
        "estimate.total": math.log(1.5),
    }
    assert row == pytest.approx(expected)


@pytest.mark.parametrize("costs", [(0.0, 0.0), (-2.0, -1.0), (math.inf, math.inf), (1.0, math.inf)])
def test_estimates_that_cannot_be_compared_are_equal(costs: tuple[float, ...]) -> None:
    assert features_of({}, [site(costs=costs)])["tile.cost_ratio"] == 1.0


def test_features_are_finite() -> None:
    assert features_of({"a": math.nan, "b": math.inf, "c": -3.0}, []) == {"task.c": -2.0, "estimate.total": 0.0}


# --- scores


def test_analytic_model_believes_the_product_of_estimates() -> None:
    rows = [features_of({}, [site(chosen=one), site("order", other)]) for one, other in [(0, 0), (0, 1), (1, 1)]]
    assert AnalyticModel().score(rows) == pytest.approx([0.0, -math.log(1.5), -2 * math.log(1.5)])


@pytest.mark.representatives(2)
@pytest.mark.parametrize("seed", range(3))
def test_learned_model_ranks_better_than_misleading_estimates(seed: int) -> None:
    world = landscape(seed, error=0.9, clashes=6, noise=0.03)
    model = Learner().learn(draw_records(world, 200, seed))
    unseen = draw_records(world, 200, seed + 1000)
    assert rank_correlation(model, unseen) > max(0.4, rank_correlation(AnalyticModel(), unseen) + 0.3)


def test_scores_compare_across_tasks() -> None:
    worlds = [replace(landscape(0, noise=0.01), scale=scale) for scale in (1e-5, 1.0)]
    learner = Learner()
    scores = [learner.learn(draw_records(world, 60, 0, str(world.scale))) for world in worlds][-1].score(
        [features_of(FEATURES, worlds[0].trace({}))]
    )
    assert WORST_SCORE <= scores[0] <= 0.3


def test_a_model_learns_from_other_tasks() -> None:
    world = landscape(3, error=1.0)
    model = Learner().learn([*draw_records(world, 100, 0, "one"), *draw_records(world, 100, 1, "two")])
    assert rank_correlation(model, draw_records(world, 100, 2, "three")) > 0.6


def test_what_fails_is_avoided() -> None:
    world = landscape(1)
    records = draw_records(world, 200, 0)
    bad = [replace(r, latency=None) if r.decisions["s0"] == "3" else r for r in records]
    model = Learner().learn(bad)
    probes = [next(r.features for r in draw_records(world, 200, 5) if r.decisions["s0"] == own) for own in ("3", "4")]
    failing, running = model.score(probes)
    assert failing < running - 0.5


@pytest.mark.parametrize("unknown", [{}, {"never.seen": 1.0}])
def test_features_that_the_model_does_not_know_are_ignored(unknown: dict[str, float]) -> None:
    model = Learner().learn(draw_records(landscape(0), 20, 0))
    assert model.score([unknown]) == model.score([{}])


def test_no_candidates_have_no_scores() -> None:
    assert Learner().learn(draw_records(landscape(0), 20, 0)).score([]) == []


# --- when there is nothing to learn


def test_few_records_teach_nothing() -> None:
    assert isinstance(Learner().learn(draw_records(landscape(0), 7, 0)), AnalyticModel)


def test_tasks_with_one_record_teach_nothing() -> None:
    records = [replace(each, task=str(number)) for number, each in enumerate(draw_records(landscape(0), 30, 0))]
    assert isinstance(Learner().learn(records), AnalyticModel)


def test_tasks_of_which_nothing_ran_teach_nothing() -> None:
    failed = [replace(each, latency=None) for each in draw_records(landscape(0), 30, 0)]
    assert isinstance(Learner().learn(failed), AnalyticModel)


@pytest.mark.usefixtures("without_xgboost")
def test_without_xgboost_the_estimates_are_believed() -> None:
    assert isinstance(Learner().learn(draw_records(landscape(0), 30, 0)), AnalyticModel)


# --- files


def kept_files(database: RecordDatabase) -> list[Path]:
    return list(database.path.parent.glob("*.models/*"))


def test_a_model_is_kept_beside_the_database(database: RecordDatabase) -> None:
    records = draw_records(landscape(0), 30, 0)
    database.add(*records)
    model = Learner.open(database, DEVICE, RUNNER).learn(records)
    again = Learner.open(database, DEVICE, RUNNER).model
    assert isinstance(again, LearnedModel)
    rows = [each.features for each in records]
    assert again.score(rows) == pytest.approx(model.score(rows))
    assert len(kept_files(database)) == 1


def test_another_device_has_a_model_of_its_own(database: RecordDatabase) -> None:
    database.add(*draw_records(landscape(0), 30, 0))
    Learner.open(database, DEVICE, RUNNER)
    assert isinstance(Learner.open(database, "arm/4", RUNNER).model, AnalyticModel)


@pytest.mark.parametrize("damage", [lambda b: b"", lambda b: b"{}\n", lambda b: b[:-9], lambda b: b[:-1] + b"?"])
def test_a_damaged_model_is_learned_anew(database: RecordDatabase, damage: object) -> None:
    database.add(*draw_records(landscape(0), 30, 0))
    Learner.open(database, DEVICE, RUNNER)
    (file,) = kept_files(database)
    whole = file.read_bytes()
    file.write_bytes(damage(whole))  # type: ignore[operator]
    assert isinstance(Learner.open(database, DEVICE, RUNNER).model, LearnedModel)
    assert file.read_bytes() == whole


def test_without_its_database_there_is_no_model(database: RecordDatabase) -> None:
    database.add(*draw_records(landscape(0), 30, 0))
    Learner.open(database, DEVICE, RUNNER)
    database.path.unlink()
    assert isinstance(Learner.open(database, DEVICE, RUNNER).model, AnalyticModel)


def test_a_record_that_was_measured_again_counts_once() -> None:
    records = draw_records(landscape(0), 7, 0)
    assert isinstance(Learner().learn([*records, *records]), AnalyticModel)
