"""The search for one task, on made-up kernels."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from random import Random
from statistics import median

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eqfuse.lowering.base.decisions import DecisionSite, Option, Trace
from eqfuse.lowering.tuning.cost_model import AnalyticModel, features_of, task_row
from eqfuse.lowering.tuning.evolution import TaskSearch
from eqfuse.lowering.tuning.records import Record, RecordDatabase
from eqfuse.lowering.tuning.space import Space, decisions_of, key_of

from .landscapes import FEATURES, Landscape, landscape, random_search, resume, run_search

MODEL = AnalyticModel()
SMALL = landscape(0, sites=2, options=3)
SITES = landscape(0, sites=5, options=6)
ANALYTIC = SITES.latency(SITES.trace({}))


def sites_of(draw: st.DrawFn) -> tuple[DecisionSite, ...]:
    costs = draw(st.lists(st.lists(st.floats(1.0, 4.0), min_size=2, max_size=6), max_size=6))
    tables = [[Option(str(k), cost, {"v": float(k)}) for k, cost in enumerate(sorted(row))] for row in costs]
    return tuple(DecisionSite(f"s{i}", tuple(row), draw(st.integers(0, len(row) - 1))) for i, row in enumerate(tables))


traces = st.composite(sites_of)()


def space_of(trace: tuple[DecisionSite, ...]) -> Space:
    return Space(trace, task_row(FEATURES))


def stray(space: Space, seed: int) -> tuple[int, ...]:
    random = Random(seed)
    return tuple(random.randrange(len(site.options)) for site in space.sites)


def start_search(world: Landscape, records: tuple[Record, ...] = ()) -> TaskSearch:
    """A search that knows what the analytic schedule takes."""
    search = TaskSearch(FEATURES, records)
    for decisions in search.propose(1, MODEL, Random(0)):
        search.observe(decisions, world.trace(decisions), world.latency(world.trace(decisions)))
    return search


# --- spaces


@settings(deadline=None)
@given(traces)
def test_normal_form_is_that_of_what_it_gives(trace: tuple[DecisionSite, ...]) -> None:
    space = space_of(trace)
    decisions = decisions_of(trace)
    assert space.genome(decisions) == space.own
    assert space.decisions(space.genome(decisions)) == decisions


@settings(deadline=None)
@given(st.lists(st.integers(0, 7), min_size=6, max_size=6))
def test_normal_form_gives_the_same_schedule(options: list[int]) -> None:
    world = landscape(0)
    trace = world.trace({f"s{index}": str(option) for index, option in enumerate(options)})
    assert world.trace(decisions_of(trace)) == trace


@settings(deadline=None)
@given(traces)
def test_a_row_is_what_the_trace_itself_has(trace: tuple[DecisionSite, ...]) -> None:
    space = space_of(trace)
    assert space.row(space.own) == features_of(FEATURES, trace)


@settings(deadline=None)
@given(traces, st.integers(0, 99))
def test_a_mutant_differs_in_one_or_two_sites(trace: tuple[DecisionSite, ...], seed: int) -> None:
    space = space_of(trace)
    mutant = space.mutant(space.own, Random(seed))
    changed = sum(one != other for one, other in zip(space.own, mutant, strict=True))
    assert changed in (range(1, 3) if trace else [0])
    assert all(0 <= index < len(site.options) for index, site in zip(mutant, space.sites, strict=True))


@settings(deadline=None)
@given(traces, st.integers(0, 99))
def test_a_child_has_its_parents_options(trace: tuple[DecisionSite, ...], seed: int) -> None:
    space = space_of(trace)
    one, other = stray(space, seed), stray(space, seed + 1)
    child = space.child(one, other, Random(seed))
    assert all(own in pair for own, *pair in zip(child, one, other, strict=True))


@settings(deadline=None)
@given(traces, traces, st.integers(0, 99))
def test_what_is_moved_keeps_the_options_that_there_are(
    trace: tuple[DecisionSite, ...], other: tuple[DecisionSite, ...], seed: int
) -> None:
    here, there = space_of(trace), space_of(other)
    genome = stray(there, seed)
    taken = {name: labels[index] for (name, labels), index in zip(there.labels, genome, strict=True)}
    for (name, labels), index in zip(here.labels, here.translate(there, genome), strict=True):
        assert labels[index] == (taken[name] if taken.get(name) in labels else labels[0])


def test_mutations_prefer_what_is_estimated_to_be_cheap() -> None:
    site = DecisionSite("s", tuple(Option(str(k), cost, {}) for k, cost in enumerate((1.0, 1.0, 4.0))), 0)
    space, random = space_of((site,)), Random(0)
    mutants = [space.mutant((0,), random) for _ in range(200)]
    assert mutants.count((1,)) > 4 * mutants.count((2,)) > 0


# --- proposals


def test_the_analytic_schedule_comes_first() -> None:
    assert TaskSearch(FEATURES).propose(4, MODEL, Random(0)) == [{}]


def test_what_failed_under_another_name_is_no_trial_again() -> None:
    search = start_search(SITES)
    before, taken = len(search.history), SITES.trace({"s1": "3"})
    for asked in ({"s1": "3", "gone": "1"}, {"s1": "3", "gone": "2"}):
        search.observe(asked, taken, None)
    assert (len(search.history) - before, search.failed) == (1, 1)


def test_a_suggestion_comes_next_unless_it_was_tried() -> None:
    search = start_search(SITES)
    search.suggest({"s1": "0", "s2": "0"})
    search.suggest({})
    assert search.propose(3, MODEL, Random(0))[0] == {"s1": "0", "s2": "0"}


@pytest.mark.parametrize("count", [0, 1, 5, 16])
def test_as_many_are_proposed_as_asked_for(count: int) -> None:
    assert len(start_search(SITES).propose(count, MODEL, Random(0))) == count


def test_the_same_seed_proposes_the_same() -> None:
    assert start_search(SITES).propose(16, MODEL, Random(7)) == start_search(SITES).propose(16, MODEL, Random(7))


def test_nothing_is_proposed_twice() -> None:
    search, random = start_search(SITES), Random(0)
    proposed = [key_of(own) for _ in range(20) for own in search.propose(8, MODEL, random)]
    assert len(set(proposed)) == 160
    assert () not in proposed


def test_a_small_space_is_searched_to_its_end() -> None:
    search = start_search(SMALL)
    proposed = search.propose(99, MODEL, Random(0))
    assert len(proposed) == 3 * 3 - 1
    assert search.exhausted
    assert search.is_stable()
    assert search.propose(9, MODEL, Random(0)) == []


def test_a_schedule_without_sites_is_exhausted_once_it_was_measured() -> None:
    search = TaskSearch(FEATURES)
    assert not search.exhausted
    search.propose(8, MODEL, Random(0))
    assert not search.exhausted
    search.observe({}, (), 1.0)
    assert search.exhausted


def test_an_analytic_schedule_that_cannot_be_built_ends_the_search() -> None:
    search = TaskSearch(FEATURES)
    search.propose(8, MODEL, Random(0))
    search.observe({}, None, None)
    assert (search.best, search.exhausted) == (None, True)


def test_candidates_that_fail_do_not_end_the_search() -> None:
    search, random = TaskSearch(FEATURES), Random(0)
    for _ in range(3):
        for decisions in search.propose(4, MODEL, random):
            search.observe(decisions, SITES.trace(decisions), None)
    assert search.best is None
    assert len(search.propose(4, MODEL, random)) == 4


def nest(decisions: Mapping[str, str]) -> tuple[DecisionSite, ...]:
    """A rule that has a second site only if the first took "1"."""
    trace = Trace(decisions)
    if trace.decide_number("kind", range(2), lambda number: 1.0 + number):
        trace.decide_number("inner", range(4), lambda number: 1.0 + number)
    return tuple(trace.sites)


def test_sites_that_come_with_an_option_are_found() -> None:
    search, random = TaskSearch(FEATURES), Random(0)
    tried = []
    while not search.exhausted:
        for decisions in search.propose(2, MODEL, random):
            tried.append(decisions)
            search.observe(decisions, nest(decisions), 1.0)
    expected = [{}, *({"kind": "1"} | ({"inner": str(k)} if k else {}) for k in range(4))]
    assert {key_of(decisions) for decisions in tried} >= {key_of(own) for own in expected}


# --- results


def test_the_best_is_what_was_measured() -> None:
    search = start_search(SITES)
    search.observe({"s1": "2"}, SITES.trace({"s1": "2"}), 1e-9)
    assert search.best == (decisions_of(SITES.trace({"s1": "2"})), 1e-9)
    assert search.history == (ANALYTIC, 1e-9)


def test_decisions_that_the_rule_could_not_follow_are_known_by_what_it_took() -> None:
    search = start_search(SITES)
    search.observe({"s1": "none such", "s2": "1"}, SITES.trace({"s2": "1"}), 1e-9)
    assert search.best == ({"s2": "1"}, 1e-9)


def test_what_turns_out_to_be_known_is_no_trial() -> None:
    search = start_search(SITES)
    search.observe({"s1": "none such"}, SITES.trace({}), 1e-9)
    assert search.best == ({}, ANALYTIC)
    assert search.history == (ANALYTIC,)


def improving(latencies: list[float]) -> TaskSearch:
    search = start_search(SITES)
    for number, latency in enumerate(latencies):
        search.observe({"s": str(number)}, None, latency * ANALYTIC)
    return search


def test_a_search_is_stable_after_twice_as_many_trials_as_sites_without_gain() -> None:
    assert not improving([0.5] + [0.6] * 9).is_stable()
    assert improving([0.5] + [0.6] * 10).is_stable()
    assert improving([0.5] + [0.499] * 10).is_stable()
    assert not improving([0.5] + [0.4] * 10).is_stable()


def test_failures_are_no_signs_of_stability() -> None:
    search = start_search(SITES)
    for number in range(20):
        search.observe({"s": str(number)}, None, None)
    assert not search.is_stable()


# --- resumption


def test_a_resumed_search_repeats_no_trial(tmp_path: Path) -> None:
    database = RecordDatabase.open(tmp_path / "tuning.db")
    tried = [decisions for _ in range(3) for decisions in resume(SITES, database, 3, seed=0)]
    assert len(tried) == 1 + 2 * 8 + 6 * 8
    assert len({key_of(decisions) for decisions in tried}) == len(tried) == len(database.all())


def test_a_resumed_search_wants_the_trace_of_its_best() -> None:
    records = [Record("t", "d", "r", "{}", {"s1": str(k)}, 1.0 / (1 + k)) for k in range(4)]
    search = TaskSearch(FEATURES, records)
    assert search.wanted_trace == {"s1": "3"}
    search.observe_trace({"s1": "3"}, None)
    assert search.wanted_trace == {"s1": "2"}
    search.observe_trace({"s1": "2"}, SITES.trace({"s1": "2"}))
    assert search.best == ({"s1": "3"}, 0.25)


def test_once_a_good_ones_trace_is_known_no_more_are_wanted() -> None:
    search = TaskSearch(FEATURES, [Record("t", "d", "r", "{}", {"s1": "3"}, 1.0)])
    search.observe_trace({"s1": "3"}, SITES.trace({"s1": "3"}))
    assert search.wanted_trace is None


def test_a_new_search_wants_no_trace() -> None:
    assert TaskSearch(FEATURES).wanted_trace is None
    assert start_search(SITES).wanted_trace is None


def test_a_resumed_search_goes_on_from_its_best() -> None:
    best = {"s0": "5", "s1": "4", "s2": "3", "s3": "2", "s4": "1"}
    trace = SITES.trace(best)
    search = TaskSearch(FEATURES, [Record("t", "d", "r", "{}", {}, 1.0), Record("t", "d", "r", "{}", best, 0.1)])
    search.observe_trace(best, trace)
    space = space_of(trace)
    near = [
        sum(a != b for a, b in zip(space.genome(proposed), space.own, strict=True))
        for proposed in search.propose(8, _Near(best), Random(0))
    ]
    assert min(near) <= 2


class _Near:
    """Likes candidates that take the options of these decisions."""

    def __init__(self, best: Mapping[str, str]) -> None:
        self.wanted = features_of({}, SITES.trace(best))

    def score(self, rows: list[Mapping[str, float]]) -> list[float]:
        return [float(sum(row.get(name) == value for name, value in self.wanted.items())) for row in rows]


TUNER = """
import sys
sys.path.insert(0, sys.argv[1])
from landscapes import RecordDatabase, landscape, resume
database = RecordDatabase.open(sys.argv[2])
for number in range(1000):
    resume(landscape(0, sites=5, options=6), database, 1, number)
    print(flush=True)
"""


def test_a_killed_search_goes_on_where_it_was(tmp_path: Path) -> None:
    path = tmp_path / "tuning.db"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    command = [sys.executable, "-c", TUNER, str(Path(__file__).parent), str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        for _ in range(3):
            process.stdout.readline()
        process.send_signal(signal.SIGKILL)
    database = RecordDatabase.open(path)
    before = database.all()
    assert len(before) >= 1 + 2 * 8
    tried = resume(SITES, database, 2, seed=1)
    assert len(tried) == 16
    assert len(database.all()) == len(before) + 16


# --- how good it is


@pytest.mark.conformance
@pytest.mark.parametrize(
    ("options", "trials"),
    [
        ({"error": 0.5}, 48),
        ({"error": 0.6, "clashes": 20}, 48),
        ({"error": 0.6, "clashes": 10, "noise": 0.05}, 48),
        ({"error": 1.0}, 64),
        ({"sites": 9, "options": 16, "clashes": 30}, 48),
    ],
    ids=["separable", "interactions", "noise", "misleading", "large"],
)
def test_the_search_beats_random_at_equal_trials(options: dict[str, float], trials: int) -> None:
    ratios = []
    for seed in range(5):
        world = landscape(seed, **options)
        ratios.append(run_search(world, trials, seed) / random_search(world, trials, seed))
    assert median(ratios) < 0.95
